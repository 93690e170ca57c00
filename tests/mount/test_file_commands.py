"""`bbfs put`, `cp`, `mv`, `rm` and `edit`, with and without a mount, and `bbfs pending` (S32)."""

import json
import sqlite3
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import programs
import pytest
from harness import Mounts, config_text, folder
from programs import Done, run, wait_until

from bbfs.sources.memory.file import MemoryFile

PAD = "bb-memory+pad+memory"


def source(tmp_path: Path, name: str = "pad", **more: object) -> dict[str, object]:
    config = {"file": str(tmp_path / f"{name}.file"), "resources": {"note.md": "one\n"}}
    return {"name": name, "type": "memory", "capabilities": ["read", "list", "write"], "config": config, **more}


def stored(tmp_path: Path, uri: str) -> str | None:
    held = MemoryFile(str(tmp_path / "pad.file"), 1 << 30).read().contents.held.get(f"memory://{uri}")
    return None if held is None else held.content.data.decode()


TTL = {"listing": "0s", "content": "0s"}
"""Of a source whose changes a command finds at once."""


class Commands:
    """Runs bbfs, by a mount or by the configuration alone."""

    def __init__(self, environ: dict[str, str], options: tuple[str, ...] = ()) -> None:
        self.environ = environ
        self.options = options
        self.directory: Path | None = None

    def __call__(self, command: str, *arguments: str | Path, status: int = 0) -> Done:
        options = self.options if command in ("cp", "mv", "rm", "edit", "put") else ()
        words = (command, *options, *arguments)
        return programs.bbfs(*words, env=self.environ, status=status, timeout=30, directory=self.directory)


@pytest.fixture(params=["mount", "direct"])
def commands(request: pytest.FixtureRequest, mounted: Mounts, tmp_path: Path) -> Callable[..., Commands]:
    """Commands by a mount of some sources, or by a configuration that has these."""

    def of(*sources: dict[str, object], expected: Sequence[str] = ()) -> Commands:
        if request.param == "mount":
            return Commands(mounted(*sources, expected=expected).environ())
        config = tmp_path / "bbfs.toml"
        config.write_text(config_text(sources, {}))
        return Commands(mounted.state().environ(), ("--config", str(config)))

    return of


@pytest.fixture
def bbfs(commands: Callable[..., Commands], tmp_path: Path) -> Commands:
    return commands(source(tmp_path, ttl=TTL), expected=["somebody else has changed it"])


@pytest.mark.semantics("S33.11")
def test_a_command_keeps_any_name(bbfs: Commands, tmp_path: Path) -> None:
    local = tmp_path / "local.txt"
    local.write_text("meant\n")
    bbfs("cp", local, "pad/x.part")
    bbfs("put", local, "pad/4913")
    bbfs("mv", "pad/x.part", "pad/note.md~")
    kept = {name: stored(tmp_path, name) for name in ("x.part", "4913", "note.md~")}
    assert kept == {"x.part": None, "4913": "meant\n", "note.md~": "meant\n"}


@pytest.mark.semantics("S32")
def test_resources_are_copied_moved_and_removed(bbfs: Commands, tmp_path: Path) -> None:
    local = tmp_path / "local.txt"
    local.write_text("local\n")
    bbfs("cp", local, "pad/new.txt")
    assert stored(tmp_path, "new.txt") == "local\n"
    bbfs("cp", f"{PAD}://new.txt", f"{PAD}://copy.txt")
    bbfs("mv", "pad/new.txt", "pad/moved.txt")
    assert (stored(tmp_path, "new.txt"), stored(tmp_path, "moved.txt")) == (None, "local\n")
    assert bbfs("cp", "pad/copy.txt", "-").text == "local\n"
    bbfs("cp", "-n", local, "pad/copy.txt", status=1)
    bbfs("rm", "pad/copy.txt", f"{PAD}://moved.txt")
    assert (stored(tmp_path, "copy.txt"), stored(tmp_path, "moved.txt")) == (None, None)
    bbfs("rm", "pad/absent", status=1)


def test_an_operand_means_the_same_to_put_and_cp(bbfs: Commands, tmp_path: Path) -> None:
    local = tmp_path / "pad" / "local.txt"
    local.parent.mkdir()
    local.write_text("local\n")
    bbfs.directory = tmp_path
    for number, command in enumerate(("put", "cp")):
        bbfs(command, "./pad/local.txt", f"pad/{number}.txt")
        assert stored(tmp_path, f"{number}.txt") == "local\n"
    local.parent.rename(tmp_path / "mine")
    said = bbfs("cp", "mine/local.txt", "pad/new.txt", status=1).err.decode()
    assert "no source 'mine'" in said
    assert "a local file is ./mine/local.txt" in said


def test_a_resource_may_be_new_with_the_directories_above_it(commands: Callable[..., Commands], tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    bbfs = commands(folder("notes", tmp_path / "root", capabilities=["read", "list", "write"]))
    bbfs("cp", __file__, "notes/a/b/new")
    bbfs("put", __file__, "bb-filesystem+notes+file:./a/c/new")
    (described,) = json.loads(bbfs("sources", *bbfs.options, "--json").text)
    assert described["state"] == "up"
    assert (described["resources"] is None) is not bool(bbfs.options)
    for name in "bc":
        assert (tmp_path / "root" / "a" / name / "new").read_text() == Path(__file__).read_text()


def test_a_new_name_below_the_working_directory_is_one_of_the_mount(mounted: Mounts, tmp_path: Path) -> None:
    mount = mounted(source(tmp_path))
    bbfs = Commands(mount.environ())
    bbfs("put", __file__, "pad/sub/old")
    bbfs.directory = mount / PAD
    for command in ("put", "cp"):
        bbfs(command, __file__, f"sub/{command}")
        assert stored(tmp_path, f"sub/{command}") == Path(__file__).read_text()


def test_a_directory_of_this_machine_takes_a_copy_under_its_name(bbfs: Commands, tmp_path: Path) -> None:
    bbfs.directory = tmp_path / "here"
    bbfs.directory.mkdir()
    (tmp_path / "there").mkdir()
    for to in (".", str(tmp_path / "there")):
        bbfs("cp", "pad/note.md", to)
        assert (tmp_path / "here" / to / "note.md").read_text() == "one\n"


def test_what_is_not_written_is_refused_before_its_user_edits_it(
    commands: Callable[..., Commands], tmp_path: Path
) -> None:
    """Without a mount, a memory of its own takes nothing either: what a command puts there would end with it."""
    read_only = source(tmp_path, "locked", capabilities=["read", "list"])
    brief = {"name": "brief", "type": "memory", "capabilities": ["read", "list", "write"]}
    bbfs = commands(read_only, brief)
    if not bbfs.options:
        bbfs("put", __file__, "brief/kept")
        assert bbfs("cat", "brief/kept").text == Path(__file__).read_text()
    else:
        for command in ("put", "cp"):
            said = bbfs(command, __file__, "brief/lost", status=1).err.decode()
            assert "memory of this command alone" in said
            assert "does not grant write" in bbfs(command, __file__, "locked/new", status=1).err.decode()
        assert "does not grant write" in bbfs("put", "--remove", "locked/note.md", status=1).err.decode()
    bbfs.environ |= {"EDITOR": f"touch {tmp_path}/edited; false"}
    said = bbfs("edit", "locked/note.md", status=1).err.decode()
    assert "does not grant write" in said
    assert not (tmp_path / "edited").exists()


def test_a_resource_is_edited_in_the_users_editor(bbfs: Commands, tmp_path: Path) -> None:
    bbfs.environ |= {"EDITOR": "sed -i s/one/edited/"}
    bbfs("edit", "pad/note.md")
    assert stored(tmp_path, "note.md") == "edited\n"
    assert "unchanged" in bbfs("edit", "pad/note.md").err.decode()
    bbfs.environ |= {"EDITOR": "false"}
    assert "nothing is saved" in bbfs("edit", "pad/note.md", status=1).err.decode()


@pytest.mark.semantics("S32")
def test_an_edit_that_is_not_saved_is_a_pending_write_or_a_file(bbfs: Commands, tmp_path: Path) -> None:
    editor = tmp_path / "editor.py"
    editor.write_text(f"""
import sys
from bbfs.sources.memory.contents import Held
from bbfs.sources.memory.file import MemoryFile
from bbfs.sources.content.memory import MemoryContent
from pathlib import Path
Path(sys.argv[1]).write_text("mine")
MemoryFile({str(tmp_path / "pad.file")!r}, 1 << 30).change(
    lambda kept: kept.with_resource("memory://note.md", Held(MemoryContent(b"theirs")), 1 << 30))
""")
    bbfs.environ |= {"EDITOR": f"{sys.executable} {editor}"}
    said = bbfs("edit", "pad/note.md", status=1).err.decode()  # the question gets the end of its input
    (kept,) = json.loads(bbfs("pending", "--json").text)
    assert f"'bbfs pending' has your version as {kept['id']}" in said
    assert "your version is in" not in said
    assert bbfs("pending", "show", kept["id"]).text == "mine"
    assert "somebody else" in bbfs("pending", "retry", *bbfs.options, kept["id"], status=1).err.decode()
    bbfs("pending", "retry", *bbfs.options, "--force", kept["id"])
    assert stored(tmp_path, "note.md") == "mine"
    bbfs.environ |= {"EDITOR": "sh -c 'echo more >> $0; exit 1'", "TMPDIR": str(tmp_path)}
    said = bbfs("edit", "pad/note.md", status=1).err.decode()
    (copy,) = tmp_path.glob("bbfs-edit-*/note.md")
    assert f"your version is in {copy}" in said
    assert copy.read_text() == "minemore\n"


@pytest.mark.semantics("S32.1")
def test_a_refused_write_has_the_reason_of_its_source_and_the_pending_write(
    commands: Callable[..., Commands], tmp_path: Path
) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.executescript(
            "CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT); INSERT INTO customer DEFAULT VALUES;"
            "CREATE TRIGGER kept BEFORE DELETE ON customer BEGIN SELECT RAISE(ABORT, 'nobody is ever removed'); END"
        )
    shop = {
        "name": "shop",
        "type": "database",
        "capabilities": ["read", "list", "write"],
        "config": {"url": f"sqlite:///{tmp_path}/shop.db"},
    }
    bbfs = commands(shop, expected=["no column of customer"])
    row = tmp_path / "row.json"
    row.write_text('{"nme": "Ada"}')
    seen: list[str] = []
    for command in ("cp", row, "shop/main/customer/row/1.json"), ("edit", "shop/main/customer/row/1.json"):
        bbfs.environ |= {"EDITOR": f"cp {row}"}
        said = bbfs(*map(str, command), status=1).err.decode()
        assert "nme: no column of customer" in said
        (new,) = (each["id"] for each in json.loads(bbfs("pending", "--json").text) if each["id"] not in seen)
        assert f"'bbfs pending' has it as {new}" in said
        seen.append(new)
    assert "nobody is ever removed" in bbfs("rm", "shop/main/customer/row/1.json", status=1).err.decode()
    (described,) = json.loads(bbfs("sources", *bbfs.options, "--json").text)
    assert described["pending"] == 2
    assert "shop: 2 pending writes; see 'bbfs pending'" in bbfs("sources", *bbfs.options).err.decode()
    assert "2 pending writes" in bbfs("doctor", *bbfs.options).text


def save(note: Path, tmp_path: Path, number: int) -> None:
    """Save a file that somebody else changes meanwhile: what is saved is a pending write then."""
    # Imports first: a program that starts another one flushes all that it has open.
    code = f"""
import os, sys
from bbfs.sources.memory.contents import Held
from bbfs.sources.memory.file import MemoryFile
from bbfs.sources.content.memory import MemoryContent
descriptor = os.open({str(note)!r}, os.O_RDWR)
os.write(descriptor, b"mine {number}")
MemoryFile({str(tmp_path / "pad.file")!r}, 1 << 30).change(
    lambda kept: kept.with_resource("memory://note.md", Held(MemoryContent(b"theirs {number}")), 1 << 30))
try:
    os.close(descriptor)
except OSError as error:
    sys.exit(error.strerror != "Stale file handle")
sys.exit("saved")
"""
    run(sys.executable, "-c", code)


@pytest.mark.semantics("S32.1")
def test_what_a_source_did_not_take_is_listed_shown_compared_handed_over_and_dropped(
    mounted: Mounts, tmp_path: Path
) -> None:
    mount = mounted(source(tmp_path), expected=["somebody else has changed it"])
    bbfs, here = Commands(mount.environ()), mount / PAD
    assert bbfs("pending").err.decode() == "bbfs: nothing is pending\n"
    for number in range(2):
        save(here / "note.md", tmp_path, number)
    first, second = json.loads(bbfs("pending", "list", "--json").text)
    assert first["uri"] == f"{PAD}://note.md"
    assert "somebody else" in bbfs("pending").text
    assert bbfs("pending", "show", first["id"][:6]).text.startswith("mine 0")
    assert "+mine 0" in bbfs("pending", "diff", first["id"]).text
    assert "somebody else" in bbfs("pending", "retry", first["id"], status=1).err.decode()
    bbfs("pending", "retry", "--force", first["id"])
    assert (stored(tmp_path, "note.md") or "").startswith("mine 0")
    bbfs("pending", "drop", second["id"], status=1)
    bbfs("pending", "drop", "--yes", second["id"])
    assert json.loads(bbfs("pending", "--json").text) == []


@pytest.mark.semantics("S32.1")
def test_all_that_is_pending_is_compared_handed_over_and_dropped_at_once(mounted: Mounts, tmp_path: Path) -> None:
    bbfs = Commands(mounted(source(tmp_path), expected=["somebody else"]).environ())
    note = Path(bbfs.environ["BBFS_MOUNT"]) / PAD / "note.md"
    for command in (["diff"], ["retry"], ["retry", "--force"], ["drop"], ["drop", "--yes"]):
        assert bbfs("pending", *command, "--all").err.decode() == "bbfs: nothing is pending\n"
        assert bbfs("pending", *command, "--all", "-q").err == b""
        for wrong in ([], ["--all", "0b90"]):
            assert b"expected IDs, or --all" in bbfs("pending", *command, *wrong, status=2).err
    for number in range(2):
        save(note, tmp_path, number)
    assert bbfs("pending", "diff", "--all").text.count("+mine") == 2
    assert bbfs("pending", "retry", "--all", status=1).err.decode().count("somebody else") == 2
    bbfs("pending", "retry", "--all", "--force")
    assert bbfs("pending").err.decode() == "bbfs: nothing is pending\n"
    save(note, tmp_path, 2)
    bbfs("pending", "drop", "--all", "--yes")
    assert bbfs("pending").err.decode() == "bbfs: nothing is pending\n"


@pytest.mark.semantics("S2.2")
def test_a_uri_leads_to_no_name_that_an_editor_keeps_beside(mounted: Mounts, tmp_path: Path) -> None:
    """Else a pending write would be compared with the editor's copy, and not with what the source has."""
    mount = mounted(source(tmp_path, ttl=TTL), expected=["somebody else has changed it"])
    bbfs, note = Commands(mount.environ()), mount / PAD / "note.md"
    save(note, tmp_path, 0)
    (kept,) = json.loads(bbfs("pending", "list", "--json").text)
    note.rename(note.with_name("note.md~"))
    assert "not listed" in bbfs("cat", kept["uri"], status=1).err.decode()
    assert "-theirs" not in bbfs("pending", "diff", kept["id"]).text
    assert note.with_name("note.md~").read_text() == "theirs 0"


@pytest.mark.semantics("S32")
def test_a_mount_shows_what_is_handed_over_beside_it(mounted: Mounts, tmp_path: Path) -> None:
    """Without being told, it would serve the content that it has for an hour."""
    mount = mounted(source(tmp_path, ttl="1h"), expected=["somebody else has changed it"])
    bbfs, note = Commands(mount.environ()), mount / PAD / "note.md"
    save(note, tmp_path, 0)
    assert run("cat", note).text == "theirs 0"
    config = tmp_path / "beside.toml"
    config.write_text(config_text([source(tmp_path, ttl=TTL)], {}))
    [item] = json.loads(bbfs("pending", "--json").text)
    bbfs("pending", "retry", "--force", item["id"], "--config", config)
    assert (stored(tmp_path, "note.md") or "").startswith("mine 0")
    wait_until(lambda: run("cat", note).text.startswith("mine 0"), "the mount is told")


@pytest.mark.semantics("S33.10")
def test_an_unmount_names_what_only_the_mount_had(mounted: Mounts, tmp_path: Path) -> None:
    mount = mounted(source(tmp_path), expected=["the mount ended before"])
    run("cp", mount / "bb-memory+pad+memory/note.md", mount / "bb-memory+pad+memory/x.part")
    commands = Commands(mount.environ())
    Path(mount.environ()["XDG_RUNTIME_DIR"]).chmod(0o700)  # where the command looks for the daemon
    said = commands("umount", mount.path).err.decode()
    [row] = json.loads(commands("pending", "--json").text)
    assert row["id"] in said
    assert "bb-memory+pad+memory/x.part: the mount ended before the source had it" in said
    assert commands("pending", "show", row["id"]).text == "one\n"
