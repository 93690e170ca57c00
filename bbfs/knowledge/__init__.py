"""A knowledge base: collections of documents in one SQLite file, searched by full text and served over MCP.

A program of its own (`python -m bbfs.knowledge`); of the rest of bbfs it uses `bbfs.server_parts` and `bbfs.runtime`
alone, and no other room uses it.
"""
