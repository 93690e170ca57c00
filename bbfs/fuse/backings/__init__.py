"""What answers the requests of a mount: `stored` for the catalogs of sources, `passed` for folders that may be written.

Both take pyfuse3's own requests, as `pyfuse3.Operations` declares them. The adapter chooses one of them for each
request, by its inode or handle.
"""
