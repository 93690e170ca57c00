"""bbfs as an MCP server: the sources of a configuration for any MCP host, without a mount.

The same sources, deadlines and caches as the mount, through the same ResourceManager. Everything runs on trio and knows
no FUSE.
"""
