"""The traces of a mount, for OpenTelemetry: which requests of programs lead to which requests to sources."""
