"""The requests of commands that a daemon serves over its control socket: listings, puts, and calls of tools."""
