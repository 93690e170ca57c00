"""OAuth 2.1 for servers over HTTP, the silent part: requests get the token of a stored login, renewed if necessary.

The SDK's provider makes the token requests. It is not the `auth` of an HTTP client, because it holds a lock until the
headers of the answer arrive, so requests would run one by one, and because a 401 makes it begin an interactive login.
Here it runs for one renewal at a time, from the stored login, and never asks the user. `bbfs login` does that
(`browser.py`).
"""

import logging
import shlex
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import trio
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import extract_field_from_www_auth, is_valid_client_metadata_url, union_scopes
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from bbfs.config.system_keyring import KeyringUnusable
from bbfs.model.errors import BbfsError, ConfigError, Denied, ProtocolViolation, TooLarge, Unreachable
from bbfs.model.redaction import printable, shown
from bbfs.model.values import McpServer
from bbfs.sources.bounded.json import JsonBounds, parse_json
from bbfs.sources.http.addresses import is_private_host
from bbfs.sources.http.client import USER_AGENT, guarded_client, unguarded_client
from bbfs.sources.http.redirects import is_web
from bbfs.sources.http.responses import BodyDecoder, gathered, shown_url
from bbfs.sources.mcp.login.token_store import LoginKey, Stamp, StoredLogin, TokenStore

T = TypeVar("T")
log = logging.getLogger("bbfs.mcp")

TOKEN_TIMEOUT = 20.0
"""Seconds for one exchange with an authorization server."""
MAX_DOCUMENT = 1 << 20
"""Bytes of one answer of an authorization server."""
_ERROR = JsonBounds(size=MAX_DOCUMENT, values=1000, depth=20)
_OF_THE_CODED_BODY = ("content-encoding", "content-length", "transfer-encoding")
_LONGEST_LIFE = 366 * 86400
"""Seconds that a token is believed to last."""
_LONGEST_SCOPE = 500
"""Characters of a scope in a message."""
_GRACE = 2.0
"""Seconds for a running renewal when bbfs ends: its answer may hold the only valid refresh token."""
_PASSING = {"server_error", "temporarily_unavailable", "slow_down"}
"""Error codes of a token endpoint that do not mean that the login has ended."""
_LOGIN_ENDED = (400, 401, 403)
_SETTINGS = {
    "clientId": "client_id",
    "clientSecret": "client_secret",
    "clientMetadataUrl": "client_metadata_url",
    "issuer": "issuer",
    "scope": "scope",
}


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The OAuth client in a source's `auth`. Without one bbfs registers itself.

    client_id, client_secret: of a client that is already registered with the authorization server.
    client_metadata_url: https URL of a client metadata document, for servers that accept it as the client's id.
    issuer: the authorization server that the client is registered with, by its issuer identifier (RFC 8414).
    scope: to request instead of the one that the server proposes.
    """

    client_id: str | None = None
    client_secret: str | None = None
    client_metadata_url: str | None = None
    issuer: str | None = None
    scope: str | None = None

    @classmethod
    def of(cls, source_id: str, auth: Mapping[str, str], transport: str) -> "ClientSettings":
        """Return the settings in `auth`. Raises ConfigError, which names the key and no value."""
        given: dict[str, str] = {}
        for key, value in auth.items():
            name = _SETTINGS.get(key, key)
            if name not in _SETTINGS.values():
                known = ", ".join(_SETTINGS)
                raise ConfigError(f"sources[{source_id}].auth.{key}: unknown key; an MCP source has {known}")
            given[name] = str(value)
        if auth and transport == "stdio":
            raise ConfigError(f"sources[{source_id}].auth: belongs to servers over HTTP; a program gets its 'env'")
        url = given.get("client_metadata_url")
        if url is not None:
            require_document_url(url, f"sources[{source_id}].auth.clientMetadataUrl:")
        if url is not None and "client_id" in given:
            raise ConfigError(f"sources[{source_id}].auth: has both clientId and clientMetadataUrl; leave one out")
        if "client_secret" in given and "client_id" not in given:
            raise ConfigError(f"sources[{source_id}].auth.clientSecret: belongs to a clientId")
        if "issuer" in given and "client_id" not in given:
            raise ConfigError(f"sources[{source_id}].auth.issuer: belongs to a clientId")
        return cls(**given)

    def key(self, url: str) -> LoginKey:
        """Return the key of the login at this server."""
        return LoginKey.of(url, self.client_id or self.client_metadata_url)


def configured_authorization(server: McpServer) -> bool:
    """Return whether the configuration has credentials in a header or the URL. Then no login is used."""
    in_url = "@" in urlsplit(server.url or "").netloc
    return in_url or any(name.lower() == "authorization" for name in server.headers)


class LoginMemory:
    """A storage for the SDK, for the time of one exchange."""

    def __init__(self, tokens: OAuthToken | None, client: OAuthClientInformationFull | None) -> None:
        self.tokens = tokens
        self.client = client
        self.saved = False

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens, self.saved = tokens, True

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Login:
    """The login of one source at its server, if there is one.

    store: None if there are no stored logins. learnt: gets every secret before anything can print it. Belongs to the
    event loop; the methods may wait for a disk, a keyring and an authorization server.
    """

    def __init__(
        self,
        source_id: str,
        server: McpServer,
        settings: ClientSettings,
        store: TokenStore | None,
        learnt: Callable[[Iterable[str]], None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._id = source_id
        self._url = server.url or ""
        self._configured = configured_authorization(server)
        self._store = None if self._configured else store
        self._key = settings.key(self._url)
        self._learnt = learnt
        self._clock = clock
        self._lock = trio.Lock()
        # A keyring or disk that hangs keeps its thread: it must take no thread from other sources.
        self._threads = trio.CapacityLimiter(1)
        self._stamp: Stamp | None = None
        self._login: StoredLogin | None = None
        self._ended: Stamp | None = None
        if settings.client_secret:
            learnt((settings.client_secret,))

    def changed(self) -> bool:
        """Return whether the stored login has changed since it was last read. Cheap."""
        return self._store is not None and self._store.stamp(self._key) != self._stamp

    @property
    def kept(self) -> bool:
        """Return whether there is a stored login. Cheap."""
        return self._store is not None and self._store.stamp(self._key) is not None

    async def token(self) -> str | None:
        """Return the access token, renewed if it has expired, or None without a login. Raises Denied, Unreachable."""
        login = await self._current()
        if login is not None and login.expired(self._clock()):
            login = await self._renew(login) or login
        return None if login is None else login.access_token

    async def another(self, refused: str | None) -> str | None:
        """Return a token that differs from the refused token, or None. Raises Denied, Unreachable."""
        login = await self._current()
        if login is None:
            return None
        if login.access_token == refused:
            login = await self._renew(login)
        return None if login is None or login.access_token == refused else login.access_token

    def needed(self) -> str:
        """Return the message for a 401 of the server."""
        if self._configured:
            return "the server refuses the configured authorization"
        run = f"run `bbfs login {self._id}`"
        if self._login is not None:
            return f"needs a login, the earlier one has expired or was revoked: {run}"
        return f"needs a login: {run}"

    def lacking(self, response: httpx2.Response) -> str | None:
        """Return the message for an answer that names an insufficient scope (RFC 6750, 3.1), else None."""
        if extract_field_from_www_auth(response, "error") != "insufficient_scope":
            return None
        wanted = extract_field_from_www_auth(response, "scope")
        if self._login is None or not wanted:
            return "what was granted does not suffice (insufficient_scope)"
        scope = shlex.quote(printable((union_scopes(self._login.tokens.scope, wanted) or "")[:_LONGEST_SCOPE]))
        return f"the login does not suffice: run `bbfs login {self._id} --scope {scope}`"

    async def _current(self) -> StoredLogin | None:
        """Return the stored login, read again if it has changed."""
        if self._store is not None and (stamp := self._store.stamp(self._key)) != self._stamp:
            load = self._store.load
            login = await trio.to_thread.run_sync(load, self._key, abandon_on_cancel=True, limiter=self._threads)
            self._adopt(login, stamp)
        return self._login

    def _adopt(self, login: StoredLogin | None, stamp: Stamp | None) -> None:
        if login is not None:
            self._learnt(login.secrets)
        self._login, self._stamp = login, stamp

    async def _renew(self, old: StoredLogin) -> StoredLogin | None:
        """Return the login with a new token, renewed here or elsewhere, or None if it has ended. One at a time."""
        assert self._store is not None
        async with self._lock:
            login = await self._current()
            if login is None or login.access_token != old.access_token:
                return login
            if login.tokens.refresh_token is None or self._ended == self._stamp:
                return None
            async with self._store.locked(self._key):
                login = await self._current()
                if login is None or login.access_token != old.access_token:
                    return login
                return await finishing(lambda: self._exchange(login))

    async def _exchange(self, login: StoredLogin) -> StoredLogin | None:
        """Renew the login at the authorization server, and store it at once."""
        assert self._store is not None
        stamp = self._stamp
        renewed = await renew(self._url, login, self._clock())
        if renewed is None:
            self._ended = stamp
            return None
        self._learnt(renewed.secrets)
        try:
            await trio.to_thread.run_sync(self._store.save, self._key, renewed, limiter=self._threads)
        except (OSError, KeyringUnusable) as error:
            # Requests still use it; only the next start needs a login.
            log.warning("%s: the renewed login could not be kept: %s", self._id, error)
        self._adopt(renewed, self._store.stamp(self._key))
        log.info("%s: the login was renewed", self._id)
        return renewed


async def renew(url: str, login: StoredLogin, now: float) -> StoredLogin | None:
    """Return `login` with new tokens (RFC 6749, 6), or None if it has ended.

    now: seconds since the epoch. Raises Unreachable if the token endpoint cannot tell.
    """
    memory = LoginMemory(login.tokens, login.client)
    provider = OAuthClientProvider(url, client_metadata(()), memory)
    provider.context.oauth_metadata = login.metadata
    provider.context.protected_resource_metadata = login.resource
    provider.context.token_expiry_time = 1.0  # long ago: the provider renews before anything else
    request = httpx2.Request("POST", url)
    response: httpx2.Response | None = None
    flow = provider.async_auth_flow(request)
    try:
        async with LoginRequests(url) as requests:
            outgoing = await anext(flow)
            while outgoing is not request:
                response = await requests.send(outgoing)
                outgoing = await flow.asend(response)
    except OAuthFlowError as error:
        log.warning("a login cannot be renewed: %s", type(error).__name__)
        return None
    finally:
        await flow.aclose()
    if memory.saved and memory.tokens is not None:
        return login.model_copy(update={"tokens": memory.tokens, "expires_at": expiry(memory.tokens, now)})
    if response is None:
        return None
    return _judge(response)


def _judge(refusal: httpx2.Response) -> None:
    """Return if the login has ended. Raises Unreachable if the refusal does not mean that."""
    code = error_code(refusal)
    if refusal.status_code in _LOGIN_ENDED and code not in _PASSING:
        return
    said = f"HTTP {refusal.status_code}" + (f" {code}" if code in _PASSING else "")
    raise Unreachable(f"the login cannot be renewed: {refusal.request.url.host} answers {said}")


def error_code(response: httpx2.Response) -> str | None:
    """Return the `error` of an OAuth error response (RFC 6749, 5.2) whose body was read."""
    try:
        document = parse_json(response.content, _ERROR)
    except (ProtocolViolation, TooLarge):
        return None
    error = document.get("error") if isinstance(document, dict) else None
    return shown(error, 100) if isinstance(error, str) else None


def expiry(tokens: OAuthToken, now: float) -> float | None:
    """Return when tokens received `now` expire, in seconds since the epoch; None if the answer does not tell."""
    life = tokens.expires_in
    return None if life is None or life <= 0 else now + min(life, _LONGEST_LIFE)


def client_metadata(redirect_uris: Iterable[str]) -> OAuthClientMetadata:
    """Return the metadata for the registration of bbfs (RFC 7591): a native application without a secret."""
    uris = [AnyUrl(uri) for uri in redirect_uris] or None
    return OAuthClientMetadata(redirect_uris=uris, client_name="bbfs", token_endpoint_auth_method="none")


def client_metadata_document(url: str, redirect_uri: str) -> dict[str, Any]:
    """Return the client metadata document to serve at an https URL, which is then the id of bbfs as a client.

    redirect_uri: of 127.0.0.1; without a port, an authorization server takes any (RFC 8252, 7.3). Raises ConfigError.
    """
    require_document_url(url, "the URL of a client metadata document")
    return {"client_id": url, **client_metadata((redirect_uri,)).model_dump(mode="json", exclude_none=True)}


def require_document_url(url: str, what: str) -> None:
    """Raise ConfigError unless a client metadata document can be at this URL."""
    if not is_valid_client_metadata_url(url):
        raise ConfigError(f"{what} should be an https:// URL with a path")


class LoginRequests:
    """Sends the requests of one login. A context.

    The server and its authorization server name most of their URLs, so a server on the Internet must not lead bbfs to
    private addresses, nor a server over https to http. server_url: the configured URL, which may be anywhere.
    """

    def __init__(self, server_url: str) -> None:
        self._server = httpx2.URL(server_url)
        self._client: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> "LoginRequests":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.aclose()

    def require_allowed(self, url: httpx2.URL) -> None:
        """Raise Denied for a URL that a login must not use."""
        if not is_web(url):
            raise Denied(f"the login leads to {shown_url(url)}, which is no web address")
        if self._server.scheme == "https" and url.scheme != "https":
            raise Denied(f"the login leads from https to {shown_url(url)}")

    async def send(self, request: httpx2.Request, *, whole: bool = True) -> httpx2.Response:
        """Send a request and return the answer, with its body if `whole`. Raises Unreachable, Denied."""
        request.headers.setdefault("user-agent", USER_AGENT)
        host, why = request.url.host, ", which the login needs" if whole else ""
        self.require_allowed(request.url)
        try:
            with trio.fail_after(TOKEN_TIMEOUT):
                response = await (await self._opened()).send(request, stream=True, follow_redirects=False)
                try:
                    return await _read(response) if whole else response
                finally:
                    await response.aclose()
        except (trio.TooSlowError, httpx2.TimeoutException):
            raise Unreachable(f"{host} does not answer within {TOKEN_TIMEOUT:g} s{why}") from None
        except Denied as error:
            raise Denied(f"the login leads to a private address: {host}") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, BbfsError) as error:
            raise Unreachable(f"{host} cannot be reached{why}: {error or type(error).__name__}") from None

    async def _opened(self) -> httpx2.AsyncClient:
        if self._client is None:
            port = self._server.port or (443 if self._server.scheme == "https" else 80)
            is_private = await is_private_host(self._server.host, port)
            self._client = (unguarded_client if is_private else guarded_client)(timeout=TOKEN_TIMEOUT)
        return self._client


async def _read(response: httpx2.Response) -> httpx2.Response:
    """Return an answer with its whole body. Raises ProtocolViolation if it is over the limit."""
    body, decoder = bytearray(), BodyDecoder(response.headers.get("content-encoding"))
    problem: ProtocolViolation | None = None
    with trio.CancelScope() as reading:  # an iterator of httpx2 is read to its end or cancelled
        async for chunk in gathered(response.aiter_raw()):
            if problem is not None:
                continue
            try:
                for piece in decoder.feed(chunk):
                    body += piece
                    if len(body) > MAX_DOCUMENT:
                        raise ProtocolViolation(f"more than {MAX_DOCUMENT} bytes")
            except ProtocolViolation as error:
                problem = error
                reading.cancel()
    if problem is not None:
        raise problem
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_THE_CODED_BODY]
    return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=response.request)


async def finishing(work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `work`. If cancelled, give it `_GRACE` seconds to end."""
    results: list[T] = []
    failures: list[Exception] = []
    scope = trio.CancelScope(shield=True)

    async def hear() -> None:
        try:
            await trio.sleep_forever()
        finally:
            scope.deadline = trio.current_time() + _GRACE

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hear)
        with scope:
            # Caught inside the nursery, which would wrap it in a group.
            try:
                results.append(await work())
            except Exception as error:  # noqa: BLE001 - raised again below, unwrapped
                failures.append(error)
        nursery.cancel_scope.cancel()
    for failure in failures:
        raise failure
    await trio.lowlevel.checkpoint_if_cancelled()
    return results[0]
