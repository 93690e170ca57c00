"""Tells the other mounts of this user what was written here, so that they ask their sources again at once.

A mount that does not answer, or has no such source, is passed over: its own time to live applies. Nothing here delays a
write.
"""

import logging
import os

import trio

from bbfs.fuse import mountpoint
from bbfs.fuse.control import link as control_link
from bbfs.fuse.mountpoint import ATTRIBUTE
from bbfs.model.errors import BbfsError
from bbfs.model.values import Change
from bbfs.resources.catalog.record import Path
from bbfs.runtime.changes import Bus

log = logging.getLogger(__name__)

MOST = 80
"""Paths that wait; if there are more, whole sources are refreshed. As many of PATH_MAX bytes fit one message."""
GATHERED_FOR = 0.02
"""Seconds in which paths are gathered for one message."""
PAUSE = 0.2
"""Seconds between two messages: another mount lists a source again for each."""
WITHIN = 2.0
"""Seconds for one other mount."""


class Neighbours:
    """The other mounts of this user, told of the changes on a bus.

    own: the path of this mount; None for a command that writes without a mount. If it is `/dev/fd/N`, no
    mount is told: it could be this one, and the daemon would ask itself.
    """

    def __init__(self, changes: Bus[Change], own: str | None = None) -> None:
        changes.subscribe(self._changed)
        self._own = own
        self._paths: dict[Path, None] = {}
        self._filled = trio.Event()

    def _changed(self, change: Change) -> None:
        """Tell the others soon of a change that this process has made itself."""
        if not change.own:
            return
        self._paths |= dict.fromkeys(change.paths)
        if len(self._paths) > MOST:
            self._paths = {each[:1]: None for each in self._paths}
        self._filled.set()

    async def run(self) -> None:
        """Tell the others until cancelled."""
        while True:
            await self._filled.wait()
            await trio.sleep(GATHERED_FOR)
            await self.tell_all()
            await trio.sleep(PAUSE)

    async def tell_all(self) -> None:
        """Tell the others now."""
        self._filled = trio.Event()
        paths, self._paths = ["/".join(path) for path in self._paths], {}
        if not paths or (self._own is not None and mountpoint.passed_device(self._own) is not None):
            return
        others = await trio.to_thread.run_sync(mountpoint.own_mounts, abandon_on_cancel=True)
        async with trio.open_nursery() as nursery:
            for other in others:
                if other.path != self._own:
                    nursery.start_soon(self._refresh, other, paths)

    @staticmethod
    async def _refresh(mount: mountpoint.Mount, paths: list[str]) -> None:
        with trio.move_on_after(WITHIN):
            try:
                asked = trio.to_thread.run_sync
                address = await asked(os.getxattr, mount.path, ATTRIBUTE, abandon_on_cancel=True)
                async with control_link.connect(os.fsdecode(address), mount.user) as link:
                    await link.send([{"id": 0, "request": "refresh", "paths": paths}])
                    await link.receive()  # an error, if the other mount lacks a source; all others are refreshed
            except (BbfsError, OSError, trio.BrokenResourceError) as error:
                log.debug("%s was not told of a write: %s", mount.path, error)
