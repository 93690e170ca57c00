"""Logins against a real authorization server: the browser's round, silent renewal, and each way in which it ends."""

import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import trio
from odd_servers import ManualClock, until
from shared_machines import Exchange

from bbfs.model.errors import (
    BbfsError,
    ConfigError,
    DeadlineExceeded,
    Denied,
    LoginRequired,
    NotSupported,
    Unreachable,
)
from bbfs.model.listing import Rows
from bbfs.model.values import DataSource, McpServer, Policy
from bbfs.sources.mcp.client.manager import MCPManager
from bbfs.sources.mcp.login.browser import LoginPlace, document_of_client, log_in, log_out
from bbfs.sources.mcp.login.refresh import ClientSettings, finishing
from bbfs.sources.mcp.login.token_store import TokenStore

Serve = Callable[..., AbstractAsyncContextManager[str]]
PATIENT = Policy(timeout=20)
SECRET = "vault://secret"


def source(url: str, auth: dict[str, str] | None = None, **headers: str) -> DataSource:
    server = McpServer("sse" if url.endswith("/sse") else "http", url=url, headers=headers)
    return DataSource("vault", "vault", "server", "mcp", "mcp-server+vault", auth=auth or {}, mcp=server)


async def control(url: str, what: str = "state") -> dict[str, Any]:
    """Ask the server's control; its state after that."""
    async with httpx2.AsyncClient() as client:
        return (await client.get(f"{url.rpartition('/')[0]}/control/{what}")).json()


class Browser:
    """Opens a URL as a browser does that follows redirects; `pages` are what a person would read."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.opened: list[str] = []
        self.pages: list[str] = []

    async def open(self, url: str) -> None:
        self.opened.append(url)
        self._nursery.start_soon(self._visit, url)

    async def _visit(self, url: str) -> None:
        async with httpx2.AsyncClient(timeout=20) as client:
            response = await client.get(url, follow_redirects=True)
            self.pages.append(re.sub(r"(?s)<style>.*</style>|<[^>]*>", " ", response.text))


@pytest.fixture
async def browser(nursery: trio.Nursery) -> Browser:
    return Browser(nursery)


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path / "logins", "file")


@pytest.fixture
async def manager(nursery: trio.Nursery, clock: ManualClock, store: TokenStore) -> MCPManager:
    """A running manager whose pauses do not pass by themselves."""
    manager = MCPManager(clock=clock, tokens=store)
    await nursery.start(lambda task_status: manager.run(task_status=task_status))
    return manager


def add(manager: MCPManager, data: DataSource) -> None:
    assert data.mcp is not None
    manager.add(data.id, data.mcp, PATIENT, ClientSettings.of(data.id, data.auth, data.mcp.transport))


async def read(manager: MCPManager, uri: str = SECRET) -> str:
    content = (await manager.load_resource("vault", uri)).parts[0].content
    data = content.read(0, content.size)
    assert data is not None
    return data.decode()


async def login(url: str, store: TokenStore, show: Callable[[str], Awaitable[None]], **options: Any) -> str:
    auth = options.pop("auth", None)
    return await log_in(LoginPlace.of(source(url, auth)), store, show, **{"timeout": 20.0, **options})


@pytest.fixture
async def vault(manager: MCPManager, serve: Serve, store: TokenStore, browser: Browser) -> AsyncIterator[str]:
    """The URL of a server that the manager has, logged in to."""
    async with serve("oauth.py") as url:
        await login(url, store, browser.open)
        add(manager, source(url))
        yield url


def kept(store: TokenStore, url: str) -> Any:
    found = store.load(ClientSettings().key(url))
    assert found is not None
    return found


@pytest.mark.semantics("S23", "S30")
@pytest.mark.parametrize("options", [(), ("--json",), ("--transport", "sse")], ids=str)
async def test_login_and_silent_renewal(
    manager: MCPManager,
    serve: Serve,
    store: TokenStore,
    browser: Browser,
    options: tuple[str, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve("oauth.py", *options) as url:
        add(manager, source(url))
        for _ in range(3):
            with pytest.raises(LoginRequired, match="needs a login: run `bbfs login vault`"):
                await read(manager)
        assert manager.connection("vault").state.state == "down"
        assert "run `bbfs login vault`" in (manager.connection("vault").state.reason or "")
        told = [r for r in caplog.records if r.levelno >= logging.WARNING and "bbfs login" in r.getMessage()]
        assert len(told) == 1, "once, not with every read"

        await login(url, store, browser.open)
        await until(lambda: bool(browser.pages))
        assert "Logged in" in browser.pages[0]
        assert "vault" in browser.pages[0]
        assert await read(manager) == "read number 1 by alice\n", "without a restart, and without the pause"
        assert manager.connection("vault").state.state == "up"
        assert (await manager.load_resource("vault", SECRET)).personal, "another login is another user"
        exchange = Exchange()
        await manager.gather_resources("vault", Rows("mcp-server+vault"), exchange)
        assert exchange.pages == []

        await control(url, "expire")
        assert await read(manager)
        async with trio.open_nursery() as nursery:
            await control(url, "expire")
            for _ in range(16):
                nursery.start_soon(read, manager)
        state = await control(url)
        assert state["counts"]["refresh"] == 2, "once for each expiry, however many ask"
        assert state["counts"]["code"] == 1
        shown = "".join(record.getMessage() for record in caplog.records)
        assert not [secret for secret in state["issued"] if secret in shown]


@pytest.mark.semantics("S23")
async def test_pkce_and_state_are_sent_and_a_wrong_state_is_refused(
    serve: Serve, store: TokenStore, browser: Browser
) -> None:
    async with serve("oauth.py") as url:

        async def attacked(authorization: str) -> None:
            asked = {name: values[0] for name, values in parse_qs(urlsplit(authorization).query).items()}
            assert asked["code_challenge_method"] == "S256"
            assert re.fullmatch(r"[A-Za-z0-9_-]{43}", asked["code_challenge"])
            assert len(asked["state"]) >= 32
            assert asked["resource"] == url
            assert urlsplit(asked["redirect_uri"]).hostname == "127.0.0.1"
            async with httpx2.AsyncClient() as client:
                for query in ({"code": "stolen", "state": "guessed"}, {"code": "stolen"}, {"error": "access_denied"}):
                    answer = await client.get(asked["redirect_uri"], params=query)
                    assert answer.status_code == 400
                    assert "Not accepted" in answer.text
                elsewhere = asked["redirect_uri"].replace("/callback", "/other")
                assert (await client.get(elsewhere, params={"state": asked["state"]})).status_code == 404
            await browser.open(authorization)

        await login(url, store, attacked)
        state = await control(url)
        assert state["challenges"] == [parse_qs(urlsplit(browser.opened[0]).query)["code_challenge"][0]]
        assert kept(store, url).access_token in state["issued"]


@pytest.mark.semantics("S23")
async def test_revoked(
    manager: MCPManager, vault: str, store: TokenStore, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    await read(manager)
    await control(vault, "revoke")
    for _ in range(3):
        with pytest.raises(LoginRequired, match="expired or was revoked: run `bbfs login vault`"):
            await read(manager)
    assert manager.connection("vault").state.state == "down"
    told = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert [r.getMessage() for r in told] == [f"vault: {manager.connection('vault').state.reason}"]
    await login(vault, store, browser.open)
    assert await read(manager)
    assert manager.connection("vault").state.state == "up"
    assert manager.connection("vault").state.reason is None


async def test_token_that_expires_by_the_clock_is_renewed_before_it_is_sent(
    manager: MCPManager, serve: Serve, store: TokenStore, browser: Browser
) -> None:
    async with serve("oauth.py", "--lifetime", 1000) as url:
        await login(url, store, browser.open)
        found = kept(store, url)
        store.save(ClientSettings().key(url), found.model_copy(update={"expires_at": 1.0}))
        add(manager, source(url))
        assert await read(manager)
        assert (await control(url))["counts"]["refresh"] == 1
        renewed = kept(store, url)
        assert renewed.access_token != found.access_token
        assert renewed.tokens.refresh_token != found.tokens.refresh_token
        assert renewed.expires_at == pytest.approx(found.expires_at, abs=60)


async def test_two_daemons_share_a_login_whose_refresh_token_is_good_for_one_use(
    manager: MCPManager, nursery: trio.Nursery, serve: Serve, store: TokenStore, browser: Browser
) -> None:
    other = MCPManager(tokens=store)
    await nursery.start(lambda task_status: other.run(task_status=task_status))
    async with serve("oauth.py") as url:
        await login(url, store, browser.open)
        for each in (manager, other):
            add(each, source(url))
            await read(each)
        for _ in range(3):
            await control(url, "expire")
            async with trio.open_nursery() as both:
                both.start_soon(read, manager)
                both.start_soon(read, other)
        assert (await control(url))["counts"]["refresh"] == 3


@pytest.mark.semantics("S23")
async def test_token_endpoint_that_is_down_is_an_outage_and_no_end_of_the_login(
    manager: MCPManager, vault: str
) -> None:
    await read(manager)
    await control(vault, "expire")
    await control(vault, "break")
    with pytest.raises(Unreachable, match=r"cannot be renewed: 127.0.0.1 answers HTTP 503"):
        await read(manager)
    await control(vault, "mend")
    assert await read(manager)


@pytest.mark.semantics("S23")
async def test_insufficient_scope(manager: MCPManager, vault: str, store: TokenStore, browser: Browser) -> None:
    with pytest.raises(Denied, match="run `bbfs login vault --scope 'read admin'`") as caught:
        await read(manager, "vault://admin")
    assert type(caught.value) is Denied
    assert manager.connection("vault").state.state == "up"
    assert await read(manager), "what the login is good for can still be read"
    assert "refresh" not in (await control(vault))["counts"], "a new token would have the same scope"
    await login(vault, store, browser.open, scope="read admin")
    assert await read(manager, "vault://admin")


async def test_renewal_is_not_lost_when_its_reader_gives_up(manager: MCPManager, vault: str, store: TokenStore) -> None:
    await read(manager)
    before = kept(store, vault)
    await control(vault, "expire")
    await control(vault, "slow")
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as reader:

            async def give_up() -> None:
                while not (await control(vault))["waiting"]:
                    await trio.lowlevel.checkpoint()
                reader.cancel()
                await control(vault, "mend")

            nursery.start_soon(give_up)
            await read(manager)
    assert reader.cancelled_caught
    assert await read(manager)
    assert kept(store, vault).access_token != before.access_token
    state = await control(vault)
    assert state["counts"]["refresh"] == 1
    assert state["counts"]["code"] == 1


async def test_what_must_not_be_cut_off_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    done: list[str] = []

    async def work(seconds: float) -> None:
        await trio.sleep(seconds)
        done.append("done")

    with trio.move_on_after(1):
        await finishing(lambda: work(2))
    assert done == ["done"]
    assert trio.current_time() == pytest.approx(2)
    with trio.move_on_after(1):
        await finishing(lambda: work(1000))
    assert done == ["done"]
    assert trio.current_time() < 10
    with pytest.raises(ZeroDivisionError):
        await finishing(lambda: _fail())


async def _fail() -> None:
    raise ZeroDivisionError


async def test_logout_revokes_and_forgets(
    manager: MCPManager, serve: Serve, store: TokenStore, browser: Browser
) -> None:
    async with serve("oauth.py") as url:
        await login(url, store, browser.open)
        add(manager, source(url))
        await read(manager)
        place = LoginPlace.of(source(url))
        assert await log_out(place, store) is None
        assert (await control(url))["counts"]["revoke"] == 2
        with pytest.raises(LoginRequired):
            await read(manager)
        with pytest.raises(ConfigError, match="there is no login"):
            await log_out(place, store)
        await login(url, store, browser.open)
    problem = await log_out(place, store)
    assert "could not be revoked" in (problem or "")
    assert store.load(ClientSettings().key(url)) is None


async def test_client_metadata_document(serve: Serve, store: TokenStore, browser: Browser) -> None:
    document = "https://client.example/bbfs.json"
    async with serve("oauth.py", "--cimd", document) as url:
        await login(url, store, browser.open, auth={"clientMetadataUrl": document})
        assert parse_qs(urlsplit(browser.opened[0]).query)["client_id"] == [document]
        assert "register" not in (await control(url))["counts"]
        assert store.load(ClientSettings().key(url)) is None, "the login of another client is another login"
        await login(url, store, browser.open, document=document)
        assert "register" not in (await control(url))["counts"], "the document of the installation comes first"
        assert kept(store, url).client.client_id == document
    async with serve("oauth.py") as url:
        await login(url, store, browser.open, document=document)
        assert (await control(url))["counts"]["register"] == 1, "this server takes no documents"
        with pytest.raises(ConfigError, match="BBFS_CLIENT_METADATA should be an https:// URL with a path"):
            await login(url, store, browser.open, document="http://client.example/x")


def test_document_of_the_client_is_what_a_server_checks() -> None:
    found = document_of_client("https://client.example/bbfs.json", 0)
    assert found["client_id"] == "https://client.example/bbfs.json"
    assert found["redirect_uris"] == ["http://127.0.0.1/callback"]
    assert (found["token_endpoint_auth_method"], found["application_type"]) == ("none", "native")
    assert document_of_client("https://h/x", 8400)["redirect_uris"] == ["http://127.0.0.1:8400/callback"]
    with pytest.raises(ConfigError, match="should be an https:// URL with a path"):
        document_of_client("https://client.example", 0)


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_registered_client(
    manager: MCPManager, serve: Serve, store: TokenStore, browser: Browser, method: str
) -> None:
    """The server offers both ways to show the secret; the client is registered for one of them."""
    auth = {"clientId": "by-hand", "clientSecret": "hush-client"}
    options = ("--client", "by-hand:hush-client", "--method", method, "--no-registration")
    async with serve("oauth.py", *options) as url:
        with pytest.raises(NotSupported, match="register a client there by hand"):
            await login(url, store, browser.open)
        await login(url, store, browser.open, auth=auth)
        add(manager, source(url, auth))
        await control(url, "expire")
        assert await read(manager)
        assert (await control(url))["counts"]["refresh"] == 1
        with pytest.raises(Denied, match="did not give a token") as caught:
            await login(url, store, browser.open, auth={**auth, "clientSecret": "hush-wrong"})
        assert "hush" not in str(caught.value)


async def test_secret_goes_to_the_authorization_server_of_the_client_alone(
    serve: Serve, store: TokenStore, browser: Browser
) -> None:
    auth = {"clientId": "by-hand", "clientSecret": "hush-client", "issuer": "https://login.example"}
    async with serve("oauth.py", "--client", "by-hand:hush-client", "--method", "client_secret_basic") as url:
        with pytest.raises(Denied, match=r"another authorization server than https://login\.example \(auth\.issuer\)"):
            await login(url, store, browser.open, auth=auth)
        assert not browser.opened
        assert "code" not in (await control(url))["counts"]
        async with httpx2.AsyncClient() as client:
            origin, _, path = url.rpartition("/")
            resource = (await client.get(f"{origin}/.well-known/oauth-protected-resource/{path}")).json()
        await login(url, store, browser.open, auth={**auth, "issuer": resource["authorization_servers"][0]})
        assert (await control(url))["counts"]["code"] == 1


@pytest.mark.semantics("S23")
async def test_denied_and_never_answered(serve: Serve, store: TokenStore, browser: Browser) -> None:
    async with serve("oauth.py") as url:
        await control(url, "deny")
        with pytest.raises(Denied, match=r"refused: you, or the server, refused it \(not today\)"):
            await login(url, store, browser.open)
        await until(lambda: bool(browser.pages))
        assert "The login failed" in browser.pages[0]
        assert "not today" in browser.pages[0]

        async def show(url: str) -> None:
            pass

        with trio.fail_after(60), pytest.raises(DeadlineExceeded, match="no login within 1 s"):
            await login(url, store, show, timeout=1.0)
    assert store.stamp(ClientSettings().key(url)) is None


async def test_servers_that_offer_no_login(serve: Serve, store: TokenStore, browser: Browser) -> None:
    for options in (("--transport", "http"), ("--transport", "http", "--token", "open-sesame")):
        async with serve("resources.py", *options) as url:
            with pytest.raises(NotSupported, match="offers no login"):
                await login(url, store, browser.open)
    with pytest.raises(Unreachable, match="cannot be reached"):
        await login(url, store, browser.open)
    assert browser.opened == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (source("http://127.0.0.1/mcp", authorization="Bearer hush"), "says already who asks"),
        (source("https://joe:hush@example.com/mcp"), "says already who asks"),
        (source("http://example.com/mcp"), "over plain http"),
        (DataSource("a", "a", "server", "mcp", "mcp-server+a", mcp=McpServer("stdio", command="x")), "is a program"),
        (DataSource("a", "a", "filesystem", "bb", "bb-filesystem+a+file"), "local source"),
        (source("https://h/mcp", {"clientID": "hush"}), "auth.clientID: unknown key; an MCP source has clientId"),
        (source("https://h/mcp", {"clientSecret": "hush"}), "belongs to a clientId"),
        (source("https://h/mcp", {"issuer": "https://hush"}), "auth.issuer: belongs to a clientId"),
        (source("https://h/mcp", {"clientMetadataUrl": "http://hush/x"}), "should be an https:// URL with a path"),
        (source("https://h/mcp", {"clientMetadataUrl": "https://h/x", "clientId": "hush"}), "leave one out"),
    ],
)
def test_sources_that_can_have_no_login(data: DataSource, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        LoginPlace.of(data)
    assert "hush" not in str(caught.value)


async def test_a_configured_header_is_not_replaced_by_a_login(
    manager: MCPManager, serve: Serve, store: TokenStore, browser: Browser
) -> None:
    async with serve("oauth.py") as url:
        await login(url, store, browser.open)
        add(manager, source(url, authorization="Bearer hush-configured"))
        with pytest.raises(LoginRequired, match="refuses the configured authorization") as caught:
            await read(manager)
        assert "hush" not in str(caught.value)


async def test_tokens_go_to_one_url(manager: MCPManager, serve: Serve, store: TokenStore, browser: Browser) -> None:
    async with serve("oauth.py") as url, _recorder() as (elsewhere, seen):
        await login(url, store, browser.open)
        add(manager, source(elsewhere))
        with pytest.raises(BbfsError):
            await read(manager)
        assert seen
        assert not [request for request in seen if b"authorization" in request.lower()]


@asynccontextmanager
async def _recorder() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers every request with 404; what it was sent."""
    seen: list[bytes] = []

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            seen.append(await stream.receive_some(65536))
            await stream.send_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp", seen
        nursery.cancel_scope.cancel()


@pytest.mark.semantics("S30")
async def test_a_store_that_others_can_read_is_not_used(
    manager: MCPManager, clock: ManualClock, serve: Serve, store: TokenStore, browser: Browser
) -> None:
    async with serve("oauth.py") as url:
        where = trio.Path(await login(url, store, browser.open))
        await where.chmod(0o644)
        add(manager, source(url))
        with pytest.raises(Denied, match="chmod 600"):
            await read(manager)
        assert not (await control(url))["counts"].get("read")
        await where.chmod(0o600)
        assert json.loads(await where.read_text())["url"] == url
        clock.now += 60
        assert await read(manager)
