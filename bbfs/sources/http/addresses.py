"""The addresses that a source may connect to, and connections to exactly the addresses that were checked.

A URL in a configuration, a redirect or a sitemap may lead to a machine of the local network, and a name may resolve to
another address a moment later (DNS rebinding). So bbfs resolves a name once, checks all its addresses and connects to
one of them. TLS and the header `Host` still use the name.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias
from urllib.parse import urlsplit

import httpcore2
import trio

from bbfs.model.errors import Denied, Unreachable

Address: TypeAlias = IPv4Address | IPv6Address
OPTION = "allow_private"
"""The option that lets a source connect to any address."""
REFUSED = f"and the option {OPTION} is false ('-o NAME.{OPTION}=true' sets it)"
"""The end of a sentence that refuses an address."""

_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052, section 2.1: the last 32 bits are an IPv4 address
_UNICAST = IPv6Network("2000::/3")  # global unicast (RFC 4291, section 2.4, and IANA)
_NEXT_ADDRESS = 0.25
"""Seconds before the next address of a name is tried beside those that have not answered (RFC 8305, section 5)."""


def is_public(address: Address) -> bool:
    """Return whether an address, and any address embedded in it, belongs to the public Internet."""
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast
    if address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
    if address.sixtofour is not None:
        return is_public(address.sixtofour)
    return address in _UNICAST and address.is_global


def refuse_private(host: str, addresses: Iterable[Address]) -> None:
    """Raise Denied if any address of a host is not public: a DNS server must not choose which one bbfs uses."""
    for address in addresses:
        if not is_public(address):
            where = host if host == str(address) else f"{host} ({address})"
            raise Denied(f"{where}: a private or local address, {REFUSED}")


def names_private(url: str) -> bool:
    """Return whether a URL of the configuration itself names this machine, or an address that is not public.

    A text that is no URL names no address: the code that connects to it raises the error.
    """
    try:
        host = (urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:
        return False
    address = literal(host)
    return host.rpartition(".")[2] == "localhost" if address is None else not is_public(address)


def literal(host: str) -> Address | None:
    """Return the address in the host of a URL, or None for a name. (Odd spellings such as `127.1` resolve as names.)"""
    try:
        return ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


class PublicAddresses(httpcore2.AsyncNetworkBackend):
    """A network back end that connects to public addresses only. connections: connects to a checked address."""

    def __init__(self, connections: httpcore2.AsyncNetworkBackend | None = None) -> None:
        self._connections: httpcore2.AsyncNetworkBackend = connections or httpcore2.TrioBackend()  # type: ignore[assignment]

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to one of the addresses of a host, within `timeout` seconds.

        Raises Denied if an address is not public, Unreachable if there is none, and the errors of httpcore2.
        """
        options = None if socket_options is None else list(socket_options)

        async def connect(address: Address) -> httpcore2.AsyncNetworkStream:
            return await self._connections.connect_tcp(str(address), port, None, local_address, options)

        with trio.move_on_after(float("inf") if timeout is None else timeout):
            addresses = await _resolve(host, port)
            refuse_private(host, addresses)
            return await _first(connect, addresses)
        raise httpcore2.ConnectTimeout(f"no connection within {timeout} s")

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        raise Denied(f"{path}: a socket of this machine, {REFUSED}")

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


async def is_private_host(host: str, port: int) -> bool:
    """Return whether a host has an address that is not public. Raises Unreachable if it has none."""
    return not all(map(is_public, await _resolve(host, port)))


async def _resolve(host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a host, in the system's order of preference, each once."""
    address = literal(host)
    if address is not None:
        return (address,)
    try:
        found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise Unreachable(f"{host}: {getattr(exc, 'strerror', None) or 'no such name'}") from exc
    # A link-local address may come with the name of its interface; the address alone is refused.
    addresses = dict.fromkeys(ip_address(str(where[0]).partition("%")[0]) for *_, where in found)
    if not addresses:
        raise Unreachable(f"{host}: has no address")
    return tuple(addresses)


async def _first(
    connect: Callable[[Address], Awaitable[httpcore2.AsyncNetworkStream]], addresses: Sequence[Address]
) -> httpcore2.AsyncNetworkStream:
    """Return the first connection that succeeds; try the next address when one fails or takes long."""
    made: list[httpcore2.AsyncNetworkStream] = []
    errors: list[Exception] = []

    async def attempt(address: Address, failed: trio.Event) -> None:
        try:
            stream = await connect(address)
        except (httpcore2.NetworkError, httpcore2.TimeoutException) as exc:
            errors.append(exc)
            failed.set()
            return
        made.append(stream)
        nursery.cancel_scope.cancel()

    try:
        async with trio.open_nursery() as nursery:
            for address in addresses:
                failed = trio.Event()
                nursery.start_soon(attempt, address, failed)
                with trio.move_on_after(_NEXT_ADDRESS):
                    await failed.wait()
    except BaseException:
        await _close(made)
        raise
    await _close(made[1:])  # two may have succeeded at the same moment
    if not made:
        raise errors[0]
    return made[0]


async def _close(streams: Iterable[httpcore2.AsyncNetworkStream]) -> None:
    with trio.CancelScope(shield=True):
        for stream in streams:
            with suppress(OSError):
                await stream.aclose()
