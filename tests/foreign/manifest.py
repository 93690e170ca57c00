"""Print a directory as JSON, for a comparison: manifest.py DIRECTORY. It may hang, so it is a program of its own."""

import hashlib
import json
import os
import stat
import sys

KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link", stat.S_IFIFO: "pipe"}


def told(path: str) -> dict[str, object]:
    """Return what a copy may keep of a file. Its number of names counts for files alone."""
    status = os.lstat(path)
    kind = KINDS.get(stat.S_IFMT(status.st_mode), "other")
    found: dict[str, object] = {"kind": kind, "mode": stat.S_IMODE(status.st_mode), "time": status.st_mtime_ns}
    found["owner"] = [status.st_uid, status.st_gid]
    if kind == "file":
        with open(path, "rb") as file:
            found["content"] = hashlib.sha256(file.read()).hexdigest()
        found["size"], found["names"] = status.st_size, status.st_nlink
    if kind == "link":
        found["target"] = os.readlink(path)
    else:
        names = [name for name in os.listxattr(path) if not name.startswith(("user.bbfs.", "user.mime", "user.xdg"))]
        found["attributes"] = {name: os.getxattr(path, name).hex() for name in sorted(names)}
    return found


def refuse(error: OSError) -> None:
    """Raise what os.walk passes over: a directory that cannot be listed is not empty."""
    raise error


def main() -> None:
    root = sys.argv[1]
    found: dict[str, dict[str, object]] = {}
    for directory, directories, files in os.walk(root, onerror=refuse):
        for name in directories + files:
            path = os.path.join(directory, name)
            found[os.path.relpath(path, root)] = told(path)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
