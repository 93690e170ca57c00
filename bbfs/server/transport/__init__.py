"""How clients reach the MCP server: standard input and output, or Streamable HTTP."""
