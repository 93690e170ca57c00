"""Where bbfs keeps what belongs to a mount: its control socket, the link to its scratch, and its log."""

import os
import re
import warnings
from hashlib import blake2b
from pathlib import Path

import platformdirs

from bbfs.runtime.private_files import own_directory

LONGEST = 70
"""Bytes of the path of a directory for sockets, whose own paths have at most 107 (unix(7))."""
_NO_NAME = re.compile(r"[^\w.-]")


def runtime_directory() -> str:
    """Return the directory of this user's control sockets. Make it if need be, for this user alone. Raise OSError."""
    directory = runtime_path()
    own_directory(directory)
    return directory


def runtime_path() -> str:
    """Return the path of the directory of this user's control sockets. It is not made.

    Without XDG_RUNTIME_DIR it is in the directory for temporary files; where that is too long for a socket, in /tmp.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that the variable is not set; its fallback is fine
        directory = platformdirs.user_runtime_dir("bbfs")
    if len(os.fsencode(directory)) > LONGEST and not os.environ.get("XDG_RUNTIME_DIR"):
        return f"/tmp/bbfs-{os.getuid()}"
    return directory


def scratch_link(mount_point: str) -> str:
    """Return the link in the runtime directory that leads from a mount point to its scratch. Raise OSError."""
    digest = blake2b(os.fsencode(mount_point), digest_size=8).hexdigest()
    return os.path.join(runtime_directory(), f"{digest}.scratch")


def log_path(mount_point: str) -> Path:
    """Return the file to which the daemon of a mount in the background logs by default. mount_point: canonical."""
    name = _NO_NAME.sub("_", os.path.basename(mount_point))[:100]
    told_apart = blake2b(os.fsencode(mount_point), digest_size=4).hexdigest()
    return Path(platformdirs.user_state_dir("bbfs")) / "logs" / f"{name}-{told_apart}.log"
