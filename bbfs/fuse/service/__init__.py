"""The daemon as a service: what it tells a service manager."""
