"""The state of a mount as the file `.bbfs/status.json` in it: a source of its own, which no configuration names."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bbfs import __version__
from bbfs.fuse.mountpoint import STATUS, STATUS_DIRECTORY
from bbfs.fuse.waiting_programs import Interrupts
from bbfs.model.errors import NotFound
from bbfs.model.values import DataSource, Listing, Loaded, Part, Policy, ResourceMetadata
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.resources.views import SourceView
from bbfs.sources import TellsProgress
from bbfs.sources.content.memory import MemoryContent

HOLDS = 1.0
"""Seconds for which a document is served again."""
NOTABLE = 0.5
"""Seconds after which a program counts as waiting. Who reads the status itself waits for less."""
_URI = f"{STATUS_DIRECTORY}/{STATUS}"
_SOURCE = DataSource(
    id="bbfs",
    name="bbfs",
    type="status",
    access_method="bb",
    uri_prefix=STATUS_DIRECTORY,
    policy=Policy(listing_ttl=3600.0, content_ttl=HOLDS, max_stale=0.0, concurrency=1, disk=False),
)


class StatusHandler(SourceView):
    """The source of the one file, which is made for each read."""

    def __init__(
        self, manager: ResourceManager, started: float, left_out: Mapping[str, str], interrupts: Interrupts
    ) -> None:
        """started: seconds since the epoch. left_out: why configured servers are no sources, by name.

        interrupts: has the programs that wait.
        """
        self.source = _SOURCE
        self._manager = manager
        self._started = started
        self._interrupts = interrupts
        self._left_out = left_out
        self._own = 0

    async def list_directory(self, path: tuple[str, ...]) -> Listing:
        if path:
            raise NotFound("/".join(path))
        return Listing((ResourceMetadata(_URI, _URI, STATUS, mime_type="application/json"),))

    async def load(self, native_uri: str) -> Loaded:
        if native_uri != _URI:
            raise NotFound(native_uri)
        self._own += 1
        said = document(self._manager, self._started)
        said["loads"] -= self._own
        said["loads_from"]["source"] -= self._own
        said["left_out"] = dict(self._left_out)
        said["process"] = _process()
        said["waiting"] = _waiting(self._interrupts)
        text = json.dumps(said, indent=1, ensure_ascii=False) + "\n"
        return Loaded((Part(None, "application/json", MemoryContent(text.encode("utf-8", "replace")), "text"),))


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
            "misses": contents.misses,
            "evictions": contents.evictions,
        },
        "sources": [_source(source) for source in manager.sources.values()],
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
        "waiting": source.waiters.count,
        "in_flight": slots.total - slots.free,
        "concurrency": slots.total,
        "requests": {
            "ended": tally.ended,
            "failed": tally.failed,
            "median_seconds": _rounded(tally.latency(0.5)),
            "p95_seconds": _rounded(tally.latency(0.95)),
        },
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def _process() -> dict[str, Any]:
    """Return what the kernel says of this process (proc_pid_status(5)). bytes: of memory, the resident set."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    return {
        "version": __version__,
        "pid": os.getpid(),
        "bytes": int(status["VmRSS"].split()[0]) << 10,
        "threads": int(status["Threads"]),
        "descriptors": len(os.listdir("/proc/self/fd")) - 1,  # one is that of the listing
    }


def _waiting(interrupts: Interrupts) -> list[dict[str, Any]]:
    """Return the programs that wait, the longest wait first. A program of another PID namespace has no number here."""
    return [{"pid": pid, "program": _name(pid), "seconds": round(seconds, 3)} for pid, seconds in interrupts.waiting()]


def _name(pid: int) -> str | None:
    """Return the name of a thread (proc_pid_comm(5)), or None. Its command line could not be read without waiting."""
    try:
        return Path("/proc", str(pid), "comm").read_bytes().decode("utf-8", "replace").rstrip("\n") if pid > 0 else None
    except OSError:
        return None


def _iso(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
