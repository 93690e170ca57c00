"""The client side of MCP: connections to servers, what they list and answer, and what changes there."""
