"""Resources held in memory on a real mount, and `bbfs put`."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from forked_daemon import forked
from harness import Mount, Mounts, SourceTable, folder
from programs import Done, errno_of, run, shell, wait_until

DIRECTORY = "bb-memory+scratch+memory"


def memory(**config: Any) -> SourceTable:
    return {"name": "scratch", "type": "memory", "config": config}


def put(mount: Mount, *arguments: str | Path, status: int = 0, stdin: str | Path | None = None) -> Done:
    if stdin is None:
        return mount.bbfs("put", *arguments, status=status)
    script = f'exec {shlex.join(forked("-m", "bbfs", "put"))} "${{@:2}}" < "$1"'
    return run("bash", "-c", script, "bash", stdin, *arguments, status=status, env=mount.environ(), timeout=30)


def two_sources(mounts: Mounts, directory: Path) -> Mount:
    """A memory that is written, and a folder that is not."""
    (directory / "folder").mkdir()
    (directory / "folder" / "x").write_text("untouched")
    resources = {"notes/a b.md": "# A\n", "notes": "of notes\n", "pixel": {"base64": "AAEC", "description": "dots"}}
    refused = ["are more than the limit of 4194304 bytes"]
    return mounts(
        memory(resources=resources, max_bytes="4MiB"), folder("notes", directory / "folder"), expected=refused
    )


@pytest.fixture
def mount(mounted: Mounts, tmp_path: Path) -> Mount:
    return two_sources(mounted, tmp_path)


@pytest.fixture(scope="module")
def unchanged(module_mounted: Mounts, tmp_path_factory: pytest.TempPathFactory) -> Mount:
    return two_sources(module_mounted, tmp_path_factory.mktemp("unchanged"))


@pytest.mark.semantics("S18")
def test_what_is_put_is_there_at_once_and_replaces_what_was(mount: Mount, tmp_path: Path) -> None:
    here = mount / DIRECTORY
    source = tmp_path / "new one.txt"
    source.write_text("first\n")
    assert errno_of("os.stat(sys.argv[1])", here / "put" / "new one.txt") == "ENOENT"  # which the kernel remembers
    put(mount, source, f"{here}/put/")
    wait_until(lambda: errno_of("os.stat(sys.argv[1]).st_size", here / "put" / "new one.txt") == "OK 6", "it is there")
    assert run("cat", here / "put" / "new one.txt").text == "first\n"
    source.write_text("second, and longer\n")
    put(mount, "-", f"{DIRECTORY}://put/new%20one.txt", stdin=source)
    assert run("cat", here / "put" / "new one.txt").text == "second, and longer\n"
    assert run("ls", here).text.split() == ["notes", "pixel", "put"]
    put(mount, "--remove", "scratch/put/new one.txt", here / "notes" / "index.txt", here / "pixel")
    wait_until(lambda: errno_of("os.listdir(sys.argv[1])", here) == "OK ['notes']", "nothing else is left")
    assert run("ls", here / "notes").text == "a b.md\n"


def test_a_large_file_comes_in_pieces_and_one_that_is_too_large_changes_nothing(mount: Mount, tmp_path: Path) -> None:
    here = mount / DIRECTORY
    shell('head -c 3000000 /dev/urandom > "$1/large"; head -c 2000000 /dev/zero > "$1/more"', tmp_path)
    put(mount, tmp_path / "large", "--mime-type", "x/y", "--description", "noise", here / "large")
    wait_until(lambda: run("cmp", tmp_path / "large", here / "large", status=None).status == 0, "it is there")
    assert run("getfattr", "--only-values", "-n", "user.mime_type", here / "large").text == "x/y"
    done = put(mount, tmp_path / "more", here / "more", status=1)
    assert b"limit of 4194304 bytes (max_bytes); 'bbfs pending' has it as " in done.err
    assert errno_of("os.stat(sys.argv[1])", here / "more") == "ENOENT"
    shell('head -c 5000000 /dev/zero > "$1/huge"', tmp_path)
    assert b"no content of more than 4194304 bytes" in put(mount, tmp_path / "huge", here / "huge", status=1).err


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("FILE", "notes/x"), 1, "does not grant write (-o notes.capabilities=read,list,search,write)"),
        (("FILE", "scratch"), 1, "is the directory of a data source"),
        (("--remove", "scratch/none"), 1, "no such resource"),
        (("FILE", "none/x"), 1, "no source 'none'"),
        (("FILE", "/etc/x"), 1, "not inside a bbfs mount"),
        (("FILE-none", "scratch/x"), 1, "No such file"),
        (("FILE",), 2, "expected FILE"),
        (("-", "scratch/"), 2, "no name"),
        (("--remove", "--mime-type", "x/y", "scratch/pixel"), 2, "--remove takes neither"),
    ],
    ids=str,
)
def test_what_cannot_be_put_is_said(
    unchanged: Mount, tmp_path: Path, arguments: tuple[str, ...], status: int, says: str
) -> None:
    (tmp_path / "file").write_text("x")
    given = [argument.replace("FILE", str(tmp_path / "file")) for argument in arguments]
    assert says in put(unchanged, *given, status=status).err.decode()
    assert run("ls", unchanged / DIRECTORY).text.split() == ["notes", "pixel"]
    assert run("cat", unchanged / "bb-filesystem+notes+file" / "x").text == "untouched"


@pytest.mark.semantics("S17")
def test_without_a_file_nothing_outlives_the_mount_and_with_one_all_does(mounted: Mounts, tmp_path: Path) -> None:
    for config in ({}, {"file": str(tmp_path / "kept.json")}):
        state = mounted.state()
        first = mounted(memory(resources={"given": "1\n"}, **config), state=state)
        put(first, "-", f"{DIRECTORY}://mine", stdin=__file__)
        run("cmp", __file__, first / DIRECTORY / "mine")
        before = run("stat", "-c", "%Y %i", first / DIRECTORY / "mine").text
        first.stop()
        marker = "without_a_file_nothing"  # which is in this file
        shell('! grep -rqF "$1" "$2"', marker, state.home / "cache")
        second = mounted(memory(resources={"given": "1\n"}, **config), state=state)
        assert run("ls", second / DIRECTORY).text.split() == (["given", "mine"] if config else ["given"])
        if config:
            run("cmp", __file__, second / DIRECTORY / "mine")
            assert run("stat", "-c", "%Y %i", second / DIRECTORY / "mine").text == before
        else:
            assert errno_of("os.stat(sys.argv[1])", second / DIRECTORY / "mine") == "ENOENT"
        second.stop()
