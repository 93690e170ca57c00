"""Watches the directories of a folder that were listed, by inotify(7), and reports what changes in them.

A listing goes on to expire by its time to live: not every change is an event, and not every directory is watched.
"""

import errno
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

import trio

from bbfs.model.uri_paths import show_component
from bbfs.model.values import Change
from bbfs.sources.content.fd import Descriptor
from bbfs.sources.filesystem.beneath import Components
from bbfs.sources.filesystem.inotify import ENDED, OF_THIS_MACHINE, OVERFLOWN, Inotify, file_system_of, most_watches

log = logging.getLogger(__name__)

MOST, SHARE = 4096, 8
"""Directories of a folder that are watched, and one of so many watches that this user may have, at most. The ones that
were listed last are."""
TOLD_APART = 500
"""Names that are reported singly. Of more at once, all that is loaded is asked for again."""
GATHERED_FOR = 0.05
"""Seconds after an event in which the next ones are gathered: a program that writes causes many of the same."""
REFUSED_FOR = 60.0
"""Seconds until the kernel is asked again after it has refused a watch, because this user has too many."""


class FolderWatch:
    """The watches of one folder.

    sink: called with each change. uri_of, segment_of: return the native URI of a path, and a name as a segment of it.
    """

    def __init__(
        self,
        source_id: str,
        sink: Callable[[Change], None],
        uri_of: Callable[[Components], str],
        segment_of: Callable[[bytes], str],
    ) -> None:
        self._source_id = source_id
        self._sink = sink
        self._uri_of = uri_of
        self._segment_of = segment_of
        self._lock = threading.Lock()
        self._inotify: Inotify | None = None
        self._paths: OrderedDict[int, Components] = OrderedDict()
        self._most = MOST
        self._refused_until = 0.0
        self._open = trio.CancelScope()
        self._is_running = self._is_ended = False

    def watch(self, path: Components, directory: Descriptor) -> None:
        """Watch a directory, before it is listed. Called in a thread."""
        now = time.monotonic()
        if now < self._refused_until or self._is_ended or file_system_of(directory) not in OF_THIS_MACHINE:
            return
        with self._lock:
            try:
                if self._inotify is None:
                    self._inotify, self._most = Inotify(), min(MOST, most_watches() // SHARE)
                number = self._inotify.watch(directory)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EMFILE, errno.ENOMEM):
                    log.info("%s: no more directories are watched for now: %s", self._source_id, error)
                    self._refused_until = now + REFUSED_FOR
                return
            self._paths[number] = path
            self._paths.move_to_end(number)
            while len(self._paths) > self._most:
                self._inotify.unwatch(self._paths.popitem(last=False)[0])

    def begin(self) -> None:
        """Begin to report, once a directory is watched. Called in the event loop."""
        if self._inotify is not None and not self._is_running:
            self._is_running = True
            trio.lowlevel.spawn_system_task(self._run, self._inotify, name="changes in a folder")

    def end(self) -> None:
        """Report nothing more."""
        self._is_ended = True
        self._open.cancel()

    async def _run(self, inotify: Inotify) -> None:
        with self._open:
            while True:
                await trio.lowlevel.wait_readable(inotify.fileno())
                await trio.sleep(GATHERED_FOR)
                self._report(inotify)

    def _report(self, inotify: Inotify) -> None:
        """Report the changes of now."""
        changed: dict[Components, None] = {}
        is_complete = True
        for number, bits, name in inotify.events():
            with self._lock:  # a thread may be about to note which directory this is
                path = self._paths.get(number)
                if bits & ENDED:
                    self._paths.pop(number, None)
            if bits & OVERFLOWN:
                is_complete = False
            elif path is not None and name:
                changed[*path, name] = None
        if not is_complete or len(changed) > TOLD_APART:
            self._sink(Change(self._source_id, "missed"))
            return
        for path in changed:
            shown = tuple(show_component(self._segment_of(name), literal=True) for name in path)
            self._sink(Change(self._source_id, "changed", self._uri_of(path), frozenset((shown,))))
