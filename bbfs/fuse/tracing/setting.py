"""Whether a mount has traces. The standard variables of OpenTelemetry decide; its SDK is imported only for traces."""

import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING

import trio

from bbfs.runtime.extras import needs

if TYPE_CHECKING:
    from bbfs.fuse.tracing.spans import Tracing

log = logging.getLogger(__name__)

ENDS_WITHIN = 3.0
"""Seconds at the end of a mount for the spans that still wait."""
_SPANS = "bbfs.fuse.tracing.spans"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Return whether the variables ask for traces (opentelemetry.io/docs/specs/otel/configuration)."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    return exporter != "none" if exporter else any(environ.get(name) for name in _ENDPOINTS)


def unsupported(environ: Mapping[str, str]) -> str | None:
    """Return the variable that asks for another exporter than OTLP over HTTP, with its value."""
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporter not in ("", "otlp"):
        return f"OTEL_TRACES_EXPORTER={exporter}"
    chosen = next((name for name in _PROTOCOLS if environ.get(name)), None)
    return None if chosen is None or environ[chosen] == _PROTOCOL else f"{chosen}={environ[chosen]}"


def _begun(environ: Mapping[str, str]) -> "Tracing | None":
    if not is_wanted(environ):
        return None
    if (other := unsupported(environ)) is not None:
        log.warning("no traces: %s, but bbfs exports them with otlp as %s alone", other, _PROTOCOL)
        return None
    try:
        tracing: Tracing = import_module(_SPANS).exporting()
    except ImportError:
        log.warning("no traces: OpenTelemetry %s", needs("otel"))
        return None
    except ValueError as error:
        log.warning("no traces: a variable of OpenTelemetry is wrong: %s", error)
        return None
    return tracing


@asynccontextmanager
async def traces(
    environ: Mapping[str, str] = os.environ, *, ends_within: float = ENDS_WITHIN
) -> AsyncIterator["Tracing | None"]:
    """Yield what traces a mount, or None. At the end, export what waits, within `ends_within` seconds.

    To be entered after all forks of the daemon, since a thread exports.
    """
    tracing = _begun(environ)
    try:
        yield tracing
    finally:
        if tracing is not None:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + ends_within):
                await trio.to_thread.run_sync(tracing.end, abandon_on_cancel=True)
