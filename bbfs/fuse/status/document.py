"""The state of the sources of a process as one JSON object. No source is asked for it."""

import time
from dataclasses import asdict
from itertools import islice
from typing import Any

from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.sources import TellsProgress

MOST_READING = 50
"""Loads under way that are told."""


def document(manager: ResourceManager, started: float) -> dict[str, Any]:
    """Return the state of a mount. No source is asked, and the cost does not grow with the listings."""
    contents = manager.memory
    return {
        "started": _iso(started),
        "now": _iso(manager.clock()),
        "loads": manager.loads,
        "loads_from": dict(manager.loads_by_tier),
        "memory": {
            "bytes": contents.bytes,
            "max_bytes": contents.max_bytes,
            "contents": len(contents),
            "hits": contents.hits,
            "misses": sum(manager.loads_by_tier.values()),
            "evictions": contents.evictions,
        },
        "sources": [_source(source) for source in manager.sources.values()],
        "reading": [
            {
                "source": load.source.data.id,
                "uri": load.key[1],
                "tier": load.asks,
                "seconds": round(time.monotonic() - load.began, 3),
            }
            for load in islice(manager.loads_under_way, MOST_READING)
        ],
    }


def _source(source: Source) -> dict[str, Any]:
    state, slots, tally = source.state, source.slots, source.slots.tally
    progress = source.handler.progress if isinstance(source.handler, TellsProgress) else None
    return {
        "id": source.data.id,
        "uri_prefix": source.data.uri_prefix,
        "state": state.state,
        "problem": source.problem,
        "resources": source.resources,
        "listing": None
        if progress is None
        else {
            "resources": progress.resources,
            "pages": progress.pages,
            "seconds": round(progress.seconds, 3),
            "complete": progress.complete,
        },
        "pinned": None if source.state_of_pins is None else asdict(source.state_of_pins),
        "waiting": source.waiters.count,
        "in_flight": slots.total - slots.free,
        "concurrency": slots.total,
        "loads_from": dict(source.loads_from),
        "requests": {
            "ended": tally.ended,
            "failed": tally.failed,
            "seconds": round(tally.seconds, 6),
            "median_seconds": _rounded(tally.latency(0.5)),
            "p95_seconds": _rounded(tally.latency(0.95)),
        },
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def _iso(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
