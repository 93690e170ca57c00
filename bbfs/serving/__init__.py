"""The parts that every MCP server of bbfs needs, whatever it serves. Imports nothing of the other rooms."""
