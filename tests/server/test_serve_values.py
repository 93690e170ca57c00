"""Tokens of pages, tokens of clients, codes of errors, and what counts as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbfs.model.errors import BbfsError, Denied, LoginRequired, NotFound, TooLarge
from bbfs.model.values import Part
from bbfs.resources.by_uri import LoadedResource
from bbfs.server.contents import Budget, items_of
from bbfs.server.errors import CODES, Fault, code_of, described
from bbfs.server.listing.walk import page_token, place_of
from bbfs.server_parts.http import is_loopback, new_token
from bbfs.sources.content.memory import MemoryContent


@given(st.lists(st.text()), st.lists(st.text()), st.lists(st.text()))
def test_a_token_leads_to_its_place_and_nowhere_else(purpose: list[str], other: list[str], place: list[str]) -> None:
    token = page_token(purpose, place)
    assert token.isascii()
    assert place_of(purpose, token) == place
    if other != purpose:
        with pytest.raises(Fault):
            place_of(other, token)


@given(st.text())
def test_no_other_text_is_a_token(text: str) -> None:
    with pytest.raises(Fault) as caught:
        place_of(["x"], text)
    assert caught.value.code == "invalid_token"


def test_every_error_has_a_code() -> None:
    pending: list[type[BbfsError]] = [BbfsError]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if kind.__module__ == "bbfs.model.errors":
            assert code_of(kind("x")) in CODES
    assert code_of(LoginRequired("x")) == code_of(Denied("x")) == "access_denied"
    assert described(NotFound("gone")) == {"code": "resource_not_found", "errno": "ENOENT", "message": "gone"}
    assert described(Fault("type_mismatch", "x"))["errno"] == "EINVAL"


@pytest.mark.parametrize(
    ("mime_type", "data", "is_text"),
    [
        ("text/plain", "grüße\r\n\ufeff".encode(), True),
        (None, b"plain", True),
        ("application/json", b"{}", True),
        ("image/svg+xml", b"<svg/>", True),
        (None, b"\xff\xfe", False),
        ("text/plain", b"\xff\xfe", False),
        ("image/png", b"ascii", False),
        ("application/octet-stream", b"ascii", False),
        ("application/octet-stream", b"", False),
    ],
)
async def test_what_is_text(mime_type: str | None, data: bytes, is_text: bool) -> None:
    loaded = LoadedResource("mcp-server+a+x://y", None, (Part(None, mime_type, MemoryContent(data)),))
    (item,) = await items_of(loaded, "mcp-server+a", Budget(1000))
    assert (item.text is not None) == is_text
    assert item.data == data


def test_a_budget_names_its_limit() -> None:
    budget = Budget(10)
    budget.take(6)
    for size, left in ((5, "4 are left"), (11, "at most 10")):
        with pytest.raises(TooLarge, match=left):
            budget.take(size)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True)]
    + [(host, False) for host in ("0.0.0.0", "::", "192.168.1.1", "localhost.example", "")],
)
def test_what_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_tokens_differ() -> None:
    assert new_token() != new_token()
    assert len(new_token()) == 64
