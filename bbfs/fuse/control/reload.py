"""Changes the sources of a mount on request: by its configuration, read again, or one by one."""

import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import trio

from bbfs.config import Config
from bbfs.fuse.service.sd_notify import ServiceManager
from bbfs.model.errors import BbfsError, ConfigError, NotSupported
from bbfs.resources.commands import table
from bbfs.resources.live import LiveSources
from bbfs.resources.manager import ResourceManager

log = logging.getLogger(__name__)

_TOML = "bbfs.config.toml"
"""Imported at its first use: it takes 50 ms, and few mounts need it."""
READ_WITHIN = 60.0
"""Seconds to read the configuration: its references may ask a keyring."""


class Reloading:
    """Answers the requests that change the sources of a mount.

    live: the sources; None where they cannot be changed. config: the configuration of the mount. reread: reads it
    again. It blocks, and raises ConfigError. left_out: why servers are no sources, by name; it is kept up to date.
    shown: waits until programs see the sources as they are then.
    """

    def __init__(
        self,
        live: LiveSources | None,
        config: Config,
        reread: Callable[[], Config] | None,
        left_out: dict[str, str],
        service: ServiceManager,
        shown: Callable[[], Awaitable[None]],
    ) -> None:
        self._live = live
        self._config = config
        self._reread = reread
        self._left_out = left_out
        self._service = service
        self._shown = shown
        self._turn = trio.Lock()

    def _changeable(self) -> LiveSources:
        if self._live is None:
            raise NotSupported("a mount with a scratch keeps its sources: unmount it, and mount it again")
        return self._live

    async def reload(self) -> table.SourcesChanged:
        """Read the configuration again, and have its sources. Raise BbfsError: then nothing has changed."""
        live = self._changeable()
        if self._reread is None:
            raise NotSupported("this mount has no configuration that could be read again")
        async with self._turn:
            self._service.reloading()
            try:
                config = await _in_thread(self._reread)
                outcome = await live.configure(config)
                await self._shown()
                self._left_out.clear()
                self._left_out.update(config.left_out)
            finally:
                self._service.tell(READY="1")
            return replace(outcome, notes=(*outcome.notes, *not_taken_over(self._config, config)))

    async def reload_logged(self) -> None:
        """As `reload`. The log has the outcome, an error as well."""
        try:
            outcome = await self.reload()
        except BbfsError as error:
            log.error("not reloaded, nothing has changed: %s", error)
        else:
            log.info("reloaded: %s", _said(outcome))
            for note in outcome.notes:
                log.warning("reloaded: %s", note)

    # -- requests ----------------------------------------------------------------------------------------------------

    async def reloaded(self, _: ResourceManager, __: table.Reload, replies: table.Replies[Any]) -> None:
        await self._answer(await self.reload(), replies)

    async def added(self, _: ResourceManager, request: table.AddSources, replies: table.Replies[Any]) -> None:
        live = self._changeable()
        path = os.path.join(request.directory, "the command line")
        environ = {**os.environ, **request.environment}
        config = await _in_thread(lambda: import_module(_TOML).parse_config(path, request.toml, environ=environ))
        await self._answer(await live.add(config), replies)

    async def removed(self, _: ResourceManager, request: table.RemoveSource, replies: table.Replies[Any]) -> None:
        await self._answer(await self._changeable().remove(request.source), replies)

    async def _answer(self, outcome: table.SourcesChanged, replies: table.Replies[Any]) -> None:
        log.info("changed: %s", _said(outcome))
        await self._shown()
        await replies.give(outcome)


async def _in_thread(read: Callable[[], Config]) -> Config:
    """Read a configuration, which may be anywhere: on a slow disk, or in the mount itself. Raise ConfigError."""
    with trio.move_on_after(READ_WITHIN):
        return await trio.to_thread.run_sync(read, abandon_on_cancel=True)
    raise ConfigError(f"the configuration could not be read within {READ_WITHIN:g} s")


def not_taken_over(before: Config, now: Config) -> list[str]:
    """Return a sentence about the settings that differ and that a running mount does not take."""
    tables = {
        "[mount]": ("mount",),
        "[cache]": ("cache_bytes", "disk_bytes", "index_bytes", "shared"),
        "[documents]": ("documents",),
        "[embeddings]": ("embeddings",),
        "logLevel": ("log_level",),
        "logFormat": ("log_format",),
    }
    differ = [name for name, keys in tables.items() if any(getattr(before, key) != getattr(now, key) for key in keys)]
    return [f"{', '.join(differ)}: applies when it is mounted again"] if differ else []


def _said(outcome: table.SourcesChanged) -> str:
    """Return an outcome in one line."""
    parts = [
        f"{what} {', '.join(ids)}"
        for what, ids in (("added", outcome.added), ("removed", outcome.removed), ("changed", outcome.changed))
        if ids
    ]
    return "; ".join(parts) or "no source has changed"
