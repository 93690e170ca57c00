"""Contents that a source has before a rename tells which resource they are for."""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import trio

from bbfs.model.errors import BbfsError
from bbfs.model.values import Content
from bbfs.resources.source import Source
from bbfs.sources import CanStage

log = logging.getLogger(__name__)
T = TypeVar("T")
DROPPED_WITHIN = 2.0
"""Seconds for the removal of a staged content. One that is left behind goes with a later write in its directory."""


class Bounded(Protocol):
    """Awaits a request to a source in a task of its own, with the source's timeout and time for so many bytes."""

    async def __call__(self, source: Source, request: Callable[[], Awaitable[T]], size: int = 0) -> T: ...


class Staging:
    """Stages contents at the sources of one manager, and removes those that nothing needs any more."""

    def __init__(self, bounded: Bounded) -> None:
        self._bounded = bounded

    def can(self, source: Source, native_uri: str) -> bool:
        """Return whether a source takes a content beside a resource. Asks nothing."""
        handler = source.writes
        return isinstance(handler, CanStage) and "stage" in handler.writes(native_uri)

    async def stage(self, source: Source, native_uri: str, content: Content) -> str | None:
        """Return where the source has a content now, or None: then the hand-over sends it."""
        handler = source.writes
        assert isinstance(handler, CanStage)

        async def stage() -> str:
            async with source.slots.ask():
                return await handler.stage(native_uri, content)

        try:
            return await self._bounded(source, stage, content.size)
        except BbfsError as error:
            log.info("%s: %s: not staged: %s", source.data.id, native_uri, error)
            return None

    async def drop(self, source: Source, staged: str) -> None:
        """Remove a staged content. It may be left behind."""
        handler = source.writes
        assert isinstance(handler, CanStage)

        async def drop() -> None:
            async with source.slots.ask():
                await handler.unstage(staged)

        try:
            with trio.move_on_after(DROPPED_WITHIN):
                await self._bounded(source, drop)
        except BbfsError as error:
            log.info("%s: %s: left behind for now: %s", source.data.id, staged, error)
