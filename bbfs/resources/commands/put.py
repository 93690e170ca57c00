"""Puts whole resources into sources that accept them (`bbfs put`).

A line of the control socket is bounded, so a content comes in pieces. The daemon answers each piece before the client
sends the next one; the last piece puts the resource:

    {"id": 1, "request": "put", "path": "bb-memory+scratch+memory/notes/a.md", "data": "…", "more": true}
    {"id": 1, "request": "put", "path": "bb-memory+scratch+memory/notes/a.md", "data": "…", "mimeType": "text/markdown"}
    {"id": 2, "request": "put", "uri": "bb-memory+scratch+memory://old", "remove": true}

`data` is base64. The last answer has the resource's `uri`; from then on a lookup finds the resource.
"""

import base64
import binascii
from typing import Any, cast

from bbfs.model import uri_paths
from bbfs.model.errors import InvalidUri, NotADirectory, NotFound, NotSupported, ProtocolViolation, TooLarge
from bbfs.model.uri import parse_data_source_uri
from bbfs.resources.catalog.record import Path
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.sources import CanPut


class Puts:
    """The puts of one client, with the content that is still arriving."""

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager
        self._under_way: dict[str, bytearray] = {}

    async def take(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request. Return the fields of a successful answer. Raise BbfsError."""
        for key in ("path", "uri", "data", "mimeType", "description"):
            if not isinstance(request.get(key), str | None):
                raise ProtocolViolation(f"{key} must be a string")
        if request.get("remove"):
            source, native_uri = await self._target(request)
            await _taking(source).remove(native_uri)
            await self._manager.by_uri.relist(source)
            return {}
        key = repr(request.get("id"))
        data = self._under_way.pop(key, None) or bytearray()
        source, native_uri = await self._target(request)
        handler = _taking(source)
        data += _piece(request)
        if len(data) > handler.largest:
            raise TooLarge(f"{source.data.id} takes in no content of more than {handler.largest} bytes")
        if request.get("more"):
            if len(self._under_way) >= 1:
                raise ProtocolViolation("one content at a time")
            self._under_way[key] = data
            return {}
        put = await handler.put(
            native_uri, bytes(data), mime_type=request.get("mimeType"), description=request.get("description")
        )
        await self._manager.by_uri.relist(source)
        return {"uri": put.uri, "size": put.size}

    async def _target(self, request: dict[str, Any]) -> tuple[Source, str]:
        """Return the source that a request names and the native URI in it. Raise BbfsError."""
        if (uri := request.get("uri")) is not None:
            parsed = parse_data_source_uri(uri)
            source = self._manager.sources.get(parsed.base_prefix)
            if source is None:
                raise NotFound(f"no such source: {parsed.base_prefix}")
            return source, parsed.original_uri
        path = tuple(name for name in (request.get("path") or "").split("/") if name)
        if not path:
            raise ProtocolViolation("neither path nor uri")
        source, below = self._manager.tree.place(path)
        _taking(source)
        return source, await self._native_uri(source, path, below)

    async def _native_uri(self, source: Source, path: Path, below: Path) -> str:
        """Return the native URI of the resource at a path, or the one that the rule (S2) gives an unused path."""
        try:
            node = await self._manager.tree.find(path)
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


def _piece(request: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(request.get("data") or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProtocolViolation(f"data: {error}") from None
