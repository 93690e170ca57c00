"""The sources as a file system: inodes, open files, open directories, attributes. Knows no FUSE."""
