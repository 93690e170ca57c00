"""What a server may lead a login to, and how much it may answer."""

import gzip
from collections.abc import Awaitable, Callable

import httpx2
import pytest
from mcp.shared.auth import OAuthToken

from bbfs.model.errors import BbfsError, Denied, Unreachable
from bbfs.sources.mcp.login.refresh import MAX_DOCUMENT, LoginRequests, error_code, expiry

HEAD = b"HTTP/1.1 200 OK\r\nconnection: close\r\n"
PUBLIC = "https://1.1.1.1/mcp"


@pytest.mark.parametrize(
    ("server", "url"),
    [
        (PUBLIC, "https://127.0.0.1/token"),
        (PUBLIC, "https://169.254.169.254/latest"),
        (PUBLIC, "https://[::ffff:10.0.0.1]/token"),
        (PUBLIC, "https://localhost/token"),
        (PUBLIC, "http://1.1.1.1/token"),
        (PUBLIC, "file:///etc/passwd"),
        ("http://127.0.0.1/mcp", "ftp://127.0.0.1/x"),
    ],
)
async def test_a_server_leads_a_login_to_no_private_address_and_not_to_http(
    server: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    async with LoginRequests(server) as requests:
        with pytest.raises(Denied, match="the login leads"):
            await requests.send(httpx2.Request("POST", url, data={"refresh_token": "secret"}))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (HEAD + b"\r\n" + b"x" * (MAX_DOCUMENT + 1), Unreachable),
        (HEAD + b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"x" * (20 << 20)), Unreachable),
        (HEAD + b"content-encoding: br\r\n\r\nx", Unreachable),
        (HEAD + b"content-encoding: gzip\r\n\r\n" + gzip.compress(b'{"error": "slow_down"}'), None),
    ],
    ids=["long", "inflating", "brotli", "gzip"],
)
async def test_answers_to_a_login_are_bounded(
    answering: Callable[..., Awaitable[str]], answer: bytes, error: type[BbfsError] | None
) -> None:
    url = await answering(answer)
    async with LoginRequests("http://127.0.0.1/mcp") as requests:
        request = httpx2.Request("GET", url)
        if error is not None:
            with pytest.raises(error, match="cannot be reached"):
                await requests.send(request)
        else:
            assert error_code(await requests.send(request)) == "slow_down"


@pytest.mark.parametrize(
    ("seconds", "expires"),
    [(3600, 1003600), (None, None), (0, None), (-5, None), (10**400, 1000000 + 366 * 86400)],
    ids=["usual", "none", "zero", "negative", "huge"],
)
def test_the_life_of_a_token_may_be_any_number(seconds: int | None, expires: float | None) -> None:
    assert expiry(OAuthToken.model_construct(access_token="a", expires_in=seconds), 1_000_000) == expires


def test_the_code_of_an_error_is_short() -> None:
    deep = httpx2.Response(400, content=b"[" * 100_000)
    assert error_code(deep) is None
    assert len(error_code(httpx2.Response(400, json={"error": "x\x1b" * 10_000})) or "") < 1000
