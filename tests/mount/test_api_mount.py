"""A REST API on a real mount: FastAPI's own server and document."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Mount, Mounts, folder
from pets_server import AUTH, PetsServer
from programs import errno_of, python, run, shell

OPEN = "open(sys.argv[1], 'rb').read()"
ODD_LISTS = ["/zero", "/one", "/limited", "/deaf", "/circle", "/echo", "/broken", "/large"]
LEFT_OUT = "bbfs.resources.catalog.base: pets: GET /needs-header"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PetsServer]:
    server = PetsServer(tmp_path_factory.mktemp("pets"))
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[PetsServer]:
    """A server of which a test spoils the answers. To be asked for before `mounted`, so that the mount ends first."""
    server = PetsServer(tmp_path / "own")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def mount(module_mounted: Mounts, server: PetsServer) -> Mount:
    without = ["/hang", "/status/*", *ODD_LISTS]
    source = server.source(auth=AUTH, config={"exclude": without})
    return module_mounted(source, expected=[LEFT_OUT, "example.com"])


@pytest.fixture
def root(mount: Mount, server: PetsServer) -> Path:
    return mount / server.root()


def xattr(path: Path, name: str) -> str:
    return python("print(os.getxattr(sys.argv[1], sys.argv[2]).decode(), end='')", path, name).text


def test_operations_are_files_and_variables_directories(root: Path) -> None:
    names = run("ls", root).text.split()
    assert names == ["elsewhere", "events", "kinds", "linked", "orders", "pets", "plain", "secure"]
    assert run("ls", "-1", root / "kinds").text.splitlines() == ["a b", "cat", "dog"]
    pets = run("ls", "-1", root / "pets").text.splitlines()
    assert set(pets) == {
        "index.json",
        *map(str, range(1, 26)),
        *(f"findByKind?kind={k}" for k in ("cat", "dog", "a b")),
    }
    found = shell("find 3 -type f | sort", directory=root / "pets").text.splitlines()
    assert found == ["3/index.json", "3/photos/3-2.bin", "3/photos/3-a b.bin", "3/photos/index.json"]


def test_contents_are_the_bytes_of_the_api(root: Path) -> None:
    assert run("cat", root / "plain").out == b'{ "price": 1.10,\n  "big": 12345678901234567890 }'
    assert run("cat", root / "pets/3/index.json").out == b'{"id":3,"name":"pet 3","kind":"dog"}'
    assert run("cat", root / "pets/3/photos/3-a b.bin").out == bytes(range(256)) * 20
    assert run("cat", root / "kinds/a b").out == b'"a b"'
    assert len(json.loads(run("cat", root / "pets/findByKind?kind=dog").out)) == 8
    assert shell("cat orders/o[3-5]", directory=root).text == "".join(
        json.dumps({"order": f"o{n}", "fields": None}, separators=(",", ":")) for n in (3, 4, 5)
    )


def test_metadata_is_what_the_document_and_the_answer_say(root: Path, mount: Mount) -> None:
    assert run("stat", "-c", "%s %Y", root / "plain").text == "48 1445412480\n"
    run("cat", root / "pets/3/index.json")
    pet = root / "pets/3/index.json"
    said = {name: xattr(pet, f"user.bbfs.{name}") for name in ("operation_id", "title", "description", "tags")}
    assert said == {
        "operation_id": "getPet",
        "title": "One pet",
        "description": "A pet by its number.",
        "tags": '["pets", "one"]',
    }
    assert xattr(pet, "user.mime_type") == "application/json"
    assert xattr(root / "plain", "user.bbfs.etag") == '"v1"'
    assert json.loads(xattr(pet, "user.bbfs.variables")) == {"pet_id": "3"}
    assert "/needs-header" in xattr(mount / "bb-api+pets", "user.bbfs.error")
    assert xattr(mount / "bb-api+pets", "user.bbfs.protocol_version") == "OpenAPI 3.1.0"


@pytest.mark.semantics("S30")
def test_every_scheme_gets_its_secret_and_nobody_sees_it(root: Path, mount: Mount, server: PetsServer) -> None:
    for scheme in ("bearer", "basic", "header", "cookie"):
        assert run("cat", root / "secure" / scheme).text == f'"{scheme}"'
    # The server repeats the key in its links, and the next page needs it all the same.
    assert json.loads(run("cat", root / "secure/query/index.json").out) == {"data": [1, 2, 3], "next": None}
    assert errno_of(OPEN, root / "secure/query/refused") == "EPROTO"
    attributes = " ".join(f"user.bbfs.{name}" for name in ("operation_id", "title", "variables", "etag", "error"))
    dump = shell(
        "find secure pets/3 linked -print0 | xargs -0 getfattr -d --absolute-names 2>&1 || true; find .\n"
        f"for name in {attributes}; do find secure pets/3 linked -exec getfattr -n $name {{}} + 2>&1 || true; done",
        directory=root,
    ).text
    dump += shell("getfattr -d --absolute-names . 2>&1", directory=mount / "bb-api+pets").text + mount.log()
    assert "operation" in dump
    secrets = (AUTH["token"], AUTH["password"], AUTH["apiKey"], "k3y%26of%3Dapi", "YW5uOnBhc3M6dzByZA==")
    assert [secret for secret in secrets if secret in dump] == []
    assert any("k3y%26of%3Dapi" in each["query"] for each in server.requests("/secure/query"))
    plain = server.requests("/pets/3")[0]
    assert "authorization" not in plain["headers"]
    assert "k3y" not in plain["query"]


@pytest.mark.semantics("S12")
def test_listing_costs_a_request_for_the_list_and_none_for_its_items(own_server: PetsServer, mounted: Mounts) -> None:
    mount = mounted(own_server.source(config={"include": ["/orders/**"]}))
    assert "o7" in run("ls", mount / own_server.root() / "orders").text
    assert {each["path"] for each in own_server.requests()} == {"/openapi.json", "/orders/"}
    assert len(own_server.requests("/orders/")) == 3


@pytest.mark.semantics("S22", "S23")
def test_an_api_that_fails_or_hangs_harms_no_other_source(
    own_server: PetsServer, mounted: Mounts, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a").write_text("well\n")
    mount = mounted(
        folder("notes", notes), own_server.source(timeout="1s", ttl=0, config={"exclude": ["/hang"]}),
        expected=["HTTP 500", "bbfs.resources.catalog.base: pets", "did not answer", "no answer"],
    )  # fmt: skip
    well, root = mount / "bb-filesystem+notes+file/a", mount / own_server.root()
    assert run("cat", root / "pets/3/index.json").out
    for mode, errno, number, name in (("500", "EHOSTDOWN", 4, "events"), ("hang", "ETIMEDOUT", 5, "linked")):
        own_server.answer_all(mode)
        assert errno_of(OPEN, root / f"pets/{number}/index.json") == errno
        assert errno_of(OPEN, root / name) == errno
        assert run("cat", well).text == "well\n"
        assert run("ls", well.parent).text == "a\n"
    own_server.answer_all("")
    assert run("cat", root / "pets/6/index.json").out
