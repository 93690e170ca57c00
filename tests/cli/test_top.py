"""`bbfs top`, by textual's pilot, and once on a real mount."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from programs import Program
from scripted import PROGRAM, ScriptedServer
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from bbfs.cli.commands.state import top as command
from bbfs.cli.commands.state.rows import details, reading, source_rows
from bbfs.cli.commands.state.screen import Shown, Top
from bbfs.fuse import mountpoint
from bbfs.fuse.mountpoint import TYPE, Mount, MountError, SilentMount

Run = Callable[..., Result]

HOSTILE = "\x1b[31m[bold]away[/bold]\nnext \u202e"


def source(name: str, state: str = "up", problem: str | None = None) -> dict[str, Any]:
    requests = {"ended": 398, "failed": 2, "seconds": 9.0, "median_seconds": 0.0213, "p95_seconds": 0.08}
    return {
        "id": name, "uri_prefix": f"mcp-server+{name}", "state": state, "problem": problem, "resources": 1200,
        "waiting": 1, "in_flight": 3, "concurrency": 16, "requests": requests,
        "loads_from": {"disk": 5, "shared": 0, "source": 7},
    }  # fmt: skip


STATE: dict[str, Any] = {
    "started": "2026-01-01T00:00:00Z",
    "now": "2026-01-01T03:12:00Z",
    "loads_from": {"disk": 55, "shared": 0, "source": 402},
    "process": {"version": "0.1.0", "pid": 4711, "bytes": 58 << 20, "threads": 3, "descriptors": 31},
    "memory": {"bytes": 12 << 20, "max_bytes": 256 << 20, "contents": 310, "hits": 1234, "misses": 2, "evictions": 0},
    "sources": [source("docs"), source("kb", "down", HOSTILE), source("notes")],
    "waiting": [{"pid": 5120, "program": "grep", "seconds": 2.5, "path": "mcp-server+docs/resource/guide"}],
    "reading": [{"source": "docs", "uri": "resource://guide", "tier": "source", "seconds": 2.5}],
    "left_out": {},
}


def app(state: Callable[[], Any] = lambda: STATE) -> Top:
    """Return the program on a state that does not change."""
    pending = [("w1", "mcp-server+docs/a", "Denied: no")]
    return Top("/home/me/bb", state, lambda: pending, lambda: ["one", HOSTILE], 0.2)


def piloted(top: Top, do: Callable[["Pilot[None]"], Any], size: tuple[int, int] = (140, 40)) -> None:
    async def run() -> None:
        async with top.run_test(size=size) as pilot:
            await asyncio.wait_for(do(pilot), 20)

    asyncio.run(run())


async def until(pilot: "Pilot[None]", condition: Callable[[], object]) -> None:
    while not condition():
        await pilot.pause(0.01)


def table(top: Top, name: str = "sources") -> "DataTable[Any]":
    return top.screen_stack[0].query_one(f"#{name}", DataTable)


def cells(top: Top, name: str = "sources") -> list[list[str]]:
    found = table(top, name)
    return [[str(cell) for cell in found.get_row_at(number)] for number in range(found.row_count)]


def said(top: Top, name: str) -> str:
    return str(top.screen.query_one(f"#{name}", Static).content)


def test_sources_in_trouble_come_first_and_hostile_text_is_shown_as_it_is() -> None:
    top = app()

    async def look(pilot: "Pilot[None]") -> None:
        await until(pilot, lambda: table(top).row_count == 3)
        assert [row[0] for row in cells(top)] == ["kb", "docs", "notes"]
        assert cells(top)[0][-1] == r"\x1b[31m[bold]away[/bold]\nnext \u202e"
        assert "\x1b[31m" not in top.export_screenshot()
        assert cells(top, "waiting") == [["5120", "grep", "2.5 s", "mcp-server+docs/resource/guide"]]
        assert cells(top, "reading") == [["docs", "source", "2.5 s", "resource://guide"]]
        assert "up 3 h 12 min, bbfs 0.1.0, process 4711" in said(top, "head")
        assert "1234 from memory, 55 from disk, 402 from source" in said(top, "head")

    piloted(top, look)


def test_the_keys() -> None:
    top = app()

    async def press(pilot: "Pilot[None]") -> None:
        await until(pilot, lambda: table(top).row_count == 3)
        await pilot.press("slash", *"not")
        await until(pilot, lambda: [row[0] for row in cells(top)] == ["notes"])
        await pilot.press("enter", "enter")
        await until(pilot, lambda: isinstance(top.screen, Shown))
        assert "source:              notes" in said(top, "lines")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: table(top).row_count == 3)
        for key, wanted in (("p", "w1  mcp-server+docs/a"), ("l", r"\x1b[31m[bold]away"), ("question_mark", "Enter")):
            await pilot.press(key)
            await until(pilot, lambda: isinstance(top.screen, Shown))
            assert wanted in said(top, "lines"), key
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(top.screen, Shown))
        await pilot.press("q")

    piloted(top, press)
    assert top.return_code == 0


@pytest.mark.parametrize("width", [30, 60, 100, 200])
def test_it_fits_a_narrow_terminal(width: int) -> None:
    top = app()

    async def look(pilot: "Pilot[None]") -> None:
        await until(pilot, lambda: table(top).row_count == 3)
        names = [str(column.label) for column in table(top).ordered_columns]
        assert names == list(source_rows(STATE, width)[0])
        assert names[0] == "SOURCE"
        assert cells(top, "waiting")[0][0] == "5120"

    piloted(top, look, (width, 12))


def test_a_mount_that_does_not_answer_keeps_its_last_state_and_is_asked_one_at_a_time() -> None:
    asked = 0
    at_once = most = 0

    def state() -> Any:
        nonlocal asked, at_once, most
        asked, at_once = asked + 1, at_once + 1
        most = max(most, at_once)
        try:
            if asked > 1:
                raise SilentMount(f"/home/me/bb does not answer{HOSTILE}")
            return STATE
        finally:
            at_once -= 1

    top = app(state)

    async def look(pilot: "Pilot[None]") -> None:
        await until(pilot, lambda: asked > 3)
        await pilot.press(*"rrrr")
        await until(pilot, lambda: "does not answer" in said(top, "problem"))
        assert "\x1b" not in said(top, "problem")
        assert table(top).row_count == 3
        assert most == 1

    piloted(top, look)


def test_the_details_of_a_source_name_who_waits_for_it() -> None:
    assert "5120 grep waits for mcp-server+docs/resource/guide (2.5 s)" in details(STATE, "docs")
    assert "reads resource://guide from source (2.5 s)" in details(STATE, "docs")
    assert details(STATE, "gone") == ["the mount has no such source any more"]
    assert reading({**STATE, "reading": []}, 100)[1] == []


def test_of_several_mounts_one_has_to_be_named(bbfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for paths, said in (([], "nothing is mounted"), (["/m/a", "/m/b"], "several mounts: name one of /m/a, /m/b")):
        found = [Mount(path, TYPE, 0, 0) for path in paths]
        monkeypatch.setattr(mountpoint, "own_mounts", lambda found=found: found)
        with pytest.raises(MountError, match=said):
            command.chosen(None)
    monkeypatch.setattr(mountpoint, "own_mounts", lambda: [Mount("/m/a", TYPE, 0, 0)])
    assert command.chosen(None) == "/m/a"


def test_one_line_says_how_to_add_the_extra(bbfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bbfs("top").stderr.splitlines()[0].startswith("bbfs: 'bbfs top' is for a terminal")
    monkeypatch.setattr(command, "find_spec", lambda _name: None)
    result = bbfs("top")
    assert result.exit_code == 1
    assert result.stderr.startswith("bbfs: bbfs top needs the extra 'top' (")
    assert len(result.stderr.splitlines()) == 1


def test_the_command_does_not_import_textual() -> None:
    code = "import bbfs.cli.commands.state.top, sys; sys.exit('textual' in sys.modules)"
    assert asyncio.run(_status(sys.executable, "-c", code)) == 0


async def _status(*words: str) -> int:
    running = await asyncio.create_subprocess_exec(*words)
    return await asyncio.wait_for(running.wait(), 30)


def test_a_mount_says_who_waits_and_what_is_read(mount: Callable[..., Any], tmp_path: Path, only: list[str]) -> None:
    server = ScriptedServer(tmp_path / "server")
    server.add("test://d/slow", "x")
    slow = ["--mcp", f"s={sys.executable} -I -S {PROGRAM} {server.directory}"]
    point, _ = mount(*only, *slow)
    (point / "mcp-server+s/test/d").stat()
    server.hang("test://d/slow")
    program = Program("cat", point / "mcp-server+s/test/d/slow")
    try:
        top = Top(str(point), lambda: command.state_of(str(point)), list, list, 0.2)

        async def look(pilot: "Pilot[None]") -> None:
            await until(pilot, lambda: any("test/d/slow" in row[3] for row in cells(top, "waiting")))
            [waiting] = cells(top, "waiting")
            assert (waiting[0], waiting[1], waiting[3]) == (str(program.pid), "cat", "mcp-server+s/test/d/slow")
            [read] = cells(top, "reading")
            assert (read[0], read[1], read[3]) == ("s", "source", "test://d/slow")
            assert {row[0] for row in cells(top)} == {"notes", "s"}

        piloted(top, look)
    finally:
        server.release("test://d/slow")
        program.wait()
    assert json.dumps(command.state_of(str(point)))
