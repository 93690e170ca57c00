"""The hosts that may be nodes of a shared cache.

A node of a cluster and a sentinel name other hosts, to which a client sends its password and from which it takes
contents. Only the configuration decides which hosts these may be. Otherwise a false node, or a false sentinel, could
send bbfs with its password to any address that this machine reaches.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import trio

from bbfs.model.errors import ProtocolViolation
from bbfs.model.values import SharedCache

MOST_ADDRESSES = 1000
"""Addresses of one configured name that count. A cluster has at most as many nodes."""


class Members:
    """The configured hosts, the addresses to which they lead, and what `shared_nodes` adds.

    The name of a headless service (Kubernetes) and of a configuration endpoint lead to the addresses of all nodes.
    """

    def __init__(self, settings: SharedCache) -> None:
        self._hosts = {host for host, _ in settings.nodes}
        self._addresses: set[IPv4Address | IPv6Address] = set()
        self._networks: list[IPv4Network | IPv6Network] = []
        self._domains: list[str] = []
        for text in settings.announced:
            try:
                self._networks.append(ip_network(text))
            except ValueError:
                if text.startswith("*."):
                    self._domains.append(text[1:].lower())
                else:
                    self._hosts.add(text.lower())

    async def resolve(self, host: str) -> None:
        """Learn the addresses of a configured host. Raise OSError if its name cannot be resolved."""
        found = await trio.socket.getaddrinfo(host, None)
        self._addresses |= {address for *_, where in found[:MOST_ADDRESSES] if (address := _address(str(where[0])))}

    def check(self, host: str) -> None:
        """Raise ProtocolViolation unless bbfs may connect to a host that a node or a sentinel has named."""
        address = _address(host)
        if address is not None:
            known = address in self._addresses or any(address in network for network in self._networks)
        else:
            known = host.lower().endswith(tuple(self._domains))
        if not known and host.lower() not in self._hosts:
            raise ProtocolViolation(
                f"the host {host[:255]!r} was announced, which neither 'shared' nor 'shared_nodes' has"
            )


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
