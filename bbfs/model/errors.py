"""The exceptions of bbfs, each with the errno that a program on the mount sees.

This tree is the one error table of the product. A source raises the class for the failure, every layer lets it pass,
and the FUSE adapter answers its `errno`. An outage is never `ENOENT`: an unreachable resource is not a missing one.
"""

import errno as _errno
from typing import ClassVar


class BbfsError(Exception):
    """A failure that bbfs foresaw. `errno` is for the kernel; the text for the log, the CLI and `user.bbfs.error`."""

    errno: ClassVar[int] = _errno.EIO


class NotFound(BbfsError):
    """The source has no such resource, or there is no such source."""

    errno = _errno.ENOENT


class Denied(BbfsError):
    """The source refuses this user."""

    errno = _errno.EACCES


class LoginRequired(Denied):
    """The source needs a login, or no longer accepts the login that it got."""


class Unreachable(BbfsError):
    """The source is down: not started, crashed, refused the connection, or vanished during a request."""

    errno = _errno.EHOSTDOWN


class DeadlineExceeded(BbfsError):
    """The source did not answer within its `timeout`."""

    errno = _errno.ETIMEDOUT


class ProtocolViolation(BbfsError):
    """The answer of the source breaks its protocol or format."""

    errno = _errno.EPROTO


class TooLarge(BbfsError):
    """The content exceeds a limit of bbfs; the text names the limit and its value in bytes."""

    errno = _errno.EFBIG


class ToolFailed(BbfsError):
    """A tool ran and reported an error of its own; the text is the tool's."""


class ReadOnly(BbfsError):
    """A write to a file that cannot be written."""

    errno = _errno.EROFS


class NotSupported(BbfsError):
    """The source or the resource has no such ability."""

    errno = _errno.EOPNOTSUPP


class Outdated(BbfsError):
    """The inode is of an earlier version of its content; the kernel looks the name up again by itself."""

    errno = _errno.ESTALE


class Conflict(BbfsError):
    """The source has another version than the version that a write replaces; the text says which."""

    errno = _errno.ESTALE


class Exists(BbfsError):
    """The name that should be created is there already."""

    errno = _errno.EEXIST


class NotEmpty(BbfsError):
    """A directory that should be removed or replaced has entries."""

    errno = _errno.ENOTEMPTY


class CrossesSources(BbfsError):
    """A name cannot be moved there by renaming; programs copy instead, as between two disks."""

    errno = _errno.EXDEV


class NoSpace(BbfsError):
    """No room for a written content, at the source or on the disk that keeps pending writes; the text says where."""

    errno = _errno.ENOSPC


class Rejected(BbfsError):
    """The source does not accept the content, such as a row that breaks a constraint; the text has its reason."""

    errno = _errno.EINVAL


class Busy(BbfsError):
    """Too many programs wait for one source."""

    errno = _errno.EAGAIN


class NotADirectory(BbfsError):
    """A directory operation on a file."""

    errno = _errno.ENOTDIR


class IsADirectory(BbfsError):
    """A file operation on a directory."""

    errno = _errno.EISDIR


class NameTooLong(BbfsError):
    """A name of more than 255 bytes; no file has one."""

    errno = _errno.ENAMETOOLONG


class NoAttribute(BbfsError):
    """The file has no such extended attribute."""

    errno = _errno.ENODATA


class InvalidUri(BbfsError, ValueError):
    """A URI, URI prefix or URI template that breaks its grammar; the text names the wrong part."""

    errno = _errno.EINVAL


class ConfigError(BbfsError, ValueError):
    """A wrong configuration; the text names the file, the line or key, and a remedy if there is one."""

    errno = _errno.EINVAL
