"""OAuth 2.1 for MCP servers over HTTP: login in a browser, stored tokens, and their renewal."""
