"""A knowledge base: collections of documents in one SQLite file, searched by full text and served over MCP.

A program of its own (`python -m bbfs.knowledge`); it uses nothing else of bbfs, and nothing else of bbfs uses it.
"""
