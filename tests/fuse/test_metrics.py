"""The metrics of a mount: their text, and the endpoint that a Prometheus scrapes."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from bbfs.fuse.status import metrics
from bbfs.fuse.status.endpoint import LARGEST, MOST, Endpoint
from bbfs.model.errors import ConfigError


def source(name: str, state: str = "up", ended: int = 0) -> dict[str, Any]:
    requests = {"ended": ended, "failed": 1, "seconds": 0.75, "median_seconds": 0.1, "p95_seconds": 0.2}
    return {"id": name, "state": state, "resources": 7, "waiting": 2, "in_flight": 3, "requests": requests}


STATE: dict[str, Any] = {
    "process": {"version": "1.2", "pid": 1, "bytes": 1 << 20, "threads": 3, "descriptors": 20},
    "memory": {"bytes": 5, "max_bytes": 9, "contents": 1, "hits": 4, "misses": 2, "evictions": 0},
    "loads_from": {"disk": 1, "shared": 0, "source": 2},
    "waiting": [{"pid": 5, "program": "ls", "seconds": 2.0}],
    "sources": [source("docs", ended=9), source('a "quoted\\\n name', "down")],
}


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_the_state_is_told_in_the_format_of_prometheus() -> None:
    found = samples(metrics.exposition(STATE))
    assert found["bbfs_info", "1.2"] == 1
    assert found["process_resident_memory_bytes",] == 1 << 20
    assert found["bbfs_waiting_programs",] == 1
    assert found["bbfs_loads_total", "source"] == 2
    assert found["bbfs_source_requests_total", "docs"] == 9
    assert found["bbfs_source_request_seconds_total", "docs"] == 0.75
    assert {key[2]: value for key, value in found.items() if key[:2] == ("bbfs_source_state", "docs")} == {
        "idle": 0, "connecting": 0, "up": 1, "down": 0,
    }  # fmt: skip
    assert found["bbfs_source_resources", 'a "quoted\\\n name'] == 7


def test_the_alert_rules_of_the_document_name_metrics_of_a_mount() -> None:
    document = Path(__file__).parents[2] / "docs" / "operations.md"
    named = re.findall(
        r"\b(?:bbfs|process)_[a-z_]+\b(?=[{\[ ])", document.read_text().partition("\ngroups:")[2].partition("```")[0]
    )
    assert len(named) >= 5
    assert set(named) <= {key[0] for key in samples(metrics.exposition(STATE))}


def test_a_mount_without_sources_has_metrics() -> None:
    assert samples(metrics.exposition({**STATE, "sources": []}))["bbfs_loads_total", "disk"] == 1


@contextmanager
def within(seconds: float) -> Iterator[None]:
    with trio.fail_after(seconds):
        yield


async def said(port: int, request: bytes) -> bytes:
    """Return all that the endpoint answers to a request."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(request)
        return b"".join([piece async for piece in stream])


GET = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9464\r\n\r\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (GET, 200),
        (GET.replace(b"/metrics", b"/metrics?name[]=bbfs_info"), 200),
        (GET.replace(b"127.0.0.1:9464", b"localhost"), 200),
        (GET.replace(b"127.0.0.1:9464", b"[::1]:9464"), 200),
        (GET.replace(b"127.0.0.1:9464", b"rebound.example"), 421),
        (GET.replace(b"Host: 127.0.0.1:9464\r\n", b"Host: localhost\r\nHost: evil.example\r\n"), 400),
        (GET.replace(b"GET", b"POST"), 405),
        (GET.replace(b"/metrics", b"/"), 404),
        (b"\x00\x01\x02\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (LARGEST + 1), 431),
    ],
)
async def test_the_endpoint_answers_one_path_under_its_own_names(
    nursery: trio.Nursery, request_: bytes, status: int
) -> None:
    port = await nursery.start(Endpoint(("127.0.0.1", 0), lambda: STATE).run)
    with within(10):
        answer = await said(port, request_)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    body = answer.partition(b"\r\n\r\n")[2]
    assert (body == metrics.exposition(STATE)) == (status == 200)


async def test_a_client_that_says_nothing_is_let_go_and_keeps_no_other_out(nursery: trio.Nursery) -> None:
    port = await nursery.start(Endpoint(("127.0.0.1", 0), lambda: STATE, within=2.0).run)
    silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(MOST)]
    with within(10):
        assert (await said(port, GET)).startswith(b"HTTP/1.1 503 ")
        assert [await each.receive_some() for each in silent] == [b""] * MOST
        assert (await said(port, GET)).startswith(b"HTTP/1.1 200 ")
    for each in silent:
        await each.aclose()


async def test_an_address_that_is_taken_is_an_error_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"metrics: 127.0.0.1:{port}: Address already in use"):
            await Endpoint(("127.0.0.1", port), lambda: STATE).run()
