"""OpenAPI documents: JSON and YAML, references, what is broken in them."""

import threading
from pathlib import Path
from typing import Any

import pytest
import trio
from web_site import WebSite

from bbfs.model.errors import ConfigError, ProtocolViolation, TooLarge, Unreachable
from bbfs.model.values import DataSource
from bbfs.sources.api import document as api_document
from bbfs.sources.api.document import DocumentNode, Documents, is_beneath, parse
from bbfs.sources.api.loading import DocumentReader, file_url
from bbfs.sources.bounded.json import JsonBounds
from bbfs.sources.bounded.workers import WorkerPool
from bbfs.sources.http.client import WebClient

AT = "file:///apis/pets/openapi.yaml"


def root(value: Any, **others: Any) -> DocumentNode:
    parsed = {AT: value, **{f"file:///apis/pets/{name}.yaml": other for name, other in others.items()}}
    return Documents(AT, parsed, {"file:///apis/pets/gone.yaml": "no such file"}).root


def web_client() -> WebClient:
    return WebClient(DataSource("a", "a", "api", "bb", "bb-api+a"), allow_private=True)


def reader(url: str, client: WebClient | None = None, **options: Any) -> DocumentReader:
    return DocumentReader(
        *(url, client or web_client(), options.get("headers", {}), options.get("mount_point"), trio.CapacityLimiter(2)),
        *(WorkerPool(), "a", options.get("max_document", 1 << 20)),
    )


async def parsed(data: bytes, location: str, max_size: int = 1 << 20) -> Any:
    value, _ = await parse(data, location, JsonBounds(max_size), WorkerPool(), "a")
    return value


async def test_yaml_is_read_as_json_is() -> None:
    text = b"""
answers: {200: fine, 404: gone}
no: [yes, no, on, off, y, 2020-01-01, 012, 0x1f, 1_000, "1", 1e3, 1.5, .5, true, null, ~, -3]
base: &base {a: 1}
more: {<<: *base, b: 2}
"""
    found = await parsed(text, AT)
    assert found["no"] == [
        *("yes", "no", "on", "off", "y", "2020-01-01", "012", "0x1f", "1_000", "1"),
        *(1000.0, 1.5, 0.5, True, None, None, -3),
    ]
    assert found["more"] == {"a": 1, "b": 2}
    node = root(found)
    assert node.get("answers").text("200") == "fine"


@pytest.mark.parametrize("data", [b"[" * 100_000, b"a: " + b"[" * 100_000, b"[" + b"[]," * 1_000_000 + b"1]"])
async def test_the_structure_of_a_document_is_bounded(data: bytes) -> None:
    with pytest.raises(TooLarge, match=r"api: (a JSON document (of|with values nested) |nested )more than"):
        await parsed(data, "https://h/api", 8 << 20)


async def test_halves_of_characters_are_replaced() -> None:
    text = b'{"a\\ud800": ["\\udfff", "\\ud83d\\ude00", 1.5, "\\\\ud800"]}'
    assert await parsed(text, "https://h/api.json") == {"a?": ["?", "😀", 1.5, "\\ud800"]}


@pytest.mark.parametrize(
    ("data", "location", "said"),
    [
        (b'{\n"a": }', "https://h/api.json", "api.json: no JSON: Expecting value: line 2"),
        (b"a:\n  b: [\n", "file:///x/a%20b.yaml", "a b.yaml: line 3: "),
        (b"\xff", "https://h/api.json", "not UTF-8 (byte 0)"),
        (b"a: !!python/object/apply:os.system [true]", AT, "openapi.yaml: line 1: could not determine a constructor"),
        (b"? [a]\n: 1", AT, "unhashable key"),
        (b"a: *b\n", AT, "line 1: an alias without its anchor"),
        (b"a: &b [*b]\n", AT, "line 1: an alias without its anchor"),
        (b"a: 1\n---\nb: 2\n", AT, "line 2: expected a single document"),
        (b"<<: [1]\n", AT, "line 1: expected a mapping"),
        (b"a: \x07", AT, "control characters are not allowed in"),
        (b" <!doctype html><title>Not found</title>", "https://h/api", "HTML or XML, where a document"),
    ],
)
async def test_a_document_that_cannot_be_parsed_is_named_with_its_line(data: bytes, location: str, said: str) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        await parsed(data, location)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 500


def test_references_lead_through_documents() -> None:
    node = root(
        {
            "a": {"$ref": "#/b~1c/1"},
            "b/c": [0, {"$ref": "other.yaml#/x%20y"}],
            "d": {"$ref": "other.yaml"},
            "e": {"$ref": "#/b%2Fc/0"},
            "s": {"$ref": "#/plain", "description": "its own"},
            "plain": {"description": "theirs", "type": "string"},
        },
        other={"x y": {"here": {"$ref": "#/z"}}, "z": "end"},
    )
    assert node.get("a").get("here").value == "end"
    assert str(node.get("a")) == "other.yaml#/x y"
    assert node.get("d").text("z") == "end"
    assert node.get("e").value == 0
    assert node.get("s").value == {"description": "its own", "type": "string"}
    assert node.get("nothing").value is None
    assert dict(node.get("nothing").items()) == {}


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("#/nothing/here", "leads nowhere"),
        ("#/a/x", "leads nowhere"),
        ("#/one/$ref/x", "leads nowhere"),
        ("https://[", "leads nowhere"),
        ("#anchor", "no JSON pointer"),
        ("gone.yaml#/x", "no such file"),
        ("#/self", "lead to each other"),
        ("#/one", "lead to each other"),
    ],
)
def test_a_reference_that_leads_nowhere_is_named(reference: str, said: str) -> None:
    node = root(
        {"a": [1], "self": {"$ref": "#/self"}, "one": {"$ref": "#/two"}, "two": {"$ref": "#/one"},
         "bad": {"$ref": reference}}
    )  # fmt: skip
    with pytest.raises(ProtocolViolation) as caught:
        node.get("bad")
    assert said in str(caught.value)
    assert "openapi.yaml#/" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "beneath"),
    [
        ("https://h/a/b.yaml", True),
        ("https://h/a/x/y.yaml", True),
        ("https://h/b.yaml", False),
        ("https://h/a/%2e%2e/b.yaml", False),
        ("https://h/a/..%2fb.yaml", False),
        ("https://h/a/b.yaml?x", False),
        ("http://h/a/b.yaml", False),
        ("https://h:8443/a/b.yaml", False),
        ("file:///a/b.yaml", False),
    ],
)
def test_other_documents_are_had_from_beneath_the_first_alone(url: str, beneath: bool) -> None:
    assert is_beneath(url, "https://h/a/openapi.yaml") is beneath


async def test_files_are_read_with_what_they_refer_to(tmp_path: Path) -> None:
    folder = tmp_path / "an api"
    (folder / "parts").mkdir(parents=True)
    (tmp_path / "secret.yaml").write_text("x: secret")
    (folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    (folder / "api.yaml").write_text(
        "{a: {$ref: parts/p.yaml#/x}, b: {$ref: link.yaml#/x}, c: {$ref: ../secret.yaml#/x}, d: {$ref: none.yaml},"
        " e: {$ref: 'https://example.com/x.yaml'}}"
    )
    (folder / "parts/p.yaml").write_text("{x: {$ref: '../back.json#/y'}}")
    (folder / "back.json").write_text('{"y": "found"}')
    reading = reader(file_url(str(folder / "api.yaml")))
    found = await reading.read(lambda root: [root.get("a").value])
    assert found == ["found"]
    assert await reading.read(lambda root: []) is found  # nothing has changed
    (folder / "back.json").write_text('{"y": "changed"}')
    assert await reading.read(lambda root: root.get("a").value) == "changed"
    for key, said in (("b", "symbolic link"), ("c", "not beneath"), ("d", "No such file"), ("e", "not beneath")):
        with pytest.raises(ProtocolViolation, match=said):
            await reader(reading.url).read(lambda root, key=key: root.get(key))


async def test_what_took_long_to_parse_is_there_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, calls = trio.Event(), threading.Event(), 0

    parse_json = api_document.parse_counted

    def slow(data: bytes, bounds: JsonBounds) -> Any:
        nonlocal calls
        calls += 1
        trio.from_thread.run_sync(begun.set)
        assert go_on.wait(10)
        return parse_json(data, bounds)

    monkeypatch.setattr(api_document, "parse_counted", slow)
    (tmp_path / "api.json").write_text('{"a": 1}')
    reading = reader(file_url(str(tmp_path / "api.json")))
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reading.read, DocumentNode.followed)
            await begun.wait()
            nursery.cancel_scope.cancel()
            go_on.set()
        assert (await reading.read(DocumentNode.followed)).value == {"a": 1}
    assert calls == 1


async def test_what_reads_a_document_ends_with_its_reader(tmp_path: Path) -> None:
    (tmp_path / "api.json").write_text('{"a": {"$ref": "#/b"}, "b": 1}')
    begun = trio.Event()

    def for_ever(root: DocumentNode) -> None:
        trio.from_thread.run_sync(begun.set)
        while True:
            root.get("a")

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader(file_url(str(tmp_path / "api.json"))).read, for_ever)
            await begun.wait()
            nursery.cancel_scope.cancel()


async def test_a_document_over_http_is_read_with_what_it_refers_to(tmp_path: Path) -> None:
    site, client = WebSite(tmp_path), web_client()
    try:
        site.write("api/openapi.json", '{"a": {"$ref": "parts.json#/x"}}')
        site.write("api/parts.json", '{"x": "found", "y": {"$ref": "more.json"}}')
        reading = reader(f"{site.url}/files/api/openapi.json", client, headers={"X-Key": "secret"})
        assert await reading.read(lambda root: root.get("a").value) == "found"
        assert await reading.read(lambda root: None) == "found"
        for path in ("/files/api/openapi.json", "/files/api/parts.json"):
            asked = site.await_requests(path, 2)
            assert [(each["status"], each["headers"]["x-key"]) for each in asked] == [(200, "secret"), (304, "secret")]
        site.write("api/parts.json", '{"x": "changed"}')
        assert await reading.read(lambda root: root.get("a").value) == "changed"
        assert await reading.read(lambda root: None) == "changed"
        assert site.requests("/files/api/more.json") == []  # what nobody asks for is not read
        with pytest.raises(Unreachable):
            await reader(f"{site.url}/files/api/nothing.json", client).read(DocumentNode.followed)
    finally:
        await client.aclose()
        site.stop()


async def test_what_is_no_document_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"the document: .*No such file"):
        await reader(file_url(str(tmp_path / "none.yaml"))).read(DocumentNode.followed)
    with pytest.raises(Unreachable):
        await reader(file_url(str(tmp_path))).read(DocumentNode.followed)
    with pytest.raises(Unreachable, match="no regular file"):
        await reader("file:///dev/null").read(DocumentNode.followed)
    (tmp_path / "long.json").write_text("1" * 100)
    with pytest.raises(TooLarge, match=r"more than 99 bytes \(option max_document\)"):
        await reader(file_url(str(tmp_path / "long.json")), max_document=99).read(DocumentNode.followed)


async def test_all_documents_together_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "api.json").write_text('{"a": {"$ref": "b.json"}, "c": 1}')
    (tmp_path / "b.json").write_text("[" + " " * 80 + "]")
    url = file_url(str(tmp_path / "api.json"))
    assert await reader(url, max_document=99).read(lambda root: root.value["c"]) == 1
    with pytest.raises(ProtocolViolation, match=r"more than 99 bytes \(option max_document\)"):
        await reader(url, max_document=99).read(lambda root: root.get("a"))


def test_a_document_on_the_mount_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mount point"):
        reader(file_url(str(tmp_path / "mnt/api.yaml")), mount_point=str(tmp_path / "mnt"))
