"""Which version of a content an inode stands for (S7): the part of its number that is not the path. Pure."""

from bbfs.resources.catalog.record import Node, Record

DIRECTORY_SALT = "/"
"""The version part of a directory's inode: never that of a file, since a name may change from one to the other."""
STAND_IN = "\0?"
"""Ends the version part of an inode that stands in for one that is open and may be outdated."""


def opens_anew(record: Record) -> bool:
    """Whether each open of a file is a load of its own (S31).

    All of them are the same inode, so that a program which has looked at the file finds the one it looked at when it
    opens it: the version that it gets is made by the open.
    """
    return record.on_open and record.parent is None


def salt_of(node: Node) -> str:
    """The version part of the inode number of what a name leads to."""
    if node.kind == "directory":
        return DIRECTORY_SALT
    if node.kind == "symlink":
        return "@" + (node.target or "")
    assert node.record is not None
    return node.record.salt
