"""The exceptions of bbfs, each with the errno that a program on the mount sees.

This tree is the one error table of the product: a source raises the class that says what happened, every layer lets it
pass, and the FUSE adapter answers its `errno`. Outages are never `ENOENT`: a missing thing and an unreachable one are
different truths.
"""

import errno as _errno
from typing import ClassVar


class BbfsError(Exception):
    """Something bbfs foresaw. `errno` is for the kernel; the text is for the log, the CLI and `user.bbfs.error`."""

    errno: ClassVar[int] = _errno.EIO


class NotFound(BbfsError):
    """The source says there is no such resource, or there is no such source."""

    errno = _errno.ENOENT


class Denied(BbfsError):
    """The source refuses this user."""

    errno = _errno.EACCES


class LoginRequired(Denied):
    """The source wants a login that it has not got, or no longer accepts."""


class Unreachable(BbfsError):
    """The source is down: not started, crashed, refused the connection, or vanished during a request."""

    errno = _errno.EHOSTDOWN


class DeadlineExceeded(BbfsError):
    """The source did not answer within its `timeout`."""

    errno = _errno.ETIMEDOUT


class ProtocolViolation(BbfsError):
    """The source answered something that its protocol or format does not allow."""

    errno = _errno.EPROTO


class TooLarge(BbfsError):
    """The content exceeds a limit of bbfs; the text names the limit and its value in bytes."""

    errno = _errno.EFBIG


class ReadOnly(BbfsError):
    """A write to something that cannot be written."""

    errno = _errno.EROFS


class NotSupported(BbfsError):
    """The source or the resource has no such ability."""

    errno = _errno.EOPNOTSUPP


class Outdated(BbfsError):
    """The inode names an earlier version of its content; the kernel looks the name up again by itself."""

    errno = _errno.ESTALE


class Busy(BbfsError):
    """More programs wait for one source than bbfs lets wait at once."""

    errno = _errno.EAGAIN


class NotADirectory(BbfsError):
    """A directory operation on something that is none."""

    errno = _errno.ENOTDIR


class IsADirectory(BbfsError):
    """A file operation on a directory."""

    errno = _errno.EISDIR


class NameTooLong(BbfsError):
    """A name of more than 255 bytes was asked for; no file has one."""

    errno = _errno.ENAMETOOLONG


class NoAttribute(BbfsError):
    """There is no such extended attribute."""

    errno = _errno.ENODATA


class InvalidUri(BbfsError, ValueError):
    """A URI, URI prefix or URI template that does not follow its grammar; the text names the part that is wrong."""

    errno = _errno.EINVAL


class ConfigError(BbfsError, ValueError):
    """Configuration that cannot be used; the text names the file, the line or key, and a remedy where there is one."""

    errno = _errno.EINVAL
