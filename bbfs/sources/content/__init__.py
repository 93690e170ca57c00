"""Contents that a handler returns: in memory, in a file, in ranges of a remote resource, and the spool."""
