"""The MCP servers in the configuration files of other programs."""
