"""Names that a source has beside those it lists: that programs have looked up, that its answers have mentioned, or that
it listed before.

An answer to a lookup is fresh as long as a listing is; that a name does not exist, for a few seconds.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from cachetools import LRUCache

from bbfs.model import uri_paths
from bbfs.model.errors import DeadlineExceeded, NotFound
from bbfs.model.uri import encodable, native_scheme
from bbfs.model.values import DataSource, ResourceMetadata
from bbfs.resources.cache.metadata import Remembered
from bbfs.resources.catalog.record import Path, Record, publish_description
from bbfs.sources import CanFind

if TYPE_CHECKING:
    from bbfs.resources.catalog.base import CatalogContext

LATE_FOR = 2.0
"""Seconds for which a source that did not answer in time is not asked the same again."""
NAMES_KEPT = 10_000
MENTIONED_KEPT, _LONGEST_MENTIONED = 1000, 4096
"""Mentioned resources that keep their paths, the last ones; and characters of their URIs: PATH_MAX of Linux."""
WEB = ("http", "https")
"""Schemes of addresses that clients load themselves, as the protocol of MCP says, unless the server lists them."""
_CALLS = ("tool", "prompt")
"""Schemes of what a load may run: their names are those of templates alone, which know that."""
ABSENT_FOR = 5.0
"""Seconds for which the absence of a name, or of an unlisted resource, is fresh."""
_PROBES = frozenset(
    """
    .git .hg .svn .bzr .jj .pijul .src _darcs _MTN {arch} CVS RCS SCCS .fslckout _FOSSIL_ .sl
    .gitignore .gitattributes .gitmodules .hgignore .ignore .rgignore .fdignore .agignore .dockerignore .ripgreprc
    .editorconfig .envrc .direnv .tool-versions .mise.toml .python-version .node-version .nvmrc .ruby-version
    .terraform .venv .projectile .dir-locals.el .dir-locals-2.el
    .hidden .directory .Trash .trash .thumbnails .xdg-volume-info .autorun autorun.inf autorun.sh .comments
    .DS_Store .localized .Spotlight-V100 .fseventsd .metadata_never_index .VolumeIcon.icns .nomedia
    desktop.ini Desktop.ini Thumbs.db thumbs.db .snapshot .zfs .snapshots .lost+found
    .search lost+found .updatedb .nobackup CACHEDIR.TAG .rsync-filter .cvsignore .htaccess 4913
    """.split()  # noqa: SIM905 - sixty quoted names read worse
)
_PROBE_FORMS = re.compile(
    r"\.Trash-[0-9]+|\._.*|\.fuse_hidden[0-9a-f]+|\.nfs[0-9a-f]+|\.#.*|#.*#|\..*\.sw[a-px]|.+~|\.goutputstream-.*|\.~lock\..*#|.+,v"
)
PAST_KEPT = 100_000
"""Dropped records whose state is kept."""


class Past:
    """The loaded resources that were dropped last, and those that are held, by native URI.

    A resource that is listed again continues with its record. Otherwise one whose content has changed in between would
    get the inode of the old content, and the kernel may have cached pages of that.
    """

    def __init__(self) -> None:
        self._rows: LRUCache[str, Remembered] = LRUCache(PAST_KEPT)
        self._there: WeakValueDictionary[str, Record] = WeakValueDictionary()

    def take_in(self, rows: Iterable[Remembered]) -> None:
        """Take over the records of an earlier mount."""
        for row in rows:
            self._rows.setdefault(row.uri, row)

    def there(self, native_uri: str) -> Record | None:
        """Return the record of a resource that a listing or a lookup still holds, or None."""
        return self._there.get(native_uri)

    def left(self, record: Record) -> None:
        """Keep the learnt state of a record that is dropped."""
        if record.digest is not None and record.parent is None:
            self._rows[record.metadata.native_uri] = record.to_remember()

    def overwrite(self, start: str) -> set[str]:
        """Serve nothing older of the resources whose URIs begin so. Return the URIs of those that are known."""
        there = {uri: record for uri, record in self._there.items() if uri.startswith(start)}
        for record in there.values():
            record.overwrite()
        rows = [(uri, row) for uri, row in self._rows.items() if uri.startswith(start)]
        for uri, row in rows:  # the kernel may have pages of its inode version
            self._rows[uri] = replace(row, fetched_at=None, ttl=None)
        return {*there, *(uri for uri, _ in rows)}

    def record(self, source_key: str, metadata: ResourceMetadata, path: Path, now: float) -> Record:
        """Make the record of a resource that had none, or had one of another kind."""
        record = Record(source_key, metadata, path, now)
        if metadata.kind == "resource":
            self._there[metadata.native_uri] = record
        row = self._rows.pop(metadata.native_uri, None) if metadata.kind == "resource" else None
        if row is not None:
            record.recall(row)
        return record


@dataclass(slots=True)
class _Answer:
    """The answer to a lookup at a time (seconds since the epoch); record: None for an absent name."""

    at: float
    record: Record | None


class _Answers(LRUCache[Path, _Answer]):
    """The answers used last."""

    def __init__(self, most: int, past: Past) -> None:
        super().__init__(most)
        self._past = past

    def __delitem__(self, path: Path) -> None:
        record = self[path].record
        if record is not None:
            self._past.left(record)
        super().__delitem__(path)


class LateAnswers:
    """Directories for which a source did not answer in time a moment ago.

    The kernel looks up the names of a directory one by one; without this, each lookup would wait for the whole timeout.
    clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[Path, tuple[float, str]] = {}

    def refuse(self, directory: Path) -> None:
        """Raise DeadlineExceeded again within `LATE_FOR` seconds."""
        until, text = self._until.get(directory, (0.0, ""))
        if self._clock() < until:
            raise DeadlineExceeded(text)

    @contextmanager
    def noted(self, directory: Path) -> Iterator[None]:
        """Note the directory if the source does not answer within the block."""
        try:
            yield
        except DeadlineExceeded as error:
            now = self._clock()
            self._until = {path: late for path, late in self._until.items() if now < late[0]}
            self._until[directory] = now + LATE_FOR, str(error)
            raise

    def forget(self) -> None:
        self._until.clear()


class FoundNames:
    """The names that were looked up last."""

    def __init__(self, source: DataSource, handler: CanFind, context: "CatalogContext", past: Past) -> None:
        self._source = source
        self._handler = handler
        self._context = context
        self._past = past
        self._answers = _Answers(NAMES_KEPT, past)
        self._late = LateAnswers(context.clock)

    def cached(self, path: Path) -> Record | None:
        """Return the cached record at a path, or None if the source must be asked. Raise NotFound."""
        if is_probe(path[-1]):
            raise NotFound(f"no such file: {'/'.join(path)}")
        answer = self._answers.get(path)
        if answer is None:
            return None
        lasts = ABSENT_FOR if answer.record is None else self._source.policy.listing_ttl
        if self._context.clock() >= answer.at + lasts:
            return None
        if answer.record is None:
            raise NotFound(f"no such file: {'/'.join(path)}")
        return answer.record

    def last_cached(self, path: Path) -> Record | None:
        """Return the record of the last answer for a path, however old it is, or None."""
        answer = self._answers.get(path)
        return None if answer is None else answer.record

    async def find(self, path: Path, segments: Path) -> Record:
        """Return the record at a path, asking the source. segments: of the directory's URI. Raise BbfsError."""
        known = self.cached(path)
        if known is not None:
            return known
        key, timeout = ("find", self._source.id, path), self._source.policy.timeout
        self._late.refuse(path[:-1])
        with self._late.noted(path[:-1]):
            return await self._context.flights.do(key, lambda: self._ask(path, segments), timeout)

    async def _ask(self, path: Path, segments: Path) -> Record:
        try:
            while True:
                began = self._context.written.count
                metadata = await self._handler.find(segments, path[-1])
                if not self._context.written.is_later(metadata.native_uri, began):
                    break
            if uri_paths.show_component(last_segment(metadata.native_uri)) != path[-1]:
                raise NotFound(f"no such file: {'/'.join(path)}")
        except NotFound:
            self._answers[path] = _Answer(self._context.clock(), None)
            raise
        now = self._context.clock()
        answer = self._answers.get(path)
        record = answer.record if answer is not None else None
        if record is None or record.metadata.kind != metadata.kind:
            record = self._past.record(self._context.key, metadata, path, now)
        elif record.describe(metadata, path, now):
            self._context.notify([path], "changed")
        publish_description(record, metadata, now, self._source.policy.content_ttl, is_listed=True)
        self._answers[path] = _Answer(now, record)
        return record

    def records(self) -> Iterable[Record]:
        return [answer.record for answer in self._answers.values() if answer.record is not None]

    def forget(self, path: Path) -> list[Path]:
        """Invalidate the answers at and below a path. Return the paths that may have changed."""
        self._late.forget()
        changed: list[Path] = []
        for known, answer in self._answers.items():
            if known[: len(path)] != path:
                continue
            answer.at, record = -inf, answer.record
            if record is not None and record.metadata.kind != "directory":
                record.invalidate()
                changed.append(known)
        return changed


class Mentioned:
    """Resources that no listing has and that an answer of the source has named, such as a link in the result of a tool.

    Each has the path that the rule gives its URI (S2). The directories above it exist, and list nothing of it.
    appeared: called with new paths, of which programs may have heard that they are absent. uris: by path.
    """

    def __init__(self, appeared: Callable[[list[Path]], None]) -> None:
        self._appeared = appeared
        self.uris: OrderedDict[Path, str] = OrderedDict()
        self._below: dict[Path, int] = {}
        """How many mentioned resources are below each directory."""

    def add(self, native_uri: str) -> Path | None:
        """Give a resource a path, and return the path; None if the path would not lead to this URI alone."""
        scheme = (native_scheme(native_uri) or WEB[0]).lower()
        if scheme in (*WEB, *_CALLS) or len(native_uri) > _LONGEST_MENTIONED or not encodable(native_uri):
            return None
        path = uri_paths.plain_path(native_uri).path
        if len(path) < 2 or uri_paths.native_of(path) != native_uri:
            return None
        if path not in self.uris:
            if path in self._below or self.at_or_above(path) is not None:  # a file has nothing below it
                return None
            self._forget(len(self.uris) + 1 - MENTIONED_KEPT)
            above = [path[:depth] for depth in range(1, len(path))]
            self._appeared([*(each for each in above if each not in self._below), path])
            for each in above:
                self._below[each] = self._below.get(each, 0) + 1
            self.uris[path] = native_uri
        self.uris.move_to_end(path)
        return path

    def _forget(self, count: int) -> None:
        for _ in range(count):
            path, _ = self.uris.popitem(last=False)
            for depth in range(1, len(path)):
                self._below[path[:depth]] -= 1
                if not self._below[path[:depth]]:
                    del self._below[path[:depth]]

    def at_or_above(self, path: Path) -> tuple[str, Path] | None:
        """Return the URI and the path of the mentioned resource at a path, or above it; None if there is none."""
        for depth in range(len(path), 1, -1):
            uri = self.uris.get(path[:depth])
            if uri is not None:
                return uri, path[:depth]
        return None

    def leads(self, path: Path) -> bool:
        """Return whether a path is a directory above a mentioned resource."""
        return path in self._below


def last_segment(native_uri: str) -> str:
    """Return the segment of a native URI that names the resource in its directory."""
    return native_uri.rstrip("/").rpartition("/")[2]


def own_segment(metadata: ResourceMetadata, directory_uri: str | None) -> str | None:
    """Return the segment for the own content of a directory in it (S5), None for any other entry.

    directory_uri: without a slash at its end. The content has the same URI, or one with an empty last segment, which is
    written `%2F`. The segment shows as `index` with its extension, and gives way to an entry whose name that is.
    """
    if directory_uri is None or metadata.kind != "resource":
        return None
    if metadata.native_uri.rstrip("/") == directory_uri:
        hidden = "%69"
    elif metadata.native_uri == directory_uri + "/%2F":
        hidden = "%69%6E"
    else:
        return None
    return hidden + uri_paths.hide_component(uri_paths.index_name(metadata.mime_type)[hidden.count("%") :])


def is_probe(name: str) -> bool:
    """Return whether programs look for this name in every directory, whatever it holds.

    Where any name can be a resource (the variables of a template), each of these would be a request to a server that
    no user meant to send: a prompt asks for `.git` in every directory on the way up, a file manager for `.hidden`, a
    search program for `.gitignore`. So such a name exists only if the source itself names it, in its listing or its
    completions. A user who wants one all the same writes it encoded (`%2Egit`), which no program does by itself.
    """
    return name in _PROBES or _PROBE_FORMS.fullmatch(name) is not None
