"""The daemon as a service: what it tells the service manager and the journal."""
