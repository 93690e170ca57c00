"""A data source at work: what the ResourceManager keeps for each, and the bound on those who wait for it."""

from dataclasses import dataclass
from hashlib import blake2b

from bbfs.catalog import Catalog
from bbfs.errors import Busy
from bbfs.model import DataSource, SourceState
from bbfs.places import Places
from bbfs.sources import CanList, CanListDirectory, CanLoad, Handler

WAITERS_PER_SOURCE = 400
"""Programs that may wait for one source at once, far below what the daemon serves: a hung source starves nobody."""


@dataclass(slots=True)
class Source:
    """A data source at work: its handler, its tree, its bound on requests in flight, and how it fares.

    misstates_sizes: whether one of its contents did not have the size that it had declared.
    """

    data: DataSource
    handler: Handler
    catalog: Catalog
    places: Places
    fingerprint: str
    waiting: int = 0
    error: str | None = None
    misstates_sizes: bool = False

    @property
    def state(self) -> SourceState:
        return self.handler.state

    @property
    def problem(self) -> str | None:
        """The last thing that went wrong and has not gone right since, for people."""
        state = self.state
        return self.error or self.catalog.problem or (state.reason if state.state == "down" else None)

    @property
    def capabilities(self) -> list[str]:
        """What the configuration grants and the handler can do."""
        granted, handler = self.data.capabilities, self.handler
        can = {
            "read": granted.read and isinstance(handler, CanLoad),
            "list": granted.list and isinstance(handler, CanList | CanListDirectory),
        }
        return [name for name, held in can.items() if held]


class Waiting:
    """Counts who waits for a source, so that a hung one cannot take all the places of the daemon. Raises Busy."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __enter__(self) -> None:
        if self._source.waiting >= WAITERS_PER_SOURCE:
            raise Busy(f"{self._source.data.id}: {WAITERS_PER_SOURCE} programs are waiting for it already")
        self._source.waiting += 1

    def __exit__(self, *_: object) -> None:
        self._source.waiting -= 1


def fingerprint(source: DataSource) -> str:
    """Names a source in the persistent store: the same definition is the same source, another one is not.

    It is a hash, so nothing of the definition, secrets included, can be read from it.
    """
    mcp = source.mcp
    where = (mcp.transport, mcp.command, mcp.args, mcp.cwd, mcp.url) if mcp else None
    beside = (source.tools, source.prompts) if source.tools != "off" or source.prompts else ()
    text = repr((source.uri_prefix, sorted(source.config.items(), key=repr), where, *beside))
    return f"{source.base_prefix} {blake2b(text.encode(), digest_size=12).hexdigest()}"
