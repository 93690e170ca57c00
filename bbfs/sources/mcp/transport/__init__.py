"""How bytes reach an MCP server: stdio, Streamable HTTP, and SSE."""
