"""Storage on a real mount: a real S3 server behind a relay, and archives."""

import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Mounts, SourceTable, folder
from object_stores import KEY, SECRET, Relay, S3Server, closing
from programs import Done, Program, bbfs, errno_of, run, shell, wait_until

BIG = os.urandom(50 << 20)
STALLED = ("no answer in time", "no answer within")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    server = S3Server()
    with closing(server):
        server.make_bucket("data")
        for key in ("docs/a.md", "docs/b.md", "twice//slashed", "../../up", "note", "note/below", "k" * 900):
            server.put("data", key, f"content of {key}\n".encode(), {"x-amz-meta-author": "me"})
        server.put("data", "big.bin", BIG)
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


@pytest.mark.semantics("S1", "S3", "S5", "S9", "S11.2", "S14", "S30")
def test_objects_are_files(mounted: Mounts, relay: Relay, tmp_path: Path) -> None:
    mount = mounted(s3(relay))
    bucket = mount / "bb-storage+store+s3" / "data"
    listed = run("ls", "-l", bucket).text
    assert f" {len(BIG)} " in listed
    assert run("cat", bucket / "docs/a.md").out == b"content of docs/a.md\n"
    assert run("cat", bucket / "twice" / "%2F" / "slashed").out == b"content of twice//slashed\n"
    assert run("cat", bucket / "%2E%2E" / "%2E%2E" / "up").out == b"content of ../../up\n"
    assert run("cat", bucket / "note" / "index").out == b"content of note\n"
    assert run("cat", bucket / "note" / "below").out == b"content of note/below\n"
    assert shell("cat k*", directory=bucket).out == f"content of {'k' * 900}\n".encode()
    attributes = shell("getfattr -d a.md; getfattr -n user.bbfs.user_metadata a.md", directory=bucket / "docs").text
    assert 'user.bbfs.user_metadata="{\\"author\\": \\"me\\"}"' in attributes
    assert 'user.xdg.origin.url="s3://data/docs/a.md"' in attributes
    run("cp", "-a", bucket, tmp_path / "copy", timeout=40)
    assert hashlib.sha256((tmp_path / "copy" / "big.bin").read_bytes()).digest() == hashlib.sha256(BIG).digest()
    assert shell("grep -rl 'content of docs' . | sort", directory=bucket).text == "./docs/a.md\n./docs/b.md\n"
    everything = attributes + run("getfattr", "-d", mount / "bb-storage+store+s3").text + mount.log()
    assert SECRET not in everything
    assert KEY not in everything


@pytest.mark.semantics("S22", "S23")
def test_a_store_that_stalls_harms_no_other_source(
    mounted: Mounts, relay: Relay, tmp_path: Path, programs: type[Program]
) -> None:
    (tmp_path / "other").mkdir()
    for number in range(30):
        (tmp_path / "other" / str(number)).write_bytes(os.urandom(300_000))
    mount = mounted(s3(relay, timeout=8), folder("other", tmp_path / "other"), expected=STALLED)
    bucket, other = mount / "bb-storage+store+s3" / "data", mount / "bb-filesystem+other+file"
    assert run("cat", bucket / "docs/a.md").out == b"content of docs/a.md\n"
    # Readers that are in the middle of a large object when the server stops.
    script = 'exec <"$0"; head -c 1 >/dev/null; kill -STOP $$; exec cat >/dev/null'
    readers = [programs("sh", "-c", script, bucket / "big.bin") for _ in range(20)]
    for reader in readers:
        wait_until(lambda reader=reader: _state(reader.pid) == "T", "it has read the beginning")
    relay.stall()
    for reader in readers:
        reader.send(signal.SIGCONT)
    wait_until(lambda: sum(_state(reader.pid) in "DS" for reader in readers) == 20, "they read on")
    copied = shell('for f in *; do cmp "$f" "$1/$f"; done', tmp_path / "other", directory=other)
    assert copied.status == 0
    assert all(reader.running for reader in readers), "it waited for the store"
    assert errno_of("os.listdir(sys.argv[1])", bucket / "docs" / ".." / "twice") == "ETIMEDOUT"
    first = readers[0].wait()
    assert b"timed out" in first.err
    for reader in readers[1:]:
        assert reader.wait().status == 1
    relay.flow()
    assert run("cat", bucket / "docs/b.md").out == b"content of docs/b.md\n"


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
