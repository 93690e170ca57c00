"""The HTTP client of the sources, against real servers: statuses, redirects, pauses, codings, bounds, addresses."""

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from web_site import WebSite

from bbfs.model.errors import (
    BbfsError,
    Busy,
    DeadlineExceeded,
    Denied,
    InvalidUri,
    LoginRequired,
    NotFound,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)
from bbfs.model.values import DataSource, Policy
from bbfs.sources.http.client import WebClient

SECRET = "s3cr3t-t0ken"
Make = Callable[..., WebClient]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebSite]:
    site = WebSite(tmp_path_factory.mktemp("web"))
    yield site
    site.stop()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[WebSite]:
    site = WebSite(tmp_path)
    yield site
    site.stop()


def source(timeout: float = 10.0, **auth: str) -> DataSource:
    return DataSource("web", "web", "url", "bb", "bb-url+web", policy=Policy(timeout=timeout), auth=auth)


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Makes clients, which are closed in the end."""
    async with AsyncExitStack() as stack:

        def made(timeout: float = 10.0, auth: Mapping[str, str] | None = None, **options: Any) -> WebClient:
            client = WebClient(source(timeout, **(auth or {})), **{"allow_private": True, **options})
            stack.push_async_callback(client.aclose)
            return client

        yield made


@pytest.fixture
def client(make: Make) -> WebClient:
    return make()


@pytest.mark.semantics("S23")
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, NotFound),
        (410, NotFound),
        (401, LoginRequired),
        (403, Denied),
        (407, Denied),
        (451, Denied),
        (408, DeadlineExceeded),
        (504, DeadlineExceeded),
        (429, Busy),
        (500, Unreachable),
        (502, Unreachable),
        (503, Unreachable),
        (300, ProtocolViolation),
        (304, ProtocolViolation),
        (400, ProtocolViolation),
        (418, ProtocolViolation),
        (422, ProtocolViolation),
        (599, Unreachable),
    ],
)
async def test_each_status_has_its_error(site: WebSite, client: WebClient, status: int, error: type[BbfsError]) -> None:
    with pytest.raises(error, match=f"HTTP {status}") as raised:
        await client.get(f"{site.url}/status/{status}?body=too+bad")
    assert type(raised.value) is error
    assert ("too bad" in str(raised.value)) == (status != 304)
    assert client.state.state == "up"


async def test_a_status_that_is_asked_for_is_an_answer(site: WebSite, client: WebClient) -> None:
    assert (await client.get(f"{site.url}/status/404", accept={404})).status == 404
    assert (await client.get(f"{site.url}/status/204")).body == b""


async def test_requests_say_what_they_were_asked_to(site: WebSite, client: WebClient) -> None:
    response = await client.request(
        "POST", f"{site.url}/echo?a=1", headers={"X-Extra": "yes"}, params={"b": "2 3"}, json={"q": [1]}
    )
    said = await response.json()
    assert (said["method"], said["body"]) == ("POST", '{"q":[1]}')
    assert said["path"] in ("/echo?a=1&b=2+3", "/echo?a=1&b=2%203")
    assert said["headers"]["x-extra"] == "yes"
    assert said["headers"]["content-type"] == "application/json"
    assert said["headers"]["user-agent"].startswith("bbfs")
    with pytest.raises(ProtocolViolation, match="no JSON"):
        await (await client.get(f"{site.url}/redirect/0")).json()


async def test_redirects_are_followed_to_their_end(site: WebSite, client: WebClient) -> None:
    response = await client.get(f"{site.url}/redirect/3")
    assert (response.body, response.url) == (b"GET arrived", f"{site.url}/redirect/0?code=302")
    assert (await client.get(f"{site.url}/redirect/20")).status == 200
    for url in (f"{site.url}/redirect/21", f"{site.url}/loop"):
        with pytest.raises(ProtocolViolation, match="more than 20 redirects"):
            await client.get(url)


@pytest.mark.parametrize(("code", "method"), [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")])
async def test_a_redirect_keeps_or_changes_the_method(site: WebSite, client: WebClient, code: int, method: str) -> None:
    response = await client.request("POST", f"{site.url}/to?url=/echo&code={code}", json={"a": 1})
    said = await response.json()
    assert (said["method"], said["body"]) == (method, '{"a":1}' if method == "POST" else "")
    assert ("content-type" in said["headers"]) == (method == "POST")


@pytest.mark.parametrize("where", ["file:///etc/passwd", "ftp://127.0.0.1/", "http://", "http://[::1/"])
async def test_a_redirect_to_no_web_page_is_refused(site: WebSite, client: WebClient, where: str) -> None:
    with pytest.raises(ProtocolViolation):
        await client.get(f"{site.url}/to", params={"url": where})


@pytest.mark.semantics("S30")
async def test_credentials_do_not_go_to_another_server(site: WebSite, make: Make, other: WebSite) -> None:
    headers = {"Authorization": f"Bearer {SECRET}", "Cookie": f"id={SECRET}", "X-Api-Key": SECRET, "User-Agent": "me"}
    client = make(headers=headers)
    here = (await (await client.get(f"{site.url}/to?url=/echo")).json())["headers"]
    assert {here["authorization"], here["cookie"], here["x-api-key"]} == set(headers.values()) - {"me"}
    there = (await (await client.get(f"{site.url}/to", params={"url": f"{other.url}/echo"})).json())["headers"]
    assert SECRET not in json.dumps(there)
    assert (there["user-agent"], there["host"]) == ("me", other.host)
    with pytest.raises(ProtocolViolation, match="to another server"):
        await client.request("POST", f"{site.url}/to", params={"url": f"{other.url}/echo", "code": "307"}, json={})


@pytest.mark.semantics("S30")
async def test_secrets_are_in_no_message(site: WebSite, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "bbfs")
    client = make(auth={"token": SECRET}, headers={"X-Key": "an0ther"}, secrets={"th1rd"})
    for path in (f"/status/400?body={SECRET}", "/status/400?body=an0ther", "/th1rd", "/status/400/th1rd?body=th1rd"):
        with pytest.raises(BbfsError) as raised:
            await client.get(site.url + path)
        assert "***" in str(raised.value) or path.endswith(SECRET)
        for secret in (SECRET, "an0ther", "th1rd"):
            assert secret not in str(raised.value) + caplog.text


async def test_it_waits_as_long_as_the_server_says(site: WebSite, client: WebClient) -> None:
    started = trio.current_time()
    response = await client.get(f"{site.url}/status/429?times=1&after=1&a")
    assert response.body == b"at last"
    assert trio.current_time() - started >= 1
    assert (await client.get(f"{site.url}/status/503?times=2&after=0&b")).body == b"at last"


async def test_all_requests_wait_for_a_server_that_wants_it(site: WebSite, client: WebClient) -> None:
    """One is told, and the others are not sent before the time is over."""
    path = "/status/503?times=1&after=1&c"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.get, site.url + path)
        await trio.to_thread.run_sync(site.await_requests, path, 1)
        started = trio.current_time()
        await client.get(f"{site.url}/redirect/0?c")
        assert trio.current_time() - started > 0.4
    assert [each["status"] for each in site.await_requests(path, 2)] == [503, 200]


@pytest.mark.parametrize(("status", "error"), [(429, Busy), (503, Unreachable)])
async def test_a_pause_past_the_deadline_is_an_error_at_once(
    site: WebSite, make: Make, status: int, error: type[BbfsError]
) -> None:
    client = make(timeout=60)
    with trio.fail_after(30):
        for _ in range(2):
            with pytest.raises(error, match=f"HTTP {status}: the server wants to be asked again in"):
                await client.get(f"{site.url}/status/{status}?after=60&d")
    assert len(site.await_requests(f"/status/{status}?after=60&d", 1)) == 1


async def test_so_many_requests_in_a_second(site: WebSite, make: Make) -> None:
    client = make(per_second=10)
    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(client.get, f"{site.url}/redirect/0")
    assert trio.current_time() - started >= 0.5
    client.slow_down(site.url, 30)
    await client.get(f"{site.url}/redirect/0")
    with pytest.raises(Busy, match="more requests than one in 30 s"):
        await client.get(f"{site.url}/redirect/0")


@pytest.mark.semantics("S22")
@pytest.mark.parametrize("path", ["never", "stalled"])
async def test_a_server_that_says_nothing_is_given_up(site: WebSite, make: Make, path: str) -> None:
    client = make(timeout=0.5)
    with pytest.raises(DeadlineExceeded):
        await client.get(f"{site.url}/{path}")
    with trio.move_on_after(0.1) as scope:
        await client.get(f"{site.url}/{path}")
    assert scope.cancelled_caught


@pytest.mark.parametrize(
    ("path", "error"), [("cut", Unreachable), ("cut-chunks", Unreachable), ("no-http", ProtocolViolation)]
)
async def test_a_cut_body_and_no_http(site: WebSite, client: WebClient, path: str, error: type[BbfsError]) -> None:
    with pytest.raises(error):
        await client.get(f"{site.url}/{path}")


async def test_nobody_at_home(client: WebClient) -> None:
    with pytest.raises(Unreachable):
        await client.get("http://127.0.0.1:9/")
    assert client.state.state == "down"
    with pytest.raises(Unreachable):
        await client.get("http://no-such-name.invalid/")


async def test_content_codings(site: WebSite, client: WebClient) -> None:
    assert (await client.get(f"{site.url}/coded/gzip")).body == b"hello, " * 1000
    assert (await client.get(f"{site.url}/coded/members")).body == b"hello, " * 1000 + b"world"
    for path, message in (("short", "ends too early"), ("garbage", "cannot be decoded"), ("other", "not asked for")):
        with pytest.raises(ProtocolViolation, match=message):
            await client.get(f"{site.url}/coded/{path}")
    with pytest.raises(TooLarge, match="1000000 bytes"):
        await client.get(f"{site.url}/coded/bomb", max_body=1_000_000)


async def test_a_body_over_the_limit_is_refused(site: WebSite, make: Make) -> None:
    client = make(max_body=100_000)
    assert len((await client.get(f"{site.url}/chunks/100000")).body) == 100_000
    with pytest.raises(TooLarge, match="more than 100000 bytes"):
        await client.get(f"{site.url}/chunks/100001")
    site.write("large", b"x" * 100_001)
    with pytest.raises(TooLarge, match="more than 100000 bytes"):
        await client.get(f"{site.url}/large")


async def test_a_stream_is_read_piece_by_piece_and_may_be_left(site: WebSite, client: WebClient) -> None:
    total = 0
    async with client.stream(f"{site.url}/chunks/3000000") as stream:
        async for piece in stream:
            total += len(piece)
    assert total == 3_000_000
    async with client.stream(f"{site.url}/chunks/3000000") as stream:
        assert stream.length is None
        assert await stream.receive()
    site.write("length", b"x" * 1234)
    async with client.stream(f"{site.url}/length") as stream:
        assert stream.length == 1234


async def test_connections_are_kept_and_closed_ones_are_no_error(site: WebSite, client: WebClient) -> None:
    for _ in range(5):
        assert (await client.get(f"{site.url}/once")).body == b"once"
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(client.get, f"{site.url}/redirect/1")


async def test_after_closing_nothing_is_asked(site: WebSite, make: Make) -> None:
    client = make()
    await client.get(f"{site.url}/redirect/0")
    async with trio.open_nursery() as nursery:

        async def refused() -> None:
            with pytest.raises(Unreachable):
                await client.get(f"{site.url}/never?closed")

        nursery.start_soon(refused)
        await trio.testing.wait_all_tasks_blocked(0.1)
        await client.aclose()
    with pytest.raises(Unreachable, match="closed"):
        await client.get(site.url)


@pytest.mark.parametrize(
    "url", ["ftp://h/", "nothing", "http://", "http://user:pw@h/", "http://h:99999/", "http://[::1/"]
)
async def test_urls_that_cannot_be_asked_for(client: WebClient, url: str) -> None:
    with pytest.raises(InvalidUri) as raised:
        await client.get(url)
    assert "pw" not in str(raised.value)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "2130706433", "127.1", "[::ffff:127.0.0.1]"]
)
async def test_private_addresses_are_refused(site: WebSite, make: Make, host: str) -> None:
    client = make(allow_private=False)
    with pytest.raises(Denied, match="allow_private"):
        await client.get(f"http://{host}:{site.url.rpartition(':')[2]}/redirect/0?{host}")
    assert not site.requests(f"/redirect/0?{host}")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "a.localhost."])
async def test_a_proxy_is_not_asked_for_this_machine(site: WebSite, make: Make, host: str) -> None:
    client = make(allow_private=False, proxy=site.url)
    with pytest.raises(Denied):
        await client.get(f"http://{host}/proxied")
    assert not site.requests(f"http://{host}/proxied")


async def test_a_proxy_is_used_where_one_is_configured(
    site: WebSite, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    plain, proxied = make(), make(allow_private=False, proxy=f"http://me:{SECRET}@{site.host}")
    assert (await plain.get(f"{site.url}/redirect/0")).status == 200
    with pytest.raises(NotFound) as raised:
        await proxied.get("http://example.invalid/proxied")
    assert SECRET not in str(raised.value)
    (request,) = site.await_requests("http://example.invalid/proxied", 1)
    assert "proxy-authorization" in request["headers"]
