"""Saving to object stores through a mount: afterwards the store has it (S32, S33)."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from harness import Mount, Mounts, SourceTable
from object_stores import KEY, SECRET, Relay, S3Server, closing
from programs import errno_of, run, shell

DIRECTORY = "bb-storage+store+s3/data"
pytestmark = pytest.mark.semantics("S32", "S33")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    server = S3Server()
    with closing(server):
        server.make_bucket("data")
        yield server


@pytest.fixture
def relay(server: S3Server) -> Iterator[Relay]:
    relay = Relay(server.port)
    with closing(relay):
        yield relay


def s3(url: str, **options: Any) -> SourceTable:
    return {
        "name": "store",
        "type": "storage",
        "capabilities": ["read", "list", "write"],
        "config": {"url": "s3://data/", "options": {"endpoint": url}},
        "auth": {"accessKey": KEY, "secretKey": SECRET},
        **options,
    }


def listed(mount: Mount) -> Mount:
    """Have the store listed: until then a lookup may give up, and say that a name is a directory (S22)."""
    run("ls", mount / DIRECTORY)
    return mount


def stored(server: S3Server, key: str) -> httpx2.Response:
    return server.client.get(f"/data/{key}")


def test_a_saved_object_keeps_its_type_and_metadata(mounted: Mounts, server: S3Server) -> None:
    kept = {"content-type": "text/x-own", "x-amz-meta-author": "me"}
    server.put("data", "page.html", b"one\n", kept)
    mount = listed(mounted(s3(server.url)))
    shell("sed -i s/one/1/ page.html && echo two >> page.html", directory=mount / DIRECTORY)
    page = stored(server, "page.html")
    assert page.content == b"1\ntwo\n"
    assert {name: page.headers.get(name) for name in kept} == kept


def test_an_upload_that_breaks_off_is_done_later(
    mounted: Mounts, relay: Relay, server: S3Server, tmp_path: Path
) -> None:
    server.put("data", "large", b"one\n")
    data = tmp_path / "data"
    data.write_bytes(os.urandom(40 << 20))
    mount = mounted(s3(relay.url), expected=["not written"])
    assert run("cat", mount / DIRECTORY / "large").text == "one\n"

    def break_off(received: int, end: int = relay.received + (20 << 20)) -> None:
        if received > end:
            raise ConnectionError("cut by the test")

    relay.receives = break_off
    copy = "exec(\"with open(sys.argv[1], 'wb', 0) as f: f.write(open(sys.argv[2], 'rb').read())\")"
    assert errno_of(copy, mount / DIRECTORY / "large", data) == "EHOSTDOWN"
    relay.receives = lambda _: None
    assert stored(server, "large").content == b"one\n"
    [kept] = mount.state.pending()
    mount.bbfs("pending", "retry", kept.stem)
    assert stored(server, "large").content == data.read_bytes()
    assert mount.state.pending() == []
