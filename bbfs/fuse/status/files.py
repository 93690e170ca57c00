"""The state of a mount as the files `.bbfs/status.json` and `.bbfs/metrics`: a source that no configuration names."""

import json
from collections.abc import Callable
from typing import Any

from bbfs.fuse.mountpoint import METRICS, STATUS, STATUS_DIRECTORY
from bbfs.fuse.status import metrics
from bbfs.model.errors import NotFound
from bbfs.model.values import DataSource, Listing, Loaded, Part, Policy, ResourceMetadata
from bbfs.resources.views import SourceView
from bbfs.sources.content.memory import MemoryContent

State = Callable[[int], dict[str, Any]]
"""Returns the state of a mount. Its argument: the number of loads that do not count."""
HOLDS = 1.0
"""Seconds for which a document is served again."""
_TYPES = {STATUS: "application/json", METRICS: metrics.MEDIA_TYPE}
_SOURCE = DataSource(
    id="bbfs",
    name="bbfs",
    type="status",
    access_method="bb",
    uri_prefix=STATUS_DIRECTORY,
    policy=Policy(listing_ttl=3600.0, content_ttl=HOLDS, max_stale=0.0, concurrency=1, disk=False),
)


class StatusHandler(SourceView):
    """The source of the files, which are made for each read."""

    def __init__(self, state: State) -> None:
        self.source = _SOURCE
        self._state = state
        self._own = 0

    async def list_directory(self, path: tuple[str, ...]) -> Listing:
        if path:
            raise NotFound("/".join(path))
        return Listing(tuple(map(_described, (STATUS, METRICS))))

    async def load(self, native_uri: str) -> Loaded:
        name = native_uri.removeprefix(f"{STATUS_DIRECTORY}/")
        if name not in _TYPES:
            raise NotFound(native_uri)
        self._own += 1
        state = self._state(self._own)
        if name == STATUS:
            data = (json.dumps(state, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace")
        else:
            data = metrics.exposition(state)
        return Loaded((Part(None, _TYPES[name], MemoryContent(data), "text"),))


def _described(name: str) -> ResourceMetadata:
    uri = f"{STATUS_DIRECTORY}/{name}"
    return ResourceMetadata(uri, uri, name, mime_type=_TYPES[name])
