"""The names of a mounted tree: their nodes, their inodes, and for how long the kernel may cache them.

Names are resolved from their path at each use, so a listing may change under any inode. An inode is a path and a
version of the content (S7). Between two awaits a task is alone; nothing here locks.

A request of the file system that may have to wait for a source is a plain function. It returns its answer or a `Wait`.
The caller awaits that and asks again with all waits that have ended. So a cached answer costs no coroutine, but for an
opendir that no earlier one has prepared: it awaits `Tree.view`.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from copy import copy
from enum import Enum
from typing import Any, TypeVar, TypeVarTuple, final

import trio

from bbfs.model.errors import BbfsError, NameTooLong, NotADirectory, NotFound, NotSupported, Outdated
from bbfs.model.uri import SEARCH
from bbfs.model.values import ResourceMetadata
from bbfs.resources.catalog.lookups import ABSENT_FOR
from bbfs.resources.catalog.overlay import Draft
from bbfs.resources.catalog.record import (
    DIRECTORY,
    DIRECTORY_VERSION,
    NANOSECONDS,
    STAND_IN,
    Node,
    Path,
    Record,
    inode_version,
    loads_each_open,
)
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.resources.writing.temporary import is_temporary
from bbfs.sources import mime_type_of_name
from bbfs.vfs.file_handles import Attributes, FileHandles
from bbfs.vfs.inode_table import InodeTable

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

ROOT: Path = ()
FOREVER = 3600.0
SHORT = 1.0
"""Seconds for which the kernel may cache a name whose version has not been loaded yet."""
NAME_MAX = 255
LOOKUP_WAIT = 0.5
"""Seconds for which a lookup waits for a source. Other programs that look up the same name sleep uninterruptibly in the
kernel meanwhile, so that not even SIGKILL ends them."""
CREATED_VERSION = "\0+"
"""The version part of an inode that a lookup answers in place of a file to create, while the source has not said yet
whether there is one. Its getattr waits for that, and leads to another lookup."""


class Aim(Enum):
    """What a program looks a name up for."""

    PASSES = "it goes through the name to another one"
    CREATES = "it opens the name, and makes a file if there is none"
    MAKES = "it makes the name, and fails if there is one or replaces it"
    OTHER = "anything else"
    UNKNOWN = "not to be found out"


Asker = Callable[[], Awaitable[Aim]]


@final
class Wait:
    """A request to a source that another request waits for, and its outcome once it has ended."""

    __slots__ = ("arguments", "error", "request", "value")

    def __init__(self, request: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...]) -> None:
        self.request = request
        self.arguments = arguments
        self.value: Any = None
        self.error: BbfsError | None = None


Ended = tuple[Wait, ...]
"""The waits of one request that have ended."""


def after(ended: Ended, request: Callable[[*Ts], Awaitable[T]], *arguments: *Ts) -> T | Wait:
    """Return the outcome of a request that has ended, else the wait for it. Raise its error."""
    for wait in ended:
        if wait.request == request and wait.arguments == arguments:
            if wait.error is not None:
                raise copy(wait.error)
            return wait.value
    return Wait(request, arguments)


async def answered(answer: T | Wait, ask: Callable[..., T | Wait], *arguments: Any) -> T:
    """Await what `answer` waits for and ask again, until there is an answer. Raise BbfsError.

    ask: takes the waits that have ended as `ended`. No request is awaited twice, so this ends.
    """
    ended: Ended = ()
    while isinstance(answer, Wait):
        try:
            answer.value = await answer.request(*answer.arguments)
        except BbfsError as error:
            # The traceback of an error holds the frames that it has left, which hold the wait. Neither may lead back to
            # the error: a listing in one of these frames would stay until the garbage collector finds the cycle.
            answer.error = error.with_traceback(None)
        ended = (*ended, answer)
        answer = ask(*arguments, ended=ended)
    return answer


class Names:
    """The names of one mount.

    note_absent: called with (directory, name) for each absence that the kernel may cache. started_ns: when the mount
    began; the time of directories that have none.
    """

    def __init__(
        self,
        manager: ResourceManager,
        inodes: InodeTable,
        handles: FileHandles,
        note_absent: Callable[[Path, bytes], None],
    ) -> None:
        self._tree = manager.tree
        self._contents = manager.contents
        self._grants = manager.grants
        self._roots = manager.roots
        self._inodes = inodes
        self._handles = handles
        self._note_absent = note_absent
        self.started_ns = int(manager.clock() * NANOSECONDS)
        self.drafts: dict[int, Draft] = {}
        """The files that are being written, by inode number."""
        self.passed: Mapping[str, int] = {}
        """The inode numbers of the folders that are passed through, by their names at the root."""
        self.judged_by_files = manager.has_other_users

    def lookup(self, parent: int, raw_name: bytes, asker: Asker | None = None, ended: Ended = ()) -> Attributes | Wait:
        """Return the attributes of a name, counting one reference, or of its absence.

        It waits for a content only where a template makes the name and a program may create it (S12.4). If the source
        does not answer within `LOOKUP_WAIT`, the answer is provisional: without validity, and a directory unless an
        earlier listing had something else there; absent for a program that makes the name. Requests that a program can
        be taken out of decide: GETATTR, which the kernel sends before it walks through the directory or opens it, waits
        for the source and raises its error, or Outdated where the name is no directory.

        asker: returns what the program looks for. It is called only for a name that may have to be created.
        """
        return self.lookup_in(self.path(parent), raw_name, asker, ended)

    def lookup_in(
        self, directory: Path, raw_name: bytes, asker: Asker | None = None, ended: Ended = ()
    ) -> Attributes | Wait:
        """As `lookup`, for a directory that is given by its path."""
        if len(raw_name) > NAME_MAX:
            raise NameTooLong(f"{len(raw_name)} bytes")
        try:
            path = (*directory, raw_name.decode())
        except UnicodeDecodeError:
            return self._absence(directory, raw_name, self.validity(directory, most=ABSENT_FOR))
        try:
            place = self._tree.place(path) if len(path) > 1 else None
            node = self._tree.cached(path, place) if place is not None else self._root_entry(path[0])
            if node is None:
                node = after(ended, self._find_soon, path, place)
        except (NotFound, NotADirectory):
            return self._absence(path[:-1], raw_name, self._tree.absence(path) if len(path) > 1 else ABSENT_FOR)
        if type(node) is Wait:
            return node
        if node is not None:
            new = self._grants.may_be_new(path, node) if node.record or node.candidate else None
            if new is None:
                return self.counted(path, node)
            if node.kind == "directory":
                aim = self._aim(path, asker, ended)
                if aim is Aim.PASSES or (aim is Aim.UNKNOWN and not _is_of_file(path[-1])):
                    return self.counted(path, node)
                if type(aim) is Wait:
                    return aim
            # A program that creates the file must find that there is none yet.
            try:
                known = self._known_soon(path, node, new, ended)
            except NotFound:
                return self._absence(path[:-1], raw_name, 0.0)
            if type(known) is Wait:
                return known
            if known is not None:
                return self.counted(path, known)
        aim = self._aim(path, asker, ended)
        if type(aim) is Wait:
            return aim
        if aim is Aim.CREATES:
            ino = self._inodes.remember(path, CREATED_VERSION)
            return Attributes(ino, "file", 0, self.started_ns, 0.0, 0.0, writable=True)
        if aim is Aim.MAKES:  # the request that makes it waits for the source
            return self._absence(path[:-1], raw_name, 0.0)
        found = self.counted(path, node or self._tree.last_cached(path) or DIRECTORY)
        found.entry_timeout = found.attr_timeout = 0.0
        return found

    def _known_soon(self, path: Path, node: Node, new: Record, ended: Ended) -> Node | Wait | None:
        """Return what a name leads to that a template makes; None if the source does not say in time. Raise NotFound.

        Many servers have no code for "no such resource" and answer "internal error" (EIO). That must not bar the way to
        what is below, so the name stays what it was.
        """
        try:
            exists = after(ended, self._exists_soon, new)
        except BbfsError as error:
            if type(error) is not BbfsError or node.candidate is None:
                raise
            return node
        if isinstance(exists, Wait) or exists is None:
            return exists
        return self._tree.cached(path) or node if exists else self.left(path)

    def left(self, path: Path) -> Node:
        """Return the directory that a name is, though the source has no resource of it, as something below is known.

        Raise NotFound.
        """
        node = self._tree.cached(path)
        if node is None or node.kind != "directory" or node.candidate is not None:
            raise NotFound("/".join(path))
        return node

    def _aim(self, path: Path, asker: Asker | None, ended: Ended) -> Aim | Wait:
        return Aim.OTHER if asker is None or not self._grants.may_create(path) else after(ended, asker)

    def decide_created(self, path: Path, ended: Ended) -> Wait:
        """Wait until the source has said what a name leads to that a program may create. Raise Outdated then."""
        with suppress(NotFound):
            node = self.find(path, ended)
            if isinstance(node, Wait):
                return node
            new = self._grants.may_be_new(path, node)
            exists = after(ended, self._contents.exists, new) if new is not None else None
            if isinstance(exists, Wait):
                return exists
        raise Outdated("/".join(path))

    async def _find_soon(self, path: Path, place: tuple[Source, Path] | None) -> Node | None:
        """As `Tree.find`; None if the source does not answer within `LOOKUP_WAIT`."""
        with trio.move_on_after(LOOKUP_WAIT):
            return await self._tree.find(path, place)
        return None

    async def _exists_soon(self, record: Record) -> bool | None:
        """Return whether the source has a resource that a template makes; None if it does not say in time."""
        with trio.move_on_after(LOOKUP_WAIT):
            return await self._contents.exists(record)
        return None

    def find(self, path: Path, ended: Ended = (), place: tuple[Source, Path] | None = None) -> Node | Wait:
        """Return the node at a path. place: if the caller has it. Raise NotFound or the source's error."""
        if len(path) > 1:
            node = self._tree.cached(path, place)
            return after(ended, self._tree.find, path) if node is None else node
        return self._root_entry(path[0]) if path else DIRECTORY

    async def resolve(self, path: Path) -> Node:
        """As `find`, after what that waits for."""
        found = self.find(path)
        return await answered(found, self.find, path) if isinstance(found, Wait) else found

    def roots(self) -> dict[str, Node]:
        """Return the entries of the mount's root."""
        files = {name: self._root_entry(name) for name in self._tree.root_files}
        return files | dict.fromkeys(sorted(self._roots.directories()), DIRECTORY)

    def _root_entry(self, name: str) -> Node:
        if self._tree.has_root(name) or name in self._roots.directories():
            return DIRECTORY
        if name in self._tree.root_files:
            return self._tree.cached((name,)) or self._tree.last_cached((name,)) or DIRECTORY
        target = self._roots.link(name)
        if target is None:
            raise NotFound(f"no such source: {name}")
        return Node("symlink", target=target)

    def counted(self, path: Path, node: Node) -> Attributes:
        """Return the attributes of an entry for the kernel, counting one reference to its inode.

        The inode of a passed folder is always held. GETATTR tells its attributes.
        """
        if len(path) == 1 and path[0] in self.passed:
            return Attributes(self.passed[path[0]], "directory", 0, self.started_ns, SHORT, 0.0, writable=True)
        ino = self._inodes.remember(path, self._entry_version(path, node))
        if self._grants.is_lower and (pinned := self._handles.latest(ino)) is not None and node.draft is None:
            return pinned.attributes
        if node.draft is not None:
            self.drafts[ino] = node.draft
            node.draft.inos.add(ino)
        return self.attributes(ino, path, node)

    def _entry_version(self, path: Path, node: Node) -> str:
        """Return the version part of the inode that a name leads to.

        While a program has the file open, its inode answers for the open version. If the source may have another one by
        now, the name leads to a stand-in. Its getattr and open find out which inode is the right one, so a stat of the
        name is true although the open file keeps its version.
        """
        version = inode_version(node)
        if node.kind != "file" or node.record is None or node.draft is not None or not self._handles:
            return version
        ino = self._inodes.number(path, version)
        if not self._handles.holds(ino):
            return version
        if self._grants.is_lower:  # while programs have it open, all have that version
            pinned = self._handles.latest(ino)
            return version if pinned is None else pinned.version
        if loads_each_open(node.record):
            return version
        return version if self._contents.resolved(node.record) else version + STAND_IN

    def require_version(self, path: Path, version: str, record: Record) -> None:
        """Raise Outdated unless `version` is that of the file now. A stand-in gives way once that is certain."""
        certain = version.removesuffix(STAND_IN)
        if (
            record.inode_version != certain
            or record.parts is not None
            or (version != certain and self._contents.resolved(record))
        ):
            self._contents.send_on(record)
            raise Outdated("/".join(path))

    def _absence(self, directory: Path, raw_name: bytes, seconds: float) -> Attributes:
        """Return the answer for an absent name, with the seconds for which the kernel may cache it."""
        self._note_absent(directory, raw_name)
        return Attributes(0, "file", 0, 0, seconds, 0.0)

    def path(self, ino: int) -> Path:
        return self._inodes.get(ino).path

    def child(self, directory: int, raw_name: bytes) -> Path:
        """Return the path of a name that a program changes in a directory. Raise NameTooLong, NotSupported."""
        if len(raw_name) > NAME_MAX:
            raise NameTooLong(f"{len(raw_name)} bytes")
        try:
            return (*self.path(directory), raw_name.decode())
        except UnicodeDecodeError:
            raise NotSupported("a name that is not UTF-8") from None

    def validity(self, directory: Path, most: float = FOREVER) -> float:
        """Return the seconds for which the kernel may cache a name of a directory, or its absence."""
        return most if directory == ROOT else min(most, self._tree.validity((*directory, "")))

    def attributes(self, ino: int, path: Path, node: Node, size: tuple[int, float] | None = None) -> Attributes:
        """Return the attributes as cached. A size that only a load can tell has no validity (S9).

        size: of a file, with its validity, if the caller has asked for it already.
        """
        found = self._attributes(ino, path, node, size)
        if self.judged_by_files and path:
            found.private = self._is_private(path)
        return found

    def _is_private(self, path: Path) -> bool:
        """Return whether only the daemon's user may use a path: bbfs makes it of files that others may not read.

        These are the searches and the texts of documents of folders that are judged by their files, and the searches of
        the root, which search in such folders as well.
        """
        return bool(self.passed) and (path[0] in self.passed or path[0] == SEARCH)

    def _attributes(self, ino: int, path: Path, node: Node, known: tuple[int, float] | None) -> Attributes:
        if node.draft is not None:
            return of_draft(ino, node.draft)
        entry_timeout = self.validity(path[:-1]) if path else FOREVER
        record = node.record
        if node.kind == "symlink":
            length = len(as_bytes(node.target or ""))
            modified = record.modified_ns if record is not None else self.started_ns
            entry_timeout = entry_timeout if node.candidate is None else 0.0  # it is a directory again in a moment
            return Attributes(ino, "symlink", length, modified, entry_timeout, entry_timeout)
        writable = bool(path) and path[0] in self._grants.roots
        if node.kind == "directory":
            modified = record.modified_ns if record is not None else self.started_ns
            if node.candidate is not None:  # the next walk decides again, at no cost while the answer is cached
                return Attributes(ino, "directory", 0, modified, 0.0, 0.0, writable)
            return Attributes(ino, "directory", 0, modified, entry_timeout, entry_timeout, writable)
        assert record is not None
        size, validity = known or self._contents.size_now(record) or (record.best_size(), 0.0)
        # The name leads to a version, so the kernel is to look it up again when that may have changed.
        entry_timeout = 0.0 if record.provisional else min(entry_timeout, max(validity, SHORT))
        writable = writable and self._grants.replaceable(record)
        modified, changed = record.modified_ns, record.written_ns
        return Attributes(ino, "file", size, modified, entry_timeout, validity, writable, changed_ns=changed)

    def decide(self, node: Node, ended: Ended) -> Wait | None:
        """Ask the source whether a name is a resource, where it may also be a directory above others.

        LOOKUP answers a directory, so that a program can walk through it. If it is a resource, its name leads to that
        from now on.
        """
        if node.candidate is None or node.candidate.on_open:
            return None
        exists = after(ended, self._contents.exists, node.candidate)
        return exists if isinstance(exists, Wait) else None

    def shown(self, path: Path, node: Node | None) -> Attributes:
        """Return the attributes of an entry, counting one reference.

        node: of the name when its directory was opened; None to look the name up. While programs write files, and for a
        file that one was writing then, the name is looked up again: the kernel appends at the size that it gets here,
        and a draft that has ended must not get an inode again.
        """
        if node is None:
            found = self.find(path)
            if isinstance(found, Wait):
                raise NotFound("/".join(path))
            node = found
        elif self.drafts or node.draft is not None:
            node = self._now(path, node)
        record = node.record
        if node.kind == "file" and record is not None and record.parts is not None:
            node = Node("directory", record)
        return self.counted(path, node)

    def _now(self, path: Path, node: Node) -> Node:
        """Return the node that a name has now, or `node` without its draft if the name leads nowhere any more."""
        with suppress(NotFound):
            found = self.find(path)
            if not isinstance(found, Wait):
                return found
        return node if node.draft is None else Node(node.kind, node.record)


def of_draft(ino: int, draft: Draft) -> Attributes:
    """Return the attributes of a file that is being written. The kernel may keep none of them."""
    changed = draft.changed_ns
    return Attributes(ino, "file", draft.size, draft.modified_ns, 0.0, 0.0, writable=True, changed_ns=changed)


def stated(said: ResourceMetadata) -> Mapping[str, Any]:
    """Return what tells a version of a file from others, as far as its source states it."""
    return {"etag": said.etag} if said.etag is not None else {"modified_ns": said.modified_ns, "size": said.size}


def identity_below_an_overlay(version: str) -> str:
    """Return the part of a version that makes another inode where an overlay is over the mount.

    overlayfs takes its lower layer for immutable: another inode under a name is ESTALE to it. So a file is one inode,
    whatever its version.
    """
    return version if version == DIRECTORY_VERSION or version.startswith("@") else ""


def _is_of_file(name: str) -> bool:
    """Return whether a name looks like that of a file, and not of a directory."""
    return mime_type_of_name(name) is not None or is_temporary(name)


def as_bytes(target: str) -> bytes:
    """Return a link's target as the source has it; that of a folder may hold any bytes."""
    return target.encode("utf-8", "surrogateescape")
