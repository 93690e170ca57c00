"""Resources held in memory (`type = "memory"`): from the options, from `bbfs put`, or from a program that embeds bbfs.

A native URI is `memory://` and the path (`bbfs.sources.memory.contents`). With the option `file`, resources survive a
restart.
"""

import base64
import binascii
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import trio
from pydantic import Field, model_validator

from bbfs.model.errors import BbfsError, ConfigError, Conflict, Exists, InvalidUri, TooLarge
from bbfs.model.redaction import shown
from bbfs.model.values import (
    Change,
    Content,
    DataSource,
    Hit,
    Listing,
    Loaded,
    Part,
    ResourceMetadata,
    SourceState,
    WriteOperation,
)
from bbfs.model.versions import Expected, Labels
from bbfs.runtime.changes import Bus
from bbfs.sources import Services
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.content.slice import Slice
from bbfs.sources.memory.contents import Contents, Held, differing, native_uri_of
from bbfs.sources.memory.file import FileState, MemoryFile, Stamp
from bbfs.sources.memory.search import search
from bbfs.sources.options import Bytes, SourceOptions, local_path, open_regular, parse_options, refuse_auth

MAX_BYTES = 64 << 20
MAX_FILE = 1 << 30
"""Largest file among the options in bytes. The default of `max_bytes` is far below it."""
LARGE = 1 << 20
"""Bytes above which the content cache holds no second copy of a content."""


class ResourceOptions(SourceOptions):
    """One resource of the options: its content by one of the first three keys, and its description."""

    text: str | None = None
    """The content."""
    base64: str | None = None
    """The content, encoded."""
    file: str | None = None
    """A local file with the content. bbfs reads it when it starts."""
    mime_type: str | None = None
    """The MIME type, instead of the one that the name gives."""
    description: str | None = None
    """The description."""

    @model_validator(mode="before")
    @classmethod
    def _plain_text(cls, value: Any) -> Any:
        return {"text": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_content(self) -> "ResourceOptions":
        if sum(given is not None for given in (self.text, self.base64, self.file)) != 1:
            raise ValueError("should have one of text, base64 and file")
        return self


class MemoryOptions(SourceOptions):
    """Options of a source held in memory."""

    resources: dict[str, ResourceOptions] = Field(default_factory=dict)
    """A table from path to resource: a text, or a table with the keys below."""
    file: str | None = Field(default=None, min_length=1)
    """File that keeps `bbfs put` resources across restarts. A relative path starts at the configuration file."""
    max_bytes: Annotated[Bytes, Field(ge=0, le=1 << 34)] = MAX_BYTES
    """Limit of all contents and their names. A put beyond it fails (`EFBIG`)."""


class MemoryHandler:
    """The resources of one source in memory. It lists, loads and stores them, and reports each change at once.

    A resource that was put overrides the one of the options, even after the options change. Raises ConfigError for
    options that cannot be used, and for files among them that cannot be read.
    """

    options = MemoryOptions
    searches = detects_conflicts = True

    def __init__(self, source: DataSource, services: Services) -> None:
        self.source = source
        self.state = SourceState("up")
        refuse_auth(source)
        self._options = parse_options(MemoryOptions, source)
        self._is_written = source.grants_write
        self._configured = _configured(source, self._options)
        self._contents = Contents(self._configured)
        try:
            self._contents.require_room(self._options.max_bytes)
        except BbfsError as error:
            raise ConfigError(f"sources[{source.id}].config.resources: {error}") from None
        path = self._options.file
        self._file = None if path is None else MemoryFile(local_path(source, path), self._options.max_bytes)
        self._stamp: Stamp | None = None
        self._is_read = self._file is None
        self._problem: str | None = None
        self._changing = trio.Lock()
        self._limiter = trio.CapacityLimiter(1)
        self._changes: Bus[Change] = Bus()

    @property
    def largest(self) -> int:
        return self._options.max_bytes

    async def list(self) -> Listing:
        """Return all resources, sorted by URI. Raise BbfsError if the file cannot be read."""
        contents = await self._current()
        resources = [held.metadata(self.source.base_prefix, uri) for uri, held in sorted(contents.held.items())]
        return Listing(resources, problem=self._problem)

    async def load(self, native_uri: str) -> Loaded:
        held = (await self._current()).get(native_uri)
        metadata = held.metadata(self.source.base_prefix, native_uri_of(native_uri))
        content: Content = held.content
        if content.size > LARGE:
            content = Slice(content, 0, content.size, content.version)
        return Loaded((Part(native_uri, metadata.mime_type, content, metadata.content_type),), metadata=metadata)

    async def search(self, query: str, limit: int) -> Sequence[Hit]:
        """Return the resources with a word of the query in their name or text. Raise BbfsError as `list`."""
        held = (await self._current()).held
        return await trio.to_thread.run_sync(search, held, query, limit, abandon_on_cancel=True)

    async def put(
        self, where: str, data: bytes, *, mime_type: str | None = None, description: str | None = None
    ) -> ResourceMetadata:
        """Store a resource. When this returns, the file has it too.

        where: a path or a native URI. Raise InvalidUri, TooLarge, and BbfsError if the file cannot be written; then
        nothing has changed.
        """
        native_uri = native_uri_of(where)
        held = Held(MemoryContent(bytes(data)), mime_type, description, time.time_ns())
        _ = held.content.version  # hash it once, here
        await self._change(lambda contents: contents.with_resource(native_uri, held, self._options.max_bytes))
        return held.metadata(self.source.base_prefix, native_uri)

    async def remove(self, where: str, expected: Expected | None = None) -> None:
        """Remove a resource, even one of the options. Raise NotFound, Conflict, and BbfsError as `put`.

        expected: of a caller that takes note of the change itself; None for any other.
        """
        try:
            native_uri = native_uri_of(where)
        except InvalidUri:
            native_uri = where  # `without` then raises NotFound

        def removed(contents: Contents) -> Contents:
            after = contents.without(native_uri)
            _require(contents, native_uri, expected or Expected())
            return after

        await self._change(removed, () if expected is None else (native_uri,))

    # -- writing -----------------------------------------------------------------------------------------------------

    def writes(self, native_uri: str) -> Collection[WriteOperation]:
        return ("create", "replace", "remove", "rename", "set_time")

    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        """Store a content under its URI. What is described stays described. Raise Conflict, and BbfsError as `put`."""
        return await self.write_described(native_uri, content, expected, Labels())

    async def write_described(
        self, native_uri: str, content: Content, expected: Expected, labels: Labels
    ) -> ResourceMetadata:
        """Store a content under its URI, and a description. Raise Conflict, and BbfsError as `put`."""
        uri = native_uri_of(native_uri)
        if content.size > self.largest:
            raise TooLarge(
                f"a content of {content.size} bytes, more than the limit of {self.largest} bytes (max_bytes)"
            )
        stored = content
        if not isinstance(stored, MemoryContent):
            stored = MemoryContent(await content.read_waiting(0, content.size))
        _ = stored.version  # hash it once, here
        now = time.time_ns()

        def written(contents: Contents) -> Contents:
            _require(contents, uri, expected)
            new = replace(contents.held.get(uri, Held(stored)), content=stored, modified_ns=now)
            if labels.mime_type is not None:
                new = replace(new, mime_type=labels.mime_type)
            if labels.description is not None:
                new = replace(new, description=labels.description)
            return contents.with_resource(uri, new, self._options.max_bytes)

        return await self._changed_at(uri, written)

    async def rename(self, native_uri: str, to: str, *, replace: bool) -> ResourceMetadata:
        uri, new_uri = native_uri_of(native_uri), native_uri_of(to)

        def renamed(contents: Contents) -> Contents:
            held = contents.get(uri)
            if not replace and new_uri in contents.held:
                raise Exists(f"{shown(to)}: is there already")
            return contents.without(uri).with_resource(new_uri, held, self._options.max_bytes)

        return await self._changed_at(new_uri, renamed, uri)

    async def set_time(self, native_uri: str, modified_ns: int) -> ResourceMetadata:
        uri = native_uri_of(native_uri)

        def timed(contents: Contents) -> Contents:
            held = replace(contents.get(uri), modified_ns=modified_ns)
            return contents.with_resource(uri, held, self._options.max_bytes)

        return await self._changed_at(uri, timed)

    async def _changed_at(
        self, native_uri: str, change: Callable[[Contents], Contents], *also: str
    ) -> ResourceMetadata:
        """Change a resource for a caller that notes the change itself, and return the metadata after the change.

        also: other URIs that change.
        """
        await self._change(change, (native_uri, *also))
        return self._contents.get(native_uri).metadata(self.source.base_prefix, native_uri)

    # -- telling -----------------------------------------------------------------------------------------------------

    def watch(self, sink: Callable[[Change], None]) -> None:
        self._changes.subscribe(sink)
        # An earlier process may have kept resources that are no longer in memory.
        sink(Change(self.source.id, "missed"))

    def interested(self, native_uri: str) -> None:
        """Do nothing: the sink gets all changes."""

    def announces(self, native_uri: str | None) -> bool:
        """Return whether the sink gets all changes. Other processes may change the file without notice."""
        return self._file is None

    async def confirmed(self) -> None:
        """Return at once: there is no server to ask."""

    # -- what there is -----------------------------------------------------------------------------------------------

    async def _current(self) -> Contents:
        """Return the resources, with changes that other processes made to the file."""
        if self._file is not None:
            async with self._changing:
                try:
                    if not self._is_read or await self._in_thread(self._file.stamp) != self._stamp:
                        self._take(await self._in_thread(self._file.read))
                except BbfsError as error:
                    self.state = SourceState("down", reason=str(error))
                    raise
        return self._contents

    async def _change(self, change: Callable[[Contents], Contents], own: Collection[str] = ()) -> None:
        """Make a change, and report it but for the URIs `own`, of which a mount that may write takes note."""
        own = own if self._is_written else ()
        # Shielded, so that the file and the memory agree. The file's lock bounds the wait.
        with trio.CancelScope(shield=True):
            async with self._changing:
                if self._file is None:
                    self._install(change(self._contents), own)
                else:
                    self._take(await self._in_thread(partial(self._file.change, partial(self._beside, change))), own)

    def _beside(self, change: Callable[[Contents], Contents], kept: Contents) -> Contents:
        """Return the contents for the file, after a change to all resources."""
        return change(kept.over(self._configured)).beside(self._configured)

    def _take(self, kept: FileState, own: Collection[str] = ()) -> None:
        self._stamp, self._is_read, self.state = kept.stamp, True, SourceState("up")
        self._problem = kept.problem or self._problem
        self._install(kept.contents.over(self._configured), own)

    def _install(self, contents: Contents, own: Collection[str]) -> None:
        """Replace the contents and report the differences, but for the URIs `own`.

        The source would be listed again for each file that a program writes; the mount shows that file by itself.
        """
        changed = [uri for uri in differing(self._contents, contents) if uri not in own]
        self._contents = contents
        for uri in changed:
            self._changes.notify(Change(self.source.id, "changed", uri))
        if changed:
            self._changes.notify(Change(self.source.id, "listed"))

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        return await trio.to_thread.run_sync(function, limiter=self._limiter, abandon_on_cancel=True)


def _require(contents: Contents, native_uri: str, expected: Expected) -> None:
    """Raise Conflict unless a resource has the expected state."""
    held = contents.held.get(native_uri)
    if expected.exists is not None and expected.exists != (held is not None):
        raise Conflict(f"{shown(native_uri)}: {'is there' if held is not None else 'is gone'} now")
    version = expected.etag or expected.version
    if version is not None and (held is None or held.content.version != version):
        raise Conflict(f"{shown(native_uri)}: somebody else has changed it")


def _configured(source: DataSource, options: MemoryOptions) -> Mapping[str, Held]:
    """Return the resources of the options by native URI. Raise ConfigError."""
    configured: dict[str, Held] = {}
    for path, given in options.resources.items():
        where = f"sources[{source.id}].config.resources[{path!r:.100}]"
        try:
            native_uri = native_uri_of(path)
            if native_uri in configured:
                raise InvalidUri("the same resource as another path")
            configured[native_uri] = _held(source, given)
        except (BbfsError, ValueError) as error:
            raise ConfigError(f"{where}: {error}") from None
        except OSError as error:
            raise ConfigError(f"{where}.file: {error.strerror}") from None
    return configured


def _held(source: DataSource, given: ResourceOptions) -> Held:
    modified_ns: int | None = None
    if given.file is not None:
        with open_regular(local_path(source, given.file)) as file:
            modified_ns = os.fstat(file.fileno()).st_mtime_ns
            data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise ValueError(f"a file of more than {MAX_FILE} bytes")
    elif given.base64 is not None:
        try:
            data = base64.b64decode(given.base64, validate=True)
        except binascii.Error as error:
            raise ValueError(f"base64: {error}") from None
    else:
        data = (given.text or "").encode("utf-8", "strict")
    return Held(MemoryContent(data), given.mime_type, given.description, modified_ns)
