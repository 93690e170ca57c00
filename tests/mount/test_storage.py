"""Storage on a real mount: a real S3 server behind a relay, and archives."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Mounts, SourceTable
from object_stores import KEY, SECRET, Relay, S3Server, closing
from programs import Done, Program, bbfs, wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    server = S3Server()
    with closing(server):
        server.make_bucket("data")
        for key in ("docs/a.md", "docs/b.md", "twice//slashed", "../../up", "note", "note/below", "k" * 900):
            server.put("data", key, f"content of {key}\n".encode(), {"x-amz-meta-author": "me"})
        server.put("data", "big.bin", os.urandom(50 << 20))
        yield server


@pytest.fixture
def relay(server: S3Server) -> Iterator[Relay]:
    relay = Relay(server.port)
    with closing(relay):
        yield relay


def s3(relay: Relay, **options: Any) -> SourceTable:
    config = {"url": "s3://data/", "options": {"endpoint": relay.url}, **options.pop("config", {})}
    auth = {"accessKey": KEY, "secretKey": SECRET}
    return {"name": "store", "type": "storage", "config": config, "auth": auth, **options}


def test_options_of_the_command_line_lead_to_an_endpoint(server: S3Server, mounted: Mounts) -> None:
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
    env = mounted.state().environ() | keys

    def cat(*options: str) -> Done:
        return bbfs("cat", "--source", "store=s3://data/", *options, "store/data/docs/a.md", env=env, status=None)

    for name in ("store.endpoint", "endpoint", "store.options.endpoint"):
        read = cat("-o", f"{name}={server.url}")
        assert (read.out, read.status) == (b"content of docs/a.md\n", 0), read.err
    wrong = cat("-o", f"store.endpont={server.url}")
    assert (wrong.out, wrong.status) == (b"", 1)
    assert b"did you mean 'endpoint'" in wrong.err
    assert b"endpoint" in cat("-o", "store.endpoint=no address").err


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.semantics("S22")
def test_who_waits_for_a_part_of_an_object_can_be_killed(
    mounted: Mounts, relay: Relay, programs: type[Program]
) -> None:
    mount = mounted(s3(relay, timeout=20))
    big = mount / "bb-storage+store+s3" / "data" / "big.bin"
    relay.stall(5 << 20)
    reader = programs("sh", "-c", 'exec cat "$0" >/dev/null', big)
    wait_until(lambda: relay.sent >= 5 << 20, "it is in the middle")
    wait_until(lambda: _state(reader.pid) in "DS", "it waits")
    reader.send(signal.SIGKILL)
    assert reader.wait().status == -signal.SIGKILL
