"""Hands over pending writes again (`bbfs pending retry`), and writes and removes resources by URI for commands.

    {"id": 1, "request": "retry", "write": "0b9075ce5173", "force": false}

The answer has the resource's `uri`. The item is removed once its source has the content.
"""

import os
from typing import Any

import trio

from bbfs.model.errors import BbfsError, NotFound, ProtocolViolation
from bbfs.model.values import Expected
from bbfs.resources.manager import ResourceManager
from bbfs.resources.writing.pending import PendingWrite
from bbfs.serving.private_files import open_own
from bbfs.sources.content.fd import Descriptor
from bbfs.sources.content.file import StoredContent


async def retry(manager: ResourceManager, request: dict[str, Any]) -> dict[str, Any]:
    """Hand over one pending write. Return the fields of a successful answer. Raise BbfsError.

    Unless it is forced, the source must be at the place that the write was for, and have the state that the write
    expected, or these bytes already.
    """
    write_id = request.get("write")
    if not isinstance(write_id, str):
        raise ProtocolViolation("write must be a string")
    item = await trio.to_thread.run_sync(manager.writer.pending.get, write_id)
    source = next((each for each in manager.sources.values() if each.data.id == item.source_id), None)
    if source is None or not item.uri.startswith(source.data.base_prefix):
        raise NotFound(f"no source {item.source_id!r}")
    is_forced = request.get("force") is True
    if item.place not in (None, source.place) and not is_forced:
        raise BbfsError(
            f"the source {item.source_id!r} is at another place now than the one that {item.uri} was written to; "
            "--force writes it there, whatever that has"
        )
    expected = Expected() if is_forced else item.expected
    content = await trio.to_thread.run_sync(_content, manager, item)
    known = source.catalog.record(item.native_uri)
    path = known.path if known is not None and known.path else None
    await manager.writer.write(source, item.native_uri, content, expected, path=path, again=item)
    if path is None:
        await manager.by_uri.relist(source, item.path)
    return {"uri": item.uri, "size": item.size}


def _content(manager: ResourceManager, item: PendingWrite) -> StoredContent:
    path = manager.writer.pending.content_path(item)
    try:
        file = Descriptor(open_own(path, os.O_RDONLY))
        return StoredContent(file, os.fstat(file.number).st_size, item.id, trio.CapacityLimiter(1))
    except OSError as error:
        raise BbfsError(f"{path}: {error.strerror}") from error
