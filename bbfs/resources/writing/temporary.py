"""The names that programs make for themselves and do not keep. Pure.

Such a file lives in the mount alone. It reaches a source when it is renamed to a name that is kept.

A program that means to keep such a name says so by the name that it renames from: the target of a rename from a name
that begins with `KEEPING` is kept, whatever it is. So a program writes `.tmp-bbfs-…`, closes it, and renames it to
`x.part`: the rename returns once the source has the file. `new_keeping_name` makes such a name. A file that is left
behind under it is nothing that a user would miss: the mount drops it at its end without a word.
"""

import os
import re
import secrets

KEEPING = ".tmp-bbfs-"
"""The beginning of names whose rename keeps the new name, also one that programs do not keep."""

_OWN = r"""
      \..*\.sw[a-px]{1,2}            # vim: swap files
    | 4913 | 5036 | 5159             # vim: looks if it may write in a directory
    | .+~                            # vim, emacs, nano: the last version
    | \.\#.* | \#.*\#                # emacs: locks, contents not saved yet
    | \.~lock\..*\#                  # LibreOffice
    | ~\$.*                          # Office
    | \.fuse_hidden.* | \.nfs.*
    """
"""Names of files that programs remove."""
_UNFINISHED = r"""
      \.goutputstream-.*             # GLib
    | \.tmp.* | .+\.tmp | .+\.vsctmp # many; VS Code
    | (?:sed|tmp|\..+\.)(?=.{0,5}[A-Z0-9])(?=.{0,5}[A-Za-z])[A-Za-z0-9]{6}
        # sed -i; emacs with file-precious-flag; rsync, mkstemp beside a file. One of 180 is a word of small letters, as
        # in .env.sample, which is a name that its user keeps (`made_for` knows it, too).
    | .+\.(?:part|partial|crdownload)
    """
"""Names of files that programs rename once they are whole."""
_TEMPORARY = re.compile(f"{_OWN}|{_UNFINISHED}", re.VERBOSE | re.DOTALL)
_TO_BE_RENAMED = re.compile(_UNFINISHED, re.VERBOSE | re.DOTALL)
_RANDOM = re.compile(
    r"(?:sed|tmp|\.(?P<kept>.+)\.)[A-Za-z0-9]{6} | tmp[a-z0-9_]{8} | tmp\.[A-Za-z0-9]{10}", re.DOTALL | re.VERBOSE
)
"""Names that programs have mkstemp(3) make: those above, those of Python's tempfile, those of mktemp(1)."""


def is_temporary(name: str) -> bool:
    """Return whether programs make files of this name for themselves."""
    return _TEMPORARY.fullmatch(name) is not None


def is_unfinished(name: str) -> bool:
    """Return whether programs rename files of this name once the files are whole."""
    return _TO_BE_RENAMED.fullmatch(name) is not None


def made_for(name: str) -> str | None:
    """Return the name that a program may save by this one, "" if by any name, None if by no such name.

    Here a word of small letters counts, too: for names that their source refuses otherwise, and for files that are
    created as mkstemp(3) creates them.
    """
    random = _RANDOM.fullmatch(name)
    return None if random is None else random["kept"] or ""


def is_by_mkstemp(flags: int, mode: int) -> bool:
    """Return whether open(2) with these flags and this mode creates a file as mkstemp(3) does.

    Programs that write a file under its own name open it with O_WRONLY.
    """
    return flags & (os.O_ACCMODE | os.O_EXCL) == os.O_RDWR | os.O_EXCL and mode & 0o777 == 0o600


def new_keeping_name() -> str:
    """Return a random name that begins with `KEEPING`."""
    return KEEPING + secrets.token_hex(6)


def is_kept(name: str, renamed_from: str) -> bool:
    """Return whether a source gets a file that is renamed to this name."""
    return not is_temporary(name) or renamed_from.startswith(KEEPING)
