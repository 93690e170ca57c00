"""The knowledge base as an MCP server."""
