"""The shared tier on a cluster, and on a primary that sentinels name: what is kept where, who is asked, who is not."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace

import pytest
import trio
from cache_nodes import HOST, PASSWORD, USER, Cluster, Node, incomplete_cluster, short_directory
from shared_machines import BOUND, OTHER, QUICK, SOURCE, Machine, machines, whole

from bbfs.model.errors import Unreachable
from bbfs.model.values import SharedCache
from bbfs.resources.cache.shared.connection import probe
from bbfs.resources.cache.shared.scripts import FORMAT
from bbfs.resources.cache.tier import EVERYTHING
from bbfs.sources.content.memory import digest_of

PLAIN = SharedCache(username=USER, password=PASSWORD, timeout=BOUND)
FOREIGN = "127.0.0.9"
"""An address of this machine that no configuration here names."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with short_directory() as directory:
        with closing(Cluster(directory)) as cluster:
            yield cluster


@pytest.fixture
def settings(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> SharedCache:
    """One node of the cluster, over TLS; it names the others."""
    monkeypatch.setenv("SSL_CERT_FILE", str(cluster.certificate))
    return replace(PLAIN, form="cluster", nodes=((HOST, cluster.nodes[1].port),), tls=True)


async def test_a_cluster_keeps_contents_on_all_of_its_nodes(
    cluster: Cluster, settings: SharedCache, caplog: pytest.LogCaptureFixture
) -> None:
    before = cluster.keys()
    async with machines(settings, settings) as (one, two):
        for number in range(12):
            await one.put(f"test://{number}", b"%d" % number, b"%20000d" % number, source=(SOURCE, OTHER)[number % 2])
        for number in range(12):
            found = await two.tier.get((SOURCE, OTHER)[number % 2], f"test://{number}")
            assert found is not None
            assert whole(found) == (b"%d" % number, b"%20000d" % number)
        assert all(now > then for now, then in zip(cluster.keys(), before, strict=True))
        await one.tier.drop(SOURCE, "test://0")
        await two.hears((SOURCE, "test://0"))
        await one.tier.drop(OTHER, None)
        await two.hears((SOURCE, "test://0"), (OTHER, None))
        assert await two.tier.get(SOURCE, "test://0") is None
        assert await two.tier.get(OTHER, "test://1") is None
        assert await two.tier.get(SOURCE, "test://2") is not None
    assert "going on without it" not in caplog.text
    assert (await probe(settings)).startswith(("Redis ", "Valkey "))


async def test_requests_follow_a_slot_that_moves(
    cluster: Cluster, settings: SharedCache, caplog: pytest.LogCaptureFixture
) -> None:
    moving = "mcp-server+moves 1"
    async with machines(settings, settings) as (one, two):
        await one.put("test://a", content := b"moves" * 4096, source=moving)
        with cluster.moving(f"bbfs:{FORMAT}:content:{digest_of(content)}"):
            assert await two.tier.get(moving, "test://a") is not None  # ASK
        assert await two.tier.get(moving, "test://a") is not None  # MOVED
        with cluster.moving(f"{{{moving}}}"):
            assert await two.tier.get(moving, "test://a") is None  # a script of several keys has to wait: TRYAGAIN
            await one.tier.drop(moving, "test://b")
            await one.put("test://c", b"elsewhere", source=OTHER)
        await two.hears((moving, "test://b"))
        for machine in (one, two):
            assert await machine.tier.get(moving, "test://a") is not None
            assert await machine.tier.get(OTHER, "test://c") is not None
    assert "going on without it" not in caplog.text


async def test_a_cluster_with_slots_that_have_no_node_counts_as_away() -> None:
    with short_directory() as directory:
        node = incomplete_cluster(directory)
        try:
            with pytest.raises(Unreachable, match="Unable to map slot"):
                await down(replace(PLAIN, form="cluster", nodes=((HOST, node.port),)))
        finally:
            node.kill()


async def test_a_fail_over_is_followed(caplog: pytest.LogCaptureFixture) -> None:
    with short_directory() as directory:
        primary = Node(directory, "--repl-diskless-sync-delay", "0")
        replica = Node(directory, "--replicaof", f"{HOST} {primary.port}")
        replica.until("INFO replication", "master_link_status:up")
        watched = f"sentinel monitor kept {HOST} {primary.port} 1\nsentinel down-after-milliseconds kept 500\n"
        sentinel = Node(directory, sentinel=f"{watched}requirepass word\nsentinel sentinel-pass word\n")
        try:
            nodes = ((HOST, 1), (HOST, sentinel.port))  # the first one is away
            settings = replace(PLAIN, form="sentinel", nodes=nodes, service="kept", sentinel_password="word")
            async with machines(settings, settings) as (one, two):
                await one.put("test://a", b"a")
                assert await two.tier.get(SOURCE, "test://a") is not None
                replica.until("INFO replication", "master_link_status:up")
                sentinel.until("-a word SENTINEL replicas kept", f"{replica.port}")
                primary.kill()
                replica.until("ROLE", "master")
                await one.tier.get(SOURCE, "test://a")  # a request notices, or the connection that listens has
                for machine in (one, two):
                    await machine.back()
                    with trio.fail_after(BOUND):
                        while (EVERYTHING, None) not in machine.heard:  # noqa: ASYNC110 - it sets no event
                            await trio.sleep(0.01)
                await one.put("test://b", b"b")
                assert await two.tier.get(SOURCE, "test://b") is not None
            assert caplog.text.count("going on without it") == 2
        finally:
            for node in (sentinel, primary, replica):
                node.kill()


@asynccontextmanager
async def answering(
    reply: Callable[[list[bytes], int], bytes], host: str = HOST
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that answers each command by `reply(command, port)`, its port, and the names of the commands it got."""
    got: list[bytes] = []

    async def serve(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):  # a client may end the connection at any time
            await converse(stream)

    async def converse(stream: trio.SocketStream) -> None:
        buffered = b""
        async for data in stream:
            buffered += data
            while b"\r\n" in buffered:
                words = buffered.split(b"\r\n")
                count = int(words[0][1:])
                if len(words) <= 2 * count + 1:
                    break
                command = words[2 : 2 * count + 1 : 2]
                buffered = b"\r\n".join(words[2 * count + 1 :])
                got.append(command[0].upper())
                await stream.send_all(GREETINGS.get(got[-1]) or reply(command, port))

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host=host)
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        yield port, got
        nursery.cancel_scope.cancel()


GREETINGS = {
    b"HELLO": b"%4\r\n+server\r\n+redis\r\n+version\r\n+7.0.0\r\n+proto\r\n:3\r\n+id\r\n:1\r\n",
    b"CLIENT": b"+OK\r\n",
}


def slots(*ranges: tuple[int, int, str, int]) -> bytes:
    rows = [
        b"*3\r\n:%d\r\n:%d\r\n*3\r\n$%d\r\n%s\r\n:%d\r\n$1\r\nx\r\n" % (first, last, len(host), host.encode(), port)
        for first, last, host, port in ranges
    ]
    return b"*%d\r\n" % len(rows) + b"".join(rows)


async def down(settings: SharedCache) -> None:
    """Raise Unreachable with the reason for which the cache cannot be used. Fails if it can be."""
    async with trio.open_nursery() as nursery:
        machine = Machine(settings, lambda: 0.0, QUICK)  # type: ignore[arg-type]
        await nursery.start(machine.tier.run, machine.dropped)
        with trio.fail_after(BOUND):
            while machine.tier.problem is None:
                await machine.tier.get(SOURCE, "test://a")
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    raise Unreachable(machine.tier.problem)


ALL = (0, 16383)
LIES = {
    "a range without end": (lambda port: slots((0, 1 << 62, HOST, port)), "slots that do not exist"),
    "a range backwards": (lambda port: slots((5, 1, HOST, port)), "slots that do not exist"),
    "slots twice": (lambda port: slots((0, 9, HOST, port), (9, 16383, HOST, port)), "some of them twice"),
    "no slots": (lambda port: slots(), "no slots"),
    "a port that does not exist": (lambda port: slots((*ALL, HOST, 1 << 40)), "port that does not exist"),
    "a word": (lambda port: b"+OK\r\n", "another form"),
    "words for numbers": (lambda port: b"*1\r\n*3\r\n$1\r\na\r\n_\r\n*2\r\n$1\r\nh\r\n:1\r\n", "another form"),
    "a range without a node": (lambda port: b"*1\r\n*2\r\n:0\r\n:16383\r\n", "another form"),
    "a foreign node": (lambda port: slots((*ALL, FOREIGN, port)), f"{FOREIGN}' was announced"),
    "a foreign name": (lambda port: slots((*ALL, "localhost", port)), "'localhost' was announced"),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_layout_that_lies_is_refused(lie: str) -> None:
    layout, reason = LIES[lie]
    async with answering(lambda command, port: layout(port)) as (port, _):
        with pytest.raises(Unreachable, match=reason):
            await down(replace(PLAIN, form="cluster", nodes=((HOST, port),)))


@pytest.mark.parametrize("redirection", ["MOVED", "ASK"])
@pytest.mark.parametrize("allowed", [(), (f"{FOREIGN}/32",)])
async def test_a_redirection_leads_to_known_hosts_only(redirection: str, allowed: tuple[str, ...]) -> None:
    async with answering(lambda command, port: b"-ERR no\r\n", FOREIGN) as (foreign, asked):

        def reply(command: list[bytes], port: int) -> bytes:
            match command[0].upper():
                case b"CLUSTER":
                    return slots((*ALL, HOST, port))
                case b"PING":
                    return b"+PONG\r\n"
                case b"SUBSCRIBE":
                    return b">3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n" % (len(command[1]), command[1])
            return f"-{redirection} 1 {FOREIGN}:{foreign}\r\n".encode()

        async with answering(reply) as (port, _):
            reason = "'ERR no'|no" if allowed else f"{FOREIGN}' was announced"
            with pytest.raises(Unreachable, match=reason):
                await down(replace(PLAIN, form="cluster", nodes=((HOST, port),), announced=allowed))
        assert bool(asked) == bool(allowed)


async def test_a_sentinel_names_known_hosts_only_and_never_gets_the_password() -> None:
    async with answering(lambda command, port: b"-ERR no\r\n", FOREIGN) as (foreign, asked):
        words: list[bytes] = []

        def reply(command: list[bytes], port: int) -> bytes:
            words.extend(command)
            return f"*2\r\n${len(FOREIGN)}\r\n{FOREIGN}\r\n$5\r\n{foreign}\r\n".encode()

        async with answering(reply) as (port, _):
            settings = replace(PLAIN, form="sentinel", nodes=((HOST, port),), service="kept")
            with pytest.raises(Unreachable, match=f"{FOREIGN}' was announced"):
                await down(settings)
        assert asked == []
        assert PASSWORD.encode() not in words


async def test_another_primary_is_noticed_though_the_one_before_goes_on() -> None:
    with short_directory() as directory:
        primaries = [Node(directory), Node(directory)]
        present = [primaries[0].port]

        def reply(command: list[bytes], port: int) -> bytes:
            return b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n" % (len(str(present[0])), present[0])

        try:
            async with answering(reply) as (port, _):
                settings = replace(PLAIN, form="sentinel", nodes=((HOST, port),), service="kept")
                async with machines(settings, waits=replace(QUICK, following=0.05)) as (one,):
                    await one.put("test://a", b"a")
                    present[0] = primaries[1].port
                    await one.hears((EVERYTHING, None))
                    await one.back()
                    assert await one.tier.get(SOURCE, "test://a") is None
        finally:
            for node in primaries:
                node.kill()
