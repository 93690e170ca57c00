"""Resources held in memory (`type = "memory"`): of the options, put by `bbfs put`, or by a program that embeds bbfs.

Native URIs are `memory://` and the path (`bbfs.sources.memory.contents`). With the option `file` they outlive a
restart.
"""

import base64
import binascii
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

import trio
from pydantic import Field, model_validator

from bbfs.model.errors import BbfsError, ConfigError, InvalidUri
from bbfs.model.values import Content, DataSource, Listing, Loaded, Part, ResourceMetadata, SourceEvent, SourceState
from bbfs.sources import Services
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.content.slice import Slice
from bbfs.sources.memory.contents import Contents, Held, differing, native_uri_of
from bbfs.sources.memory.file import FileState, MemoryFile, Stamp
from bbfs.sources.options import Bytes, SourceOptions, local_path, open_regular, parse_options, refuse_auth

MAX_BYTES = 64 << 20
MAX_FILE = 1 << 30
"""Bytes of a file among the options; far less are allowed by default (`max_bytes`)."""
LARGE = 1 << 20
"""Bytes from which on a content is not held by the cache of contents as well: it is in memory here anyway."""


class ResourceOptions(SourceOptions):
    """One resource of the options: its content in one of three ways, and what is said of it.

    text: the content. base64: the content, encoded. file: a local file, read when bbfs starts.
    """

    text: str | None = None
    base64: str | None = None
    file: str | None = None
    mime_type: str | None = None
    description: str | None = None

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
    """Options of a source held in memory.

    resources: by path. file: where to keep what is put, if anywhere. max_bytes: of all contents and their names.
    """

    resources: dict[str, ResourceOptions] = Field(default_factory=dict)
    file: str | None = Field(default=None, min_length=1)
    max_bytes: Annotated[Bytes, Field(ge=0, le=1 << 34)] = MAX_BYTES


class MemoryHandler:
    """The resources of one source in memory. Lists, loads, takes in, and tells at once what has changed.

    What is put stays over what the options give, also when they change. Raises ConfigError for options that cannot be
    used, and for files among them that cannot be read.
    """

    def __init__(self, source: DataSource, services: Services) -> None:
        self.source = source
        self.state = SourceState("up")
        refuse_auth(source)
        self._options = parse_options(MemoryOptions, source)
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
        self._sinks: list[Callable[[SourceEvent], None]] = []

    @property
    def largest(self) -> int:
        """Bytes above which no content is taken in."""
        return self._options.max_bytes

    async def list(self) -> Listing:
        """All resources, sorted by their URIs. Raises BbfsError where the file cannot be read."""
        contents = await self._current()
        resources = [held.metadata(self.source.base_prefix, uri) for uri, held in sorted(contents.held.items())]
        return Listing(resources, problem=self._problem)

    async def load(self, native_uri: str) -> Loaded:
        """The content of a resource. Raises NotFound."""
        held = (await self._current()).get(native_uri)
        metadata = held.metadata(self.source.base_prefix, native_uri_of(native_uri))
        content: Content = held.content
        if content.size > LARGE:
            content = Slice(content, 0, content.size, content.version)
        return Loaded((Part(native_uri, metadata.mime_type, content, metadata.content_type),), metadata=metadata)

    async def put(
        self, where: str, data: bytes, *, mime_type: str | None = None, description: str | None = None
    ) -> ResourceMetadata:
        """Take in a resource, or another content for one; when this returns, it is kept where the options say.

        where: a path, or a native URI. Raises InvalidUri, TooLarge, and BbfsError where the file cannot be written;
        then nothing has changed.
        """
        native_uri = native_uri_of(where)
        held = Held(MemoryContent(bytes(data)), mime_type, description, time.time_ns())
        _ = held.content.version  # hashed once, here
        await self._change(lambda contents: contents.with_resource(native_uri, held, self._options.max_bytes))
        return held.metadata(self.source.base_prefix, native_uri)

    async def remove(self, where: str) -> None:
        """Take a resource away, one of the options too. Raises NotFound, and BbfsError as `put`."""
        try:
            native_uri = native_uri_of(where)
        except InvalidUri:
            native_uri = where  # which is not found
        await self._change(lambda contents: contents.without(native_uri))

    # -- telling -----------------------------------------------------------------------------------------------------

    def watch(self, sink: Callable[[SourceEvent], None]) -> None:
        self._sinks.append(sink)
        # What an earlier process knew of this source is not in memory any more.
        sink(SourceEvent(self.source.id, missed=True))

    def interested(self, native_uri: str) -> None:
        """Nothing: all changes are told."""

    def announces(self, native_uri: str | None) -> bool:
        """Whether all changes are told: of a file, other processes may be the cause."""
        return self._file is None

    async def settled(self) -> None:
        """At once: there is nobody to ask."""

    # -- what there is -----------------------------------------------------------------------------------------------

    async def _current(self) -> Contents:
        """The resources, with what another process may have done to the file."""
        if self._file is not None:
            async with self._changing:
                try:
                    if not self._is_read or await self._in_thread(self._file.stamp) != self._stamp:
                        self._take(await self._in_thread(self._file.read))
                except BbfsError as error:
                    self.state = SourceState("down", reason=str(error))
                    raise
        return self._contents

    async def _change(self, change: Callable[[Contents], Contents]) -> None:
        # Not to be cut off between the file and what is known of it; in a bounded time, as the file's lock is bounded.
        with trio.CancelScope(shield=True):
            async with self._changing:
                if self._file is None:
                    self._install(change(self._contents))
                else:
                    self._take(await self._in_thread(partial(self._file.change, partial(self._beside, change))))

    def _beside(self, change: Callable[[Contents], Contents], kept: Contents) -> Contents:
        """What is to be kept after a change to all there is."""
        return change(kept.over(self._configured)).beside(self._configured)

    def _take(self, kept: FileState) -> None:
        self._stamp, self._is_read, self.state = kept.stamp, True, SourceState("up")
        self._problem = kept.problem or self._problem
        self._install(kept.contents.over(self._configured))

    def _install(self, contents: Contents) -> None:
        """Have these from now on, and tell what differs."""
        changed = differing(self._contents, contents)
        self._contents = contents
        events = [SourceEvent(self.source.id, uri) for uri in changed]
        for sink in self._sinks:
            for event in (*events, SourceEvent(self.source.id)) if events else ():
                sink(event)

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        return await trio.to_thread.run_sync(function, limiter=self._limiter, abandon_on_cancel=True)


def _configured(source: DataSource, options: MemoryOptions) -> Mapping[str, Held]:
    """What the options give, by native URI. Raises ConfigError."""
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
