"""Metadata as extended attributes."""

import json
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import pytest
from fakes import data_source
from hypothesis import given
from hypothesis import strategies as st

from bbfs.model.quantities import timestamp
from bbfs.model.values import DataSource, McpServer, ResourceMetadata, ResourceTemplate, SourceState
from bbfs.resources.documents import directory_document, plain, resource_document, source_document
from bbfs.vfs.xattrs import LIMIT, attributes

SOURCE = data_source()
TEXT = st.text(st.characters(exclude_categories=()))


def document(metadata: ResourceMetadata, **fields: Any) -> dict[str, Any]:
    given_: dict[str, Any] = {
        "path": "mcp-server+docs/x/a",
        "size": None,
        "modified_ns": 0,
        "fetched_at": None,
        "cache": "absent",
        "error": None,
        **fields,
    }
    return resource_document(metadata, SOURCE, **given_)


def a_resource(**fields: Any) -> ResourceMetadata:
    return ResourceMetadata("mcp-server+docs+x://a", "x://a", "a", **fields)


@pytest.mark.semantics("S11")
def test_every_field_is_an_attribute_and_one_document_holds_all() -> None:
    metadata = a_resource(
        title="T", description="D", mime_type="text/plain", content_type="text", uri_template="x://{v}", etag="e",
        annotations=MappingProxyType({"priority": 0.5, "audience": ("user",)}), mcp_data={"_meta": {"k": [1]}},
    )  # fmt: skip
    found = attributes(
        document(metadata, size=5, modified_ns=1_700_000_000 * 10**9, fetched_at=1.5, cache="fresh", error="none yet")
    )
    whole = json.loads(found.pop("user.bbfs.metadata"))
    assert {name: value.decode() for name, value in found.items()} == {
        "user.mime_type": "text/plain",
        "user.xdg.origin.url": "x://a",
        "user.bbfs.uri": "mcp-server+docs+x://a",
        "user.bbfs.name": "a",
        "user.bbfs.title": "T",
        "user.bbfs.description": "D",
        "user.bbfs.type": "mcp",
        "user.bbfs.data_source_type": "server",
        "user.bbfs.access_method": "mcp",
        "user.bbfs.content_type": "text",
        "user.bbfs.uri_template": "x://{v}",
        "user.bbfs.size": "5",
        "user.bbfs.last_modified": "2023-11-14T22:13:20Z",
        "user.bbfs.annotations": '{"priority": 0.5, "audience": ["user"]}',
        "user.bbfs.audience": '["user"]',
        "user.bbfs.priority": "0.5",
        "user.bbfs.mcp": '{"_meta": {"k": [1]}}',
        "user.bbfs.meta": '{"k": [1]}',
        "user.bbfs.etag": "e",
        "user.bbfs.fetched_at": "1970-01-01T00:00:01Z",
        "user.bbfs.cache": "fresh",
        "user.bbfs.error": "none yet",
    }
    assert whole["annotations"] == {"priority": 0.5, "audience": ["user"]}
    assert whole["path"] == "mcp-server+docs/x/a"
    assert whole["originalUri"] == "x://a"
    members = ("audience", "priority", "meta")
    assert len(whole) == len(found) - len(members) + 1  # the path has no attribute: whoever asks knows it


@pytest.mark.semantics("S11")
def test_what_is_not_known_is_absent() -> None:
    found = attributes(document(a_resource()))
    assert not {"user.bbfs.size", "user.bbfs.title", "user.mime_type", "user.bbfs.fetched_at"} & found.keys()
    assert "size" not in json.loads(found["user.bbfs.metadata"])


@pytest.mark.semantics("S11")
@given(TEXT, TEXT, st.dictionaries(TEXT, st.none() | st.booleans() | st.integers() | st.floats() | TEXT, max_size=3))
def test_whatever_a_server_sends_can_be_an_attribute(title: str, uri: str, annotations: dict[str, Any]) -> None:
    data, annotations = {"icons": title, "_meta": annotations}, {**annotations, "audience": annotations}
    metadata = ResourceMetadata("mcp-server+docs+x://a", uri, "a", title, annotations=annotations, mcp_data=data)
    found = attributes(document(metadata))
    assert all(len(value) <= LIMIT for value in found.values())
    assert isinstance(json.loads(found["user.bbfs.metadata"]), dict)


@pytest.mark.semantics("S11")
@pytest.mark.parametrize("length", [LIMIT - 1, LIMIT, LIMIT + 1, 10 * LIMIT])
def test_values_stay_within_the_kernels_limit_and_are_text_and_json(length: int) -> None:
    found = attributes(document(a_resource(description="€" * length, title="short", mcp_data={"k": "x" * length})))
    assert all(len(value) <= LIMIT for value in found.values())
    assert json.loads(found["user.bbfs.metadata"])["title"] == "short"
    description = found["user.bbfs.description"].decode()
    assert set(description) == {"€"}
    assert len(description) == min(length, LIMIT // 3)


class _Counted:
    """A value that counts how often it is encoded."""

    encoded = 0

    def __str__(self) -> str:
        _Counted.encoded += 1
        return "x"


def test_of_a_value_that_is_too_long_only_the_beginning_is_encoded() -> None:
    long = [_Counted()] * 200_000
    _Counted.encoded = 0
    found = attributes({"annotations": long, "mcpData": {"k": long}, "properties": {"p": long}, "title": "t"})
    assert found == {"user.bbfs.title": b"t", "user.bbfs.metadata": b'{"title": "t"}'}
    assert _Counted.encoded < 4 * LIMIT


@pytest.mark.semantics("S11")
def test_the_texts_of_templates_are_cut_so_that_their_attribute_fits() -> None:
    long = "€" * (1 << 20)
    templates = [ResourceTemplate(f"x://{n}/{{a}}", long, long, long, "text/plain") for n in range(5)]
    (said,) = json.loads(attributes(directory_document(templates[:1]))["user.bbfs.uri_templates"])
    assert set(said["name"] + said["title"] + said["description"]) == {"€"}
    assert len(json.loads(attributes(directory_document(templates))["user.bbfs.uri_templates"])) == 5


@pytest.mark.semantics("S11", "S27")
@pytest.mark.parametrize("seconds", [-1, 0, 253_402_300_799, 253_402_300_800, 10**12, -(10**12)])
def test_any_time_of_a_source_can_be_told(seconds: int) -> None:
    assert timestamp(seconds * 10**9)


@pytest.mark.semantics("S11.1", "S30")
def test_a_source_tells_how_it_fares_and_no_secret() -> None:
    server = McpServer("http", url="http://h/mcp", headers={"Authorization": "Bearer hunter2"}, env={"K": "hunter2"})
    source = DataSource(
        "docs",
        "docs",
        "server",
        "mcp",
        "mcp-server+docs",
        auth={"token": "hunter2"},
        config={"key": "hunter2"},
        mcp=server,
    )
    state = SourceState("down", "refused", "2025-11-25", "server 1.0")
    found = attributes(source_document(source, state, "refused", ["read", "list"], {"tools": 2, "prompts": 0}))
    assert found["user.bbfs.state"] == b"down"
    assert found["user.bbfs.error"] == b"refused"
    assert found["user.bbfs.protocol_version"] == b"2025-11-25"
    assert json.loads(found["user.bbfs.capabilities"]) == ["read", "list"]
    assert found["user.bbfs.id"] == b"docs"
    assert b"hunter2" not in b"".join(found.values())
    assert "hunter2" not in repr(server)


def test_plain_values() -> None:
    assert plain(MappingProxyType({1: (2, [MappingProxyType({"a": None})])})) == {"1": [2, [{"a": None}]]}


class Counted(list[Any]):
    """A list that counts how often it is walked through."""

    walks = 0

    def __iter__(self) -> Iterator[Any]:
        self.walks += 1
        return super().__iter__()


def test_no_field_is_walked_through_that_has_too_many_values() -> None:
    part = Counted(range(1000))
    large = Counted([0] * 100_000)
    nested = [{"part": part}] * 10_000
    metadata = a_resource(properties={"large": large, "nested": nested, "small": 1, "none": None}, annotations=nested)
    found = document(metadata)
    assert found["properties"] == {"small": 1, "none": None}
    assert "annotations" not in found
    assert large.walks == 0
    assert part.walks < 150
    assert document(a_resource(properties={"large": large, "list": [1]}))["properties"] == {"list": [1]}
