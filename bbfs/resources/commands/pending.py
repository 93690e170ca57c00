"""Hands over pending writes again (`bbfs pending retry`)."""

import os

import trio

from bbfs.model.errors import BbfsError, NotFound
from bbfs.model.values import Expected
from bbfs.resources.commands import table
from bbfs.resources.commands.replies import Replies
from bbfs.resources.manager import ResourceManager
from bbfs.resources.writing.pending import PendingWrite
from bbfs.serving.private_files import open_own
from bbfs.sources.content.fd import Descriptor
from bbfs.sources.content.file import StoredContent


async def retry(manager: ResourceManager, request: table.Retry, replies: Replies[table.Stored]) -> None:
    """Hand over one pending write. Raise BbfsError."""
    item = await trio.to_thread.run_sync(manager.writer.pending.get, request.write)
    source = next((each for each in manager.sources.values() if each.data.id == item.source_id), None)
    if source is None or not item.uri.startswith(source.data.base_prefix):
        raise NotFound(f"no source {item.source_id!r}")
    if item.place not in (None, source.place) and not request.force:
        raise BbfsError(
            f"the source {item.source_id!r} is at another place now than the one that {item.uri} was written to; "
            "--force writes it there, whatever that has"
        )
    expected = Expected() if request.force else item.expected
    content = await trio.to_thread.run_sync(_content, manager, item)
    known = source.catalog.record(item.native_uri)
    path = known.path if known is not None and known.path else None
    await manager.writer.write(
        source, item.native_uri, content, expected, path=path, again=item, labels=item.labels, by_owner=True
    )
    if path is None:
        await manager.by_uri.relist(source, item.path)
    await replies.give(table.Stored(item.uri, item.size))


def _content(manager: ResourceManager, item: PendingWrite) -> StoredContent:
    path = manager.writer.pending.content_path(item)
    try:
        file = Descriptor(open_own(path, os.O_RDONLY))
        return StoredContent(file, os.fstat(file.number).st_size, item.id, trio.CapacityLimiter(1))
    except OSError as error:
        raise BbfsError(f"{path}: {error.strerror}") from error
