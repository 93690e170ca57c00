"""Markdown that becomes Notion's blocks, and the changes that lead from some blocks to others."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import SERVERS

from bbfs.model.errors import BbfsError, NotSupported, Rejected
from bbfs.sources.notion.markdown import Block, blocks_text
from bbfs.sources.notion.writing.blocks import UnfitLine, all_same, carried, children_of, is_empty, read_blocks
from bbfs.sources.notion.writing.changes import END, START, Changes, batches, changes_of, requests_of, sent
from bbfs.sources.notion.writing.inline import rich_text_of, written_text

SHAPES: dict[str, Any] = json.loads((SERVERS / "notion_shapes.json").read_text("utf-8"))
EVERYTHING = r"""Plain, **bold** and ***both*** ~~struck~~ <u>under</u> `` code `x` ``, a [link](https://example.com/a%20b), \* 2 \< 3

Two␣␣
lines

\# no heading

$E = mc^2$ and 5$ and \$6, snake_case and \_x\_, \~~ and ~, <https://example.com/>

## One

### Two

#### Three

##### Four

- one
  - one a
    1. deep one
    2. deep two

  below one
- two

1. first␣␣
   and its second line
2. second

- [x] done
- [ ] open
  - below

> Quoted␣␣
> twice
>
> and below

<details><summary>**More**</summary>

hidden

<details><summary></summary>

</details>

- x

</details>

````python
print('```')

#
````

```

```

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

![x.png](https://example.com/x.png)

![A *picture*](https://example.com/x.png)""".replace("␣", " ")  # noqa: E501 - lines of the document
CHILD = Block("child_page", {"title": "Child"}, "0" * 32)


def block(shape: dict[str, Any]) -> Block:
    return Block.of(shape, map(block, shape.get("_children", ())))


def text(content: str, **annotations: Any) -> dict[str, Any]:
    return {"type": "text", "text": {"content": content}, "plain_text": content, "annotations": annotations}


def paragraph(*pieces: dict[str, Any], **more: Any) -> Block:
    return Block("paragraph", {"rich_text": list(pieces), **more})


def test_all_that_is_written_is_read() -> None:
    blocks = read_blocks(EVERYTHING, {})
    assert blocks_text(blocks) == EVERYTHING
    assert all_same(carried(blocks), blocks)
    assert [each.type for each in blocks[:5]] == ["paragraph"] * 4 + ["heading_1"]
    assert read_blocks("", {}) == ()


def test_blocks_of_the_api_are_carried_or_refused_by_their_type() -> None:
    kept = {
        shape["type"]: carried([block(shape)])
        for shape in SHAPES["blocks"]
        if shape["type"] not in ("heading_3", "code") and is_carried(shape)
    }
    assert set(kept) == {
        "heading_1", "heading_2", "heading_4", "paragraph", "bulleted_list_item", "numbered_list_item", "to_do",
        "toggle", "quote", "equation", "divider", "table", "image",
    }  # fmt: skip


def is_carried(shape: dict[str, Any]) -> bool:
    try:
        carried([block(shape)])
    except NotSupported as error:
        return repr(shape["type"]) not in str(error)
    return True


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (paragraph(text("a", color="red")), "color 'red'"),
        (paragraph(text("a", color="blue_background")), "color"),
        (paragraph(text("a"), color="green"), "'color'"),
        (paragraph({"type": "mention", "mention": {"type": "date"}}), "mention"),
        (paragraph(text(" x ", underline=True)), "another one"),
        (Block("paragraph", {"rich_text": [text("a")]}, children=(paragraph(text("b")),)), "below"),
        (Block("heading_1", {"rich_text": [text("a\nb")]}), "another one"),
        (Block("heading_1", {"rich_text": [text("a")], "is_toggleable": True}), "is_toggleable"),
        (Block("code", {"rich_text": [text("a", bold=True)], "language": "c"}), "another one"),
        (Block("code", {"rich_text": [text("a\n")], "language": "c"}), "another one"),
        (Block("numbered_list_item", {"rich_text": [text("a")], "list_format": "roman"}), "list_format"),
        (Block("image", {"type": "file", "file": {"url": "https://x"}}), "image"),
        (Block("table", {"table_width": 1, "has_row_header": True}), "has_row_header"),
        (Block("callout", {"rich_text": [text("a")]}), "callout"),
        (Block("synced_block", {"synced_from": None}), "synced_block"),
        (Block("table_of_contents", {}), "table_of_contents"),
        (Block("quote", {"rich_text": []}, children=(paragraph(text("a")),)), "another one"),
    ],
)
def test_what_markdown_loses_is_named(lost: Block, words: str) -> None:
    with pytest.raises(NotSupported, match=words):
        carried([paragraph(text("before")), lost])


def test_what_does_not_show_is_no_loss() -> None:
    pieces = [text("Note: ", bold=True), text("more"), text("", code=True)]
    blocks = [paragraph(*pieces), paragraph(), Block("toggle", {"rich_text": [text("x")]}, children=(paragraph(),))]
    found = carried(blocks)
    assert found[0].data == {
        "rich_text": [
            {"type": "text", "text": {"content": "Note:"}, "annotations": {"bold": True}},
            {"type": "text", "text": {"content": " more"}},
        ]
    }


@pytest.mark.parametrize(
    ("wrong", "at"),
    [
        ("a\nb", 1),
        ("x\n\n**a", 2),
        ("*a", 0),
        ("[a](b", 0),
        ("`a", 0),
        ("a <b> c", 0),
        ("<!-- x -->", 0),
        ("```\na", 0),
        ("$$\nx", 0),
        ("<details><summary>a</summary>\n\nb", 2),
        ("| a |\n| b |", 0),
        ("| a |\n| --- |\n| b | c |", 0),
        ("|  |\n| --- |", 0),
        ("- a\n\n  b\n  c", 3),
        (">a", 0),
    ],
)
def test_a_line_that_is_none_of_ours_is_named(wrong: str, at: int) -> None:
    with pytest.raises(UnfitLine) as caught:
        read_blocks(wrong, {})
    assert caught.value.at == at
    assert str(caught.value)


@pytest.mark.parametrize("hostile", ["> " * 100 + "x", "\n\n".join(["x"] * 6000), "- x\n" * 6000, "| x |\n" * 9])
def test_a_text_has_bounds(hostile: str) -> None:
    with pytest.raises((Rejected, UnfitLine)):
        read_blocks(hostile, {})


def test_a_toggle_has_a_depth_too() -> None:
    with pytest.raises(Rejected, match="levels"):
        read_blocks("<details><summary></summary>\n" * 200, {})


MARKS = "a b_c * ** ~~ ` ``` ```c [ ](https://x.org/) <u> </u> $ $$ \\ | ![ _ <br> é --- <https://x.org/> &amp; | --- |"
SPACES = (" ", "\n", "\n\n", "  \n", "# ", "## ", "- ", "1. ", "2. ", "- [ ] ", "- [x] ", "> ", "  ", "   ", "| ", " |")
TOGGLES = ("<details><summary>", "</summary>", "</details>", "| --- |")
WORDS = st.sampled_from([*MARKS.split(), *SPACES, *TOGGLES])
TEXTS = st.lists(WORDS, max_size=30).map("".join)
STYLES = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(["bold", "italic", "strikethrough", "underline", "code"], st.booleans())
)
PIECES = st.builds(
    lambda content, style, url: {**text(content, **style), **({"href": "https://x.org/a b"} if url else {})},
    st.text(alphabet="ab *_`[]~$<>|\\\n#-1.&;()", max_size=6),
    STYLES,
    st.booleans(),
)
LEAVES = st.builds(
    lambda kind, pieces: Block(kind, {"rich_text": pieces}),
    st.sampled_from(["paragraph", "heading_2", "quote", "toggle", "bulleted_list_item", "numbered_list_item", "to_do"]),
    st.lists(PIECES, max_size=3),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        lambda kind, pieces, children: Block(kind, {"rich_text": pieces}, children=tuple(children)),
        st.sampled_from(["quote", "toggle", "bulleted_list_item", "numbered_list_item", "to_do"]),
        st.lists(PIECES, max_size=2),
        st.lists(inner, max_size=3),
    ),
    max_leaves=6,
)


@given(TEXTS)
def test_a_text_is_read_as_it_is_written_or_refused(given: str) -> None:
    try:
        blocks = read_blocks(given, {})
    except (UnfitLine, Rejected):
        return
    if blocks_text(blocks) == given:
        assert all_same(carried(blocks), blocks)
    else:
        require_carried_or_refused(blocks)


@given(st.lists(TREES, max_size=4))
def test_blocks_are_carried_or_refused(given: list[Block]) -> None:
    require_carried_or_refused(given)


def require_carried_or_refused(given: Sequence[Block]) -> None:
    try:
        found = carried(given)
    except NotSupported:
        return
    assert all_same(read_blocks(blocks_text(found), {}), found)
    assert blocks_text(found) == blocks_text(given)


@given(st.lists(PIECES, max_size=4))
def test_rich_text_has_one_form(given: list[dict[str, Any]]) -> None:
    once = written_text(given)
    assert written_text(once) == once


@given(st.text(alphabet="ab *_`[]~$<>|\\#-1.&;()!", max_size=12))
def test_a_plain_text_is_always_carried(content: str) -> None:
    if content.strip():
        assert rich_text_of(blocks_text([paragraph(text(content))])) == written_text([text(content)])


def numbered(blocks: Sequence[Block], ids: Iterator[int]) -> tuple[Block, ...]:
    """Blocks as they are at Notion: each with an id."""
    return tuple(replace(each, id=f"{next(ids):032x}", children=numbered(each.children, ids)) for each in blocks)


def after(page: str, old: Sequence[Block], changes: Changes) -> tuple[Block, ...]:
    """The blocks of a page after a change, made one request after another."""
    below: dict[str, list[str]] = {page: []}
    known: dict[str, Block] = {}
    ids = count(1 << 20)

    def put(above: str, blocks: Sequence[Block]) -> None:
        for each in blocks:
            assert each.id is not None
            known[each.id] = each
            below.setdefault(above, []).append(each.id)
            put(each.id, each.children)

    put(page, old)
    for append in changes.appends:
        siblings = below.setdefault(append.parent, [])
        at = 0 if append.position == START else len(siblings)
        if append.position not in (START, END):
            at = siblings.index(append.position["after_block"]["id"]) + 1
        made = numbered(append.blocks, ids)
        for each in made:
            assert each.id is not None
            known[each.id] = each
            put(each.id, each.children)
        siblings[at:at] = [each.id or "" for each in made]
    for each in changes.updates:
        assert known[each.id or ""].type == each.type
        known[each.id or ""] = each
    for each in changes.removals:
        (siblings,) = (children for children in below.values() if each.id in children)
        siblings.remove(each.id or "")

    def taken(above: str) -> tuple[Block, ...]:
        return tuple(replace(known[one], children=taken(one)) for one in below.get(above, ()))

    return taken(page)


@given(st.lists(TREES, max_size=5), st.lists(TREES, max_size=5), st.randoms())
def test_a_change_leads_where_it_should(old: list[Block], more: list[Block], random: Any) -> None:
    try:
        before = numbered(carried(old), count())
        wanted = [*before, *carried(more)]
        random.shuffle(wanted)
        new = read_blocks(blocks_text(carried(wanted[: random.randrange(9)])), {})
        changes = changes_of("page", before, new)
    except (NotSupported, Rejected, UnfitLine):
        return
    result = after("page", before, changes)
    assert all_same(result, new)
    assert blocks_text(result) == blocks_text(changes.blocks)
    assert [each for each in result if is_empty(each)] == [each for each in before if is_empty(each)]
    assert not changes_of("page", result, new).requests


def change(old: str, new: str, children: Mapping[str, Block] | None = None) -> Changes:
    before = numbered(read_blocks(old, children or {}), count(1))
    before = tuple(replace(each, id=CHILD.id) if each.type == "child_page" else each for each in before)
    return changes_of("page", before, read_blocks(new, children_of(before)))


def test_a_changed_line_is_one_request() -> None:
    changes = change("a\n\n- x\n- y\n\n```\nz\n```", "a\n\n- x\n- Y\n\n```\nz\n```")
    assert [each.id for each in changes.updates] == ["3".rjust(32, "0")]
    assert (changes.appends, changes.removals, changes.requests) == ([], [], 1)


def test_blocks_around_a_change_stay() -> None:
    changes = change("a\n\nb\n\nc", "new\n\na\n\nc\n\n## end")
    assert [(each.position, len(each.blocks)) for each in changes.appends] == [
        (START, 1),
        ({"type": "after_block", "after_block": {"id": "3".rjust(32, "0")}}, 1),
    ]
    assert [each.id for each in changes.removals] == ["2".rjust(32, "0")]


def test_a_page_in_the_text_stays_where_it_is() -> None:
    line, children = blocks_text([CHILD]), children_of([CHILD])
    assert change(f"a\n\n{line}", f"b\n\n{line}\n\nc", children).requests == 2
    for wrong in ("a", f"a\n\n{line}\n\n{line}", f"- {line}"):
        with pytest.raises(NotSupported, match="Child"):
            change(f"a\n\n{line}", wrong, children)


def test_empty_paragraphs_stay() -> None:
    old = numbered(carried([paragraph(text("a")), paragraph(), paragraph(text("b")), paragraph()]), count())
    changes = changes_of("page", old, read_blocks("A\n\nb\n\nc", {}))
    assert [is_empty(each) for each in changes.blocks] == [False, True, False, False, True]
    assert (len(changes.updates), len(changes.removals)) == (1, 0)


def test_a_list_that_notion_cannot_number_is_refused() -> None:
    with pytest.raises(Rejected, match="does not begin with 1"):
        change("a", "3. a")


def test_many_pages_of_blocks_go_in_few_requests() -> None:
    items = "\n".join(["- x\n  - y"] * 250)
    assert requests_of(read_blocks(items, {})) == 3
    deep = read_blocks("- a\n  - b\n    - c\n      - d", {})
    assert requests_of(deep) == 3
    table = read_blocks("| a |\n| --- |\n" + "\n".join(["| b |"] * 250), {})
    assert [len(json.dumps(each)) > 0 for batch in batches(table) for each, _ in batch] == [True]
    assert requests_of(table) == 3


def test_a_long_text_goes_in_pieces() -> None:
    made = sent(read_blocks("x" * 4001, {})[0])["paragraph"]["rich_text"]
    assert [len(piece["text"]["content"]) for piece in made] == [2000, 2000, 1]
    assert all(
        len(piece["text"]["content"]) <= 1000
        for piece in sent(read_blocks("𝕏" * 2500, {})[0])["paragraph"]["rich_text"]
    )
    with pytest.raises(BbfsError, match="pieces"):
        sent(read_blocks("x" * 200_001, {})[0])
