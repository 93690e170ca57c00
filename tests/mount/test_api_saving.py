"""Programs save documents of a REST API on a real mount (S32, S33)."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from harness import Mounts
from pets_server import PetsServer
from programs import run, shell

pytestmark = pytest.mark.semantics("S32", "S33")

WRITE = [
    "putNote", "deleteNote", "PUT /plain/{name}", "DELETE /plain/{name}", "PATCH /patched/{name}", "POST /chosen",
    "PUT /nested/{name}", "DELETE /nested/{name}", "PUT /slashed/{name}/", "PUT /answers/{status}",
]  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PetsServer]:
    server = PetsServer(tmp_path / "notes", "notes_api.py")
    yield server
    server.stop()


@pytest.fixture
def root(mounted: Mounts, server: PetsServer) -> Path:
    granted = {"capabilities": ["read", "list", "write"], "auth": {"token": "t0ken-of-bearer"}}
    source = server.source("notes", config={"write": WRITE, "headers": {"X-Token": "t0ken-of-bearer"}}, **granted)
    return mounted(source, expected=["not written", "no security scheme", "HTTP [45]"]) / server.root("notes")


def stored(server: PetsServer, path: str) -> Any:
    answer = httpx2.get(f"{server.url}/{path}")
    return answer.json() if answer.status_code == 200 else answer.status_code


def test_urls_that_end_with_a_slash(root: Path, server: PetsServer) -> None:
    slashed = root / "slashed"
    assert run("ls", slashed).text.split() == ["a", "index.json"]
    shell("sed -i s/one/two/ a; echo '{\"id\": \"ü b\"}' > 'ü b'", directory=slashed)
    assert stored(server, "slashed/") == [{"id": "a", "text": "two"}, {"id": "ü b"}]
    assert run("ls", slashed).text.splitlines() == ["a", "index.json", "ü b"]
    assert json.loads(run("cat", slashed / "ü b").out) == {"id": "ü b"}
    assert [each["id"] for each in json.loads(run("cat", slashed / "index.json").out)] == ["a", "ü b"]


def test_names_that_mkstemp_makes_live_in_the_mount_alone(root: Path, server: PetsServer) -> None:
    slashed = root / "slashed"
    for name in ("sedabcdef", "tmpabcdefgh", "tmp.abcdefghij", ".a.backup"):
        private = os.open(slashed / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(private, json.dumps({"id": "a", "text": name}).encode())
        os.close(private)
        assert stored(server, f"slashed/{name}/") == 404
        os.rename(slashed / name, slashed / "a")
        assert stored(server, "slashed/a/")["text"] == name
    own = os.open(slashed / "sedentary", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(own, b'{"id": "sedentary"}')
    os.close(own)
    assert stored(server, "slashed/") == [{"id": "a", "text": ".a.backup"}, {"id": "sedentary"}]


def test_documents_below_which_others_are(root: Path, server: PetsServer) -> None:
    nested = root / "nested"
    shell('sed -i s/one/two/ a/index.json; echo \'{"text": "new"}\' > b/index.json', directory=nested)
    assert stored(server, "nested/a")["text"] == "two"
    assert stored(server, "nested/b") == {"text": "new"}
    shell("rm a/index.json", directory=nested)
    assert stored(server, "nested/a") == 404
    shell("mv a b", directory=root / "plain")
    assert (stored(server, "plain/a"), stored(server, "plain/b")) == (404, {"id": "a", "text": "one"})
