"""The state of each resource while the daemon runs: one mutable record a resource, and the nodes of the tree with
their inode numbers.

A record outlives listings: a resource that is listed again keeps its learnt size, version and inode. Everything here is
synchronous; between two awaits a task is alone.
"""

import time
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

from bbfs.model.errors import BbfsError
from bbfs.model.values import Part, ResourceMetadata
from bbfs.model.versions import Expected
from bbfs.resources.cache.metadata import Remembered

if TYPE_CHECKING:
    from bbfs.resources.catalog.overlay import Draft  # which has a record

Path = tuple[str, ...]
NANOSECONDS = 1_000_000_000
LARGEST = 1 << 63
"""Sizes (bytes) and times (ns) must be less: the kernel has them as signed 64-bit numbers."""
JUST_NOW = 0.25
"""Seconds for which a load counts as fresh, even with a time to live of 0."""
AWAITED = 1.0
"""Seconds for which the version that ESTALE leads to is valid, or until it is opened. On a busy machine the kernel's
retry comes late."""
DIRECTORY_VERSION = "/"
"""The version part of a directory's inode: never that of a file, since a name may change from one to the other."""
STAND_IN = "\0?"
"""Ends the version part of an inode that stands in for one that is open and may be outdated."""
ROOT = 1
"""The inode number of the mount's root, fixed by FUSE (FUSE_ROOT_ID)."""
PASSED = 1 << 62
"""The lowest number of a file in a local folder that the mount passes through. Below are the hashes."""
FIRST_HASHED = 2
HASHED = PASSED - FIRST_HASHED
"""How many numbers are hashes: those from `FIRST_HASHED` to the one below `PASSED`."""
_BEGAN = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def steady_time() -> float:
    """Return seconds since the epoch as the system's clock had them when this process began, counted since then.

    Freshness is measured by it: nothing sets it, and it counts while the machine sleeps. On disk and on other machines,
    its times meet those of other clocks: a time in the future counts as expired there.
    """
    return _BEGAN + time.clock_gettime(time.CLOCK_BOOTTIME)


class Record:
    """The state of one resource.

    path: names in the catalog of its source (empty for a resource that no listing holds).
    size: bytes, learnt from a content or a description with an ETag; None before. inode_version: part of the inode
        number: the URI until an ETag is stated, or another version loaded or written. A first size makes no new inode.
    digest: the version last learnt, of a content or an ETag. shown: the `Content.version` of what the mount has loaded
        or stored last, whatever the source has announced since; None if an ETag tells it, or if nothing does.
        modified_ns: the source's own time, else when the content was first seen to change. fetched_at, ttl: when a
        load, or a description with an ETag, last confirmed the version, and for how many seconds that holds, unless it
        is `invalidated`: the source has hinted since then that it changed. invalidations: how often it has, so that a
        load under way can tell. stale: whether this was served on when the source last did not answer (S20).
    declared: size, time and etag as the source last described them. listed_at: when it did. hinted_at: when a
        description last hinted at another content. error: the error of the last load, until `error_until`.
    changed_at: when a load last found another version. awaited_until: until when the program that ESTALE has sent to
        the last version gets it, even invalidated. ahead: loaded ahead, unused. dirty: not stored for the next mount.
    parts: the contents of a resource that answered several, by name: it is a directory then. parent, part: of such a
        content: the record of the resource, and the place among its contents, from 0.
    salt: makes other inodes of the same versions, once the kernel has cached bytes that no version has.
    provisional: the source has not confirmed yet that the resource exists; the first load tells.
    written_ns: when a program changed the bytes of this inode version, which the mount has stored; None for any other.
    unstated: the digest of those bytes, if the source did not state a version of them.
    resized: whether the source has stated several sizes under this inode version: the kernel may have any of them.
    writes: how often the mount has written it, so that an answer from before can be passed over.
    """

    __slots__ = (
        "__weakref__", "_inode_version", "ahead", "awaited_until", "changed_at", "declared", "digest", "dirty",
        "error", "error_until", "fetched_at", "hinted_at", "invalidated", "invalidations", "listed_at", "metadata",
        "modified_ns", "parent", "part", "parts", "path", "provisional", "resized", "salt", "shown", "size",
        "source_key", "stale", "ttl", "unstated", "writes", "written_ns",
    )  # fmt: skip

    def __init__(self, source_key: str, metadata: ResourceMetadata, path: Path, now: float) -> None:
        self.source_key = source_key
        self.metadata = metadata = _usable(metadata)
        self.path = path
        self.declared = (metadata.size, metadata.modified_ns, metadata.etag)
        self.size: int | None = None
        self.digest: str | None = None
        self.shown: str | None = None
        self.salt = ""
        self.written_ns: int | None = None
        self.unstated: str | None = None
        self.resized = False
        self._inode_version = metadata.native_uri
        self.invalidated = False
        self.invalidations = 0
        self.modified_ns = metadata.modified_ns if metadata.modified_ns is not None else int(now * NANOSECONDS)
        self.fetched_at: float | None = None
        self.ttl = 0.0
        self.listed_at = now
        self.hinted_at = 0.0
        self.stale = False
        self.ahead = False
        self.changed_at = 0.0
        self.awaited_until = 0.0
        self.dirty = False
        self.error: BbfsError | None = None
        self.error_until = 0.0
        self.parts: dict[str, Record] | None = None
        self.parent: Record | None = None
        self.part = 0
        self.provisional = False
        self.writes = 0

    @property
    def inode_version(self) -> str:
        return self._inode_version + self.salt if self.salt else self._inode_version

    @inode_version.setter
    def inode_version(self, version: str) -> None:
        self._inode_version, self.written_ns, self.unstated, self.resized = version, None, None, False

    def store_as(self, version: str, written_ns: int | None, *, is_stated: bool) -> None:
        """Give the stored content the inode version under which programs have written it.

        is_stated: whether the source has stated the version of the stored content.
        """
        self.inode_version, self.salt, self.written_ns = version, "", written_ns
        self.unstated = None if is_stated else self.digest

    @property
    def key(self) -> tuple[str, str]:
        """The key of the content in caches and flights: a part is loaded with its resource."""
        owner = self if self.parent is None else self.parent
        return (owner.source_key, owner.metadata.native_uri)

    @property
    def on_open(self) -> bool:
        """Return whether each open loads it, and nothing else does. A part was loaded with its resource, once."""
        return (self if self.parent is None else self.parent).metadata.on_open

    @property
    def state(self) -> Expected:
        """The state that a write replaces: the last one that the mount has shown, also if a later one is announced."""
        etag = self.metadata.etag
        return Expected(exists=True, etag=etag, version=self.shown if etag is None else None)

    def fresh(self, now: float) -> bool:
        """Return whether the last content may be served without asking the source."""
        return self.fetched_at is not None and not self.invalidated and now < self.fetched_at + self.ttl

    def fresh_for(self, now: float) -> float:
        """Return the seconds for which `fresh` holds, or 0."""
        return self.fetched_at + self.ttl - now if self.fetched_at is not None and self.fresh(now) else 0.0

    def confirmed_within(self, seconds: float, now: float) -> bool:
        """Return whether a load less than `seconds` ago is still good: asking again would tell nothing."""
        return self.fetched_at is not None and not self.invalidated and now < self.fetched_at + seconds

    def loaded_within(self, seconds: float, now: float) -> bool:
        """As `confirmed_within`, even if the source has announced a change since."""
        return self.fetched_at is not None and now < self.fetched_at + seconds

    def changed_within(self, seconds: float, now: float) -> bool:
        """Return whether the last load found a new version less than `seconds` ago.

        It is served even if expired: the kernel retries a lookup only once after ESTALE, so a content that differs at
        each load could never be opened with a time to live of 0.
        """
        return now < self.awaited_until or (not self.invalidated and now < self.changed_at + seconds)

    def learnt_size(self, now: float) -> tuple[int, float] | None:
        """Return the learnt size in bytes with the seconds for which it holds: as long as its content is fresh."""
        return (self.size, left) if self.size is not None and (left := self.fresh_for(now)) else None

    def declared_size(self, now: float, listing_ttl: float) -> tuple[int, float] | None:
        """Return the source's own size in bytes with the seconds for which it holds: while its description is fresh.

        Once a content was seen, it holds only if it is the size of that, for another size is another version.
        """
        declared, left = self.metadata.size, self.listed_at + listing_ttl - now
        if declared is None or left <= 0 or (self.digest is not None and self.size != declared):
            return None
        return declared, left

    def best_size(self) -> int:
        """Return the size for a listing while the true one is not known: the learnt, else the declared, else 0.

        A resource that each open loads has no size before.
        """
        if self.size is not None and not self.metadata.on_open:
            return self.size
        return self.metadata.size or 0

    def describe(self, metadata: ResourceMetadata, path: Path, now: float) -> bool:
        """Take over a newer description by the source. Return whether it hints at a new content."""
        metadata = _usable(metadata)
        old, self.path, self.listed_at = self.metadata, path, now
        if metadata.mime_type is None and old.mime_type is not None:
            metadata = replace(metadata, mime_type=old.mime_type)
        if metadata.content_type == "unknown" != old.content_type:
            metadata = replace(metadata, content_type=old.content_type)
        before, self.declared = self.declared, (metadata.size, metadata.modified_ns, metadata.etag)
        changed = before != self.declared
        if not changed and old.properties is not None:
            properties = {**old.properties, **(metadata.properties or {})}
            metadata = replace(metadata, etag=old.etag, modified_ns=old.modified_ns, properties=properties)
        self.metadata = metadata
        if changed:
            self.resized = self.resized or (before[0] is not None and before[0] != metadata.size)
            self.invalidate()
            self.listed_at = self.hinted_at = now
            if metadata.modified_ns is not None:
                self.modified_ns = metadata.modified_ns
        return changed

    @property
    def invalid_before(self) -> float:
        """The time before which fetched contents are invalid; 0 while there is no hint of a change."""
        if not self.invalidated:
            return 0.0
        return self.hinted_at if self.invalidations else self.listed_at  # one that is back was invalid from the start

    def invalidate(self) -> None:
        """End the validity of the content, and of the size that went with it: the next stat or open asks the source."""
        if self.invalidated and not self.invalidations:
            self.hinted_at = self.listed_at  # what is invalid stays the same, see `invalid_before`
        self.invalidated = True
        self.dirty = self.dirty or self.fetched_at is not None  # the next mount is to ask as well
        self.invalidations += 1
        self.listed_at = 0.0
        self.error = None
        for part in (self.parts or {}).values():
            part.invalidate()

    def overwrite(self) -> None:
        """Serve nothing from now on that was asked for before: the mount has changed what the source has."""
        self.invalidate()
        self.writes += 1
        self.awaited_until = self.changed_at = 0.0  # nothing older may be served, not even to one sent by ESTALE

    def expire(self, now: float) -> None:
        """End the time to live of the content and of its size, without a hint that they changed.

        What was loaded just now stays fresh for the open that follows the stat.
        """
        for each in (self, *(self.parts or {}).values()):
            if each.fetched_at is not None:
                each.ttl = min(each.ttl, max(JUST_NOW, now - each.fetched_at))
            each.listed_at = 0.0

    def learn(self, size: int, digest: str, now: float, ttl: float, *, outdated: bool = False) -> bool:
        """Take over the result of a load. Return whether this is another version than the last one.

        outdated: whether a change was announced since the load began; then the record stays invalidated.

        A declared size that the content contradicts counts as another version: the kernel may have cached it.
        """
        changed = digest != self.digest if self.digest is not None else not self.is_of_size(size)
        if changed:
            if not self.metadata.on_open:  # whose opens share an inode, but no pages
                self.inode_version, self.changed_at = digest, now
            if self.metadata.modified_ns is None:
                self.modified_ns = int(now * NANOSECONDS)
        self.size, self.digest, self.shown, self.fetched_at, self.ttl = size, digest, digest, now, ttl
        self.invalidated = outdated
        self.stale, self.error, self.dirty, self.provisional = False, None, True, False
        return changed

    def is_of_size(self, size: int) -> bool:
        """Return whether the kernel can have no other size of the inode than that of its first content."""
        return not self.resized and {self.metadata.size, self.declared[0]} <= {None, size}

    def is_shown_otherwise(self, size: int | None) -> bool:
        """Return whether the kernel may have another size of the inode than this one, which the source states now."""
        return self.resized or (self.digest is None and self.metadata.size not in (None, size))

    def adopt(self, said: ResourceMetadata) -> None:
        """Take over metadata that the source gives only with a load, without its size. A property of None goes."""
        properties = {**(self.metadata.properties or {}), **(said.properties or {})}
        given = {
            "title": said.title,
            "description": said.description,
            "mime_type": said.mime_type,
            "modified_ns": usable_time(said.modified_ns),
            "etag": said.etag,
            "properties": {name: value for name, value in properties.items() if value is not None},
        }
        self.metadata = replace(self.metadata, **{name: value for name, value in given.items() if value is not None})
        if self.metadata.modified_ns is not None:
            self.modified_ns = self.metadata.modified_ns

    def adopt_type(self, part: Part) -> None:
        """Take over the MIME type of a content: some servers give it only there."""
        m = self.metadata
        mime_type = part.mime_type if m.on_open else m.mime_type or part.mime_type
        if (mime_type, part.content_type) != (m.mime_type, m.content_type):
            self.metadata = replace(m, mime_type=mime_type, content_type=part.content_type)

    def recall(self, row: Remembered) -> None:
        """Take over the state that an earlier mount had learnt."""
        self.size, self.digest, self.shown = row.size, row.digest, row.shown
        self.inode_version = row.inode_version or self.inode_version
        self.fetched_at, self.ttl = row.fetched_at, row.ttl or 0.0
        if self.metadata.modified_ns is None:
            self.modified_ns = row.modified_ns

    def to_remember(self) -> Remembered:
        """Return the row for the next mount; an invalidated content is not fresh for it either."""
        ttl = None if self.fetched_at is None else 0.0 if self.invalidated else self.ttl
        return Remembered(
            self.metadata.native_uri,
            self.size,
            self.digest,
            self.inode_version,
            self.modified_ns,
            self.fetched_at,
            ttl,
            self.shown,
        )


def content_key(record: Record) -> tuple[str, str, int, str | None]:
    """Return the key of a content in memory. It has the version; 0 is the resource, its parts count from 1."""
    owner, part = (record, 0) if record.parent is None else (record.parent, record.part + 1)
    return owner.source_key, owner.metadata.native_uri, part, record.digest


def publish_description(
    record: Record,
    metadata: ResourceMetadata,
    now: float,
    ttl: float,
    *,
    keeps_inode: bool = False,
    is_listed: bool = False,
) -> None:
    """Take a description with an etag for a load: the version, and so the inode, follow from it.

    keeps_inode: it is of the first content ever seen, as in `Record.learn`, or of the bytes that the inode has.
    is_listed: the source describes it whenever its name is listed or looked up, so the next mount needs no row of it.
    """
    size = usable_size(metadata.size)
    if size == record.size and record.digest is not None and record.digest == record.unstated and not keeps_inode:
        return  # only a load can tell if the first version that the source states is that of the written bytes
    if metadata.etag is not None and size is not None and metadata.kind == "resource":
        if record.digest != metadata.etag and not keeps_inode:
            record.inode_version = metadata.etag
        if not is_listed and (size, metadata.etag) != (record.size, record.digest):
            record.dirty = True
        record.size, record.digest, record.shown = size, metadata.etag, None
        record.fetched_at, record.ttl = now, ttl
        record.invalidated = record.stale = False


def usable_size(size: int | None) -> int | None:
    """Return a declared size in bytes that a file system can show, or None: some sources declare any."""
    return size if size is not None and 0 <= size < LARGEST else None


def usable_time(modified_ns: int | None) -> int | None:
    """As `usable_size`, of a time in nanoseconds."""
    return modified_ns if modified_ns is not None and -LARGEST <= modified_ns < LARGEST else None


def _usable(metadata: ResourceMetadata) -> ResourceMetadata:
    """Return metadata without numbers that no file system can show."""
    size, modified_ns = usable_size(metadata.size), usable_time(metadata.modified_ns)
    if size != metadata.size or modified_ns != metadata.modified_ns:
        return replace(metadata, size=size, modified_ns=modified_ns)
    return metadata


@dataclass(slots=True)
class Lease:
    """A promise: while it lasts, every listed name resolves to the same resource.

    until: seconds since the epoch. A change of any name sets it to 0 first. So a path that was walked once need not be
    walked again while the lease lasts.
    """

    until: float = 0.0

    def end(self) -> None:
        self.until = 0.0


@dataclass(frozen=True, slots=True)
class Node:
    """One name of the tree. A directory that follows from URIs has no record; a resource of several parts has one.

    candidate: the resource that a directory may be instead, if the source has it; only a load can tell. A link with a
    candidate is a directory again in a moment. completed: the source itself has named a provisional resource. draft:
    what a program is writing, or has written for the mount alone; the file is this, whatever the record says.
    """

    kind: Literal["directory", "file", "symlink"]
    record: Record | None = None
    target: str | None = None
    candidate: Record | None = None
    completed: bool = False
    draft: "Draft | None" = None


DIRECTORY = Node("directory")


def record_node(record: Record) -> Node:
    if record.parts is not None or record.metadata.kind == "directory":
        return Node("directory", record)
    if record.metadata.kind == "symlink":
        return Node("symlink", record, record.metadata.target or "")
    return Node("file", record)


def loads_each_open(record: Record) -> bool:
    """Return whether each open of a file is a load of its own (S31).

    All opens share one inode, so that a program opens the file that it has looked up; the open makes the version.
    """
    return record.on_open and record.parent is None


def inode_version(node: Node) -> str:
    """Return the version part of the inode number of a node."""
    if node.draft is not None:
        return node.draft.version
    if node.kind == "directory":
        return DIRECTORY_VERSION
    if node.kind == "symlink":
        return "@" + (node.target or "")
    assert node.record is not None
    return node.record.inode_version


def inode_number(path: tuple[str, ...], version: str = "") -> int:
    """Return the number of the inode at `path` (names below the mount's root) in the version `version`.

    1 for the root; otherwise from 2 up to 2**62 - 1, never 0. Names are legal file names (not empty, no NUL); equal
    arguments give equal numbers on every machine and in every release.
    """
    if not path:
        return ROOT
    # Names are neither empty nor hold NUL: the first pair of NULs ends the path, so no two keys hash the same text.
    text = "\0".join(path) + "\0\0" + version
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return FIRST_HASHED + int.from_bytes(digest, "big") % HASHED
