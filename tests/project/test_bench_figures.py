"""What the benchmarks make of what they measure: figures, tables, a guard; and that they leave nothing behind."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import run as benchmarks
import scale
from endurance import Server
from endured import report
from figures import Missing, Sheet, Summary, Unmeasurable
from files import Shape
from guard import Goal, check, excused, load
from places import isolated, running
from programs import wait_until
from report import document, number, spread
from repository import DOCS, ROOT
from rounds import Bench, Budget, Place, Sizes, end, held, run, turn

RATIO = Goal("warm", "find", "ours", "floor", at_most=1.2, at_least=None, guard=1.5)
FASTER = Goal("warm", "find", "ours", "rival", at_most=None, at_least=3, guard=2)


def sheet(*seconds: tuple[str, list[float]]) -> Sheet:
    made = Sheet()
    for place, values in seconds:
        made.plan("warm", ["find"], [place], rival=place == "rival")
        for at, value in enumerate(values):
            made.add(at, "warm", "find", place, value)
    return made


def test_ratios_are_taken_within_a_round() -> None:
    # The machine was ten times slower in the second round; no ratio is.
    made = sheet(("floor", [1, 10, 1]), ("ours", [2, 20, 3]))
    assert made.ratio("warm", "find", "ours", "floor") == Summary(2, 2, 3, 3)
    assert made.summary("warm", "find", "ours") == Summary(3, 2, 20, 3)


def test_a_round_that_one_of_them_lacks_is_in_no_ratio() -> None:
    made = sheet(("floor", [1, 1]), ("ours", [4]))
    made.add(2, "warm", "find", "ours", 8)
    assert made.ratio("warm", "find", "ours", "floor") == Summary(4, 4, 4, 1)
    assert made.ratio("warm", "find", "ours", "nobody") is None


def test_seconds_for_a_share_of_the_files_are_scaled_up() -> None:
    made = sheet(("floor", [1]))
    made.plan("warm", ["find"], ["slow"], share=0.1)
    made.add(0, "warm", "find", "slow", 2)
    assert made.ratio("warm", "find", "slow", "floor") == Summary(20, 20, 20, 1)


def test_a_sheet_survives_json() -> None:
    made = sheet(("floor", [1, 2]), ("rival", []))
    made.fail("warm", "find", "rival", Missing("not installed"))
    again = Sheet.from_json(json.loads(json.dumps(made.as_json())))
    assert again.cells == made.cells
    assert again.failed("warm", "find", "rival")


@pytest.mark.parametrize(
    ("goal", "ours", "theirs", "broken"),
    [
        (RATIO, 1.5, 1.0, False),
        (RATIO, 1.51, 1.0, True),
        (FASTER, 1.0, 2.0, False),
        (FASTER, 1.0, 1.9, True),
        (dataclasses.replace(RATIO, guard=None), 9.0, 1.0, False),
    ],
)
def test_the_guard_breaks_beyond_its_limit(goal: Goal, ours: float, theirs: float, broken: bool) -> None:
    made = sheet(("ours", [ours]), (goal.against or "", [theirs]))
    assert bool(check(made, [goal])) is broken


def test_the_guard_breaks_where_ours_failed_and_not_where_a_rival_did() -> None:
    made = sheet(("floor", [1]), ("ours", []))
    assert check(made, [RATIO]) == []
    made.fail("warm", "find", "ours", Unmeasurable("more than 40 s"))
    assert check(made, [RATIO]) == ["warm, find, ours against floor: could not be measured, must be at most 1.5"]
    made = sheet(("ours", [1]), ("rival", []))
    made.fail("warm", "find", "rival", Missing("not installed"))
    assert check(made, [FASTER]) == []
    assert check(Sheet(), [RATIO]) == []


def test_the_goals_that_are_kept_can_be_read() -> None:
    goals = load()
    assert len({(goal.group, goal.case, goal.place, goal.against) for goal in goals}) == len(goals)
    for goal in goals:
        limit = goal.at_most if goal.at_least is None else goal.at_least
        assert limit is not None
        # A guard is never stricter than the goal.
        assert goal.guard is None or goal.holds(limit, goal.guard)


def test_every_goal_and_every_excuse_is_of_a_figure_that_is_planned() -> None:
    cells = benchmarks.planned(Sizes()).cells
    for goal in load():
        assert (goal.group, goal.case, goal.place) in cells, goal
        assert goal.against is None or (goal.group, goal.case, goal.against) in cells, goal
    assert excused() <= {(cell.place, cell.case) for cell in cells.values() if cell.rival}


def test_a_figure_that_is_not_planned_is_an_error() -> None:
    with pytest.raises(KeyError):
        Sheet().add(0, "warm", "find", "ours", 1)
    with pytest.raises(ValueError, match="nan"):
        sheet(("ours", [float("nan")]))


def test_what_was_not_measured_is_said_unless_a_rival_is_missing_or_excused() -> None:
    made = sheet(("floor", [1]), ("ours", [1]), ("rival", []))
    assert made.unmeasured() == ["warm: rival: find: not measured"]
    made.fail("warm", "find", "rival", Unmeasurable("exit status 1"))
    assert made.unmeasured() == ["warm: rival: find: exit status 1"]
    assert made.unmeasured({("rival", "find")}) == []
    made.fail("warm", "find", "rival", Missing("not installed"))
    assert made.unmeasured() == []
    assert made.missing() == ["rival: not installed"]
    # A figure of some rounds is no figure of all, and a program of ours is never missing.
    made.fail("warm", "find", "ours", Missing("no program find"))
    assert made.unmeasured({("ours", "find")}) == ["warm: ours: find: no program find"]


def raises(_bench: Bench) -> None:
    raise ZeroDivisionError("no reason")


def forgets(_bench: Bench) -> None:
    pass


@pytest.mark.parametrize(("acts", "why"), [(raises, "ZeroDivisionError: no reason"), (forgets, "not measured")])
def test_a_run_fails_without_a_planned_figure_and_says_which(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, acts: Any, why: str
) -> None:
    group = benchmarks.Group(1.0, lambda sheet, _sizes: sheet.plan("warm", ["find"], ["ours"]), acts)
    monkeypatch.setitem(benchmarks.GROUPS, "warm", group)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["run.py", "--quick", "--only", "warm", "--output", str(tmp_path)])
    assert benchmarks.main() == 1
    assert f"run: no figure: warm: ours: find: {why}" in capsys.readouterr().err
    assert f"## Not measured\n\n- warm: ours: find: {why}" in (tmp_path / "results.md").read_text()


def test_a_count_that_is_wrong_is_no_figure(tmp_path: Path) -> None:
    for name in ("one", "two", ".about.md"):
        (tmp_path / name).write_text("text")
    assert held(tmp_path) == (3, 12)
    assert scale.find(tmp_path, 3) > 0
    with pytest.raises(Unmeasurable, match="find saw: 3, not 2"):
        scale.find(tmp_path, 2)


def test_a_document_shows_figures_goals_and_reasons() -> None:
    made = sheet(("floor", [0.01, 0.02]), ("ours", [0.02, 0.04]), ("rival", []))
    made.plan("warm", ["find"], ["later"])
    made.fail("warm", "find", "rival", Missing("not installed"))
    text = document({"machine": "this one"}, made, [RATIO, FASTER], plots=["benchmarks/warm.svg"])
    assert "| ours | 30 (20–40) ms |" in text
    assert "| rival | – [1] |" in text
    assert "1. not installed" in text
    assert "## Without these rivals\n\n- rival: not installed" in text
    assert "| later | – [2] |" in text
    assert "2. not measured yet" in text
    assert "## Not measured" not in text
    assert "| warm | ours | floor | ≤ 1.2 × | find **2** |" in text
    assert "find not measured" in text


def test_the_page_of_results_is_made_of_the_results_of_the_last_run() -> None:
    page = DOCS / "benchmarks/results.md"
    kept = json.loads((ROOT / "benchmarks/results.json").read_text())
    sheet = Sheet.from_json(kept["cells"])
    plots = [path.name for path in benchmarks.drawn_in(page.parent)]
    assert plots == ["warm.svg", "growth.svg", "cold.svg"]
    assert page.read_text() == document(kept["about"], sheet, load(), excused(), plots)


def test_every_figure_that_a_run_has_to_give_is_on_the_page_and_its_group_in_the_method() -> None:
    """A figure without a value is there as "not measured yet" (`run.py --page`)."""
    planned = benchmarks.planned(Sizes())
    kept = Sheet.from_json(json.loads((ROOT / "benchmarks/results.json").read_text())["cells"])
    assert [*kept.cells] == [*planned.cells]
    method, page = (DOCS / "benchmarks.md").read_text(), (DOCS / "benchmarks/results.md").read_text()
    for group in planned.groups():
        assert f"\n## {group[0].upper()}{group[1:]}\n" in page
    for group in benchmarks.GROUPS:
        assert f"\n- **{group.capitalize()}**" in method


def test_numbers_are_short() -> None:
    assert [number(value) for value in (0, 0.01234, 1.234, 123.4, 1234567)] == ["0", "0.0123", "1.23", "123", "1234567"]
    assert spread(Summary(1.5, 1, 2, 3), "s") == "1.5 (1–2) s"


def test_every_place_begins_once_and_one_that_failed_is_not_asked_again() -> None:
    asked: list[str] = []

    def measure(place: Place) -> float:
        asked.append(place.name)
        if place.name == "b":
            raise Unmeasurable("b cannot")
        return 1.0

    made, places = Sheet(), [Place(name, Path("/")) for name in "abc"]
    made.plan("warm", ["find"], "abc")
    for at in range(3):
        turn(made, "warm", at, {"find": measure}, places)
    assert "".join(asked) == "abc" + "ca" + "ca"
    assert made.cells[("warm", "find", "b")].reason == "b cannot"


def test_no_round_begins_that_would_end_too_late() -> None:
    assert list(Budget(5, time.monotonic() - 1).numbers()) == [0]
    assert list(Budget(3, time.monotonic() + 60).numbers()) == [0, 1, 2]


def test_a_program_is_ended_with_its_children(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    command = ["sh", "-c", f"sleep 60 & echo $! > {noted}.new; mv {noted}.new {noted}; wait"]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        wait_until(noted.exists, "the child is there")
    finally:
        end(process, at_once=True)
    wait_until(lambda: not alive(int(noted.read_text())), "the child is gone")


def test_a_program_beyond_its_bound_is_ended() -> None:
    with pytest.raises(Unmeasurable, match="more than"):
        run(["sleep", "60"], bound=0.1)


def test_a_program_that_fails_says_why() -> None:
    with pytest.raises(Unmeasurable, match="exit status 3, no such luck"):
        run([sys.executable, "-c", "import sys; print('no such luck', file=sys.stderr); sys.exit(3)"], bound=20)
    with pytest.raises(Unmeasurable, match="no program"):
        run(["no-such-program-here"], bound=1)


def test_what_runs_in_the_background_is_ended_and_keeps_to_its_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running([sys.executable, "-c", "import time; time.sleep(60)"], home, tmp_path / "log") as process:
        assert alive(process.pid)
    assert not alive(process.pid)
    environ = isolated(home)
    kept = [value for name, value in environ.items() if name.startswith("XDG_")] + [environ["HOME"]]
    assert all(Path(value).is_relative_to(home) for value in kept)


def test_the_files_of_a_shape_are_as_long_as_it_says(tmp_path: Path) -> None:
    shape = Shape(2, 3, 100, "seed")
    shape.write(tmp_path)
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.txt"))
    assert found == shape.names()
    assert {(tmp_path / name).stat().st_size for name in found} == {100}
    assert shape.content(found[0]) != dataclasses.replace(shape, seed="other").content(found[0])


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def test_pieces_of_an_endurance_add_up(tmp_path: Path) -> None:
    def sample(seconds: float, kib: int, *cold: float) -> dict[str, Any]:
        counts = {"kib": kib, "descriptors": 9, "threads": 3, "processes": 1}
        times = {"warm": [], "cold": [*cold], "ls": []}
        return {"seconds": seconds, "mount": "lasting", **counts, "ms": times, "events": {"floods": int(seconds)}}

    begun, ended = {"piece": 0}, {"ended": 70.0, "wrong": ["a wrong text"], "errors": {"lasting": {"EHOSTDOWN": 2}}}
    killed = [begun, sample(50, 1024, 1.0, 5.0), sample(110, 2048)]  # it has no end
    lines = [*killed, begun, sample(5, 1024), sample(65, 3072, 7.0), ended]
    (tmp_path / "samples").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report([tmp_path], tmp_path / "report.json")
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["pieces"] == [0, 1.8, 2.9]
    assert found["events"] == {"floods": 175}
    assert (found["wrong"], found["errors"]["lasting"]) == (["a wrong text"], {"EHOSTDOWN": 2})
    assert [row[:2] for row in found["rows"]["lasting"]] == [[0, 1.0], [1, 2.0], [2, 3.0]]
    cold = found["columns"].index("cold median")
    assert [row[cold : cold + 2] for row in found["rows"]["lasting"]] == [[1.0, 5.0], [None, None], [7.0, 7.0]]
    report([tmp_path], tmp_path / "later.json", after=tmp_path / "report.json")
    later = json.loads((tmp_path / "later.json").read_text())
    assert later["pieces"] == [0, 1.8, 2.9, 4.7, 5.8]
    assert (later["events"], later["errors"]["lasting"]) == ({"floods": 350}, {"EHOSTDOWN": 4})
    assert [row[:2] for row in later["rows"]["lasting"]] == [[0, 1.0], [1, 2.0], [2, 3.0], [3, 1.0], [4, 2.0], [5, 3.0]]


def test_the_server_of_an_endurance_keeps_its_port() -> None:
    server = Server()
    try:
        url = server.url
        server.act("flood")
        server.restart()
        server.act("renew")
        assert server.url == url
    finally:
        server.end()
