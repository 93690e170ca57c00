"""The requests of commands that a daemon serves over its control socket: listings, searches, puts, calls of tools."""
