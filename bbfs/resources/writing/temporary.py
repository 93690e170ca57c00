"""The names that programs make for themselves and do not keep. Pure.

Such a file lives in the mount alone. It reaches a source when it is renamed to a name that is kept.
"""

import re

_TEMPORARY = re.compile(
    r"""
      \..*\.sw[a-px]{1,2}            # vim: swap files
    | 4913 | 5036 | 5159             # vim: looks if it may write in a directory
    | .+~                            # vim, emacs, nano: the last version
    | \.\#.* | \#.*\#                # emacs: locks, contents not saved yet
    | \.goutputstream-.*             # GLib
    | \.tmp.* | .+\.tmp | .+\.vsctmp # many; VS Code
    | (?:sed|tmp|\..+\.)(?=.{0,5}[A-Z0-9])(?=.{0,5}[A-Za-z])[A-Za-z0-9]{6}
        # sed -i; emacs with file-precious-flag; rsync, mkstemp beside a file. One of 180 is a word of small letters, as
        # in .env.sample, which is a name that its user keeps.
    | \.~lock\..*\#                  # LibreOffice
    | ~\$.*                          # Office
    | .+\.(?:part|partial|crdownload)
    | \.fuse_hidden.* | \.nfs.*
    """,
    re.VERBOSE | re.DOTALL,
)


def is_temporary(name: str) -> bool:
    """Return whether programs make files of this name for themselves."""
    return _TEMPORARY.fullmatch(name) is not None
