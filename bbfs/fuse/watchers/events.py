"""Which events the programs that watch the mount get: a bounded queue of changed paths, and the task that empties it.

A change is on the bus as soon as its source has announced it, or bbfs has found it. No event asks a source for
anything. An event is made only where a program may watch: in a directory that the kernel holds, and that the last look
at the watches of all programs has shown, or a look after the change shows.
"""

import errno
import logging
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Literal, Protocol

import trio
from cachetools import LRUCache, TTLCache

from bbfs.fuse.watchers.toucher import Call, Kind, Status
from bbfs.model.errors import BbfsError, NotADirectory, NotFound
from bbfs.model.values import Change
from bbfs.resources.catalog.record import DIRECTORY_VERSION, PASSED, ROOT, Node, Path
from bbfs.resources.tree import Tree
from bbfs.vfs.filesystem import FileSystem
from bbfs.vfs.names import as_bytes
from bbfs.vfs.passthrough.inodes import folder_of

log = logging.getLogger(__name__)

Happened = Literal["created", "modified", "deleted", "replaced", "touched", "doubted"]
"""The change of a path. touched: a directory, or names in it. doubted: a name in a local folder, whose change only a
listing of the directory can tell."""
GATHERED_FOR = 0.05
"""Seconds in which changes are gathered: equal ones are one event, and the kernel is notified of names meanwhile."""
MOST = 5000
"""Paths that wait. If there are more, their directories are touched instead."""
AT_ONCE, TURN = 20, 0.05
"""Events that are made without a pause, and the pause in seconds: about 400 events a second at most."""
DOUBTED_APART = 8
"""Paths without a known difference that get an event each. If there are more, their directories are touched."""
LOOK_EVERY = 1.0
"""Seconds between two looks at the watches of all programs, at least."""
FOLLOW_EVERY, FOLLOWED_AGAIN = 1.0, 3
"""Seconds between two looks while programs use local folders, and looks after their last request."""
FIRST_LOOKS = 10
"""Looks after a restart until one succeeds, at most. The process that looks pauses before it starts again."""
LOOK_SHARE = 20
"""A look may take one part in so many of the time."""
LOOKED_FOR = 10.0
"""Seconds after which the watches are looked at again although the changed places were watched."""
OWN_FOR, ECHOED_FOR = 60.0, 2.0
"""Seconds within which a listing shows what a program of the mount has changed, and a source announces it."""
REPEATED_FOR = 60.0
"""Seconds within which a load finds what was announced before."""
KEPT = 10_000
_INSTEAD: Mapping[tuple[Kind, int], Kind] = {
    ("file", errno.EEXIST): "modify",
    ("link", errno.EEXIST): "modify",
    ("folder", errno.EEXIST): "touch",
    ("unlink", errno.EISDIR): "rmdir",
    ("rmdir", errno.ENOTDIR): "unlink",
}
"""The call after one that failed, since the kernel has something else there: a program has looked the name up."""
KILLED = (errno.ETIMEDOUT, errno.EPIPE)
"""The process that makes the calls has ended: once more, by another one."""

_MERGED: Mapping[tuple[Happened, Happened], Happened | None] = {
    ("created", "modified"): "created",
    ("created", "deleted"): None,
    ("deleted", "created"): "replaced",
    ("replaced", "modified"): "replaced",
    ("replaced", "deleted"): "deleted",
}
"""Two events of one path, made to one; otherwise the later one counts."""


@dataclass(slots=True)
class Tally:
    """Counts: changes that were heard, and what became of the paths in them.

    made, failed: events. merged: paths with one event for several changes, or none, since they are as before. dropped:
    paths that no program watches. overflown: how often the directories took the place of too many paths.
    """

    changes: int = 0
    made: int = 0
    merged: int = 0
    dropped: int = 0
    failed: int = 0
    overflown: int = 0


class Caller(Protocol):
    """Makes the calls, and sees the watches. statuses: what the kernel had of inodes when they were touched.

    lack: why no call can be made; empty while they can.
    """

    @property
    def lack(self) -> str: ...

    @property
    def statuses(self) -> Mapping[int, Status]: ...

    async def perform(self, call: Call) -> int: ...

    async def watched(self) -> tuple[set[int], bool] | None:
        """Return the watched inodes, as far as they are seen, and whether these are all; None if the look failed."""
        ...


class Folders(Protocol):
    """The local folders of a mount: what a program watches there is watched in the folder, too.

    requests: a number that grows while programs use folders; -1 without folders.
    """

    @property
    def requests(self) -> int: ...

    def has(self, path: Path) -> bool:
        """Return whether a path is in a folder that is listed."""
        ...

    async def follow(self, number: int, path: Path) -> None:
        """Watch a directory in its folder. number: its inode on the mount."""
        ...

    async def list_again(self, directory: Path) -> None:
        """List a directory of a folder, so that what differs is heard."""
        ...

    async def confirm(self, directory: Path) -> None:
        """Ask the source of any directory for its names once, so that what differs from them later is heard."""
        ...


class Events:
    """The events of one mount."""

    def __init__(self, files: FileSystem, tree: Tree, caller: Caller, folders: Folders) -> None:
        self._files = files
        self._tree = tree
        self._caller = caller
        self._folders = folders
        self._of_folders: LRUCache[Path, tuple[int, Kind | None]] = LRUCache(KEPT)
        """Names of passed folders: the inode of the directory, and what they lead to."""
        self._waiting: dict[Path, Happened] = {}
        self._unseen: dict[Path, Happened] = {}  # in places that were not watched when the programs were looked at
        self._doubted: set[Path] = set()
        """Of those that wait, or were not watched: a listing tells what has happened since."""
        self._filled = trio.Event()
        self._watched: dict[Path, list[int]] = {}
        self._are_all = True
        """True if the last look could read the watches of every program. Otherwise each directory counts as watched."""
        self._looked_at = self._look_from = 0.0
        self._first_looks = 0  # that may still be made after a restart
        self._requests, self._idle = 0, FOLLOWED_AGAIN
        self._own: TTLCache[Path, float] = TTLCache(KEPT, OWN_FOR, trio.current_time)
        self._announced: TTLCache[Path, None] = TTLCache(KEPT, REPEATED_FOR, trio.current_time)
        self._directories: TTLCache[Path, None] = TTLCache(KEPT, REPEATED_FOR, trio.current_time)
        """Directories in which names have gone. Those that have gone with all that they had are no files."""
        self.tally = Tally()

    def state(self) -> dict[str, object]:
        """Return the counts, how many inodes programs watch as far as that is seen, and whether all is seen."""
        watched = sum(map(len, self._watched.values()))
        waiting = len(self._waiting) + len(self._unseen)
        return {**asdict(self.tally), "waiting": waiting, "watched": watched, "sees_all": self._are_all}

    def kept(self) -> list[tuple[Path, Happened]]:
        """Return the changes that wait, for the next daemon of the mount."""
        return [*(self._unseen | self._waiting).items()]

    def take_over(self, kept: Iterable[tuple[Iterable[str], Happened]]) -> None:
        """Go on after the daemon before. What has changed since is not known: watched directories are touched."""
        self._waiting.update((tuple(path), happened) for path, happened in kept)
        self._first_looks = FIRST_LOOKS
        self._filled.set()

    async def _look_first(self) -> None:
        """List the watched directories, so that later changes of their names are seen, and touch them."""
        if not await self._look():
            self._first_looks = 0 if self._caller.lack else self._first_looks - 1
            self._filled.set()  # look again, after the events that wait
            return
        self._first_looks = 0
        for path, numbers in self._watched.items():
            if any(self._is_directory(number) for number in numbers):
                await self._folders.confirm(path)
                self._add(path, "touched")

    def _is_directory(self, inode: int) -> bool:
        if inode < PASSED:
            return self._files.inodes.get(inode).version == DIRECTORY_VERSION
        return stat.S_ISDIR(self._files.passed[folder_of(inode)].folder.inodes[inode].key[2])

    # -- what is heard -----------------------------------------------------------------------------------------------

    def heard(self, change: Change) -> None:
        """Take in a change. Nothing waits."""
        if change.own:
            now = trio.current_time()
            self._own.update(dict.fromkeys(change.paths, now))
            return
        if change.found == "nothing" or not (change.paths or change.added or change.removed):
            return
        self.tally.changes += 1
        if change.below or (change.found == "doubt" and len(change.paths) > DOUBTED_APART):
            for path in change.paths if change.below else {path[:-1] for path in change.paths}:
                self._add(path, "touched")
            return
        self._directories.update(dict.fromkeys(path[:-1] for path in change.removed))
        for path in sorted(change.added, key=len):
            if self._own.pop(path, None) is None:
                self._add(path, "created")
        for path in sorted(change.removed, key=len, reverse=True):
            if self._own.pop(path, None) is None:
                self._add(path, "deleted")
        for path in change.paths - change.added - change.removed:
            if self._waiting.get(path[:-1]) != "touched" and not self._is_repeated(path, change):
                self._add(path, "doubted" if change.found == "source" and self._folders.has(path) else "modified")

    def _is_repeated(self, path: Path, change: Change) -> bool:
        """Return whether an event of a change was made already, or is the kernel's own of a program of the mount."""
        if change.found == "source":
            if trio.current_time() < self._own.get(path, -ECHOED_FOR) + ECHOED_FOR:
                return True
            self._announced[path] = None
            return False
        if change.found == "listing":
            self._announced[path] = None
        return change.found == "load" and self._announced.pop(path, self) is None

    def of_folder(self, path: Path, directory: int, there: Kind | None, happened: Happened) -> None:
        """Take in a change of a passed folder by another program. there: what makes the event of a new name."""
        self.tally.changes += 1
        self._of_folders[path] = directory, there
        self._add(path, happened)

    def _add(self, path: Path, happened: Happened) -> None:
        if not path or self._caller.lack:
            return
        if self._waiting.get(path[:-1]) == "touched" and happened != "touched":
            self.tally.merged += 1
            return  # too many names have changed there to tell them apart
        before = self._waiting.pop(path, None) or self._unseen.pop(path, None)
        self.tally.merged += before is not None
        merged = happened if before is None else _MERGED.get((before, happened), happened)
        if happened == "doubted" and before not in (None, "doubted"):
            self._doubted.add(path)
            merged = before
        if merged is None:
            return
        self._waiting[path] = merged
        if len(self._waiting) + len(self._unseen) > MOST:
            self.tally.overflown += 1
            self.tally.merged += len(self._waiting) + len(self._unseen)
            above = {each if what == "touched" else each[:-1] for each, what in (self._waiting | self._unseen).items()}
            self._unseen = {}
            self._waiting = dict.fromkeys(above if len(above) <= MOST // 2 else {each[:1] for each in above}, "touched")
        self._filled.set()

    # -- what is made ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Make events until cancelled."""
        while True:
            with trio.move_on_at(self._look_from if self._unseen else trio.current_time() + FOLLOW_EVERY):
                await self._filled.wait()
            if not self._filled.is_set() and not self._unseen:
                await self._follow()
                continue
            await trio.sleep(GATHERED_FOR)
            self._filled = trio.Event()
            if self._first_looks:
                await self._look_first()
                await self._make(is_looked=True)
            elif self._unseen and trio.current_time() >= self._look_from:
                self._waiting, self._unseen = self._unseen | self._waiting, {}
                await self._look()
                await self._make(is_looked=True)
            else:
                await self._make(is_looked=False)

    async def _follow(self) -> None:
        """Look at the watches after programs have used a local folder, which is to be watched where they watch."""
        requests = self._folders.requests
        self._idle = self._idle + 1 if requests == self._requests else 0
        self._requests = requests
        if requests >= 0 and self._idle < FOLLOWED_AGAIN and trio.current_time() >= self._look_from:
            await self._look()

    async def _look(self) -> bool:
        """Look at the watches of all programs. Return whether the look succeeded."""
        began = trio.current_time()
        seen = await self._caller.watched()
        numbers, self._are_all = seen or (set[int](), False)
        self._looked_at = now = trio.current_time()
        self._look_from = now + max(LOOK_EVERY, (now - began) * LOOK_SHARE)
        self._watched = {}
        for number in numbers:
            path = self._path(number)
            if path is not None:
                self._watched.setdefault(path, []).append(number)
                await self._folders.follow(number, path)
        return seen is not None

    def _path(self, inode: int) -> Path | None:
        """Return the path of an inode that the kernel holds; that of a passed folder has names as they are shown."""
        try:
            if inode < PASSED:
                return self._files.inodes.get(inode).path
            passed = self._files.passed[folder_of(inode)]
            return passed.path(passed.folder.inodes[inode])
        except (BbfsError, OSError, LookupError):
            return None

    def _is_watched(self, path: Path) -> bool:
        return not self._are_all or path in self._watched or path[:-1] in self._watched

    async def _make(self, *, is_looked: bool) -> None:
        """Make the events that wait. is_looked: the watches are those of now."""
        if trio.current_time() > self._looked_at + LOOKED_FOR:
            self._watched, self._are_all = {}, True
        await self._list_doubted()
        taken, self._waiting = self._waiting, {}
        made = 0
        for path, happened in taken.items():
            if happened == "doubted" and self._is_watched(path):
                continue  # the listing has told
            if not self._is_watched(path):
                if not is_looked and self._held(path) is not None:
                    self._unseen[path] = happened
                else:
                    self.tally.dropped += 1
                continue
            await self._make_one(path, happened)
            made += 1
            if made % AT_ONCE == 0:
                await trio.sleep(TURN)

    async def _list_doubted(self) -> None:
        """List the watched directories of local folders in which something has changed: nothing else says what."""
        doubted = [path for path, happened in self._waiting.items() if happened == "doubted" or path in self._doubted]
        doubted = [path for path in doubted if self._is_watched(path)]
        self._doubted = self._doubted.difference(doubted) & (self._waiting.keys() | self._unseen.keys())
        for directory in dict.fromkeys(path[:-1] for path in doubted):
            await self._folders.list_again(directory)

    def _held(self, path: Path) -> int | None:
        """Return the inode of the directory of a path, if the kernel holds it."""
        if path in self._of_folders:
            return self._of_folders[path][0]
        if path[0] in self._files.names.passed:
            return ROOT  # to touch a directory, which no call names by its parent
        return self._files.inodes.held(path[:-1], DIRECTORY_VERSION)

    async def _make_one(self, path: Path, happened: Happened) -> None:
        parent = self._held(path)
        if parent is None:
            return
        for kind in self._kinds(path, happened):
            call = Call(kind, parent, path, self._target(path) if kind == "link" else b"")
            failed = await self._caller.perform(call)
            if failed in KILLED:
                failed = await self._caller.perform(call)
            if (again := _INSTEAD.get((kind, failed))) is not None:
                call = Call(again, parent, path)
                failed = await self._caller.perform(call)
            if call.kind == "modify":
                await self._touch_earlier(call)
            if failed:
                self.tally.failed += 1
                log.debug("no event %s of %s: %s", kind, "/".join(path), os.strerror(failed))
            else:
                self.tally.made += 1

    async def _touch_earlier(self, call: Call) -> None:
        """Make the event of earlier versions of a file, too: a program watches the inode that it has found once."""
        touched = call.status
        for number in self._watched.get(call.path, ()):
            if touched is not None and number != touched.ino and number in self._files.inodes:
                status = self._caller.statuses.get(number) or self._like(touched, number)
                await self._caller.perform(Call("modify", ROOT, call.path, earlier=status))

    def _like(self, current: Status, number: int) -> Status:
        """Return attributes of an earlier version that was never touched, as if it were the current one.

        If it is open, its size and time are its own, and the kernel keeps its pages. Else no program uses any, and the
        kernel asks again at the next use.
        """
        opened = self._files.handles.latest(number)
        if opened is None:
            return current._replace(ino=number)
        modified, part = divmod(opened.modified_ns, 10**9)
        return current._replace(ino=number, size=opened.content.size, modified=modified, modified_ns=part)

    def _kinds(self, path: Path, happened: Happened) -> list[Kind]:
        """Return the calls that make an event of what has happened."""
        if path[0] in self._files.names.passed:
            return self._kinds_in_folder(path, happened)
        node = self.present(path)
        there = None
        if node is not None and node.draft is None:
            there = "folder" if node.kind == "directory" else "link" if node.kind == "symlink" else "file"
        is_held = self._files.inodes.held(path, DIRECTORY_VERSION) is not None
        match happened:
            case "created":
                return [] if there is None else [there]
            case "deleted":
                return ["rmdir" if is_held or path in self._directories else "unlink"]
            case "modified":
                return ["modify"] if there == "file" else []
            case "replaced":
                return ["modify"] if there == "file" else ["unlink", *([there] if there else [])]
            case "touched" | "doubted":
                return ["touch"] if is_held or there == "folder" else []

    def _kinds_in_folder(self, path: Path, happened: Happened) -> list[Kind]:
        _, there = self._of_folders.get(path, (ROOT, None))
        match happened:
            case "touched":
                return ["touch"]
            case "deleted":
                return ["rmdir" if there == "folder" else "unlink"]
            case "created" if there is not None:
                return [there]
        return ["modify"] if there == "file" else []

    def _target(self, path: Path) -> bytes:
        node = self.present(path)
        return b"" if node is None else as_bytes(node.target or "")

    def present(self, path: Path) -> Node | None:
        """Return the node at a path as it was listed last. No source is asked, not even in the background."""
        with suppress(NotFound, NotADirectory):
            return self._tree.last_cached(path)
        return None
