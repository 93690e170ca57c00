"""Notion's blocks and values as Markdown and JSON: shapes of the API's published types, and what is none of them."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import SERVERS

from bbfs.model.errors import ProtocolViolation
from bbfs.sources.notion import properties
from bbfs.sources.notion.inline import escaped, markdown_of
from bbfs.sources.notion.markdown import Block, blocks_text, document
from bbfs.sources.notion.naming import named
from bbfs.sources.notion.values import NotionItem, Parent, icon_text, id_in, time_ns

SHAPES: dict[str, Any] = json.loads((SERVERS / "notion_shapes.json").read_text("utf-8"))
EVERYTHING = r"""# Title \*

## First heading

Plain, **bold** and ***both*** ~~struck~~ <u>under</u> `` code `x` ``, a [link](https://example.com/a%20b) and snake_case \* 2 \< 3

Two␣␣
lines

\# no heading

1\. no list

@Ada on 2026-03-01 → 2026-03-05 about [Rules](https://www.notion.so/11111111111141118111111111111111) [Tasks](https://www.notion.so/22222222222242228222222222222222) <https://github.com/a/b> [Example](https://example.org/) @Today :bufo:

$E = mc^2$

### Lists

- one
  - one a
    1. deep one
    2. deep two

  below one
- two

1. first
2. second

   in second

- [x] done
- [ ] open

#### Toggle heading

under the heading

##### Fourth

<details><summary>More</summary>

hidden text

</details>

> Quoted␣␣
> twice
>
> and below

> ⚠️ Careful

````python
print('```')
````

a caption

$$
\int_0^1 x
$$

---

| Name | What \| is |
| --- | --- |
| a | **b** |
| c<br>d |  |

|  |
| --- |
| alone |

left

right

![A picture](https://prod-files-secure.s3.us-west-2.amazonaws.com/space/file/picture.png)

![x.png](https://example.com/x.png)

[v.mp4](https://example.com/v.mp4)

[data.zip](https://prod-files-secure.s3.us-west-2.amazonaws.com/space/file/data.zip)

[The paper](https://prod-files-secure.s3.us-west-2.amazonaws.com/space/file/paper.pdf)

[song.mp3](https://prod-files-secure.s3.us-west-2.amazonaws.com/space/file/song.mp3)

<https://example.com/b?x=1&y=2>

[embedded](https://example.com/e)

<https://github.com/a/b/pull/1>

synced

synced

<https://www.notion.so/11111111111141118111111111111111>

<https://www.notion.so/22222222222242228222222222222222>

a template

a tab

**Weekly**

summary

<!-- Notion block of type form, which is not shown -->

<!-- Notion block of type from_the_future, which is not shown -->

in the future
"""  # noqa: E501 - lines of the document


API_TYPES = set(
    """
    paragraph heading_1 heading_2 heading_3 heading_4 bulleted_list_item numbered_list_item quote to_do toggle template
    synced_block equation code callout divider breadcrumb table_of_contents tab column_list column link_to_page table
    table_row transcription embed bookmark image video pdf file audio link_preview unsupported
    """.split()  # noqa: SIM905 - forty quoted names read worse
)
"""The blocks of the API, but for those that stand for a page or a database (`child_page`, `child_database`)."""


def block(shape: dict[str, Any]) -> Block:
    return Block.of(shape, map(block, shape.get("_children", ())))


def _types(shapes: list[dict[str, Any]]) -> Iterator[str]:
    for shape in shapes:
        yield shape["type"]
        yield from _types(shape.get("_children", []))


def text(content: str, **annotations: bool) -> dict[str, Any]:
    return {"type": "text", "text": {"content": content}, "plain_text": content, "annotations": annotations}


def paragraph(*pieces: dict[str, Any]) -> Block:
    return Block("paragraph", {"rich_text": list(pieces)})


def test_every_block_of_the_api_is_shown() -> None:
    assert set(_types(SHAPES["blocks"])) >= API_TYPES
    shown = document("Title *", [block(shape) for shape in SHAPES["blocks"]])
    assert shown == EVERYTHING.replace("␣", " ")


def test_the_signature_of_a_file_changes_nothing() -> None:
    shape = next(shape for shape in SHAPES["blocks"] if shape["type"] == "pdf")
    first, second = (json.loads(json.dumps(shape).replace("{signature}", sign)) for sign in ("aa", "bb"))
    assert first != second
    assert blocks_text([block(first)]) == blocks_text([block(second)])


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([text("a", bold=True), text("b", bold=True)], "**ab**"),
        ([text(" a ", bold=True), text("b")], " **a** b"),
        ([text("a", bold=True, italic=True, strikethrough=True, underline=True)], "<u>***~~a~~***</u>"),
        ([text("`", code=True)], "`` ` ``"),
        ([text("a_b", code=True), text(" _c_")], "`a_b` \\_c\\_"),
        ([text("  ", bold=True)], "  "),
        ([text("[x](y) <b> \\ $5 ~~ &amp; a & b")], "\\[x\\](y) \\<b> \\\\ \\$5 \\~~ \\&amp; a & b"),
        ([{**text("here"), "href": "/0123#x"}], "[here](https://www.notion.so/0123#x)"),
        ([{"type": "equation"}, {}, {"type": "mention", "mention": 7}, 7], "$$"),
    ],
)
def test_rich_text(pieces: list[Any], expected: str) -> None:
    assert markdown_of(pieces) == expected


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("- a", "\\- a"),
        ("+ a", "\\+ a"),
        ("> a", "\\> a"),
        ("10) a", "10\\) a"),
        ("---", "\\---"),
        ("2026", "2026"),
        ("-a", "-a"),
    ],
)
def test_what_begins_a_line_begins_no_list(start: str, expected: str) -> None:
    assert blocks_text([paragraph(text(start))]) == expected


def test_numbers_begin_where_the_list_does_and_after_something_else_anew() -> None:
    def item(**data: Any) -> Block:
        return Block("numbered_list_item", {"rich_text": [text("x")], **data})

    found = blocks_text([item(list_start_index=5), item(), paragraph(text("y")), item()])
    assert found == "5. x\n6. x\n\ny\n\n1. x"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "rich_text",
                        "text",
                        "content",
                        "plain_text",
                        "mention",
                        "user",
                        "annotations",
                        "url",
                        "cells",
                    ]
                )
                | st.text(),
                inner,
            )
        ),
    )
)
def test_no_shape_however_wrong_is_more_than_an_odd_text(value: Any) -> None:
    for shape in SHAPES["blocks"]:
        kind = shape["type"]
        assert isinstance(
            blocks_text([Block(kind, value if isinstance(value, dict) else {}, children=(Block("x", {}),))]), str
        )
        blocks_text([Block.of({"type": kind, kind: value, "id": value})])
    markdown_of(value)
    icon_text(value)
    for kind in [found["type"] for found in SHAPES["values"].values()]:
        json.dumps(properties.flat({"type": kind, kind: value}))
    properties.incomplete({"x": value})
    with suppress(ProtocolViolation):
        NotionItem.of(value)


@given(st.text(max_size=50))
def test_a_text_with_its_escapes_taken_away_is_the_text(content: str) -> None:
    assert re.sub(r"\\([\\`*\[\]<~_&$])", r"\1", escaped(content)).replace("\\", "") == content.replace("\\", "")


def test_one_wide_row_does_not_widen_the_others() -> None:
    narrow, wide = Block("table_row", {"cells": [[text("x")]]}), Block("table_row", {"cells": [[]] * 10_000})
    made = blocks_text([Block("table", {"has_column_header": True}, children=(narrow,) * 10_000 + (wide,))])
    assert made.startswith("| x |  |")
    assert len(made) < 300_000


def page(key: str, title: str) -> NotionItem:
    return NotionItem("page", key.rjust(32, "0"), title, Parent("workspace"))


def test_names_are_titles_and_hashes_where_titles_do_not_tell_apart() -> None:
    items = [
        page("1", "Plan"),
        page("2", "Notes"),
        page("3", "Notes"),
        page("4", ""),
        page("5", "a/b %41"),
        page("6", "index"),
    ]
    items += [page("7", "0" * 32), page("8", ".."), page("9", "  two\nlines ")]
    names = named([(item, ".md") for item in items] + [(page("10", "Plan"), ""), (page("11", ".."), "")], ["index.md"])
    by_id = {item.id.lstrip("0"): segment for segment, item in names.items()}
    assert by_id["1"] == "Plan.md"
    assert by_id["10"] == "Plan"
    assert by_id["5"] == "a%2Fb%20%2541.md"
    assert by_id["8"] == "...md"
    assert by_id["11"] == "%2E%2E"
    assert by_id["9"] == "two%20lines.md"
    for number, stem in (("2", "Notes"), ("3", "Notes"), ("4", "Untitled"), ("6", "index"), ("7", "0" * 32)):
        assert by_id[number].startswith(f"{stem}~")
        assert len(by_id[number]) == len(stem) + 12
    assert named([(item, ".md") for item in reversed(items)], ["index.md"]).keys() <= names.keys()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("0123456789abcdef0123456789ABCDEF", "0123456789abcdef0123456789abcdef"),
        ("01234567-89ab-cdef-0123-456789abcdef", "0123456789abcdef0123456789abcdef"),
        (
            "https://www.notion.so/team/A-Title-0123456789abcdef0123456789abcdef?v=1#x",
            "0123456789abcdef0123456789abcdef",
        ),
        ("A-Title-0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef"),
        ("https://www.notion.so/team", None),
        ("00123456789abcdef0123456789abcdef0", None),
        ("", None),
    ],
)
def test_ids_are_found_in_what_people_copy(given: str, expected: str | None) -> None:
    assert id_in(given) == expected


def test_values_are_what_a_person_would_write() -> None:
    item = NotionItem.of({**SHAPES["page"], "id": "0" * 32, "properties": SHAPES["values"]})
    row = properties.row(item, {})
    assert row["Due"] == row["When"] == "2026-03-01T09:00:00.000+01:00"
    expected = {
        "Text": "some rich", "Number": 1.5, "Nothing": None, "Select": "Low", "None": None, "Tags": ["x", "y"],
        "Status": "In progress", "Who": ["Ada", "00000000-0000-4000-8000-000000000000"], "Done": True, "Sum": 3,
        "Is": False, "Related": ["11111111111141118111111111111111"], "Total": 7, "Names": ["A", "z"], "By": "Ada",
        "ID": "T-12", "url_": "https://example.com/own", "Press": None, "Checked": "unverified",
        "Say": "hi", "Link": "https://example.com/",
        "Place": {"name": "Here", "lat": 1.5, "lon": 2.5},
        "Files": ["https://prod-files-secure.s3.us-west-2.amazonaws.com/space/file/f.bin", "https://example.com/x"],
    }  # fmt: skip
    assert {key: row[key] for key in expected} == expected
    assert list(row)[:4] == ["id", "url", "created_time", "last_edited_time"]
    assert row["id"] == "0" * 32


@pytest.mark.parametrize(
    ("value", "is_cut"),
    [
        ({"type": "relation", "relation": [{}] * 24}, False),
        ({"type": "relation", "relation": [{}] * 25}, True),
        ({"type": "relation", "relation": [], "has_more": True}, True),
        ({"type": "rollup", "rollup": {"type": "array", "array": [{}] * 25}}, True),
        ({"type": "multi_select", "multi_select": [{}] * 99}, False),
    ],
)
def test_values_that_may_be_cut_off_are_known(value: dict[str, Any], is_cut: bool) -> None:
    assert properties.incomplete({"x": {"id": "q", **value}}) == ([("x", "q")] if is_cut else [])


def test_icons_and_times() -> None:
    assert [icon_text(icon) for icon in SHAPES["icons"]] == [
        "📘",
        "https://prod-files-secure.s3.us-west-2.amazonaws.com/space/file/icon.png",
        "https://example.com/i.png",
        ":bufo:",
        "pizza",
    ]
    assert time_ns("2026-03-01T00:00:00.250Z") == 1_772_323_200_250_000_000
    assert time_ns("2026-03-01") == 1_772_323_200_000_000_000
    assert time_ns("soon") is None
