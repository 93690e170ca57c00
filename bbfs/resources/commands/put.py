"""Stores and removes whole resources, and hands pending writes over again (`bbfs put`, `bbfs pending retry`, and the
other commands that write without a mount)."""

import os
from contextlib import suppress
from dataclasses import replace
from functools import partial

import trio

from bbfs.model.errors import (
    BbfsError,
    Exists,
    InvalidUri,
    NotADirectory,
    NotFound,
    NotSupported,
    ProtocolViolation,
    ReadOnly,
    TooLarge,
)
from bbfs.model.uri import source_uri
from bbfs.model.versions import Expected, Labels
from bbfs.resources.catalog.record import Path
from bbfs.resources.commands import table
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.resources.writing.pending import PendingWrite
from bbfs.runtime.private_files import open_taken
from bbfs.sources import CanDescribe
from bbfs.sources.content.fd import Descriptor
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import MemoryContent


async def joined(
    manager: ResourceManager, arriving: dict[str, bytearray], id: str, request: table.Put
) -> table.Put | None:
    """Return a request with its whole content, or None if there is more to come. Raise BbfsError.

    arriving: what has arrived of a content in requests with one id: a message is bounded.
    """
    data = arriving.pop(id, None) or bytearray()
    source, _ = await _target(manager, request)
    handler = _labelled(source)
    data += request.data
    if len(data) > handler.largest:
        raise TooLarge(f"{source.data.id} takes in no content of more than {handler.largest} bytes")
    if not request.more:
        return replace(request, data=bytes(data))
    if arriving:
        raise ProtocolViolation("one content at a time")
    arriving[id] = data
    return None


async def put(manager: ResourceManager, request: table.Put, replies: table.Replies[table.Stored]) -> None:
    """Store a resource, and make the directories that it is in. Raise BbfsError."""
    source, native_uri = await _target(manager, request)
    _require_written(source, by_owner=request.by_owner)
    labels = Labels(request.mime_type, request.description)
    if labels:
        _labelled(source)
    expected = request.expected
    if expected is None:
        expected = await _state(manager, source, native_uri)
    if expected.exists and not request.replace:
        raise Exists("is there already")
    path = _listed(source, native_uri)
    if path is None and expected.exists is not True:
        await manager.writer.names.make_parents(source, native_uri)
    given, keep, by_owner = MemoryContent(request.data), request.keep, request.by_owner
    write = partial(manager.writer.write, path=path, keep=keep, labels=labels, by_owner=by_owner)
    stored = await manager.go_on(partial(write, source, native_uri, given, expected))
    if path is None:
        await manager.by_uri.relist(source)
    state, metadata = stored.state, stored.record.metadata
    size = given.size if state.version is not None else metadata.size
    await replies.give(table.Stored(metadata.uri, size, state.etag or state.version))


async def remove(manager: ResourceManager, request: table.Remove, _: table.Replies[object]) -> None:
    """Remove a resource. Raise BbfsError."""
    source, native_uri = await _target(manager, request)
    _require_written(source, by_owner=request.by_owner)
    expected = request.expected
    if expected is None:
        expected = await _state(manager, source, native_uri)
        if not expected.exists:
            raise NotFound("no such resource")
    path = _listed(source, native_uri)
    await manager.writer.names.remove(source, native_uri, expected, path, by_owner=request.by_owner)
    if path is None:
        await manager.by_uri.relist(source)


async def retry(manager: ResourceManager, request: table.Retry, replies: table.Replies[table.Stored]) -> None:
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
    path = _listed(source, item.native_uri)
    source.end_pause()
    write = partial(manager.writer.write, path=path, again=item, labels=item.labels, by_owner=True)
    await manager.go_on(partial(write, source, item.native_uri, content, expected))
    if path is None:
        await manager.by_uri.relist(source, item.path)
    await replies.give(table.Stored(item.uri, item.size))


async def _target(manager: ResourceManager, request: table.Put | table.Remove) -> tuple[Source, str]:
    """Return the source that a request names and the native URI in it. Raise BbfsError."""
    if request.uri is not None:
        source, _, native_uri = manager.roots.parsed(request.uri)
        return source, native_uri
    path = table.names(request.path or "")
    if not path:
        raise ProtocolViolation("neither path nor uri")
    source, below = manager.tree.place(path)
    return source, await _native_uri(manager, source, path, below)


async def _native_uri(manager: ResourceManager, source: Source, path: Path, below: Path) -> str:
    """Return the native URI of the resource at a path, or the one that an unused path gets."""
    with suppress(NotFound, NotADirectory):  # a resource becomes a directory when another is put below it (S5)
        node = await manager.tree.find(path)
        if node.record is not None:
            return node.record.metadata.native_uri
    if len(path) < 2:
        raise InvalidUri(f"{'/'.join(path)} is the directory of a data source, and no resource")
    return await manager.tree.native_uri_for(source, below)


async def _state(manager: ResourceManager, source: Source, native_uri: str) -> Expected:
    """Return the state of a resource as it was last shown; ask the source if no listing has it. Raise BbfsError."""
    _, record = manager.by_uri.record_of(source_uri(source.data.base_prefix, native_uri))
    is_listed = bool(record.path) and not record.provisional
    is_there = is_listed or await manager.contents.exists(record)
    return record.state if is_there else Expected(exists=False)


def _listed(source: Source, native_uri: str) -> Path | None:
    """Return the path in the catalog that a name of the mount leads to a resource by, or None."""
    known = source.catalog.record(native_uri)
    return known.path if known is not None and known.path else None


def _require_written(source: Source, *, by_owner: bool) -> None:
    """Raise ReadOnly unless a client may write to a source."""
    if source.writes is None and not (by_owner and isinstance(source.handler, CanDescribe)):
        raise ReadOnly(source.why_read_only)


def _labelled(source: Source) -> CanDescribe:
    """Return the handler of a source that stores the descriptions of writers. Raise NotSupported."""
    if isinstance(source.handler, CanDescribe):
        return source.handler
    no_labels = f"{source.data.id} takes a content without a MIME type or a description of yours"
    raise NotSupported(source.why_read_only if source.writes is None else no_labels)


def _content(manager: ResourceManager, item: PendingWrite) -> StoredContent:
    """Return the content of a pending write. Raise BbfsError, also if its file has lost bytes, as by a crash."""
    path = manager.writer.pending.content_path(item)
    try:
        file = Descriptor(open_taken(path, os.O_RDONLY))
        size = os.fstat(file.number).st_size
    except OSError as error:
        raise BbfsError(f"{path}: {error.strerror}") from error
    if size != item.size:
        raise BbfsError(
            f"{path}: has {size} bytes, and {item.size} were written; 'bbfs pending show' shows what is there"
        )
    return StoredContent(file, size, item.id, trio.CapacityLimiter(1))
