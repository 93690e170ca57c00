"""Every way to save in every source that is written: afterwards the source has what a plain directory has (S32, S33).

`make saves` runs all of them and prints the table of docs/writing.md; `make test` runs a few.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from harness import Mount, Mounts
from programs import Done, run, shell
from repository import DOCS
from saved_places import PLACES, Place, places
from saves import PATTERNS, REFUSED, Pattern, environ, material, table

pytestmark = [pytest.mark.timeout(300), pytest.mark.semantics("S32", "S33")]

TEMPORARY = re.compile(
    r"\..*\.sw.|4913|.*~|\.goutputstream-.*|.*\.part|.*\.tmp|#.*#|\.#.*|(?:sed|tmp|\..*\.)(?=.{0,5}[A-Z0-9])\w{6}"
)
"""Names that these programs make for themselves. One of 180 random ones has small letters alone, and counts as any."""
OF_BBFS = re.compile(r"\.bbfs-.*\.part")
"""Names that bbfs makes at servers of SFTP and FTP."""


@dataclass(frozen=True)
class Saving:
    """All places on one mount."""

    mount: Mount
    places: dict[str, Place]
    numbers: Iterator[int]


@pytest.fixture(scope="module")
def saving(
    module_mounted: Mounts, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Saving]:
    given: list[dict[str, str]] = [
        getattr(getattr(each, "callspec", None), "params", {}) for each in request.session.items
    ]
    wanted = {each["place"] for each in given if "place" in each}
    with places(tmp_path_factory.mktemp("places"), wanted) as made:
        tables = {"": {"log_level": "debug"}}
        # An editor's backup beside a row or a page lives in the mount, and is a pending write at its end (S33.10).
        kept = "~: the mount ended before the source had it"
        mount = module_mounted(*(each.table for each in made.values()), tables=tables, expected=["not written", kept])
        for each in made.values():  # until it is listed, a lookup may say that a name is a directory (S22)
            run("ls", mount / each.directory, status=None)
        yield Saving(mount, made, count(1))
        mount.stop()


def files_in(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Return content and time of each file."""
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def handed_over(log: str) -> set[str]:
    """Return the last parts of the names that bbfs has given to a source."""
    return {uri.rpartition("/")[2] for uri in re.findall(r": handed over (.*), \d+ bytes", log)}


@dataclass
class Cell:
    """One pattern at one place. here: the directory on the mount. prefix: of its names in the place's snapshot."""

    saving: Saving
    place: Place
    pattern: Pattern
    here: Path
    plain: Path
    prefix: str
    environ: dict[str, str]

    def run(self, directory: Path, status: int | None = 0) -> Done:
        run("touch", "-d", "@1500000000", self.environ["T"] + "/new")
        return shell(
            f"umask 022; {self.pattern.script}", directory=directory, env=self.environ, timeout=120, status=status
        )

    def stored(self) -> dict[str, Any]:
        return {name.removeprefix(self.prefix): content for name, content in self.place.snapshot(self.prefix).items()}

    def pending(self) -> list[str]:
        return [json.loads(each.read_text())["native_uri"] for each in self.saving.mount.state.pending()]


@pytest.fixture
def cell(saving: Saving, place: str, pattern: str, tmp_path: Path) -> Iterator[Cell]:
    """A directory of the place with a file in it, and a plain one with the same file."""
    there, number = saving.places[place], next(saving.numbers) * 2
    above = saving.mount / there.directory
    prefix = f"{number}/" if there.has_directories else ""
    here = above / prefix
    if prefix:
        run("mkdir", "-p", here)
    (tmp_path / "material").mkdir()
    material(tmp_path / "material")
    (tmp_path / "material/new").write_text(there.text(number + 1))
    (tmp_path / "material/seed").write_text(there.text(number))
    (tmp_path / "plain").mkdir()
    name = there.name(number)
    run("cp", tmp_path / "material/seed", here / name)
    (tmp_path / "plain" / name).write_bytes(run("cat", here / name).out)
    given = environ(tmp_path / "material", name, there.name(number + 1), there.more)
    made = Cell(saving, there, PATTERNS[pattern], here, tmp_path / "plain", prefix, given)
    before = made.stored().keys() - {name}
    yield made
    shell(
        'rm -rf -- "$@"', *([here] if prefix else [here / each for each in made.stored().keys() - before]), timeout=60
    )
    assert made.stored().keys() == before


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("place", PLACES)
def test_a_source_has_what_a_plain_directory_has(
    cell: Cell, place: str, pattern: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("place", place)
    record_property("pattern", pattern)
    before, was_pending = cell.stored(), cell.pending()
    refused = REFUSED.get((place, pattern))
    if refused is not None:
        done = cell.run(cell.here, status=None)
        assert done.status != 0
        assert refused.says.lower() in (done.err + done.out).decode().lower()
        assert before.items() <= cell.stored().items(), "nothing is lost"
        return
    ours = files_in(cell.plain)
    cell.run(cell.plain)
    cell.run(cell.here)
    wanted = files_in(cell.plain)
    passes_all = place == "folder"
    if cell.pattern.check:
        copied = tmp_path / "copied"
        for name, data in cell.stored().items():
            (copied / name).parent.mkdir(parents=True, exist_ok=True)
            (copied / name).write_bytes(data)
        shell(cell.pattern.check, directory=copied, env=cell.environ)
        wanted = {name: found for name, found in wanted.items() if "/.git/" not in name}
    expected = {
        **{name: content for name, content in before.items() if name not in ours},
        **{name: cell.place.canonical(data) for name, (data, _) in wanted.items()
           if passes_all or not TEMPORARY.fullmatch(name)},
    }  # fmt: skip
    stored = {
        name: content for name, content in cell.stored().items() if not cell.pattern.check or "/.git/" not in name
    }
    assert stored.keys() == expected.keys()
    assert stored == expected
    for name, (data, _) in wanted.items():
        assert cell.place.canonical(run("cat", cell.here / name).out) == cell.place.canonical(data)
    if cell.pattern.times and cell.place.keeps is not None:
        made = {name: time // cell.place.keeps for name, (_, time) in wanted.items() if name not in ours}
        assert {name: cell.place.modified(cell.prefix + name) // cell.place.keeps for name in made} == made
    if not passes_all:
        arrived = cell.place.arrived() | handed_over(cell.saving.mount.log())
        assert {name for name in arrived if TEMPORARY.fullmatch(name) and not OF_BBFS.fullmatch(name)} == set()
    assert cell.pending() == was_pending


def test_the_table_of_the_document_is_that_of_the_matrix() -> None:
    assert table(PLACES) in (DOCS / "writing.md").read_text()
