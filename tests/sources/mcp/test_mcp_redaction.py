"""What a server is given in confidence stays out of every text, however the server writes it."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbfs.model.values import McpServer
from bbfs.sources.mcp.client.errors import server_redactor

SECRET = 's3cr3t/"value"+x'


@pytest.mark.semantics("S30")
@pytest.mark.parametrize(
    "server",
    [
        McpServer("stdio", "x", env={"TOKEN": SECRET}),
        McpServer("stdio", "x", args=(f"--token={SECRET}",), secrets=frozenset({SECRET})),
        McpServer("http", url="http://h/", headers={"Authorization": f"Bearer {SECRET}"}),
    ],
)
def test_a_secret_is_masked_in_every_spelling(server: McpServer) -> None:
    redact = server_redactor(server)
    spellings = (SECRET, base64.b64encode(SECRET.encode()).decode(), quote(SECRET, safe=""), json.dumps(SECRET)[1:-1])
    for spelling in spellings:
        assert redact(f"login with {spelling} failed") == "login with *** failed"


@pytest.mark.semantics("S30")
def test_tokens_are_masked_once_they_are_known_and_for_some_renewals_more() -> None:
    redact = server_redactor(McpServer("http", url="http://h/", headers={"X-Key": "configured"}))
    for number in range(1000):
        redact.learn((f"access-{number}-secret", f"refresh-{number}-secret"))
        assert redact(f"access-{number}-secret refresh-{number}-secret configured") == "*** *** ***"
    assert redact("access-998-secret") == "***", "an answer to an earlier request may quote it"
    assert redact("access-0-secret") == "access-0-secret", "what has long ended costs nothing"


@pytest.mark.semantics("S30")
def test_a_secret_of_several_lines_is_masked_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"
    redact = server_redactor(McpServer("stdio", "x", env={"KEY": key}))
    for line in key.splitlines():
        assert redact(f"  {line}") == "  ***"
    assert redact(f"key: {key}") == "key: ***"


@pytest.mark.semantics("S30")
@given(before=st.integers(0, 60), length=st.integers(1, 80))
def test_a_cut_never_leaves_half_a_secret(before: int, length: int) -> None:
    redact = server_redactor(McpServer("stdio", "x", env={"TOKEN": SECRET}))
    cut = redact.cut("." * before + SECRET + "." * 60, length)
    assert set(cut) <= {".", "*", "…"}
    assert cut.count(".") <= length
