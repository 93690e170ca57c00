"""The connections to the nodes of a cluster.

The library sends each request to the node that has the slot of its key, and follows MOVED and ASK. What is here is the
hostile side: which nodes there may be, and how much an answer about them may say.
"""

from collections import defaultdict
from contextlib import suppress
from types import TracebackType
from typing import Any

from coredis import Redis
from coredis.cluster._discovery import DiscoveryService
from coredis.cluster._layout import ClusterLayout
from coredis.cluster._node import ClusterNodeLocation
from coredis.connection import BaseConnection, ClusterConnection, TCPLocation
from coredis.pool import ClusterConnectionPool
from coredis.response.types import ClusterNode

from bbfs.model.errors import ProtocolViolation
from bbfs.model.values import SharedCache
from bbfs.resources.cache.shared.members import Members
from bbfs.resources.cache.shared.pool import close_buffers, first_answer

HASH_SLOTS = 16384
MOST_NODES = 1000
"""Nodes to which one client connects; the specification of clusters has the same bound."""
Slots = defaultdict[int, list[ClusterNodeLocation]]


class NodesPool(ClusterConnectionPool):
    """A pool that connects to members only, wherever an answer redirects a request. Replicas are not asked."""

    def __init__(self, settings: SharedCache, **options: Any) -> None:
        super().__init__(
            startup_nodes=[TCPLocation(*node) for node in settings.nodes], max_connections_per_node=True, **options
        )
        self._members = Members(settings)
        self._made: list[BaseConnection] = []
        self._layouts = [self.cluster_layout, _Layout(_Discovery(settings, self._members, options), error_threshold=2)]
        self.cluster_layout = self._layouts[-1]
        self.connection_class = self._construct  # type: ignore[assignment]

    def _construct(self, location: TCPLocation, **options: Any) -> ClusterConnection:
        self._members.check(location.host)
        if len(self._cluster_available_connections) > MOST_NODES:
            raise ProtocolViolation(f"the cluster redirects to more than {MOST_NODES} nodes")
        connection = ClusterConnection(location, **options)
        self._made.append(connection)
        return connection

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(exc_type, exc, traceback)
        finally:
            close_buffers(self._made)
            for layout in self._layouts:
                for stream in layout._error_stream:
                    stream.close()


class _Layout(ClusterLayout):
    """The slots of the nodes. ASK may name a node that has no slot yet, which the library would not find."""

    def node_for_location(self, location: TCPLocation) -> ClusterNodeLocation:
        known = self._nodes.get(location)
        return known or ClusterNodeLocation(location.host, location.port, server_type="primary")


class _Discovery(DiscoveryService):
    """Asks the configured nodes for the layout. The library would believe any range of slots, and loop over it."""

    def __init__(self, settings: SharedCache, members: Members, options: dict[str, Any]) -> None:
        super().__init__()
        self._settings = settings
        self._members = members
        self._options = options

    async def get_cluster_layout(self) -> tuple[list[ClusterNodeLocation], Slots]:
        host, rows = await first_answer(self._settings.nodes, self._members, self._options, _cluster_slots)
        primaries: dict[TCPLocation, ClusterNodeLocation] = {}
        slots: Slots = defaultdict(list)
        end = -1
        for (first, last), nodes in rows:
            if not end < first <= last < HASH_SLOTS:
                raise ProtocolViolation("the cluster has slots that do not exist, or some of them twice")
            end = last
            for node in nodes:  # replicas as well: one that may not be asked is reported before it is promoted
                self._members.check(node["host"] or host)
            location = TCPLocation(nodes[0]["host"] or host, nodes[0]["port"])
            if not 0 < location.port < 1 << 16:
                raise ProtocolViolation("a node of the cluster has a port that does not exist")
            primary = ClusterNodeLocation(location.host, location.port, server_type="primary")
            primary = primaries.setdefault(location, primary)
            for slot in range(first, last + 1):
                slots[slot].append(primary)
        if not primaries:
            raise ProtocolViolation("the cluster has no slots")
        return list(primaries.values()), slots


async def _cluster_slots(client: "Redis[bytes]") -> list[tuple[tuple[int, int], tuple[ClusterNode, ...]]]:
    """Return the ranges of slots in their order, each with its nodes, the primary first. Nothing of it is checked."""
    with suppress(AttributeError, IndexError, TypeError, ValueError):  # the library unpacks what it expects
        rows = sorted((await client.cluster_slots()).items())
        if all(isinstance(number, int) for ends, _ in rows for number in ends):
            return rows
    raise ProtocolViolation("the answer about the slots of the cluster has another form")
