"""Changes the sources of a running mount: adds, removes and replaces some, and leaves the others alone."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import trio

from bbfs.config import Config
from bbfs.config.naming import merge
from bbfs.model.errors import BbfsError, ConfigError
from bbfs.model.quantities import counted
from bbfs.model.values import DataSource
from bbfs.resources.commands.requests.live import SourcesChanged
from bbfs.resources.manager import ResourceManager
from bbfs.resources.open import ENDING, Composition, built, close_handlers, mcp_manager
from bbfs.resources.source import Source
from bbfs.sources import Handler

log = logging.getLogger(__name__)

BUILT_WITHIN = 30.0
"""Seconds to read the options of a source, which may name files of a slow disk."""


class LiveSources:
    """The sources of a running mount.

    nursery: runs what a source needs after the change. leaving: called with a source before it is removed; it keeps
    what only the mount has. why_read_only: returns why a source that grants writes gets none on this mount, or None.
    """

    def __init__(
        self,
        manager: ResourceManager,
        composition: Composition,
        config: Config,
        nursery: trio.Nursery,
        *,
        leaving: Callable[[Source], Awaitable[None]],
        why_read_only: Callable[[DataSource], str | None],
    ) -> None:
        self._manager = manager
        self._composition = composition
        self._nursery = nursery
        self._leaving = leaving
        self._why_read_only = why_read_only
        self._turn = trio.Lock()
        self._configured: dict[str, DataSource] = {each.id: each for each in config.sources}
        self._added: dict[str, DataSource] = {}

    @property
    def sources(self) -> Sequence[DataSource]:
        """The definitions of the sources, as they were given."""
        return tuple({**self._configured, **self._added}.values())

    async def configure(self, config: Config) -> SourcesChanged:
        """Have the sources of a configuration instead of those of the last one.

        Sources that were added by themselves stay, unless the configuration has one of that id. Raise ConfigError: then
        nothing has changed.
        """
        async with self._turn:
            configured = {each.id: each for each in config.sources}
            added = {key: each for key, each in self._added.items() if key not in configured}
            merge((config.path or "the configuration", config.sources), ("the running mount", added.values()))
            outcome = await self._become(config, {**configured, **added})
            self._configured, self._added = configured, added
            return outcome

    async def add(self, config: Config) -> SourcesChanged:
        """Add the sources of a configuration to those that there are. Raise ConfigError: then nothing has changed."""
        async with self._turn:
            merge(("the mount", self.sources), ("the command line", config.sources))
            added = {**self._added, **{each.id: each for each in config.sources}}
            outcome = await self._become(config, {**self._configured, **added})
            self._added = added
            return outcome

    async def remove(self, name: str) -> SourcesChanged:
        """Remove a source, by its name or id. Raise NotFound."""
        async with self._turn:
            key = self._manager.roots.named(name).data.id
            kept = {each.id: each for each in self.sources if each.id != key}
            outcome = await self._become(Config(), kept)
            self._configured.pop(key, None)
            self._added.pop(key, None)
            return outcome

    async def _become(self, config: Config, wanted: Mapping[str, DataSource]) -> SourcesChanged:
        """Change the sources to those wanted. Raise ConfigError for one that cannot be made, before any change."""
        before = {each.id: each for each in self.sources}
        new = [each for key, each in wanted.items() if before.get(key) != each]
        notes: list[str] = []
        handlers = await self._built(config, [self._writable(each, notes) for each in new])
        leaving = [key for key, each in before.items() if wanted.get(key) != each]
        with trio.CancelScope(shield=True):  # a client that leaves meanwhile leaves no half of the change
            for key in leaving:
                await self._remove(self._running(key), is_gone=key not in wanted, notes=notes)
            for handler in handlers:
                self._composition.handlers.append(handler)
                await self._manager.add(handler.source, handler)
        added = tuple(each.id for each in new if each.id not in before)
        changed = tuple(each.id for each in new if each.id in before)
        removed = tuple(key for key in leaving if key not in wanted)
        return SourcesChanged(added, removed, changed, len(wanted) - len(new), tuple(notes))

    def _running(self, key: str) -> Source:
        return next(each for each in self._manager.sources.values() if each.data.id == key)

    def _writable(self, source: DataSource, notes: list[str]) -> DataSource:
        """Return a source without a grant to write where this mount can have no such source."""
        why = self._why_read_only(source) if source.grants_write else None
        if why is None:
            return source
        notes.append(f"{source.id} is read-only here: {why}")
        return replace(source, capabilities=replace(source.capabilities, write=False))

    async def _built(self, config: Config, sources: Iterable[DataSource]) -> list[Handler]:
        """Return the handlers of sources. Raise ConfigError, and leave none open."""
        made: list[Handler] = []
        try:
            for source in sources:
                made.append(await self._handler(config, source))
        except BaseException:
            with trio.CancelScope(shield=True):
                await close_handlers(made)
            raise
        return made

    async def _handler(self, config: Config, source: DataSource) -> Handler:
        composed = self._composition
        if source.mcp is None:
            # In a thread: a path among the options may lead into the mount, which this loop answers.
            with trio.move_on_after(BUILT_WITHIN):
                build = partial(built, config, source, composed.services)
                return await trio.to_thread.run_sync(build, abandon_on_cancel=True)
            raise ConfigError(f"{source.id}: its options could not be read within {BUILT_WITHIN:g} s")
        if composed.services.mcp is None:
            connections = await trio.to_thread.run_sync(mcp_manager, composed.spools)
            composed.services = replace(composed.services, mcp=connections)
            await self._nursery.start(connections.run)
        return built(config, source, composed.services)

    async def _remove(self, source: Source, *, is_gone: bool, notes: list[str]) -> None:
        """Remove a source. What its program or server does at its end delays nothing."""
        await self._leaving(source)
        await self._manager.remove(source)
        self._composition.handlers.remove(source.handler)
        self._nursery.start_soon(_close, source.handler)
        pending = await self._pending(source) if is_gone else 0
        if pending:
            notes.append(f"{source.data.id}: {counted(pending, 'pending write')} of it stay: 'bbfs pending' lists them")

    async def _pending(self, source: Source) -> int:
        """Return the number of pending writes of a source."""
        store = self._manager.writer.pending

        def count() -> int:
            return sum(each.source_id == source.data.id for each in store.items())

        try:
            return await trio.to_thread.run_sync(count) if store.has_some() else 0
        except (BbfsError, OSError) as error:
            log.warning("the pending writes of %s could not be counted: %s", source.data.id, error)
            return 0


async def _close(handler: Handler) -> None:
    with trio.move_on_after(ENDING) as bound:
        await close_handlers([handler])
    if bound.cancelled_caught:
        log.warning("%s: was not closed within %g s", handler.source.id, ENDING)
