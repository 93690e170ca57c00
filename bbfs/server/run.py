"""The server from start to end: for one client on standard input and output, or over HTTP."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from bbfs.config import Config
from bbfs.resources.open import Composition, compose, index_path, resource_manager, store_path
from bbfs.runtime.signals import ending
from bbfs.server.service import MAX_RESULT, Service
from bbfs.server_parts.stdio import serve_one_client

if TYPE_CHECKING:
    from bbfs.server_parts.http import Listener  # only HTTP needs the HTTP stack


@dataclass(frozen=True, slots=True)
class Settings:
    """depth: how far load_datasource goes down by default. most_bytes: of the contents of one answer."""

    depth: int | None = None
    most_bytes: int = MAX_RESULT


def serve(config: Config, settings: Settings, listener: "Listener | None" = None) -> None:
    """Serve one client on standard input and output, or with a listener any number over HTTP. Raises ConfigError.

    The end of the one client's input or an ending signal ends it; then the sources are closed.
    """
    serving = serve_one_client if listener is None else listener.run
    trio.run(_run, compose(config, lasting=True), config, settings, serving)


async def _run(
    composition: Composition,
    config: Config,
    settings: Settings,
    serve: Callable[[Service, trio.Event], Awaitable[None]],
) -> None:
    async with ending() as stop, resource_manager(config, composition, store_path(), index_path()) as manager:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.keep_flushing)
            await serve(Service(manager, nursery, depth=settings.depth, most_bytes=settings.most_bytes), stop)
            nursery.cancel_scope.cancel()
