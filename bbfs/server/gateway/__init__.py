"""The MCP servers behind `bbfs serve`: their tools and prompts, passed on to the clients of this one.

All that these servers say is a stranger's text: it is bounded in size and number, and names have a small alphabet.
"""
