"""Which addresses count as public, and that a connection goes to one that was checked (DNS rebinding)."""

import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

import httpcore2
import pytest
import trio

from bbfs.model.errors import Denied, Unreachable
from bbfs.sources.http.addresses import PublicAddresses, is_public

PRIVATE = """
127.0.0.1 127.255.255.254 0.0.0.0 0.1.2.3 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 192.0.2.1
198.18.0.1 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255 :: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1
::ffff:10.0.0.1 ::ffff:169.254.169.254 64:ff9b::7f00:1 64:ff9b::a00:1 64:ff9b:1::1 2002:7f00:1:: 2002:a00:1::1
fe80::1 fc00::1 fd00::1 fec0::1 ff02::1 ff0e::1 2001:db8::1 2001::1 100::1
"""
PUBLIC = "8.8.8.8 1.1.1.1 93.184.216.34 2606:4700::1111 2a00:1450::1 ::ffff:8.8.8.8 64:ff9b::808:808"


@pytest.mark.parametrize("address", PRIVATE.split())
def test_what_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC.split())
def test_what_is_public(address: str) -> None:
    assert is_public(ip_address(address))


class Resolver(trio.abc.HostnameResolver):
    """Answers one list of addresses after the other."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def getaddrinfo(
        self, host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> Any:
        await trio.lowlevel.checkpoint()
        found = self.answers.pop(0)
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET6 if ":" in each else socket.AF_INET, type, 6, "", (each, port)) for each in found]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise NotImplementedError


class Stream(httpcore2.AsyncNetworkStream):
    def __init__(self, address: str) -> None:
        self.address, self.closed = address, False

    async def aclose(self) -> None:
        self.closed = True


class Connections(httpcore2.AsyncNetworkBackend):
    """Connects to nothing. failing, silent: addresses that refuse, and that never answer."""

    def __init__(self, failing: Iterable[str] = (), silent: Iterable[str] = ()) -> None:
        self.tried: list[str] = []
        self._failing, self._silent = set(failing), set(silent)

    async def connect_tcp(self, host: str, port: int, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
        self.tried.append(host)
        await trio.lowlevel.checkpoint()
        if host in self._failing:
            raise httpcore2.ConnectError(f"{host} refuses")
        if host in self._silent:
            await trio.sleep_forever()
        return Stream(host)


def resolving(*answers: list[str]) -> None:
    trio.socket.set_custom_hostname_resolver(Resolver(*answers))


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    """The name leads to this machine from the second time on, which is never asked for."""
    resolving(["93.184.216.34"], ["127.0.0.1"])
    connections = Connections()
    await PublicAddresses(connections).connect_tcp("rebinding.example", 80)
    assert connections.tried == ["93.184.216.34"]
    with pytest.raises(Denied, match=r"rebinding.example \(127.0.0.1\)"):
        await PublicAddresses(connections).connect_tcp("rebinding.example", 80)
    assert connections.tried == ["93.184.216.34"]


@pytest.mark.parametrize("mixed", [["8.8.8.8", "10.0.0.1"], ["::1", "8.8.8.8"], ["8.8.8.8", "fe80::1%eth0"]])
async def test_one_private_address_among_others_is_enough_to_refuse(mixed: list[str]) -> None:
    resolving(mixed)
    connections = Connections()
    with pytest.raises(Denied):
        await PublicAddresses(connections).connect_tcp("mixed.example", 80)
    assert not connections.tried


async def test_a_name_without_an_address() -> None:
    resolving([])
    with pytest.raises(Unreachable, match=r"nowhere.example: Name or service not known"):
        await PublicAddresses(Connections()).connect_tcp("nowhere.example", 80)


async def test_another_address_where_the_first_does_not_answer(autojump_clock: Any) -> None:
    addresses = ["8.8.8.8", "1.1.1.1", "9.9.9.9"]
    resolving(addresses, addresses, addresses)
    connections = Connections(failing=["8.8.8.8"], silent=["1.1.1.1"])
    stream = await PublicAddresses(connections).connect_tcp("many.example", 80, timeout=5)
    assert isinstance(stream, Stream)
    assert stream.address == "9.9.9.9"
    with pytest.raises(httpcore2.ConnectError, match=r"8\.8\.8\.8 refuses"):
        await PublicAddresses(Connections(failing=addresses)).connect_tcp("many.example", 80, timeout=5)
    with pytest.raises(httpcore2.ConnectTimeout):
        await PublicAddresses(Connections(silent=addresses)).connect_tcp("many.example", 80, timeout=5)


async def test_no_socket_of_this_machine() -> None:
    with pytest.raises(Denied):
        await PublicAddresses(Connections()).connect_unix_socket("/run/docker.sock")
