"""Storage on a real mount: a real S3 server behind a relay, and archives."""

import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Mount, Mounts, SourceTable, folder
from object_stores import KEY, SECRET, Relay, S3Server, closing
from programs import Program, errno_of, run, shell, wait_until

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
    state = mounted.state()

    def bbfs(*options: str) -> "subprocess.CompletedProcess[str]":
        target = ["cat", "--source", "store=s3://data/", *options, "store/data/docs/a.md"]
        line = [sys.executable, "-m", "bbfs", *target]
        keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
        env = state.environ() | keys
        return subprocess.run(
            line, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )

    for name in ("store.endpoint", "endpoint", "store.options.endpoint"):
        read = bbfs("-o", f"{name}={server.url}")
        assert (read.stdout, read.returncode) == ("content of docs/a.md\n", 0), read.stderr
    wrong = bbfs("-o", f"store.endpont={server.url}")
    assert (wrong.stdout, wrong.returncode) == ("", 1)
    assert "did you mean 'endpoint'" in wrong.stderr
    assert "endpoint" in bbfs("-o", "store.endpoint=no address").stderr


def sum_of(text: str) -> str:
    return text.split()[0]


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


@pytest.mark.semantics("S13", "S15")
def test_a_range_of_a_large_object_costs_that_range(mounted: Mounts, relay: Relay) -> None:
    mount = mounted(s3(relay))
    big = mount / "bb-storage+store+s3" / "data" / "big.bin"
    done = run("dd", f"if={big}", "bs=64K", "skip=480", "count=16", "status=none")
    assert done.out == BIG[480 << 16 : 496 << 16]
    assert run("tail", "-c", "1000", big).out == BIG[-1000:]
    assert relay.sent < 10 << 20
    assert sum_of(run("sha256sum", big, timeout=40).text) == hashlib.sha256(BIG).hexdigest()
    assert relay.sent < len(BIG) + (20 << 20)


@pytest.mark.semantics("S13", "S23")
def test_an_object_that_is_replaced_is_another_file(
    mounted: Mounts, relay: Relay, server: S3Server, programs: type[Program]
) -> None:
    server.put("data", "changing", b"1" * (3 << 20))
    mount = mounted(s3(relay, ttl=0, config={"max_memory": 1 << 20}))
    changing = mount / "bb-storage+store+s3" / "data" / "changing"
    code = """
import errno, os, signal, sys
file = os.open(sys.argv[1], os.O_RDONLY)
assert os.pread(file, 4, 0) == b"1111"
os.kill(os.getpid(), signal.SIGSTOP)
try:
    print(os.pread(file, 4, 2 << 20))
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    reader = programs(sys.executable, "-I", "-c", code, changing)
    wait_until(lambda: _state(reader.pid) == "T", "it has read the beginning")
    server.put("data", "changing", b"2" * (3 << 20))
    reader.send(signal.SIGCONT)
    assert reader.wait().text.strip() == "ESTALE"
    assert run("head", "-c", "4", changing).out == b"2222"


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


def zip_file(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("../../etc/passwd", "/abs", "docs/a.md", "docs", "empty/"):
            archive.writestr(name, f"content of {name}\n")
        link = zipfile.ZipInfo("latest")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        archive.writestr(link, "docs/a.md")


def tar_file(path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name in ("../../etc/passwd", "/abs", "docs/a.md", "docs"):
            data = f"content of {name}\n".encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        directory = tarfile.TarInfo("empty")
        directory.type = tarfile.DIRTYPE
        archive.addfile(directory)
        link = tarfile.TarInfo("latest")
        link.type, link.linkname = tarfile.SYMTYPE, "docs/a.md"
        archive.addfile(link)


@pytest.mark.parametrize(("scheme", "write"), [("zip", zip_file), ("tar", tar_file)])
@pytest.mark.semantics("S3", "S5", "S14")
def test_an_archive_is_a_directory(mounted: Mounts, tmp_path: Path, scheme: str, write: Callable[[Path], None]) -> None:
    archive = tmp_path / f"an archive.{scheme}"
    write(archive)
    mount = mounted({"name": "arc", "type": "storage", "ttl": 0, "config": {"url": f"{scheme}://{archive}"}})
    top = mount / f"bb-storage+arc+{scheme}"
    found = sorted(shell("find . -type f -printf '%P %s\n'", directory=top).text.splitlines())
    assert found == [
        "%2E%2E/%2E%2E/etc/passwd 28", "abs 16", "docs/a.md 21", "docs/index 16",
    ]  # fmt: skip
    assert run("cat", top / "latest").out == b"content of docs/a.md\n"
    run("cp", "-a", top, tmp_path / "copy")
    assert (tmp_path / "copy" / "abs").read_bytes() == b"content of /abs\n"
    assert (tmp_path / "copy" / "empty").is_dir()
    assert (tmp_path / "copy" / "docs" / "index").read_bytes() == b"content of docs\n"
    archive.write_bytes(b"no archive any more" * 100)
    assert errno_of("open(sys.argv[1]).read()", top / "abs") == "EPROTO"
    archive.unlink()
    write(archive)
    assert run("cat", top / "abs").out == b"content of /abs\n"


def test_a_mount_of_storage_goes_with_its_options(mounted: Mounts) -> None:
    source: SourceTable = {"name": "arc", "type": "storage", "config": {"url": "zip:///nothing/there.zip"}}
    mount: Mount = mounted(source, expected=["there.zip: the file is not there"])
    top = mount / "bb-storage+arc+zip" / "nothing" / "there.zip"
    assert errno_of("os.listdir(sys.argv[1])", top) == "EHOSTDOWN"
