"""A REST API on a real mount: FastAPI's own server and document."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Mounts
from pets_server import AUTH, PetsServer
from programs import errno_of, run, shell

OPEN = "open(sys.argv[1], 'rb').read()"
ODD_LISTS = ["/zero", "/one", "/limited", "/deaf", "/circle", "/echo", "/broken", "/large"]
LEFT_OUT = "bbfs.resources.catalog.base: pets: GET /needs-header"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PetsServer]:
    """To be asked for before `mounted`, so that the mount ends first."""
    server = PetsServer(tmp_path / "pets")
    yield server
    server.stop()


@pytest.mark.semantics("S11.3", "S30")
def test_every_scheme_gets_its_secret_and_nobody_sees_it(server: PetsServer, mounted: Mounts) -> None:
    source = server.source(auth=AUTH, config={"exclude": ["/hang", "/status/*", *ODD_LISTS]})
    mount = mounted(source, expected=[LEFT_OUT, "example.com"])
    root = mount / server.root()
    run("cat", root / "pets/3/index.json")
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
def test_listing_costs_a_request_for_the_list_and_none_for_its_items(server: PetsServer, mounted: Mounts) -> None:
    mount = mounted(server.source(config={"include": ["/orders/**"]}))
    assert "o7" in run("ls", mount / server.root() / "orders").text
    assert {each["path"] for each in server.requests()} == {"/openapi.json", "/orders/"}
    assert len(server.requests("/orders/")) == 3
