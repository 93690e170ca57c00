"""Whether a mount makes events for the programs that watch it, and the parts that do."""

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import trio

from bbfs.config import Config
from bbfs.fuse import mountpoint
from bbfs.fuse.backings.attributes import Ownership
from bbfs.fuse.mount_options import can_be_written
from bbfs.fuse.watchers.calls import RecognisedCalls
from bbfs.fuse.watchers.events import Events
from bbfs.fuse.watchers.folders import LocalFolders
from bbfs.fuse.watchers.toucher import ENDS_WITHIN, Toucher
from bbfs.resources.manager import ResourceManager
from bbfs.sources import Handler
from bbfs.vfs.filesystem import FileSystem

if TYPE_CHECKING:
    from bbfs.fuse.service.handover import Handover


def why_off(config: Config, handlers: Iterable[Handler], *, is_lower: bool, is_passed: bool) -> str | None:
    """Return why a mount makes no events; None if it does.

    is_lower: an overlay is over it. is_passed: another program has mounted it.
    """
    if config.mount.inotify is False:
        return "inotify is false"
    if is_lower:
        return "programs watch the overlay of the scratch, which passes no event on"
    if is_passed:
        return "another program has made the mount, and nothing says where"
    if os.geteuid() != 0 and config.mount.uid not in (None, os.geteuid()):
        return "the files have another owner"
    if not config.mount.inotify and not can_be_written(handlers):
        return "the kernel mount is read-only; --inotify makes it read-write, for events alone"
    return None


class Watchers:
    """The events of one mount for the programs that watch it. off: why there are none."""

    def __init__(self, config: Config, path: str, off: str | None) -> None:
        self._path = path
        self._off = off
        self._has_other_users = config.mount.allow_other
        self._toucher: Toucher | None = None
        self._events: Events | None = None

    def follow(
        self,
        manager: ResourceManager,
        files: FileSystem,
        owner: Ownership,
        operations: Any,
        become: Callable[[Any], None],
        handed: "Handover | None",
    ) -> None:
        """Follow the changes. operations: answers pyfuse3. become: has another object answer it from then on.

        handed: of a mount that may be handed over. Its calls are recognised from the beginning.
        """
        mount = None if self._off else mountpoint.mount_at(self._path)
        if mount is None:
            return

        def recognise() -> None:
            become(RecognisedCalls(operations, files, owner, calls, events.present))

        self._toucher = calls = Toucher(self._path, mount.device, recognise, has_other_users=self._has_other_users)
        folders = LocalFolders(manager, files)
        self._events = events = Events(files, manager.tree, calls, folders)
        folders.hear(events.of_folder)
        manager.changes.subscribe(events.heard)
        if handed is not None:
            calls.recognised()
            if kept := handed.state.get("watchers"):
                calls.take_over(kept)
                events.take_over(kept["waiting"])

    async def run(self) -> None:
        """Make events until cancelled."""
        if self._events is not None:
            await self._events.run()

    def end(self) -> None:
        """Kill the process that makes the calls, before the unmount: it may wait for the mount."""
        if self._toucher is not None:
            self._toucher.end()

    def kept(self) -> dict[str, Any]:
        """Return what the next daemon of the mount needs. The process is killed by now."""
        if self._toucher is None or self._events is None:
            return {}
        return self._toucher.kept() | {"waiting": self._events.kept()}

    async def reap(self) -> None:
        """Wait a moment for its end."""
        if self._toucher is not None:
            await trio.to_thread.run_sync(self._toucher.reap, ENDS_WITHIN, abandon_on_cancel=True)

    def state(self) -> dict[str, object]:
        """Return whether there are events, why not, and how many were made."""
        return {"on": self._events is not None, "why_off": self._off} | (self._events.state() if self._events else {})
