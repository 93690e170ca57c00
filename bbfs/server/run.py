"""Running the server from start to end: for one client on standard input and output, or over HTTP."""

import logging
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from bbfs.config import Config
from bbfs.resources.open import Composition, compose, resource_manager, store_path
from bbfs.server.service import MAX_RESULT, Service
from bbfs.server.transport.stdio import stdio

if TYPE_CHECKING:
    from bbfs.server.transport.http import Listener  # the HTTP stack is for those who serve over HTTP

log = logging.getLogger(__name__)

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Settings:
    """depth: how far load_datasource goes down by default. most_bytes: of the contents of one answer."""

    depth: int | None = None
    most_bytes: int = MAX_RESULT


def serve_stdio(config: Config, settings: Settings) -> None:
    """Serve one client until its input ends or an ending signal comes; the sources are at an end then, too.

    Raises ConfigError.
    """

    async def serve(service: Service, stop: trio.Event) -> None:
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                await stop.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(cancel)
            async with stdio() as (incoming, outgoing):
                await service.run(incoming, outgoing, service.create_initialization_options())
            nursery.cancel_scope.cancel()

    trio.run(_run, compose(config, lasting=True), config, settings, serve)


def serve_http(config: Config, settings: Settings, listener: "Listener", ready: Callable[[str], None]) -> None:
    """Serve any number of clients until an ending signal comes. ready: gets the URL once connections are taken.

    Raises ConfigError.
    """

    async def serve(service: Service, stop: trio.Event) -> None:
        ready(listener.url)
        await listener.run(service, stop)

    trio.run(_run, compose(config, lasting=True), config, settings, serve)


async def _run(
    composition: Composition,
    config: Config,
    settings: Settings,
    serve: Callable[[Service, trio.Event], Awaitable[None]],
) -> None:
    async with _ending() as stop, resource_manager(config, composition, store_path()) as manager:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.keep_flushing)
            await serve(Service(manager, nursery, depth=settings.depth, most_bytes=settings.most_bytes), stop)
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def _ending() -> AsyncGenerator[trio.Event]:
    """An event that the ending signals set. Later signals are heard until the block ends, and cut nothing short."""
    with trio.open_signal_receiver(*ENDING) as signals:
        async with trio.open_nursery() as nursery:
            stop = trio.Event()

            async def listen() -> None:
                async for number in signals:
                    log.info("%s: ending", signal.Signals(number).name)
                    stop.set()

            nursery.start_soon(listen)
            yield stop
            nursery.cancel_scope.cancel()
