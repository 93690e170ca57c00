"""Puts whole resources into sources that accept them (`bbfs put`)."""

from collections.abc import Hashable
from dataclasses import replace
from typing import cast

from bbfs.model import uri_paths
from bbfs.model.errors import InvalidUri, NotADirectory, NotFound, NotSupported, ProtocolViolation, TooLarge
from bbfs.model.uri import parse_data_source_uri
from bbfs.resources.catalog.record import Path
from bbfs.resources.commands import table
from bbfs.resources.commands.replies import Replies
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.sources import CanPut


class Arriving:
    """The content of a put that is still arriving, in requests with one id: a message is bounded."""

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager
        self._data: dict[Hashable, bytearray] = {}

    async def joined(self, id: Hashable, request: table.Put) -> table.Put | None:
        """Return the request with its whole content, or None if there is more to come. Raise BbfsError."""
        data = self._data.pop(id, None) or bytearray()
        source, _ = await _target(self._manager, request)
        data += request.data
        most = _taking(source).largest
        if len(data) > most:
            raise TooLarge(f"{source.data.id} takes in no content of more than {most} bytes")
        if not request.more:
            return replace(request, data=bytes(data))
        if self._data:
            raise ProtocolViolation("one content at a time")
        self._data[id] = data
        return None


async def put(manager: ResourceManager, request: table.Put, replies: Replies[table.Stored]) -> None:
    """Store a resource. Raise BbfsError."""
    source, native_uri = await _target(manager, request)
    handler = _taking(source)
    stored = await handler.put(native_uri, request.data, mime_type=request.mime_type, description=request.description)
    await manager.by_uri.relist(source)
    await replies.give(table.Stored(stored.uri, stored.size))


async def remove(manager: ResourceManager, request: table.Remove, _: Replies[object]) -> None:
    """Remove a resource. Raise BbfsError."""
    source, native_uri = await _target(manager, request)
    await _taking(source).remove(native_uri)
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
    _taking(source)
    return source, await _native_uri(manager, source, path, below)


async def _native_uri(manager: ResourceManager, source: Source, path: Path, below: Path) -> str:
    """Return the native URI of the resource at a path, or the one that the rule (S2) gives an unused path."""
    try:
        node = await manager.tree.find(path)
        if node.record is not None:
            return node.record.metadata.native_uri
    except (NotFound, NotADirectory):
        pass  # a resource becomes a directory when another is put below it (S5)
    if len(path) < 2:
        raise InvalidUri(f"{'/'.join(path)} is the directory of a data source, and no resource")
    return uri_paths.native_of(below)


def _taking(source: Source) -> CanPut:
    """Return the handler of a source that accepts resources. Raise NotSupported."""
    if isinstance(source.handler, CanPut):
        return cast(CanPut, source.handler)
    if source.writes is not None:
        raise NotSupported(f"{source.data.id} takes a content without a MIME type or a description of yours")
    raise NotSupported(source.why_read_only)
