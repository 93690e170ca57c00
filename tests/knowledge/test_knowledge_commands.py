"""The commands that need no server: which file they take, what they find and show, an import that goes on."""

import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from forked_daemon import forked

from bbfs.knowledge import watching as watching_module
from bbfs.knowledge.database.store import Store
from bbfs.knowledge.documents import MAX_DOCUMENT_BYTES, TooLarge
from bbfs.knowledge.watching import WatchedImport

BOUND = 60.0
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of the user's data, which has nothing of bbfs."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("BBFS_KNOWLEDGE_DB", raising=False)
    return tmp_path / "data"


@pytest.fixture
def run(home: Path) -> Run:
    """Runs a command in a process of its own."""

    def run(*arguments: "str | Path", stdin: str = "") -> "subprocess.CompletedProcess[str]":
        line = forked("-m", "bbfs.knowledge", *arguments)
        return subprocess.run(line, input=stdin, capture_output=True, text=True, timeout=BOUND, check=False)

    return run


def on_terminal(*arguments: str) -> bytes:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(forked("-m", "bbfs.knowledge", *arguments), stdout=theirs, stderr=theirs) as program:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the terminal ends with the program
            while piece := os.read(ours, 4096):
                shown += piece
        program.wait(BOUND)
    os.close(ours)
    return shown


def test_without_a_name_the_file_is_the_users(run: Run, home: Path) -> None:
    missing = run("list")
    assert missing.returncode == 1
    file = home / "bbfs/knowledge.sqlite"
    assert missing.stderr == f"bbfs-knowledge: {file}: there is no such file; import makes it\n"
    assert not home.exists()
    made = run("put", "docs", "b", "-", stdin="text")
    assert (made.stdout, made.stderr) == (
        "added resource://knowledge/docs/document/b\n",
        f"bbfs-knowledge: {file} is new\n",
    )
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert run("list").stdout == "1\tdocs\n"


@pytest.mark.parametrize(
    "command", [("serve",), ("put", "a", "b", "-"), ("import", "--collection", "a", "."), ("list",)]
)
def test_a_typo_makes_no_file(
    run: Run, tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    typo = tmp_path / "typo.db"
    expected = (1, f"bbfs-knowledge: {typo}: there is no such file; import --create makes it\n")
    given = run(*command, "--db", typo)
    assert (given.returncode, given.stderr) == expected
    monkeypatch.setenv("BBFS_KNOWLEDGE_DB", str(typo))
    by_environment = run(*command)
    assert (by_environment.returncode, by_environment.stderr) == expected
    assert not typo.exists()


def test_who_asks_for_a_file_gets_it(run: Run, tmp_path: Path) -> None:
    base = tmp_path / "kb.db"
    assert run("serve", "--create", "--db", base).returncode == 0
    assert base.stat().st_mode & 0o777 == 0o600
    assert run("put", "--db", base, "a", "b", "-").stderr == ""
    assert run("put", "--create", "--db", f"{base}2", "a", "b", "-").stderr == f"bbfs-knowledge: {base}2 is new\n"


def test_commands(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/SSL setup.md").write_text("# SSL")
    imported = run("import", "--collection", "my docs", "--title", "Mine", tmp_path / "notes")
    assert imported.stdout == "1 added, 0 updated, 0 unchanged, 0 removed\n"
    put = run("put", "my docs", "b", tmp_path / "notes/SSL setup.md")
    assert put.stdout == "added resource://knowledge/my%20docs/document/b\n"
    assert run("list").stdout == "2\tmy docs\n"
    assert run("list", "my docs").stdout == "5\ttext/markdown\tb\n5\ttext/markdown\tssl-setup\n"
    assert run("remove", "my docs", "b").stdout == "removed resource://knowledge/my%20docs/document/b\n"
    assert run("remove", "my docs", "--all").stdout == "removed my docs with 1 documents\n"
    assert run("list", "my docs").returncode == 1


def test_search_and_show(store: Store, database: Path, run: Run) -> None:
    found = run("search", "--db", database, "restart", "CERTIFICATE")
    assert (
        found.stdout
        == "docs\tssl-setup\tSSL setup\t# SSL setup Create a **certificate**, then **restart** the proxy.\n"
    )
    (hit,) = json.loads(run("search", "--db", database, "--json", "--in", "docs", "proxy").stdout)
    assert (hit["document"]["id"], hit["snippet"].split()[-1]) == ("ssl-setup", "**proxy**.")
    assert len(run("search", "--db", database, "-n", "3", "note").stdout.splitlines()) == 3
    nothing = run("search", "--db", database, "zebra")
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (1, "", "")
    assert run("search", "--db", database, "--in", "nowhere", "x").stderr == "bbfs-knowledge: no collection 'nowhere'\n"
    for words in (("docs", "logo"), ("resource://knowledge/docs/document/logo",)):
        shown = subprocess.run(
            forked("-m", "bbfs.knowledge", "show", "--db", database, *words),
            capture_output=True,
            timeout=BOUND,
            check=True,
        )
        assert shown.stdout == bytes(range(256))
    assert "give a COLLECTION and an ID" in run("show", "--db", database, "docs").stderr


def test_a_terminal_gets_nothing_that_it_executes(store: Store, database: Path) -> None:
    store.put("docs", "evil", b"# red \x1b[31m\n\xe2\x80\xaenekat\n\ttab", name="evil.md")
    shown = on_terminal("show", "--db", str(database), "docs", "evil")
    assert shown.decode() == "# red \\x1b[31m\r\n\\x202enekat\r\n\ttab\r\n"
    assert b"\x1b" not in on_terminal("search", "--db", str(database), "red")
    refused = on_terminal("show", "--db", str(database), "docs", "logo")
    assert (
        refused.decode()
        == "bbfs-knowledge: 'logo' is no text but image/png: send the output to a file or a program\r\n"
    )


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.md").write_text(f"# {name}")
    return folder


def ids(store: Store, collection: str = "notes") -> list[str]:
    with store.snapshot() as snapshot:
        return [each.id for each in snapshot.documents(collection)]


def test_a_watched_import_takes_what_changed_alone(database: Path, notes: Path) -> None:
    with Store(database) as store:
        store.put("notes", "own", b"of no file")
        store.import_files("notes", [])
        watched = WatchedImport(store, "notes", [notes], None)
        report = watched.begin()
        assert (report.added, report.removed) == (2, 0)
        assert watched.again() is None
        (notes / "a.md").write_text("# another")
        (notes / "b.md").unlink()
        (notes / "c.md").write_text("# c")
        report = watched.again()
        assert report is not None
        assert (report.added, report.updated, report.unchanged, report.removed) == (1, 1, 0, 1)
        assert ids(store) == ["a", "c", "own"]


@pytest.mark.parametrize("step", ["_stamp", "source_file"])
def test_a_file_that_comes_and_goes_is_no_failure_of_a_watched_import(
    database: Path, notes: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    brief = notes / "brief.md"
    brief.write_text("# brief")
    does = getattr(watching_module, step)

    def too_late(*arguments: object) -> object:
        brief.unlink(missing_ok=True)
        return does(*arguments)

    monkeypatch.setattr(watching_module, step, too_late)
    with Store(database) as store:
        report = WatchedImport(store, "notes", [notes], None).begin()
        assert (report.added, ids(store)) == (2, ["a", "b"])


def test_a_file_that_is_refused_holds_up_no_other(database: Path, notes: Path) -> None:
    refused: list[Exception] = []
    with Store(database) as store:
        watched = WatchedImport(store, "notes", [notes], None)
        watched.begin()
        large = notes / "a.md"
        os.truncate(large, MAX_DOCUMENT_BYTES + 1)
        (notes / "b.md").unlink()
        (notes / "c.md").write_text("# c")
        report = watched.again(refused.append)
        assert report is not None
        assert (report.added, report.updated, report.removed, ids(store)) == (1, 0, 1, ["a", "c"])
        assert watched.again(refused.append) is None
        assert [type(error) for error in refused] == [TooLarge, TooLarge]
        large.write_text("# small again")
        report = watched.again(refused.append)
        assert report is not None
        assert (report.updated, len(refused)) == (1, 2)


def test_documents_stay_when_their_folder_is_away(database: Path, notes: Path) -> None:
    with Store(database) as store:
        watched = WatchedImport(store, "notes", [notes], None)
        watched.begin()
        notes.rename(notes.with_name("elsewhere"))
        with pytest.raises(FileNotFoundError):
            watched.again()
        assert ids(store) == ["a", "b"]
        notes.with_name("elsewhere").rename(notes)
        (notes / "a.md").unlink()
        report = watched.again()
        assert report is not None
        assert (report.removed, ids(store)) == (1, ["b"])


@pytest.fixture
def watching(home: Path, database: Path, notes: Path) -> Iterator["subprocess.Popen[str]"]:
    line = forked(
        "-m", "bbfs.knowledge", "import", "--create", "--db", database, "--collection", "notes", "--watch", notes
    )
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        try:
            yield program
        finally:
            program.kill()


def test_a_service_manager_ends_a_watched_import_as_ctrl_c_does(watching: "subprocess.Popen[str]") -> None:
    assert watching.stdout is not None
    assert watching.stdout.readline() == "2 added, 0 updated, 0 unchanged, 0 removed\n"
    watching.terminate()
    _, said = watching.communicate(timeout=BOUND)
    assert (watching.returncode, said.splitlines()[-1]) == (0, "bbfs-knowledge: no longer watching")


def test_import_watches(watching: "subprocess.Popen[str]", database: Path, notes: Path) -> None:
    assert watching.stdout is not None
    assert watching.stdout.readline() == "2 added, 0 updated, 0 unchanged, 0 removed\n"
    (notes / "sub").mkdir()
    (notes / "sub/new.md").write_text("# new")
    assert watching.stdout.readline() == "1 added, 0 updated, 0 unchanged, 0 removed\n"
    (notes / "a.md").unlink()
    assert watching.stdout.readline() == "0 added, 0 updated, 0 unchanged, 1 removed\n"
    with Store(database) as store:
        assert ids(store) == ["b", "sub-new"]
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=BOUND)
    assert (watching.returncode, said.splitlines()[-1]) == (0, "bbfs-knowledge: no longer watching")
