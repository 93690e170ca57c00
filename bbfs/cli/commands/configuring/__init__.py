"""The commands that write bbfs's configuration file, and that look for those of MCP hosts."""
