"""OAuth 2.1 for MCP servers over HTTP: the browser login, stored tokens, and their refresh."""
