"""bbfs mounts MCP servers and other data sources as a file system."""

__version__ = "0.1.0"
