"""The texts of documents as files: `report.pdf.md` beside `report.pdf`.

They are a source of their own, which no configuration names; the segments of its URIs are those of a path on the mount.
A text is made when a program asks for its size or opens it, and made again when the document has another version.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import trio
from cachetools import LRUCache, TTLCache

from bbfs.model.errors import BbfsError, NotADirectory, NotFound, ProtocolViolation, TooLarge
from bbfs.model.uri_paths import hide_component, show_component
from bbfs.model.values import Change, DataSource, Listing, Loaded, Part, Policy, ResourceMetadata, Unchanged
from bbfs.resources.catalog.base import View
from bbfs.resources.catalog.record import Path, Record
from bbfs.resources.documents import TEXT
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.resources.views import SourceView
from bbfs.sources import MemoryContent
from bbfs.sources.content.memory import version_of
from bbfs.sources.documents.converter import PICTURE, TEXT_SUFFIX, DocumentReader, is_document_name, kind_of

MARKDOWN = "text/markdown"
_FORM = "1"
"""Part of the version of a text: another number where the same document becomes another text."""
_PATIENCE = 60.0
"""Seconds for loading a document, besides those for its conversion."""
_KEPT = 10_000
"""Documents whose changes are followed."""
_REFUSED = 300.0
"""Seconds for which a version of a document that was refused is not read again: each attempt may take its bounds."""


class TextHandler(SourceView):
    """The source of the texts. A conversion ends with the last program that waits for it."""

    loads_while_wanted = True
    endings = (TEXT_SUFFIX,)

    def __init__(self, manager: ResourceManager, reader: DocumentReader) -> None:
        timeout = _PATIENCE + 2 * reader.bounds.seconds
        policy = Policy(timeout=timeout, listing_ttl=10.0, content_ttl=0.0, max_stale=0.0, disk=False)
        self.source = DataSource(
            id=TEXT, name="text", type="text", access_method="bb", uri_prefix="", policy=policy, shared=False
        )
        self._manager = manager
        self._reader = reader
        self._made: LRUCache[Path, str] = LRUCache(_KEPT)
        self._refused: TTLCache[tuple[str, str], Callable[[], BbfsError]] = TTLCache(_KEPT, _REFUSED, manager.clock)
        self._opening: set[Path] = set()
        self._sink: Callable[[Change], None] = lambda _change: None

    def stands_in(self, path: Path) -> bool:
        return self._document(path) is not None

    async def follows(self, path: Path, error: BbfsError) -> bool:
        """Find the document whose text a path may be. Raise the error of the document's source."""
        name = path[-1].removesuffix(TEXT_SUFFIX)
        if not isinstance(error, NotFound) or name == path[-1]:
            return False
        with suppress(NotFound):
            if is_document_name(name):
                await self._manager.tree.find((*path[:-1], name))
            return self._document(path) is not None
        return False

    def is_listed_in(self, source: Source) -> bool:
        return source.data.text == "listed"

    async def names(self, path: Path, view: View) -> Sequence[str]:
        """Return the names of the texts of the documents in a directory."""
        found: set[str] = set()
        names: set[str] = set()
        for portion, _ in view.portions():
            await trio.lowlevel.checkpoint()
            for name, shown in zip(portion.names, portion.shown, strict=True):
                metadata = view.metadata(shown)
                names.add(name)
                if metadata is not None and kind_of(metadata) not in (None, PICTURE):
                    found.add(name + TEXT_SUFFIX)
        return sorted(found - names)

    def _document(self, path: Path) -> Record | None:
        """Return the document whose text a path names, by what is cached, or None."""
        name = path[-1].removesuffix(TEXT_SUFFIX)
        if name in ("", path[-1]) or len(path) == 1:
            return None
        try:
            source, below = self._manager.roots.place((*path[:-1], name))
            node = source.catalog.last_cached(below) if source.data.text != "off" else None
        except (NotFound, NotADirectory):
            return None
        record = node.record if node is not None and node.kind == "file" else None
        return record if record is not None and kind_of(record.metadata) is not None else None

    async def list_directory(self, path: Path) -> Listing:
        """List nothing: each text is found by its name."""
        return Listing((), open=True)

    async def find(self, path: Path, name: str) -> ResourceMetadata:
        """Return the text of this name, or a directory on the way to one."""
        uri = "/".join((*path, hide_component(name)))
        record = self._document(_shown(uri))
        return ResourceMetadata(uri, uri, name, kind="directory") if record is None else _described(uri, record)

    async def load(self, native_uri: str) -> Loaded:
        """Load a document and convert it. Raise BbfsError."""
        loaded = await self._load(native_uri, None)
        assert isinstance(loaded, Loaded)
        return loaded

    async def load_if_changed(self, native_uri: str, version: str) -> Loaded | Unchanged:
        """Return Unchanged while the document has the version that the text was made from. Raise BbfsError."""
        return await self._load(native_uri, version)

    async def _load(self, native_uri: str, version: str | None) -> Loaded | Unchanged:
        path = _shown(native_uri)
        document = (*path[:-1], path[-1].removesuffix(TEXT_SUFFIX))
        self._opening.add(document)  # its load may find another version, which is the one that is converted
        try:
            record = (await self._manager.tree.find(document)).record
            kind = None if record is None else kind_of(record.metadata)
            if record is None or kind is None:
                raise NotFound("/".join(path))
            content = await self._manager.contents.open(record)
        finally:
            self._opening.discard(document)
        if not self._made:
            self._manager.changes.subscribe(self._changed)
        self._made[document] = native_uri
        metadata, made = _described(native_uri, record), version_of([_FORM, kind, content.version])
        ttl = record.fresh_for(self._manager.clock())
        if made == version:
            return Unchanged(ttl, metadata)
        if (refusal := self._refused.get((native_uri, made))) is not None:
            raise refusal()
        convert = partial(self._reader.text, content, kind, owner=record.source_key, what=document[-1])
        try:
            text = await self._manager.contents.text(record, made, convert)
        except (TooLarge, ProtocolViolation) as error:
            self._refused[native_uri, made] = partial(type(error), *error.args)
            raise
        return Loaded((Part(None, MARKDOWN, MemoryContent(text, made), "text"),), ttl, metadata)

    def watch(self, sink: Callable[[Change], None]) -> None:
        """Report the changes of documents whose texts were made, from the first one on."""
        self._sink = sink

    def interested(self, native_uri: str) -> None:
        """Do nothing: a text is followed once it was made."""

    def _changed(self, change: Change) -> None:
        if change.source_id == self.source.id:
            return
        told = [path for path in self._made if change.concerns(path)] if change.below else change.paths
        for path in told:
            uri = self._made.get(path)
            if uri is not None and path not in self._opening:
                self._sink(Change(self.source.id, "changed", uri))


def _shown(native_uri: str) -> Path:
    return tuple(map(show_component, native_uri.split("/")))


def _described(uri: str, document: Record) -> ResourceMetadata:
    """Return the metadata of a text: the URI is that of its document, which a program can cite."""
    said = document.metadata
    return ResourceMetadata(
        said.uri,
        uri,
        f"{said.name}{TEXT_SUFFIX}",
        title=said.title,
        mime_type=MARKDOWN,
        content_type="text",
        modified_ns=document.modified_ns,
        properties={"text_of": said.native_uri},
    )
