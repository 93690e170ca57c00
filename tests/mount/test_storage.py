"""Storage on a real mount: a real S3 server behind a relay, and archives."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from harness import Mounts
from object_stores import KEY, SECRET, WRITE, Relay, S3Server, stored_at
from programs import Done, Program, bbfs, errno_of, run, shell, wait_until

DIRECTORY = "bb-storage+store+s3/data"


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
    mount = mounted(stored_at(relay.url, timeout=20))
    big = mount / DIRECTORY / "big.bin"
    relay.stall(5 << 20)
    reader = programs("sh", "-c", 'exec cat "$0" >/dev/null', big)
    wait_until(lambda: relay.sent >= 5 << 20, "it is in the middle")
    wait_until(lambda: _state(reader.pid) in "DS", "it waits")
    reader.send(signal.SIGKILL)
    assert reader.wait().status == -signal.SIGKILL


@pytest.mark.semantics("S32", "S33")
def test_a_saved_object_keeps_its_type_and_metadata(mounted: Mounts, server: S3Server) -> None:
    kept = {"content-type": "text/x-own", "x-amz-meta-author": "me"}
    server.put("data", "saved/page.html", b"one\n", kept)
    here = mounted(stored_at(server.url, capabilities=WRITE)) / DIRECTORY / "saved"
    run("ls", here)  # until it is listed a lookup may give up, and say that a name is a directory (S22)
    shell("sed -i s/one/1/ page.html && echo two >> page.html", directory=here)
    page = server.client.get("/data/saved/page.html")
    assert page.content == b"1\ntwo\n"
    assert {name: page.headers.get(name) for name in kept} == kept


@pytest.mark.semantics("S32", "S33")
def test_an_upload_that_breaks_off_is_done_later(
    mounted: Mounts, relay: Relay, server: S3Server, tmp_path: Path
) -> None:
    server.put("data", "large", b"one\n")
    data = tmp_path / "data"
    data.write_bytes(os.urandom(40 << 20))
    mount = mounted(stored_at(relay.url, capabilities=WRITE), expected=["not written"])
    assert run("cat", mount / DIRECTORY / "large").text == "one\n"

    def break_off(received: int, end: int = relay.received + (20 << 20)) -> None:
        if received > end:
            raise ConnectionError("cut by the test")

    relay.receives = break_off
    copy = "exec(\"with open(sys.argv[1], 'wb', 0) as f: f.write(open(sys.argv[2], 'rb').read())\")"
    assert errno_of(copy, mount / DIRECTORY / "large", data) == "EHOSTDOWN"
    relay.receives = lambda _: None
    assert server.client.get("/data/large").content == b"one\n"
    [kept] = mount.state.pending()
    mount.bbfs("pending", "retry", kept.stem)
    assert server.client.get("/data/large").content == data.read_bytes()
    assert mount.state.pending() == []
