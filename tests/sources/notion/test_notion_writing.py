"""Writing to a Notion workspace over a local server that follows the API: what is sent, and what is refused."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from notion_server import TOKEN, NotionServer, id_of, notion_server, source

from bbfs.model.errors import (
    BbfsError,
    Busy,
    Conflict,
    Denied,
    Exists,
    IsADirectory,
    NotEmpty,
    NotFound,
    NotSupported,
    Rejected,
    TooLarge,
    Unreachable,
)
from bbfs.model.values import DataSource, ResourceMetadata
from bbfs.model.versions import Expected
from bbfs.sources import CanRename, CanWrite, Services
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.notion.handler import NotionHandler
from bbfs.testing import ANY_STATE, HOSTILE

BOUND = 60.0
SCOPE = "x-notion://"
RULES = "Handbook/Rules.md"
TASK = "Handbook/Tasks/Task%201.md"
pytestmark = pytest.mark.semantics("S32", "S33")


@pytest.fixture
def server() -> Iterator[NotionServer]:
    with notion_server(100) as running:
        yield running


async def text(handler: NotionHandler, path: str) -> str:
    loaded = await handler.load(SCOPE + path)
    return (loaded.parts[0].content.read(0, 1 << 30) or b"").decode()


async def write(
    handler: NotionHandler, path: str, text: str | bytes, expected: Expected = ANY_STATE
) -> ResourceMetadata:
    data = text if isinstance(text, bytes) else text.encode()
    return await handler.write(SCOPE + path, MemoryContent(data), expected)


async def names(handler: NotionHandler, *path: str) -> set[str]:
    listing = await handler.list_directory(path)
    return {entry.native_uri.rpartition("/")[2] for entry in listing.resources}


def seen(text: str) -> Expected:
    return Expected(exists=True, version=MemoryContent(text.encode()).version)


def changes(server: NotionServer) -> list[tuple[str, str]]:
    """The requests since the last time that change something, by the names of the API."""
    return [(method, path.split("/")[2]) for method, path, _ in server.control() if method in ("PATCH", "DELETE")]


async def test_a_handler_that_may_not_write_does_not(server: NotionServer) -> None:
    async with source(server, write=True) as handler:
        assert isinstance(handler, CanWrite)
        assert isinstance(handler, CanRename)
        assert set(handler.writes(SCOPE + RULES)) == {"create", "replace", "remove", "rename"}
        for path, operations in {
            "Lone.md": {"replace", "remove", "rename"},
            "Handbook": {"rename"},
            "Handbook/index.md": {"replace"},
            id_of("rules"): {"replace"},
            "Handbook/Tasks/rows.ndjson": set[str](),
            "Handbook/Tasks/schema.json": set[str](),
            "Handbook/": set[str](),
        }.items():
            assert set(handler.writes(SCOPE + path)) == operations, path
    data = DataSource("w", "w", "notion", "bb", "bb-notion+w+x-notion", config=server.config(), auth={"token": TOKEN})
    handler = NotionHandler(data, Services())
    assert handler.writes(SCOPE + RULES) == ()
    await handler.aclose()


async def test_hostile_uris_are_not_written(server: NotionServer) -> None:
    async with source(server, write=True) as handler:
        for uri in (*HOSTILE, "x-notion://", "x-notion:///", "x-notion://%ff.md", "x-notion://Handbook/%ff.md"):
            with pytest.raises(BbfsError):
                await handler.write(uri, MemoryContent(b"x"), ANY_STATE)
        assert changes(server) == []


async def test_a_page_is_written_by_the_smallest_change(server: NotionServer) -> None:
    async with source(server, write=True) as handler:
        before = await text(handler, RULES)
        server.control()
        told = await write(handler, RULES, before.replace("text", "*word*") + "\n- a\n  - b\n", seen(before))
        assert (told.native_uri, told.kind, told.size) == (SCOPE + RULES, "resource", None)
        assert changes(server) == [("PATCH", "blocks"), ("PATCH", "blocks")]
        after = await text(handler, RULES)
        assert after == "# Rules\n\n*word* of rules\n\n- a\n  - b\n"
        blocks = server.blocks(id_of("rules"))
        assert blocks[0]["paragraph"]["rich_text"][0]["annotations"]["italic"] is True
        assert told.modified_ns == (await handler.find((), id_of("rules"))).modified_ns
        await write(handler, RULES, "# Rules\n\n*word* of rules\n\n## New\n\n- a\n", seen(after))
        assert [block["id"] for block in server.blocks(id_of("rules"))][::2] == [block["id"] for block in blocks]
        server.control()
        await write(handler, RULES, await text(handler, RULES))
        assert changes(server) == [], "nothing to change"


async def test_everything_that_is_written_is_read(server: NotionServer) -> None:
    lines = ["## H", "**b** $x$ [l](https://x.org/)", "- a\n  - b\n    - c\n      1. d", "> q\n>\n> r", "```c\nx\n```"]
    lines += [
        "| a | b |\n| --- | --- |\n" + "\n".join(["| c |  |"] * 150),
        "<details><summary>s</summary>\n\nt\n\n</details>",
    ]
    lines += ["$$\ny\n$$", "---", "![i](https://x.org/i.png)", "x" * 4500, "\n".join(["- [x] y"] * 230)]
    written = "# Rules\n\n" + "\n\n".join(lines) + "\n"
    async with source(server, write=True) as handler:
        await write(handler, RULES, written)
        assert await text(handler, RULES) == written
        await write(handler, "Handbook/Copy.md", written.replace("Rules", "Copy"), Expected(exists=False))
        assert await text(handler, "Handbook/Copy.md") == written.replace("Rules", "Copy")
        await write(handler, RULES, "")
        assert await text(handler, RULES) == "# Rules\n"
        assert server.blocks(id_of("rules")) == []


async def test_a_table_changes_in_place(server: NotionServer) -> None:
    table = "| a | b |\n| --- | --- |\n| c | d |\n"
    async with source(server, write=True) as handler:
        await write(handler, RULES, table)
        (before,) = server.blocks(id_of("rules"))
        for changed in (table.replace("c", "**C**"), table + "| e |  |\n", "|  |  |\n| --- | --- |\n| c | d |\n"):
            await write(handler, RULES, changed)
            assert await text(handler, RULES) == f"# Rules\n\n{changed}"
            assert [block["id"] for block in server.blocks(id_of("rules"))] == [before["id"]]
        await write(handler, RULES, "| a |\n| --- |\n")
        assert await text(handler, RULES) == "# Rules\n\n| a |\n| --- |\n"


async def test_the_title_may_be_missing_and_is_not_another(server: NotionServer) -> None:
    async with source(server, write=True) as handler:
        await write(handler, RULES, "other\n\ntext")
        assert await text(handler, RULES) == "# Rules\n\nother\n\ntext\n"
        with pytest.raises(Rejected, match="line 1: the title"):
            await write(handler, RULES, "# Other\n\ntext\n")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("# Rules\n\na\nb\n", "line 4: continues"),
        ("# Rules\n\na\n\n* b\n", "line 5: a mark, a link or a code span has no end"),
        ("# Rules\n\na\n\n\nb\n", "line 5: '' is written otherwise, as 'b'"),
        ("# Rules\n\n_a_\n", r"line 3: '_a_' is written otherwise, as '\\\\_a\\\\_'"),
        ("# Rules\n\n<!-- x -->\n", "line 3: '<!-- x -->' begins nothing"),
        ("# Rules\n\n2. a\n", "does not begin with 1"),
        (b"# Rules\n\n\xff\n", "line 3: a page is text in UTF-8"),
        ("# Rules\n\na\r\n", "line 3"),
    ],
)
async def test_a_text_that_notion_would_change_is_refused(server: NotionServer, wrong: str | bytes, words: str) -> None:
    async with source(server, write=True) as handler:
        with pytest.raises(Rejected, match=words):
            await write(handler, RULES, wrong)
        assert changes(server) == []


async def test_a_page_whose_markdown_loses_something_is_not_written(server: NotionServer) -> None:
    async with source(server, write=True) as handler:
        before = await text(handler, "Handbook/index.md")
        with pytest.raises(NotSupported, match=r"would lose something of this page: .*mention"):
            await write(handler, "Handbook/index.md", before + "\nmore\n")
        await write(handler, "Handbook/index.md", before)
        assert changes(server) == []


async def test_links_to_pages_in_the_text_stay(server: NotionServer) -> None:
    path = "Handbook/Offices/index.md"
    async with source(server, write=True) as handler:
        before = await text(handler, path)
        await write(handler, path, before.replace("our offices", "offices") + "\nend\n")
        assert await text(handler, path) == before.replace("our offices", "offices") + "\nend\n"
        assert await names(handler, "Handbook", "Offices") == {"index.md", "Berlin.md"}
        with pytest.raises(NotSupported, match="Berlin"):
            await write(handler, path, "# Offices\n\noffices\n")
        assert "berlin" in json.dumps(server.blocks(id_of("offices"))).lower()


async def test_another_state_is_a_conflict(server: NotionServer) -> None:
    async with source(server, write=True) as handler:
        before = await text(handler, RULES)
        server.control(rewrite=server.blocks(id_of("rules"))[0]["id"], **{"with": "theirs"})
        with pytest.raises(Conflict):
            await write(handler, RULES, before + "\nours\n", seen(before))
        with pytest.raises(Conflict):
            await handler.remove(SCOPE + RULES, seen(before))
        with pytest.raises(Exists):
            await write(handler, RULES, "ours\n", Expected(exists=False))
        with pytest.raises(Conflict):
            await write(handler, "Handbook/Nothing.md", "ours\n", Expected(exists=True))
        assert await text(handler, RULES) == "# Rules\n\ntheirs\n"


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, "validation_error", Rejected),
        (401, "unauthorized", Denied),
        (403, "restricted_resource", Denied),
        (404, "object_not_found", NotFound),
        (409, "conflict_error", Conflict),
        (413, "payload_too_large", TooLarge),
        (429, "rate_limited", Busy),
        (500, "internal_server_error", Unreachable),
        (503, "service_unavailable", Unreachable),
    ],
)
async def test_what_notion_refuses_has_its_error_and_is_sent_once(
    server: NotionServer, status: int, code: str, error: type[BbfsError]
) -> None:
    async with source(server, write=True) as handler:
        before = await text(handler, RULES)
        failure = {"path": "children$", "status": status, "code": code, "times": 99, "methods": ["PATCH"]}
        server.control(fail=failure if status == 429 else {**failure, "headers": {"retry-after": "0"}})
        with pytest.raises(error, match=f"{code}.*nothing was changed"):
            await write(handler, RULES, before + "\nmore\n")
        assert changes(server) == [("PATCH", "blocks")]
        server.control(mend=True)
        assert await text(handler, RULES) == before


async def test_a_change_that_breaks_off_has_lost_nothing(server: NotionServer) -> None:
    async with source(server, write=True) as handler:
        await write(handler, RULES, "a\n\nb\n\nc\n")
        server.control(fail={"path": "blocks/[^/]*$", "times": 1})
        with pytest.raises(Unreachable, match="1 of 3 requests were made before; removals come last"):
            await write(handler, RULES, "a\n\n## new\n")
        assert await text(handler, RULES) == "# Rules\n\na\n\n## new\n\nb\n\nc\n"


async def test_a_text_that_is_too_long_changes_nothing(server: NotionServer) -> None:
    async with source(server, write=True) as handler:
        with pytest.raises(Rejected, match=r"pieces.*nothing was changed"):
            await write(handler, RULES, "*a* **b** " * 101 + "\n\n- more\n")
        assert changes(server) == []


async def test_a_write_costs_few_requests(server: NotionServer) -> None:
    async with source(server, write=True) as handler:
        await text(handler, TASK)
        server.control()
        await write(handler, TASK, '---\n"Number": 9\n---\n\nwhat to do for 1\n')
        await text(handler, TASK)
        await write(handler, "Handbook/Tasks/New.md", "# New\n\n- a\n", Expected(exists=False))
        await text(handler, "Handbook/Tasks/New.md")
        await handler.remove(SCOPE + "Handbook/Tasks/New.md", ANY_STATE)
        asked = " ".join(f"{method} {'/'.join(path.split('/')[2::2])}" for method, path, _ in server.control())
        read = "GET pages GET blocks/children"
        make = "GET databases GET data_sources POST data_sources/query POST pages"
        assert asked == " ".join([read, "PATCH pages GET pages", read, make, read, read, "PATCH pages"])


async def test_a_change_that_takes_too_long_is_not_begun(server: NotionServer) -> None:
    async with source(server, write=True, timeout=1, per_second=10) as handler:
        with pytest.raises(TooLarge, match="timeout"):
            await write(handler, RULES, "\n".join(["- a\n  - b\n    - c"] * 9))
        with pytest.raises(TooLarge, match="more than"):
            await write(handler, RULES, "x" * (1 << 20))
        assert changes(server) == []


def value(server: NotionServer, name: str, column: str) -> Any:
    found = server.asked(f"pages/{id_of(name)}")["properties"][column]
    return found[found["type"]]


async def test_values_of_a_row_are_written(server: NotionServer) -> None:
    given = {
        "Number": 2, "Nothing": 3.5, "Select": "High", "None": None, "Tags": ["x", "new"], "Status": "Done",
        "Done": False,
        "Due": "2026-05-01 → 2026-05-03", "Link": "https://example.org/", "Mail": None, "Phone": "+49",
        "Related": ["1" * 32, "2" * 32], "Who": ["Ada"], "url": "https://example.com/other",
    }  # fmt: skip
    async with source(server, write=True) as handler:
        before = await text(handler, TASK)
        lines = [
            f"{json.dumps(name)}: {json.dumps(given[name])}" if name in given else line
            for line in before.splitlines()
            for name in [json.loads(line.partition(": ")[0]) if line.startswith('"') else ""]
        ]
        await write(handler, TASK, "\n".join(lines) + "\n", seen(before))
        (sent,) = [body for method, _, body in server.control() if method == "PATCH"]
        assert set(sent["properties"]) == set(given) - {"None"}
        after = await text(handler, TASK)
        for name, each in given.items():
            assert f"{json.dumps(name)}: {json.dumps(each, ensure_ascii=False)}" in after.splitlines()
        assert value(server, "task-1", "Due") == {"start": "2026-05-01", "end": "2026-05-03", "time_zone": None}
        assert after.endswith("# Task 1\n\nwhat to do for 1\n")


async def test_columns_that_are_absent_stay(server: NotionServer) -> None:
    async with source(server, write=True) as handler:
        await write(handler, TASK, '---\n"Done": false\n---\n\n# Task 1\n\nother\n')
        assert (value(server, "task-1", "Done"), value(server, "task-1", "Number")) == (False, 1.5)
        await write(handler, TASK, "once more\n")
        assert (await text(handler, TASK)).endswith('"url": "https://example.com/own"\n---\n\n# Task 1\n\nonce more\n')


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ('"Sum": 4', Rejected, "'Sum' .formula."),
        ('"Total": 4', Rejected, "'Total' .rollup."),
        ('"Created": null', Rejected, "'Created'"),
        ('"ID": "T-13"', Rejected, "'ID'"),
        ('"Files": []', Rejected, "'Files'"),
        ('"Name": "Other"', Rejected, "rename the file"),
        ('"Text": "plain"', NotSupported, "'Text' .rich_text.: its text has formatting"),
        ('"Number": "1"', Rejected, "'Number' .number.: not a number"),
        ('"Number": true', Rejected, "not a number"),
        ('"Number": NaN', Rejected, "line 2"),
        ('"Done": 1', Rejected, "neither true nor false"),
        ('"Tags": "x"', Rejected, "not a list"),
        ('"Due": "tomorrow"', Rejected, "no date"),
        ('"Due": " → 2026-01-01"', Rejected, "a date is"),
        ('"Related": ["x"]', Rejected, "no id"),
        ('"Who": ["Grace"]', Rejected, "no id"),
        ('"Status": "Unknown"', Rejected, "does not exist"),
        ('"Nowhere": 1', Rejected, "no column 'Nowhere'"),
        ("Done: true", Rejected, "line 2"),
        ('"Done": true\n"Done": true', Rejected, "twice"),
    ],
)
async def test_a_wrong_value_is_refused(server: NotionServer, line: str, error: type[BbfsError], words: str) -> None:
    async with source(server, write=True) as handler:
        before = await text(handler, TASK)
        with pytest.raises(error, match=words):
            await write(handler, TASK, f"---\n{line}\n---\n\n# Task 1\n\nwhat to do for 1\n")
        assert await text(handler, TASK) == before


async def test_a_long_relation_is_replaced_whole(server: NotionServer) -> None:
    path = "Handbook/Tasks/Task%203.md"
    async with source(server, write=True) as handler:
        before = await text(handler, path)
        await write(handler, path, before.replace("what to do", "what was done"))
        (line,) = [line for line in before.splitlines() if line.startswith('"Related"')]
        ids = json.loads(line.partition(": ")[2])
        server.control()
        await write(handler, path, before.replace(line, f'"Related": {json.dumps(ids[:-1])}'))
        sent = [body for method, where, body in server.control() if method == "PATCH" and "pages" in where]
        assert len(sent[0]["properties"]["Related"]["relation"]) == len(ids) - 1 == 29


async def test_pages_are_made_renamed_and_removed(server: NotionServer) -> None:
    new = Expected(exists=False)
    async with source(server, write=True) as handler:
        told = await write(handler, "Handbook/New%20page.md", "", new)
        assert (told.native_uri, told.name) == (SCOPE + "Handbook/New%20page.md", "New page")
        assert "New%20page.md" in await names(handler, "Handbook")
        assert await text(handler, "Handbook/New%20page.md") == "# New page\n"
        for taken in ("New%20page.md", "Rules.md"):
            with pytest.raises(Exists):
                await write(handler, f"Handbook/{taken}", "x\n", new)
        with pytest.raises(Exists):
            await write(handler, "Handbook/Notes.md", "x\n", new)  # two pages have this title
        for unfit in ("index.md", "%20x.md", "a%20%20b.md", ".md", f"{'0' * 32}.md", "x.txt", f"{'x' * 2001}.md"):
            with pytest.raises((NotSupported, Exists)):
                await write(handler, f"Handbook/{unfit}", "x\n", new)
        with pytest.raises(NotSupported, match="root"):
            await write(handler, "Root.md", "x\n")

        renamed = await handler.rename(SCOPE + "Handbook/New%20page.md", SCOPE + "Handbook/Old.md", replace=False)
        assert renamed.native_uri == SCOPE + "Handbook/Old.md"
        assert await text(handler, "Handbook/Old.md") == "# Old\n"
        with pytest.raises(Exists):
            await handler.rename(SCOPE + "Handbook/Old.md", SCOPE + RULES, replace=False)
        await handler.rename(SCOPE + "Handbook/Old.md", SCOPE + RULES, replace=True)
        assert await text(handler, RULES) == "# Rules\n"
        assert server.asked(f"pages/{id_of('rules')}")["in_trash"] is True
        told = await handler.rename(SCOPE + RULES, SCOPE + "Handbook/Rule%73.md", replace=True)
        assert (told.native_uri, await text(handler, RULES)) == (SCOPE + RULES, "# Rules\n")
        with pytest.raises(NotSupported, match="another directory"):
            await handler.rename(SCOPE + RULES, SCOPE + "Handbook/Offices/Rules.md", replace=False)

        await handler.remove(SCOPE + RULES, Expected(exists=True))
        assert "Rules.md" not in await names(handler, "Handbook")
        for wrong in (RULES, "Handbook/Nothing.md"):
            with pytest.raises(NotFound):
                await handler.remove(SCOPE + wrong, ANY_STATE)
        with pytest.raises(NotSupported):
            await handler.remove(SCOPE + "Handbook/Offices/index.md", ANY_STATE)


async def test_a_page_gets_its_first_page(server: NotionServer) -> None:
    async with source(server, write=True) as handler:
        await write(handler, "Handbook/Rules/First.md", "x\n", Expected(exists=False))
        assert "Rules" in await names(handler, "Handbook")
        assert await names(handler, "Handbook", "Rules") == {"index.md", "First.md"}
        with pytest.raises(NotFound):
            await write(handler, "Handbook/Nothing/First.md", "x\n", Expected(exists=False))


async def test_directories_are_renamed(server: NotionServer) -> None:
    async with source(server, write=True) as handler:
        told = await handler.rename(SCOPE + "Handbook/Offices", SCOPE + "Handbook/Bureaus", replace=False)
        assert (told.native_uri, told.kind) == (SCOPE + "Handbook/Bureaus", "directory")
        assert (await text(handler, "Handbook/Bureaus/index.md")).startswith("# Bureaus\n")
        await handler.rename(SCOPE + "Handbook", SCOPE + "Book", replace=False)
        assert "Book" in await names(handler)
        with pytest.raises(NotSupported, match="only pages"):
            await handler.rename(SCOPE + "Book/Tasks", SCOPE + "Book/Jobs", replace=False)


async def test_a_page_with_pages_that_no_listing_knows_of_is_not_removed(server: NotionServer) -> None:
    async with source(server, write=True) as handler:
        await names(handler, "Handbook")
        dashed = server.asked(f"pages/{id_of('rules')}")["id"]
        server.control(page={"name": "late", "title": "Late", "in": dashed})
        with pytest.raises(NotEmpty):
            await handler.remove(SCOPE + RULES, ANY_STATE)
        with pytest.raises(IsADirectory):
            await write(handler, id_of("tasks"), "x\n")


async def test_rows_are_made(server: NotionServer) -> None:
    front = '---\n"Number": 7\n"Select": "Low"\n"url": null\n---\n\n'
    async with source(server, write=True) as handler:
        await write(handler, "Handbook/Tasks/New.md", f"{front}# New\n\nto do\n", Expected(exists=False))
        after = await text(handler, "Handbook/Tasks/New.md")
        assert '"Number": 7\n' in after
        assert '"Name": "New"\n' in after
        assert after.endswith("\n---\n\n# New\n\nto do\n")
        assert "New.md" in await names(handler, "Handbook", "Tasks")
        for wrong in ('"Nowhere": 1', '"Name": "Different"'):
            with pytest.raises(Rejected):
                await write(handler, "Handbook/Tasks/Other.md", f"---\n{wrong}\n---\n", Expected(exists=False))
        await write(handler, "Two%20sources/Right/First.md", "", Expected(exists=False))
        assert "First.md" in await names(handler, "Two%20sources", "Right")
        with pytest.raises(NotSupported, match="data sources"):
            await write(handler, "Two%20sources/First.md", "", Expected(exists=False))
