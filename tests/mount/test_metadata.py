"""Attributes and extended attributes on a real mount (S8 to S12)."""

import json
import os
from pathlib import Path

import pytest
from harness import Mounts, folder
from programs import errno_of, python, run, shell
from scripted import ScriptedServer

LINES = "".join(f"line {number}\n" for number in range(1000))


@pytest.mark.semantics("S8")
def test_owner_and_umask_are_configurable(mounted: Mounts, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    mount = mounted(folder("local", tmp_path), tables={"mount": {"uid": 1234, "gid": 2345, "umask": "027"}})
    paths = [mount.path, mount / "bb-filesystem+local+file", mount / "bb-filesystem+local+file/file"]
    asked = run("stat", "-c", "%a %u %g", *paths).text.splitlines()
    assert asked == ["550 1234 2345", "550 1234 2345", "440 1234 2345"]


@pytest.mark.semantics("S9")
def test_the_size_of_every_file_is_exact_before_anything_reads_it(mounted: Mounts, tmp_path: Path) -> None:
    asked = {
        "stat": "stat -c '%n %s' *",
        "ls": "ls -l | awk 'NR > 1 {print $9, $5}'",
        "du": "du --apparent-size -B1 * | awk '{print $2, $1}'",
        "find": "find . -type f -printf '%P %s\\n' | sort",
        "fstat": """for name in *; do exec 3<"$name"; stat -L -c "$name %s" /dev/fd/3; done""",
    }
    contents = {f"{number:02}.txt": LINES[: number * 397] for number in range(24)}
    expected = [f"{name} {len(text)}" for name, text in contents.items()] + ["blob 76800"]
    servers = {name: ScriptedServer(tmp_path / name) for name in asked}
    for server in servers.values():
        for name, text in contents.items():
            server.add(f"test://d/{name}", text)
        server.add("test://d/blob", bytes(range(256)) * 300)
    mount = mounted(*(server.source(name) for name, server in servers.items()))
    for name, command in asked.items():
        assert shell(command, directory=mount / f"mcp-server+{name}/test/d").text.splitlines() == expected
        assert servers[name].reads() == len(expected)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> ScriptedServer:
    """A server whose resources several tests use, each its own ones."""
    server = ScriptedServer(tmp_path_factory.mktemp("shared") / "server")
    for name in ("cp", "rsync", "tar"):
        server.add(f"test://d/{name}", "x", mimeType="text/markdown", title="A Title", description="A sentence")
    for name, fields in {"broken": {}, "sized": {"size": 1}}.items():
        server.add(f"test://d/{name}", "x", **fields)
        server.fail(f"test://d/{name}", -32603)
    server.add("test://d/file", "x")
    server.add("test://d/spliced", "whole")
    return server


@pytest.fixture(scope="module")
def directory(shared: ScriptedServer, module_mounted: Mounts) -> Path:
    return module_mounted(shared.source("docs")) / "mcp-server+docs/test/d"


@pytest.mark.semantics("S11.4")
def test_a_copy_keeps_type_and_origin(directory: Path, shared: ScriptedServer, tmp_path: Path) -> None:
    copy = 'cp -a cp "$1"; rsync -aX rsync "$1/"; tar --xattrs -cf - tar | tar --xattrs -C "$1" -xf -'
    shell(copy, tmp_path, directory=directory)
    for name in ("cp", "rsync", "tar"):
        kept = {each: os.getxattr(tmp_path / name, each) for each in os.listxattr(tmp_path / name)}
        assert kept == {"user.mime_type": b"text/markdown", "user.xdg.origin.url": f"test://d/{name}".encode()}
        assert (tmp_path / name).read_text() == "x"
        assert shared.reads(f"test://d/{name}") == 1


@pytest.mark.semantics("S11", "S23")
def test_the_last_error_of_a_resource_is_an_attribute(directory: Path) -> None:
    for path in (directory / "broken", directory / "sized"):
        assert errno_of("os.getxattr(sys.argv[1], 'user.bbfs.error')", path) == "ENODATA"
        assert errno_of("open(sys.argv[1]).read()", path) == "EIO"
        assert "as told" in run("getfattr", "--only-values", "-n", "user.bbfs.error", path).text
    assert errno_of("os.stat(sys.argv[1])", directory / "broken") == "EIO"


XATTR_CALLS = """
import ctypes, errno, json
libc = ctypes.CDLL(None, use_errno=True)
path = os.fsencode(sys.argv[1])
def call(function, *arguments):
    size = function(path, *arguments)
    return size if size >= 0 else errno.errorcode[ctypes.get_errno()]
name = b"user.bbfs.uri"
value_size = call(libc.getxattr, name, None, 0)
buffer = ctypes.create_string_buffer(100_000)
print(json.dumps({
    "probed": value_size,
    "short": call(libc.getxattr, name, buffer, value_size - 1),
    "exact": call(libc.getxattr, name, buffer, value_size),
    "value": buffer.raw[:value_size].decode(),
    "roomy": call(libc.getxattr, name, buffer, 60_000),
    "missing": call(libc.getxattr, b"user.no.such", buffer, 100),
    "selinux": call(libc.getxattr, b"security.selinux", buffer, 100),
    "acl": call(libc.getxattr, b"system.posix_acl_access", None, 0),
    "undecodable": call(libc.getxattr, b"user.\\xff\\xfe", buffer, 100),
    "empty": call(libc.getxattr, b"user.", buffer, 100),
    "list probed": (list_size := call(libc.listxattr, None, 0)),
    "list short": call(libc.listxattr, buffer, list_size - 1),
    "list exact": call(libc.listxattr, buffer, list_size),
    "names": buffer.raw[:list_size].decode().split(chr(0))[:-1],
    "set": call(libc.setxattr, name, b"x", 1, 0),
    "remove": call(libc.removexattr, name),
}))
"""


@pytest.mark.semantics("S11", "S28")
def test_sizes_of_attributes_can_be_probed_and_small_buffers_are_refused(directory: Path) -> None:
    found = json.loads(python(XATTR_CALLS, directory / "file").text)
    uri = "mcp-server+docs+test://d/file"
    assert found["probed"] == found["exact"] == found["roomy"] == len(uri)
    assert found["value"] == uri
    assert found["short"] == found["list short"] == "ERANGE"
    assert found["missing"] == found["undecodable"] == "ENODATA"
    assert found["selinux"] == "ENOTSUP"  # EOPNOTSUPP: the file system has no attributes of that kind
    assert found["acl"] in ("ENODATA", "ENOTSUP")  # kernels differ in whether they ask at all
    assert found["empty"] in ("ENODATA", "EINVAL", "ENOTSUP")
    assert found["list probed"] == found["list exact"]
    assert found["names"] == ["user.xdg.origin.url"]
    assert found["set"] == found["remove"] == "EROFS"


NO_SIZE = (
    "ls --color=always",
    "ls -F --color=always *",
    "ls -i --color=always",
    "find . -type f",
    "for name in *; do [ -r $name ]; done",
    "getfattr -d -m - *",
    "getfattr -R -d .",
)
SIZE = (
    "ls -s",
    "ls -t --color=always",
    "stat -c %s *",
    "find . -size 3c",
    "cat *",
    "cp -r . $1",
    "for name in *; do /usr/bin/test -e $name; done",
)


def serve_directories(server: ScriptedServer, count: int) -> None:
    """Serve directories `00`, `01`, … of three files of four bytes."""
    for directory in range(count):
        for number in range(3):
            server.add(f"test://{directory:02}/{number}.txt", "four")


def reads_in(server: ScriptedServer, directory: int) -> int:
    return sum(line.startswith(f"read test://{directory:02}/") for line in server.log())


@pytest.mark.semantics("S12.1")
def test_a_program_that_asks_for_no_size_costs_no_load(mounted: Mounts, server: ScriptedServer, tmp_path: Path) -> None:
    commands = (*NO_SIZE, *SIZE)  # in this order: what walks through a directory loads the next one ahead
    serve_directories(server, len(commands))
    root = mounted(server.source("docs")) / "mcp-server+docs/test"
    for number, command in enumerate(commands):
        directory = root / f"{number:02}"
        shell(f"{command} >/dev/null", tmp_path / str(number), directory=directory)
        assert reads_in(server, number) == (0 if command in NO_SIZE else 3), command
    assert shell("stat -c %s */*", directory=root).text.split() == ["4"] * 3 * len(commands)


STATX = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(256)
for path in sys.argv[2:]:
    if libc.statx(-100, os.fsencode(path), 0, int(sys.argv[1], 0), buffer):
        raise OSError(ctypes.get_errno(), "statx")
    print(int.from_bytes(buffer.raw[40:48], sys.byteorder))
"""


@pytest.mark.semantics("S9.3", "S12")
def test_the_mask_of_statx_says_whether_the_size_is_needed(mounted: Mounts, server: ScriptedServer) -> None:
    masks = {0x0: 0, 0x1: 0, 0x2: 0, 0x11F: 0, 0x200: 4, 0x400: 4, 0x40: 4, 0x7FF: 4, 0xFFF: 4}
    serve_directories(server, len(masks))
    root = mounted(server.source("docs")) / "mcp-server+docs/test"
    for directory, (mask, size) in enumerate(masks.items()):
        sizes = python(STATX, hex(mask), *(root / f"{directory:02}/{number}.txt" for number in range(3))).text.split()
        assert sizes == [str(size)] * 3, hex(mask)
        assert reads_in(server, directory) == (3 if size else 0), hex(mask)


@pytest.mark.semantics("S9")
def test_a_file_that_was_merely_looked_at_is_sent_whole(directory: Path) -> None:
    """Splicing reads no further than the size that the kernel has when the file is opened."""
    code = """
assert os.access(sys.argv[1], os.R_OK) and os.getxattr(sys.argv[1], "user.bbfs.uri")
reading, writing = os.pipe()
print(os.splice(os.open(sys.argv[1], os.O_RDONLY), writing, 100))
"""
    assert python(code, directory / "spliced").text == "5\n"


@pytest.mark.semantics("S12.3")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_what_another_user_asks_for_is_seen_as_well(mounted: Mounts, server: ScriptedServer) -> None:
    for number in range(3):
        server.add(f"test://d/{number}", "four")
    mount = mounted(server.source("docs"), tables={"mount": {"allow_other": True}})
    directory = mount / "mcp-server+docs/test/d"
    other = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    assert run(*other, "ls", "--color=always", directory).status == 0
    assert server.reads() == 0
    assert run(*other, "stat", "-c", "%s", directory / "0").text == "4\n"
