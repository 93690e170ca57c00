"""The parts of an MCP server, of which `bbfs.server` and the knowledge base are made. Imports only `bbfs.runtime`."""
