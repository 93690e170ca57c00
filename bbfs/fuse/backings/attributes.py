"""What both backings answer: owners, attributes that programs may set, extended attributes, and free room."""

import select
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from pyfuse3 import EntryAttributes, SetattrFields

from bbfs.fuse.scratch import origin
from bbfs.model.errors import NotSupported
from bbfs.vfs.file_handles import NewAttributes

READY = select.POLLIN | select.POLLRDNORM | select.POLLOUT | select.POLLWRNORM
"""The answer of poll(2) for a regular file: always ready (POSIX), as the kernel answers without a poll method."""
CHANGED = select.POLLPRI | select.POLLERR
"""Added for an open file whose content is outdated, as for /proc/self/mounts (proc_pid_mounts(5)) and sysfs."""
ORIGIN, BASE = origin.ATTRIBUTE.encode(), origin.BASE.encode()
PREFIX, _OWN_PREFIX = b"user.", b"user.bbfs."
_DESCRIBING = (b"user.mime_type", b"user.xdg.origin.url")
"""Attributes beside those of bbfs that describe a resource."""
ACLS = frozenset((b"system.posix_acl_access", b"system.posix_acl_default"))
"""The attributes with the access control lists of a file (acl(5)). The kernel asks for them where others get in."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of the tree, and the permission bits that are removed (S8).

    is_lower: the mount is the lower layer of an overlay. It shows that the owner may write, also where no source takes
    it, and lists of the attributes those that an overlay should copy.
    lets_others_in: other users may use the mount. What is private is the daemon's user's.
    """

    uid: int
    gid: int
    umask: int = 0
    is_lower: bool = False
    lets_others_in: bool = False

    def readable(self, names: Iterable[bytes]) -> list[bytes]:
        """Return the attributes of a file of a folder that a program may read, of all that the file has."""
        return [name for name in names if name.startswith(PREFIX) or (self.lets_others_in and name in ACLS)]


@dataclass(frozen=True, slots=True)
class Room:
    """The sizes of the file systems of all folders, in bytes: in all, free, and free for this user."""

    size: int
    free: int
    available: int
    names_free: int


def is_described(name: bytes) -> bool:
    """Return whether an attribute is one of those by which bbfs describes a resource."""
    return name.startswith(_OWN_PREFIX)


def require_settable(name: bytes) -> None:
    """Raise NotSupported for an attribute that no source keeps.

    Setting one that describes a resource changes nothing, as a mode does: programs that copy set all that is listed.
    """
    if name not in _DESCRIBING and not name.startswith(_OWN_PREFIX):
        raise NotSupported("only files of a local folder have extended attributes that can be set")


def is_own(name: bytes) -> bool:
    """Return whether an attribute is one that a program sets on a file of a folder."""
    return name.startswith(PREFIX) and not name.startswith(_OWN_PREFIX)


def new_attributes(attr: EntryAttributes, fields: SetattrFields) -> NewAttributes:
    """Return the attributes that a request sets."""
    return NewAttributes(
        size=attr.st_size if fields.update_size else None,
        modified_ns=attr.st_mtime_ns if fields.update_mtime else None,
        accessed_ns=attr.st_atime_ns if fields.update_atime else None,
        mode=stat.S_IMODE(attr.st_mode) if fields.update_mode else None,
        uid=attr.st_uid if fields.update_uid else None,
        gid=attr.st_gid if fields.update_gid else None,
    )
