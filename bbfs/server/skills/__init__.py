"""The skills of all sources (SEP-2640): those of MCP servers, and those that lie in local folders.

`entries` answers `skills/list` and `skills/get`; `folders` makes the manifests of skills in folders.
"""
