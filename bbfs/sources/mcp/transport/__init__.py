"""Transports of bytes to an MCP server: stdio, Streamable HTTP, and SSE."""
