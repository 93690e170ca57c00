"""Stores and removes whole resources (`bbfs put`, and the other commands that write without a mount)."""

from collections.abc import Hashable
from dataclasses import replace

from bbfs.model.errors import (
    Exists,
    InvalidUri,
    NotADirectory,
    NotFound,
    NotSupported,
    ProtocolViolation,
    ReadOnly,
    TooLarge,
)
from bbfs.model.uri import parse_data_source_uri, source_uri
from bbfs.model.values import Expected, Labels
from bbfs.resources.catalog.record import Path, Record
from bbfs.resources.commands import table
from bbfs.resources.commands.replies import Replies
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.sources import CanDescribe
from bbfs.sources.content.memory import MemoryContent


class Arriving:
    """The content of a put that is still arriving, in requests with one id: a message is bounded."""

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager
        self._data: dict[Hashable, bytearray] = {}

    async def joined(self, id: Hashable, request: table.Put) -> table.Put | None:
        """Return the request with its whole content, or None if there is more to come. Raise BbfsError."""
        data = self._data.pop(id, None) or bytearray()
        source, _ = await _target(self._manager, request)
        _require_labels(source)
        data += request.data
        assert isinstance(source.handler, CanDescribe)
        if len(data) > source.handler.largest:
            raise TooLarge(f"{source.data.id} takes in no content of more than {source.handler.largest} bytes")
        if not request.more:
            return replace(request, data=bytes(data))
        if self._data:
            raise ProtocolViolation("one content at a time")
        self._data[id] = data
        return None


async def put(manager: ResourceManager, request: table.Put, replies: Replies[table.Stored]) -> None:
    """Store a resource, and make the directories that it is in. Raise BbfsError."""
    source, native_uri = await _target(manager, request)
    _require_written(source)
    labels = Labels(request.mime_type, request.description)
    if labels:
        _require_labels(source)
    record = await _there(manager, source, native_uri)
    if record is not None and not request.replace:
        raise Exists("is there already")
    expected = Expected(exists=False) if record is None else manager.by_uri.state_of(record)
    path = record.path if record is not None and record.path else None
    if path is None:
        await manager.writer.make_parents(source, native_uri)
    stored = await manager.writer.write(
        source, native_uri, MemoryContent(request.data), expected, path=path, labels=labels, by_owner=True
    )
    if path is None:
        await manager.by_uri.relist(source)
    metadata = stored.record.metadata
    await replies.give(table.Stored(metadata.uri, metadata.size))


async def remove(manager: ResourceManager, request: table.Remove, _: Replies[object]) -> None:
    """Remove a resource. Raise BbfsError."""
    source, native_uri = await _target(manager, request)
    _require_written(source)
    record = await _there(manager, source, native_uri)
    if record is None:
        raise NotFound("no such resource")
    path = record.path or None
    await manager.writer.remove(source, native_uri, manager.by_uri.state_of(record), path, by_owner=True)
    if path is None:
        await manager.by_uri.relist(source)


async def _target(manager: ResourceManager, request: table.Put | table.Remove) -> tuple[Source, str]:
    """Return the source that a request names and the native URI in it. Raise BbfsError."""
    if request.uri is not None:
        parsed = parse_data_source_uri(request.uri)
        source = manager.sources.get(parsed.base_prefix)
        if source is None:
            raise NotFound(f"no such source: {parsed.base_prefix}")
        return source, parsed.original_uri
    path = table.names(request.path or "")
    if not path:
        raise ProtocolViolation("neither path nor uri")
    source, below = manager.tree.place(path)
    return source, await _native_uri(manager, source, path, below)


async def _native_uri(manager: ResourceManager, source: Source, path: Path, below: Path) -> str:
    """Return the native URI of the resource at a path, or the one that an unused path gets."""
    try:
        node = await manager.tree.find(path)
        if node.record is not None:
            return node.record.metadata.native_uri
    except (NotFound, NotADirectory):
        pass  # a resource becomes a directory when another is put below it (S5)
    if len(path) < 2:
        raise InvalidUri(f"{'/'.join(path)} is the directory of a data source, and no resource")
    return await manager.tree.native_uri_for(source, below)


async def _there(manager: ResourceManager, source: Source, native_uri: str) -> Record | None:
    """Return the record of a resource, or None if the source has no such resource. Raise BbfsError."""
    _, record = manager.by_uri.record_of(source_uri(source.data.base_prefix, native_uri))
    is_listed = bool(record.path) and not record.provisional
    return record if is_listed or await manager.contents.exists(record) else None


def _require_written(source: Source) -> None:
    """Raise ReadOnly unless the owner of the mount may write to a source."""
    if source.writes is None and not isinstance(source.handler, CanDescribe):
        raise ReadOnly(source.why_read_only)


def _require_labels(source: Source) -> None:
    """Raise NotSupported unless a source stores the descriptions of writers."""
    if not isinstance(source.handler, CanDescribe):
        no_labels = f"{source.data.id} takes a content without a MIME type or a description of yours"
        raise NotSupported(source.why_read_only if source.writes is None else no_labels)
