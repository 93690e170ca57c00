"""The requests of commands that a daemon serves over its control socket: puts, and calls of tools."""
