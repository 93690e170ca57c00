"""The ways to write a file of a mount: in place, under a name that the mount keeps, and in a folder."""

import os
import shutil
from contextlib import suppress
from typing import IO

from bbfs.cli import lazy
from bbfs.resources.writing.temporary import is_kept, new_keeping_name
from bbfs.runtime.renaming import NOREPLACE, rename_with

_CHUNK = 1 << 20
_HERE = -100
"""AT_FDCWD of rename(2)."""


def store(path: str, file: IO[bytes], replace: bool, *, is_plain: bool, in_folder: bool) -> None:
    """Write a file of a mount in the way that its place needs. replace: one of the name may be there. Raise OSError.

    is_plain: a write in place ends whole there, as in a scratch. in_folder: in a folder that is passed through.
    """
    if is_plain:
        write(path, file, replace)
    elif in_folder:
        replace_in_folder(path, file, replace)
    elif is_kept(os.path.basename(path), ""):
        write(path, file, replace)
    else:
        write_kept(path, file, replace)


def write(path: str, file: IO[bytes], replace: bool) -> None:
    """Write a file. replace: one of the name may be there. Raise OSError."""
    with open(path, "wb" if replace else "xb") as written:
        shutil.copyfileobj(file, written, _CHUNK)


def write_kept(path: str, file: IO[bytes], replace: bool) -> None:
    """As `write`, for a name that programs do not keep and that the mount would keep for itself."""
    beside = os.path.join(os.path.dirname(path), new_keeping_name())
    try:
        write(beside, file, False)
        flags = 0 if replace else NOREPLACE
        rename_with(_HERE, os.fsencode(beside), _HERE, os.fsencode(path), flags)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside)


def replace_in_folder(path: str, file: IO[bytes], replace: bool) -> None:
    """As `write`, under another name first: in a folder that is passed through, a write in place may end halfway."""
    directory = os.path.dirname(path)
    beside = os.path.join(directory, lazy.unfinished.new_name())
    try:
        write(beside, file, False)
        with lazy.fd.Descriptor(os.open(directory, os.O_RDONLY | os.O_DIRECTORY)) as opened:
            lazy.unfinished.remove_left(opened.number, os.stat(beside).st_mtime)
        with suppress(FileNotFoundError):
            shutil.copymode(path, beside)
            for name in os.listxattr(path):
                if name.startswith("user."):
                    os.setxattr(beside, name, os.getxattr(path, name))
        if replace:
            os.rename(beside, path)
        else:
            os.link(beside, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside)
