"""Describes the names of a directory (`bbfs ls --json`). It may list the directory, and loads no content.

    {"id": 1, "request": "list", "path": "mcp-server+docs/guide"}

The entries come in their order, some in each message: `{"id": 1, "entries": [{"name": …, "size": …, "lastModified": …,
"mimeType": …, "uri": …}]}`, without the fields that are not known.
"""

from collections.abc import Iterator
from typing import Any

from bbfs.model.errors import NameTooLong, ProtocolViolation
from bbfs.model.uri_paths import MAX_DEPTH
from bbfs.resources.catalog.base import Shown, View
from bbfs.resources.catalog.record import Path
from bbfs.resources.documents import timestamp
from bbfs.resources.manager import ResourceManager

PAGE = 100
"""Entries in one message."""
LONGEST = 750
"""Characters of the texts of an entry beside its name, so that a page fits a line. An entry with longer ones is left
out: its extended attributes have them."""


async def entries(manager: ResourceManager, request: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Return the entries of a directory in pages. Raise BbfsError.

    The caller may let other tasks run between two pages; a name that is removed meanwhile may be left out.
    """
    path = request.get("path")
    if not isinstance(path, str):
        raise ProtocolViolation("path must be a string")
    names = tuple(name for name in path.split("/") if name)
    if not names:
        raise ProtocolViolation("path must be that of a source, or below it")
    if len(names) > MAX_DEPTH + 1:
        raise NameTooLong(f"a path of more than {MAX_DEPTH + 1} names")
    return _pages(manager, names, await manager.tree.view(names))


def _pages(manager: ResourceManager, path: Path, view: View) -> Iterator[list[dict[str, Any]]]:
    page: list[dict[str, Any]] = []
    for name, shown in view:
        try:
            described = _described(manager, path, view, shown)
        except KeyError:
            continue  # another listing has removed it meanwhile
        if sum(map(len, (described.get("uri", ""), described.get("mimeType", "")))) <= LONGEST:
            page.append({"name": name, **described})
        if len(page) == PAGE:
            yield page
            page = []
    yield page


def _described(manager: ResourceManager, path: Path, view: View, shown: Shown) -> dict[str, Any]:
    """Return the metadata of a name as `manager.contents.document` has it. Makes no record."""
    metadata = view.metadata(shown)
    if metadata is None:
        return {}
    if isinstance(shown, str):
        size, modified_ns = view.stated(shown)
        if size is not None and not manager.tree.stated_validity(path):
            size = None
    else:
        assert shown.record is not None
        size, modified_ns = manager.contents.last_size(shown.record), shown.record.modified_ns
    fields = {
        "size": size,
        "lastModified": timestamp(modified_ns),
        "mimeType": metadata.mime_type,
        "uri": metadata.uri,
    }
    return {key: value for key, value in fields.items() if value is not None}
