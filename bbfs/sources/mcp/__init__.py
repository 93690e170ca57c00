"""MCP servers, of any type: resources, and tools and prompts that are to have paths."""
