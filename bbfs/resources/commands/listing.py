"""Describes the names of a directory (`bbfs ls --json` of 20 or more). It may list them, and loads no content."""

from collections.abc import Iterator

import trio

from bbfs.model.errors import ProtocolViolation
from bbfs.model.quantities import timestamp
from bbfs.resources.catalog.base import Shown, View
from bbfs.resources.catalog.record import Path
from bbfs.resources.commands import table
from bbfs.resources.manager import ResourceManager

PAGE = 100
"""Entries in one answer."""
LONGEST = 750
"""Characters of the texts of an entry beside its name, so that a page fits a line. An entry with longer ones is left
out: its extended attributes have them."""


async def list_directory(
    manager: ResourceManager, request: table.ListDirectory, replies: table.Replies[table.Entries]
) -> None:
    """Answer with the entries of a directory. Raise BbfsError.

    Other tasks run between two pages; a name that is removed meanwhile may be left out.
    """
    path = table.names(request.path)
    if not path:
        raise ProtocolViolation("path must be that of a source, or below it")
    for page in _pages(manager, path, await manager.tree.view(path)):
        await replies.give(page)
        await trio.lowlevel.checkpoint()  # a large directory takes its time


def _pages(manager: ResourceManager, path: Path, view: View) -> Iterator[table.Entries]:
    page: list[table.Entry] = []
    for name, shown in view:
        try:
            entry = _entry(manager, path, view, name, shown)
        except KeyError:
            continue  # another listing has removed it meanwhile
        if len(entry.uri or "") + len(entry.mime_type or "") <= LONGEST:
            page.append(entry)
        if len(page) == PAGE:
            yield table.Entries(tuple(page))
            page = []
    yield table.Entries(tuple(page))


def _entry(manager: ResourceManager, path: Path, view: View, name: str, shown: Shown) -> table.Entry:
    """Return a name with its metadata as `manager.contents.document` has it. Makes no record."""
    metadata = view.metadata(shown)
    if metadata is None:
        return table.Entry(name)
    if isinstance(shown, str):
        size, modified_ns = view.stated(shown)
        if size is not None and not manager.tree.stated_validity(path):
            size = None
    else:
        assert shown.record is not None
        size, modified_ns = manager.contents.last_size(shown.record), shown.record.modified_ns
    return table.Entry(name, size, timestamp(modified_ns), metadata.mime_type, metadata.uri)
