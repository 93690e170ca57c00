"""A Notion workspace over a local server that follows the API: the tree, what it costs, and how it fails."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from notion_server import TOKEN, NotionServer, id_of, notion_server, source

from bbfs.model.errors import (
    BbfsError,
    Busy,
    ConfigError,
    Denied,
    IsADirectory,
    LoginRequired,
    NotADirectory,
    NotFound,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)
from bbfs.model.values import DataSource, ResourceMetadata
from bbfs.sources import CanClose, CanFind, CanStat, Services
from bbfs.sources.notion.handler import NotionHandler
from bbfs.sources.notion.workspace import WHOLE_EVERY

BOUND = 60.0
SCOPE = "x-notion://"


@pytest.fixture
def server() -> Iterator[NotionServer]:
    with notion_server() as running:
        yield running


async def entries(handler: NotionHandler, *path: str) -> dict[str, ResourceMetadata]:
    listing = await handler.list_directory(path)
    return {entry.native_uri.rpartition("/")[2]: entry for entry in listing.resources}


async def content(handler: NotionHandler, path: str) -> bytes:
    loaded = await handler.load(SCOPE + path)
    assert [part.native_uri for part in loaded.parts] == [SCOPE + path]
    return loaded.parts[0].content.read(0, 1 << 30) or b""


def kinds(listed: dict[str, ResourceMetadata]) -> dict[str, str]:
    return {segment: entry.kind[:1] for segment, entry in listed.items()}


async def test_pages_with_pages_in_them_and_databases_are_directories(server: NotionServer) -> None:
    async with source(server) as handler:
        assert isinstance(handler, CanClose)
        assert isinstance(handler, CanFind)
        assert not isinstance(handler, CanStat)  # it would cost as much as half a load, and tell no size
        assert kinds(await entries(handler)) == {"Handbook": "d", "Two%20sources": "d", "Lone.md": "r"}
        handbook = kinds(await entries(handler, "Handbook"))
        twins = sorted(name for name in handbook if name.startswith("Notes~"))
        assert len(twins) == 2
        odd = {name: handbook.pop(name) for name in list(handbook) if "~" in name}
        assert sorted(odd.values()) == ["r"] * 4
        assert handbook == {
            "index.md": "r", "Deep.md": "r", "Rules.md": "r", "Offices": "d", "a%2Fb.md": "r", "Empty.md": "r",
            "Tasks": "d",
        }  # fmt: skip
        assert kinds(await entries(handler, "Handbook", "Tasks")) == {
            "rows.ndjson": "r", "schema.json": "r", "Task%202": "d",
            **{f"Task%20{number}.md": "r" for number in (1, 3, 4, 5, 6, 7)},
        }  # fmt: skip
        assert list(await entries(handler, "Handbook", "Tasks", "Task%202")) == ["index.md", "Draft.md"]
        assert list(await entries(handler, "Two%20sources")) == ["Left", "Right"]


async def test_what_is_known_of_a_page_is_told(server: NotionServer) -> None:
    async with source(server) as handler:
        entry = (await entries(handler))["Handbook"]
        assert entry.modified_ns == 1_770_028_200_000_000_000  # 2026-02-02T10:30:00Z
        assert (entry.uri, entry.name) == ("bb-notion+work+x-notion://Handbook", "Handbook")
        properties = dict(entry.properties or {})
        assert properties["notion_url"] == f"https://www.notion.so/{id_of('handbook')}"
        assert (properties["notion_id"], properties["notion_type"], properties["icon"]) == (
            id_of("handbook"),
            "page",
            "📘",
        )
        assert {"created_time", "created_by", "last_edited_by"} <= properties.keys()
        rules = (await entries(handler, "Handbook"))["Rules.md"]
        assert (rules.mime_type, rules.content_type, rules.size) == ("text/markdown", "text", None)
        assert rules.etag is None  # the time of the last edit is exact to the minute, and of this page alone


async def test_roots_can_be_named_by_id_or_url(server: NotionServer) -> None:
    roots = [f"https://www.notion.so/team/Offices-{id_of('offices')}?v=1", id_of("tasks"), id_of("two/Left")]
    async with source(server, root=roots) as handler:
        assert kinds(await entries(handler)) == {"Offices": "d", "Tasks": "d", "Left": "d"}
        assert "Task%201.md" in await entries(handler, "Tasks")
        assert list(await entries(handler, "Left")) == ["rows.ndjson", "schema.json", "Lefty.md"]
        assert await content(handler, "Offices/Berlin.md") == b"# Berlin\n\nin Berlin\n"
    async with source(server, root=[id_of("nothing"), id_of("lone")]) as handler:
        listing = await handler.list_directory(())
        assert [entry.name for entry in listing.resources] == ["Lone"]
        assert id_of("nothing") in (listing.problem or "")


async def test_an_id_is_a_page_wherever_it_is(server: NotionServer) -> None:
    async with source(server) as handler:
        dashed = f"{id_of('berlin')[:8]}-" + "-".join(id_of("berlin")[at : at + 4] for at in (8, 12, 16)) + "-"
        for own in (
            id_of("berlin"),
            id_of("berlin").upper(),
            dashed + id_of("berlin")[20:],
            f"workspace/{id_of('berlin')}",
        ):
            assert await content(handler, own) == b"# Berlin\n\nin Berlin\n"
        assert (await content(handler, id_of("offices"))).startswith(b"# Offices\n")
        assert await content(handler, f"{id_of('offices')}/Berlin.md") == b"# Berlin\n\nin Berlin\n"
        assert list(await entries(handler, id_of("task-2"))) == ["index.md", "Draft.md"]
        assert (await content(handler, f"{id_of('tasks')}/rows.ndjson")).count(b"\n") == 7
        with pytest.raises(IsADirectory):
            await content(handler, id_of("tasks"))
        assert (await handler.list_directory(())).open
        assert not (await handler.list_directory(("Handbook",))).open
        assert [(await handler.find((), id_of(name))).kind for name in ("berlin", "offices", "tasks")] == [
            "resource",
            "directory",
            "directory",
        ]
        for path, name in (((), "Rules"), (("Handbook",), id_of("berlin")), ((), id_of("gone")), ((), "0" * 32)):
            with pytest.raises(NotFound):
                await handler.find(path, name)
        with pytest.raises(NotADirectory):
            await entries(handler, "Lone.md")


async def test_a_row_has_its_values_before_its_text(server: NotionServer) -> None:
    async with source(server) as handler:
        text = (await content(handler, "Handbook/Tasks/Task%201.md")).decode()
        front, body = text.removeprefix("---\n").split("\n---\n")
        assert body == "\n# Task 1\n\nwhat to do for 1\n"
        lines = front.splitlines()
        assert '"Status": "In progress"' in lines
        assert lines == sorted(lines, key=lambda line: json.loads(line.partition(": ")[0]))


async def test_a_value_that_is_cut_off_is_asked_for_by_itself(server: NotionServer) -> None:
    async with source(server) as handler:
        rows = [json.loads(line) for line in (await content(handler, "Handbook/Tasks/rows.ndjson")).splitlines()]
        assert [row["Name"] for row in rows] == [f"Task {number}" for number in range(1, 8)]
        assert [len(row["Related"]) for row in rows] == [1, 1, 30, 1, 1, 1, 1]
        assert rows[2]["Related"][29] == id_of("related-29")
        assert str(id_of("related-29")) in (await content(handler, "Handbook/Tasks/Task%203.md")).decode()
        schema = json.loads(await content(handler, "Handbook/Tasks/schema.json"))
        assert schema["title"] == "Tasks"
        assert schema["columns"]["Select"] == {
            "id": "d", "type": "select", "description": "how much", "key": "Select", "options": ["Low", "High"],
        }  # fmt: skip


async def test_the_same_page_is_the_same_bytes_though_its_files_are_signed_anew(server: NotionServer) -> None:
    async with source(server) as handler:
        first, second = [(await handler.load(f"{SCOPE}Handbook/index.md")).parts[0].content.version for _ in range(2)]
        assert first == second
        assert b"X-Amz" not in await content(handler, "Handbook/index.md")
        assert b"X-Amz" not in await content(handler, "Handbook/Tasks/rows.ndjson")


async def test_a_search_that_was_done_just_now_is_not_done_again_and_later_only_what_was_edited(
    server: NotionServer,
) -> None:
    now = 1000.0
    async with source(server, listing_ttl=1000) as handler:
        await entries(handler)
        whole = [path for _, path, _ in server.control() if path == "/v1/search"]
        assert len(whole) > 5
        await entries(handler, "Handbook")
        assert "/v1/search" not in [path for _, path, _ in server.control()]
    async with source(server, listing_ttl=0, clock=lambda: now) as handler:
        await entries(handler)
        server.control(page={"name": "late", "title": "Late", "in": _dashed("rules")})
        assert kinds(await entries(handler, "Handbook"))["Rules"] == "d"
        searches = [path for _, path, _ in server.control() if path == "/v1/search"]
        assert len(searches) == 2  # the one with the new page, and one with nothing new
        now += WHOLE_EVERY
        server.control(edit=_dashed("late"), change={"in_trash": True})
        assert kinds(await entries(handler, "Handbook"))["Rules.md"] == "r"


def _dashed(name: str) -> str:
    own = id_of(name)
    return "-".join((own[:8], own[8:12], own[12:16], own[16:20], own[20:]))


async def test_pages_in_pages_that_no_search_knows_yet_are_found_by_reading(server: NotionServer) -> None:
    async with source(server) as handler:
        assert kinds(await entries(handler, "Handbook"))["Rules.md"] == "r"
        server.control(page={"name": "late", "title": "Late", "in": _dashed("rules")})
        assert b"[Late]" in await content(handler, "Handbook/Rules.md")
        assert kinds(await entries(handler, "Handbook"))["Rules"] == "d"
        assert await content(handler, "Handbook/Rules/Late.md") == b"# Late\n"


async def test_a_renamed_page_has_its_new_name_at_the_next_listing(server: NotionServer) -> None:
    async with source(server, listing_ttl=0) as handler:
        assert "Rules.md" in await entries(handler, "Handbook")
        server.control(of=_dashed("rules"), title="Customs")
        listed = await entries(handler, "Handbook")
        assert "Customs.md" in listed
        assert "Rules.md" not in listed
        assert await content(handler, "Handbook/Customs.md") == b"# Customs\n\ntext of rules\n"
        with pytest.raises(NotFound):
            await content(handler, "Handbook/Rules.md")


@pytest.mark.semantics("S23")
@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, "validation_error", ProtocolViolation),
        (401, "unauthorized", LoginRequired),
        (403, "restricted_resource", Denied),
        (404, "object_not_found", NotFound),
        (409, "conflict_error", ProtocolViolation),
        (429, "rate_limited", Busy),
        (500, "internal_server_error", Unreachable),
        (503, "service_unavailable", Unreachable),
    ],
)
async def test_each_failure_is_its_error(server: NotionServer, status: int, code: str, error: type[BbfsError]) -> None:
    async with source(server) as handler:
        server.control(fail={"path": "children", "status": status, "code": code, "times": 99})
        with pytest.raises(error) as caught:
            await content(handler, id_of("rules"))
        assert type(caught.value) is error
        assert code in str(caught.value)
        assert TOKEN not in str(caught.value)
        server.control(mend=True)
        assert await content(handler, id_of("rules")) == b"# Rules\n\ntext of rules\n"


async def test_a_wrong_token_is_a_login_that_is_required_and_told_nowhere(server: NotionServer) -> None:
    async with source(server, token="ntn_of_another") as handler:
        with pytest.raises(LoginRequired) as caught:
            await entries(handler)
        assert "API token is invalid" in str(caught.value)
        assert "ntn_of_another" not in str(caught.value) + repr(handler.source)


@pytest.mark.semantics("S22")
async def test_who_is_asked_to_wait_waits(server: NotionServer) -> None:
    async with source(server) as handler:
        server.control(
            fail={"path": "children", "status": 429, "code": "rate_limited", "headers": {"retry-after": "1"}}
        )
        before = trio.current_time()
        assert await content(handler, id_of("rules")) == b"# Rules\n\ntext of rules\n"
        assert trio.current_time() - before >= 0.9


@pytest.mark.semantics("S25")
async def test_a_cursor_that_leads_nowhere_ends_a_list(server: NotionServer) -> None:
    async with source(server) as handler:
        server.control(cursor="cursor-0")
        with pytest.raises(ProtocolViolation, match="leads nowhere"):
            await entries(handler)


async def test_where_notion_answers_no_more_the_rest_is_said_to_be_missing(server: NotionServer) -> None:
    async with source(server) as handler:
        server.control(incomplete=True)
        listing = await handler.list_directory(())
        assert "query_result_limit_reached" in (listing.problem or "")
        listing = await handler.list_directory((id_of("tasks"),))
        assert len(listing.resources) == 9
        assert "query_result_limit_reached" in (listing.problem or "")
        with pytest.raises(TooLarge, match="query_result_limit_reached"):
            await content(handler, f"{id_of('tasks')}/rows.ndjson")


async def test_what_is_over_the_bounds_is_never_cut(server: NotionServer) -> None:
    async with source(server, row_limit=4) as handler:
        with pytest.raises(TooLarge, match="more than 4 rows"):
            await content(handler, "Handbook/Tasks/rows.ndjson")
        listing = await handler.list_directory(("Handbook", "Tasks"))
        assert "row_limit" in (listing.problem or "")
        assert len(listing.resources) == 6


@pytest.mark.parametrize(
    ("config", "auth", "says"),
    [
        ({}, {}, "auth.token"),
        ({}, {"token": "a\nb"}, "auth.token"),
        ({}, {"token": "a", "tokn": "b"}, "only key"),
        ({"root": "here"}, {"token": "a"}, "has no id"),
        ({"roots": []}, {"token": "a"}, "did you mean 'root'"),
        ({"base_url": "file:///etc"}, {"token": "a"}, "base_url"),
        ({"per_second": 0}, {"token": "a"}, "per_second"),
    ],
)
def test_options_that_cannot_be_used_are_refused(config: dict[str, Any], auth: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        NotionHandler(
            DataSource("w", "w", "notion", "bb", "bb-notion+w+x-notion", config=config, auth=auth), Services()
        )


async def test_a_server_on_this_machine_is_asked_only_where_that_is_allowed(server: NotionServer) -> None:
    async with source(server, allow_private=False) as handler:
        with pytest.raises(Denied, match="allow_private"):
            await entries(handler)


async def test_a_search_finds_databases_by_their_rows(server: NotionServer) -> None:
    async with source(server) as handler:
        (hit,) = [hit for hit in await handler.search("Right", 10) if hit.title == "Right"]
        assert hit.native_uri == f"x-notion://{id_of('two/Right')}/rows.ndjson"
        (part,) = (await handler.load(hit.native_uri)).parts
        assert part.mime_type == "application/x-ndjson"
        assert await handler.search("  ", 10) == ()


@pytest.mark.parametrize("status", [403, 404])
async def test_one_data_source_that_cannot_be_read_takes_no_other_away(server: NotionServer, status: int) -> None:
    async with source(server, root=[id_of("two")]) as handler:
        segment = next(iter(await entries(handler)))
        right = next(each for name, each in (await entries(handler, segment)).items() if name != "Left")
        own = (right.properties or {})["notion_id"]
        refusal = {"path": f"data_sources/{own}", "status": status, "times": 100, "code": "object_not_found"}
        server.control(fail=refusal)
        listing = await handler.list_directory((segment,))
        assert [each.name for each in listing.resources] == ["Left"]
        assert "data source: " in (listing.problem or "")
        assert "rows.ndjson" in await entries(handler, segment, "Left")


@pytest.mark.parametrize("status", [403, 404])
async def test_one_database_that_cannot_be_read_takes_no_other_root_away(server: NotionServer, status: int) -> None:
    async with source(server) as handler:
        before = await entries(handler)
    server.control(fail={"path": "databases/", "status": status, "times": 100, "code": "object_not_found"})
    async with source(server) as handler:
        assert len(await entries(handler)) == len(before)
