"""The extended attributes of a mount, which a scratch over it does not hide."""

import errno
import json
import os
from typing import Any

from bbfs.cli import lazy
from bbfs.cli.operands.location import without_links
from bbfs.cli.operands.rule import Path
from bbfs.fuse.scratch.directory import Scratch
from bbfs.model.errors import BbfsError

_FIELDS = {
    "user.bbfs.metadata": "",
    "user.bbfs.uri": "uri",
    "user.bbfs.id": "id",
    "user.bbfs.access_method": "accessMethod",
    "user.bbfs.error": "error",
    "user.mime_type": "mimeType",
}
"""The fields of the metadata that are attributes of their own."""
_OF_THE_CONTENT = ("size", "etag", "lastModified", "fetchedAt", "cache", "properties")
"""Fields of the metadata that are of the source's version."""


class Attributes:
    """The extended attributes at a mount, and those of the sources below its scratch."""

    def __init__(self, mount: str, scratch: Scratch | None) -> None:
        self._root = mount
        self._scratch = scratch

    def uri(self, path: Path) -> str | None:
        return self.get(path, "user.bbfs.uri")

    def get(self, path: Path, name: str) -> str | None:
        """Return an extended attribute, or None if the attribute or the file does not exist. Raise OSError."""
        found = attribute(self._at(path), name)
        if found is not None or name not in _FIELDS or not self.are_above(path):
            return found
        # The overlay has the attributes of its upper layer only, where a source's are not.
        document = self._described_below(path)
        if name == "user.bbfs.metadata":
            return json.dumps(document) if document else None
        said = document.get(_FIELDS[name])
        return said if isinstance(said, str) else None

    def are_above(self, path: Path) -> bool:
        """Return whether the upper layer of a scratch has the file at a path."""
        if self._scratch is None:
            return False
        here = self._at(path)
        if len(path) > 1:  # a link's own name: to follow the last one could load a content
            real = os.path.join(os.path.realpath(os.path.dirname(here)), os.path.basename(here))
        else:
            real = os.path.realpath(here)
        upper = os.path.join(self._scratch.upper, os.path.relpath(real, self._root))
        return os.path.lexists(upper) and os.path.lexists(here)  # where it is removed, the upper layer has a mark

    def _described_below(self, path: Path) -> dict[str, Any]:
        """Return the metadata that the source has of a path in a scratch, but for those of its content."""
        try:
            paths = ("/".join(without_links(self._root, path)),)
            request = lazy.reading.Describe(paths)
            documents = [answer.document for answer in lazy.control_client.ask_now(self._root, request)]
        except (BbfsError, OSError):
            return {}  # it is only in the scratch, or the daemon does not answer
        found = documents[0] if documents else {}
        return {key: value for key, value in found.items() if key not in _OF_THE_CONTENT}

    def _at(self, path: Path) -> str:
        return os.path.join(self._root, *path)


def attribute(path: str, name: str) -> str | None:
    """Return an extended attribute, or None if the attribute or the file does not exist."""
    try:
        return os.getxattr(path, name).decode("utf-8", "surrogateescape")
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.ENAMETOOLONG):
            return None
        raise
