"""Putting whole resources into sources that take them in, for whoever owns the mount (`bbfs put`).

On the control socket a content comes in pieces, since a line has a bound. Each piece is answered before the next is
sent; the last one puts the resource:

    {"id": 1, "request": "put", "path": "bb-memory+scratch+memory/notes/a.md", "data": "…", "more": true}
    {"id": 1, "request": "put", "path": "bb-memory+scratch+memory/notes/a.md", "data": "…", "mimeType": "text/markdown"}
    {"id": 2, "request": "put", "uri": "bb-memory+scratch+memory://old", "remove": true}

`data` is base64. The last answer has the resource's `uri`, and what was put is what the next lookup finds.
"""

import base64
import binascii
from typing import Any, cast

from bbfs.model import file_names as tree
from bbfs.model.errors import BbfsError, InvalidUri, NotADirectory, NotFound, NotSupported, ProtocolViolation, TooLarge
from bbfs.model.uri import parse_data_source_uri
from bbfs.resources.catalog import FlatCatalog
from bbfs.resources.catalog.record import Path
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.sources import CanPut

PIECE = 512 << 10
"""Bytes of a content that one message brings."""


class Puts:
    """What one client puts: the contents that are on their way, and what becomes of them."""

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager
        self._under_way: dict[str, bytearray] = {}

    async def take(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what one request asks; what to answer besides that it went well. Raises BbfsError."""
        for key in ("path", "uri", "data", "mimeType", "description"):
            if not isinstance(request.get(key), str | None):
                raise ProtocolViolation(f"{key} must be a string")
        if request.get("remove"):
            source, native_uri = await self._target(request)
            await _taking(source).remove(native_uri)
            await _seen(source)
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
        await _seen(source)
        return {"uri": put.uri, "size": put.size}

    async def _target(self, request: dict[str, Any]) -> tuple[Source, str]:
        """The source that is meant, and the native URI in it. Raises BbfsError."""
        if (uri := request.get("uri")) is not None:
            parsed = parse_data_source_uri(uri)
            source = self._manager.sources.get(parsed.base_prefix)
            if source is None:
                raise NotFound(f"no such source: {parsed.base_prefix}")
            return source, parsed.original_uri
        path = tuple(name for name in (request.get("path") or "").split("/") if name)
        if not path:
            raise ProtocolViolation("neither path nor uri")
        source, below = self._manager.place(path)
        _taking(source)
        return source, await self._native_uri(source, path, below)

    async def _native_uri(self, source: Source, path: Path, below: Path) -> str:
        """What stands at a path is what it is; anything else is by the rule (S2)."""
        try:
            node = await self._manager.find(path)
            if node.record is not None:
                return node.record.metadata.native_uri
        except (NotFound, NotADirectory):
            pass  # what is below a resource makes a directory of it (S5)
        if len(path) < 2:
            raise InvalidUri(f"{'/'.join(path)} is the directory of a data source, and no resource")
        return tree.native_of(below)


def _taking(source: Source) -> CanPut:
    """The handler of a source that takes resources in. Raises NotSupported."""
    if not isinstance(source.handler, CanPut):
        raise NotSupported(f"{source.data.id} takes nothing in: sources of type {source.data.type!r} cannot")
    return cast(CanPut, source.handler)


def _piece(request: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(request.get("data") or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProtocolViolation(f"data: {error}") from None


async def _seen(source: Source) -> None:
    """Until the listing has what was put, so that whoever looks next finds it."""
    if isinstance(source.catalog, FlatCatalog):
        try:
            await source.catalog.refresh()
        except BbfsError:
            return  # it is put all the same, and whoever looks is told what is wrong
