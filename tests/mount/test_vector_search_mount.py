"""Collections of vectors on a real mount: searches by name, links to what they find, and what a walk costs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from embedding_endpoint import Endpoint, config, endpoint
from harness import Mounts, SourceTable
from programs import run, shell
from vectors import notes_file

DIRECTORY = "bb-vector_search+kb+sqlite"


@pytest.fixture
def running() -> Iterator[Endpoint]:
    with endpoint() as started:
        yield started


def kb(directory: Path, running: Endpoint, **options: object) -> SourceTable:
    url = notes_file(directory / "v.db")
    return {"name": "kb", "type": "vector_search", "config": {"url": url, "embeddings": config(running, **options)}}


@pytest.mark.semantics("S12", "S31.7")
def test_a_walk_costs_no_vector_and_an_open_costs_one(mounted: Mounts, tmp_path: Path, running: Endpoint) -> None:
    mount = mounted(kb(tmp_path, running))
    notes = mount / DIRECTORY / "notes"
    files = shell("find . | sort; grep -rl kitchen . | sort", directory=notes, timeout=40).text.split()
    points = [f"./point/{key}.json" for key in (1, 2, 3, 7)]
    assert files == [".", "./info.json", "./near", "./point", *points, points[1], points[3]]
    search = notes / "search?text=expired&limit=1.json"
    assert run("stat", "-c", "%s", search).text == "0\n"
    assert running.requests == []
    assert '"id": "1"' in run("cat", search).text
    assert running.requests[0]["input"] == ["expired"]
    assert run("grep", "-l", "certificate", search).text == f"{search}\n"


@pytest.mark.semantics("S2")
def test_a_search_and_the_neighbours_are_directories_of_links(
    mounted: Mounts, tmp_path: Path, running: Endpoint
) -> None:  # fmt: skip
    notes = mounted(kb(tmp_path, running)) / DIRECTORY / "notes"
    found = notes / "search?text=beans and coffee&topic=kitchen"
    assert sorted(run("ls", found).text.split("\n")[:-1]) in (["01 2.json", "02 7.json"], ["01 7.json", "02 2.json"])
    assert shell("grep -l 'coffee beans' *", directory=found).text.strip().endswith(" 7.json")
    near = notes / "near" / "2"
    assert run("ls", near).text.split("\n")[0] == "01 7.json"
    assert run("readlink", near / "01 7.json").text == "../../point/7.json\n"
    assert '"body": "coffee beans"' in run("cat", near / "01 7.json").text
    assert '"score": ' in run("cat", near / "results.json").text
