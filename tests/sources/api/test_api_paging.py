"""Pages of lists: how the next one is found, when it ends, and how they are put together."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbfs.model.errors import TooLarge
from bbfs.sources.api.following import Next, Paging, first_numbers, next_page, without
from bbfs.sources.api.pages import ListPage, joined, page_of
from bbfs.sources.api.parameters import Parameter

URL = "https://h/v1/pets?kind=cat"


def page(value: Any, hint: str = "") -> ListPage:
    found = page_of(value if isinstance(value, bytes) else json.dumps(value).encode(), hint)
    assert found is not None
    return found


def paging(*names: str, **types: str) -> Paging:
    return Paging.of([Parameter(n, "query", n, False, "?", type=types.get(n.strip("[]$"))) for n in names])


def following(
    value: Any, *names: str, headers: dict[str, str] | None = None, before: tuple[Any, ...] = (), url: str = URL
) -> Next:
    chosen, pages = paging(*names), [page(each) for each in (*before, value)]
    first, _ = first_numbers(chosen, pages[0])
    return next_page(chosen, url, headers or {}, pages, first)


@pytest.mark.parametrize(
    ("value", "names", "expected"),
    [
        ({"items": [1], "next_cursor": "a=b"}, ["cursor"], f"{URL}&cursor=a%3Db"),
        ({"items": [1], "nextPageToken": "t"}, ["pageToken", "maxResults"], f"{URL}&pageToken=t"),
        ({"items": [1], "response_metadata": {"next_cursor": "c"}}, ["cursor", "limit"], f"{URL}&cursor=c"),
        ({"data": [1], "paging": {"cursors": {"after": "c"}}}, ["after"], f"{URL}&after=c"),
        ({"data": [1], "has_more": True, "next_page": "p2"}, ["page_token"], f"{URL}&page_token=p2"),
        ({"items": [1], "nextPage": 3}, ["page"], f"{URL}&page=3"),
        ({"items": [1], "next_offset": 40}, ["offset", "limit"], f"{URL}&offset=40"),
        ({"items": [1], "meta": {"continuationToken": "x"}}, ["continuation-token"], f"{URL}&continuation-token=x"),
        ({"results": [1], "next": "https://h/v1/pets?page=2"}, [], "https://h/v1/pets?page=2"),
        ({"results": [1], "next": "?page=2"}, [], "https://h/v1/pets?page=2"),
        ({"results": [1], "next": "/other?page=2"}, ["page"], "https://h/other?page=2"),
        ({"data": [1], "links": {"next": {"href": "/v1/pets?page[number]=2"}}}, [], "https://h/v1/pets?page[number]=2"),
        ({"value": [1], "@odata.nextLink": "http://h/v1/pets?$skip=9"}, [], "https://h/v1/pets?$skip=9"),
    ],
)
def test_what_the_answer_says_is_followed(value: Any, names: list[str], expected: str) -> None:
    assert following(value, *names) == Next("given", expected)


@pytest.mark.parametrize(
    "value",
    [
        {"items": [1], "next_cursor": None},
        {"items": [1], "next_cursor": ""},
        {"items": [1], "next_cursor": "x", "has_more": False},
        {"items": [1], "pageInfo": {"endCursor": "x", "hasNextPage": False}},
        {"items": []},
    ],
)
def test_the_answer_says_that_it_is_the_end(value: Any) -> None:
    assert following(value, "cursor", "page").kind == "end"


def test_what_only_looks_like_a_next_page_is_left_alone() -> None:
    assert following({"chapters": [1], "next": "/books/8"}).kind == "end"
    assert following({"heroes": [1], "next": "warrior"}).kind == "end"
    assert following([{"next": "/v1/pets?page=2"}]).kind == "end"


def test_what_may_be_said_of_the_page_itself_is_no_end_and_no_next_one() -> None:
    assert following({"items": [1], "cursor": None}, "cursor", "page").kind == "guessed"
    assert following({"items": [1], "after": "2026-01-01"}, "after").kind == "end"
    assert following({"items": [1], "paging": {"after": "c"}}, "after") == Next("given", f"{URL}&after=c")


def test_a_cursor_that_nothing_takes_is_told() -> None:
    found = following({"items": [1], "next_cursor": "x"}, "limit")
    assert (found.kind, found.why) == ("lost", "the document names no parameter for the API's cursor")


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ('<https://h/v1/pets?page=2>; rel="next"', "https://h/v1/pets?page=2"),
        ("</v1/pets?page=2>;rel=next", "https://h/v1/pets?page=2"),
        ('<https://h/a>; rel="prev", <?p=3>; title="a, b"; rel="last next"', "https://h/v1/pets?p=3"),
        ("<http://h/v1/pets?page=2>; rel=next", "https://h/v1/pets?page=2"),
        ("<http://h:80/v1/pets?page=2>; rel=next", "https://h/v1/pets?page=2"),
    ],
)
def test_the_link_header_is_followed(link: str, expected: str) -> None:
    assert following([1], headers={"link": link}) == Next("given", expected)


@pytest.mark.parametrize(
    "link", ["https://other/x", "http://h:8080/x", "https://h:444/x", "https://u@h/x", "https://[x/", "ftp://h/x"]
)
def test_another_origin_is_not_followed(link: str) -> None:
    assert following([1], headers={"link": f"<{link}>; rel=next"}).kind == "lost"
    assert following({"a": [1], "next": link}, "cursor").kind in ("lost", "given")
    assert not following({"a": [1], "next": link}, "cursor").url.startswith(link)


@pytest.mark.parametrize(
    ("value", "names", "expected"),
    [
        ([1, 2], ["page"], "page=1"),
        ({"a": [1], "page": 1}, ["page"], "page=2"),
        ({"a": [1], "currentPage": 0}, ["current_page"], "current_page=1"),
        ([1, 2], ["page[number]", "page[size]"], "page%5Bnumber%5D=1"),
        ([1, 2], ["offset", "limit"], "offset=2"),
        ([1, 2], ["$skip", "$top"], "%24skip=2"),
        ({"Resources": [1, 2], "startIndex": 1, "totalResults": 9}, ["startIndex", "count"], "startIndex=3"),
    ],
)
def test_else_the_next_number_is_tried(value: Any, names: list[str], expected: str) -> None:
    assert following(value, *names) == Next("guessed", f"{URL}&{expected}")


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        ({"a": [1, 2], "total": 2}, {}),
        ({"a": [1, 2], "meta": {"total_pages": 1}}, {}),
        ({"content": [1], "last": True}, {}),
        ([1, 2], {"x-total-count": "2"}),
        ([], {}),
    ],
)
def test_numbers_end_where_the_answer_says(value: Any, headers: dict[str, str]) -> None:
    assert following(value, "page", headers=headers).kind == "end"


def test_later_numbers_count_on_from_the_first() -> None:
    url = f"{URL}&page=5"
    assert following({"a": [3], "page": 5}, "page", before=({"a": [1], "page": 4},), url=url).url == f"{URL}&page=6"
    assert following([4], "offset", before=([1, 2, 3],), url=f"{URL}&offset=3").url == f"{URL}&offset=4"


def test_whoever_asks_for_a_page_gets_that_page() -> None:
    assert paging("page", "per_page", "q").names == {"page", "per_page"}
    assert paging("page", page="string").cursors[0].name == "page"
    assert not paging("q", "after_date").names


def test_a_secret_that_the_server_repeats_is_taken_out() -> None:
    assert without("https://h/x?a=1&api%5Fkey=s&b=2", frozenset({"api_key"})) == "https://h/x?a=1&b=2"
    assert without("https://h/x?api_key=s", frozenset({"api_key"})) == "https://h/x"
    assert without("https://h/x?a=%20", frozenset()) == "https://h/x?a=%20"


def test_items_are_put_together_as_they_are_written() -> None:
    one = b'{ "next": "2", "pets" : [ {"price": 1.10, "n": 12345678901234567890} ,\n {"b":"\\u00e9"}], "total": 3 }\n'
    two = b'{"total":3,"pets":[{"price":1E400}],"next":null}'
    text = joined([page(one), page(two)])
    assert text == (
        b'{"total":3,"pets":[\n{"price": 1.10, "n": 12345678901234567890},\n{"b":"\\u00e9"},\n{"price":1E400}\n]'
        b',"next":null}\n'
    )
    assert joined([page(b" [1,2] "), page(b"[ ]"), page(b" [[3]] ")]) == b" [\n1,\n2,\n[3]\n]\n"
    assert joined([page(b"[]"), page(b"[]")]) == b"[]\n"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
LISTS = st.lists(st.lists(VALUES, max_size=4), min_size=1, max_size=3)


@given(lists=LISTS, indent=st.none() | st.integers(0, 3), ascii_only=st.booleans(), wrapped=st.booleans())
def test_nothing_is_lost_or_changed_by_putting_together(
    lists: list[list[Any]], indent: int | None, ascii_only: bool, wrapped: bool
) -> None:
    whole = [{"n": 0, "pets": [1], "x": {"pets": []}, "items": each} if wrapped else each for each in lists]
    pages = [page(json.dumps(each, indent=indent, ensure_ascii=ascii_only).encode()) for each in whole]
    found = json.loads(joined(pages))
    assert (found["items"] if wrapped else found) == [item for each in lists for item in each]
    if wrapped:
        assert {**found, "items": 0} == {"n": 0, "pets": [1], "x": {"pets": []}, "items": 0}


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ([1], ()),
        ({"pets": [1], "errors": []}, ("pets",)),
        ({"a": [1], "items": [2]}, ("items",)),
        ({"only": [1], "n": 1}, ("only",)),
        ({"data": {"items": [1], "n": 2}}, ("data", "items")),
        ({"_embedded": {"pets": [1]}}, ("_embedded", "pets")),
        ({"hits": {"hits": [1], "total": 3}}, ("hits", "hits")),
    ],
)
def test_the_items_of_a_page_are_found(value: Any, where: tuple[str, ...]) -> None:
    assert page(value, "pets").where == where
    assert page(value, "pets").parsed(1)


@pytest.mark.parametrize("body", [b"", b"{", b"1", b'{"a": 1}', b'{"a": [], "b": []}', b"\xff"])
def test_what_is_no_list_is_no_page(body: bytes) -> None:
    assert page_of(body) is None


@pytest.mark.parametrize("body", [b"[" * 100_000, b"[" + b"[]," * 1_000_000 + b"1]", b"[" + b" " * (17 << 20) + b"]"])
def test_what_is_too_large_for_a_list_is_not_parsed(body: bytes) -> None:
    with pytest.raises(TooLarge):
        page_of(body)


def test_brackets_and_quotes_in_texts_end_no_item() -> None:
    items = [{"]": '"}\\'}, ["[", '\\"]', [{}]], "],[", 1.50, None]
    found = page({"before": ['"]}', {"[": "{"}], "next": {"a": ["}"]}, "items": items})
    assert [json.loads(item) for item in found.items] == items


def test_a_later_page_is_read_as_the_first() -> None:
    assert page_of(b'{"x": [], "pets": [1]}', "", ("pets",)) is not None
    assert page_of(b'{"x": [1]}', "", ("pets",)) is None
    assert page_of(b'{"pets": null}', "", ("pets",)) is None
