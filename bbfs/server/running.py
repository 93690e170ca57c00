"""Running the server from start to end: for one client on standard input and output, or over HTTP."""

import logging
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from bbfs.composition import compose, resource_manager, store_path
from bbfs.config import Config
from bbfs.server.service import MAX_RESULT, Service
from bbfs.server.stdio import stdio

log = logging.getLogger(__name__)

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Settings:
    """depth: how far load_datasource goes down by default. most_bytes: of the contents of one answer."""

    depth: int | None = None
    most_bytes: int = MAX_RESULT


def serve_stdio(config: Config, settings: Settings) -> None:
    """Serve one client until its input ends or an ending signal comes; the sources are at an end then, too."""
    trio.run(_serve_stdio, config, settings)


async def _serve_stdio(config: Config, settings: Settings) -> None:
    async with _service(config, settings) as service, stdio() as (incoming, outgoing):
        await service.run(incoming, outgoing, service.create_initialization_options())


@asynccontextmanager
async def _service(config: Config, settings: Settings) -> AsyncGenerator[Service]:
    """The service over the sources of a configuration. An ending signal cancels the block, and only that."""
    composition = compose(config, lasting=True)
    with trio.open_signal_receiver(*ENDING) as signals:
        async with trio.open_nursery() as nursery:

            async def listen(scope: trio.CancelScope) -> None:
                async for number in signals:
                    log.info("%s: ending", signal.Signals(number).name)
                    scope.cancel()

            async with resource_manager(config, composition, store_path()) as manager:
                with trio.CancelScope() as scope:
                    nursery.start_soon(listen, scope)
                    async with trio.open_nursery() as upkeep:
                        upkeep.start_soon(manager.keep_flushing)
                        yield Service(manager, upkeep, depth=settings.depth, most_bytes=settings.most_bytes)
                        upkeep.cancel_scope.cancel()
            nursery.cancel_scope.cancel()
