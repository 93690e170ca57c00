"""OAuth 2.1 for servers over HTTP, the interactive part: login in a browser, and logout.

The SDK's provider does the discovery (RFC 9728, RFC 8414), the registration (RFC 7591 or a client metadata document),
PKCE and the exchange of the code. This module sends its requests, so that each has a time limit.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import trio
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import extract_resource_metadata_from_www_auth
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata
from pydantic import AnyUrl

from bbfs.config.system_keyring import KeyringUnusable
from bbfs.model.errors import (
    BbfsError,
    ConfigError,
    DeadlineExceeded,
    Denied,
    NotSupported,
    ProtocolViolation,
    Unreachable,
)
from bbfs.model.redaction import shown
from bbfs.model.values import DataSource, McpServer
from bbfs.sources.mcp.client.errors import server_redactor
from bbfs.sources.mcp.login.loopback import Loopback, redirect_uri
from bbfs.sources.mcp.login.refresh import (
    ClientSettings,
    LoginMemory,
    LoginRequests,
    client_metadata,
    client_metadata_document,
    configured_authorization,
    error_code,
    expiry,
    require_document_url,
)
from bbfs.sources.mcp.login.token_store import StoredLogin, TokenStore

_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_SDK_LOGGER = "mcp"
CLIENT_VARIABLE = "BBFS_CLIENT_METADATA"
"""Environment variable for the URL of a client metadata document, which the owner of an installation serves."""
SECRET_METHODS = ("client_secret_basic", "client_secret_post")
"""Ways to show a client's secret (RFC 6749, 2.3.1), the one that every server has first."""


@dataclass(frozen=True, slots=True)
class LoginPlace:
    """The server that a login is for, and the configured client, if any."""

    source_id: str
    server: McpServer
    settings: ClientSettings

    @classmethod
    def of(cls, source: DataSource) -> "LoginPlace":
        """Return the place of a source's login. Raises ConfigError, with the reason, if it can have no login."""
        server = source.mcp
        if server is None:
            raise ConfigError(f"{source.id}: a local source needs no login")
        if server.transport == "stdio" or server.url is None:
            raise ConfigError(
                f"{source.id}: is a program that bbfs starts, and gets its secrets through 'env'; "
                "only servers over HTTP have logins"
            )
        settings = ClientSettings.of(source.id, source.auth, server.transport)
        if configured_authorization(server):
            raise ConfigError(
                f"{source.id}: its configuration says already who asks, in a header or in the URL; "
                "a login would never be used"
            )
        parts = urlsplit(server.url)
        if parts.scheme != "https" and not _is_loopback(parts.hostname or ""):
            raise ConfigError(f"{source.id}: over plain http a login would show its tokens to the network; use https")
        return cls(source.id, server, settings)

    @property
    def url(self) -> str:
        assert self.server.url is not None
        return self.server.url


def document_of_client(url: str, port: int) -> dict[str, Any]:
    """Return the client metadata document to serve at a URL. port: of the redirect, 0 for any. Raises ConfigError."""
    return client_metadata_document(url, redirect_uri(port))


async def log_in(
    place: LoginPlace,
    store: TokenStore,
    show: Callable[[str], Awaitable[None]],
    *,
    port: int = 0,
    scope: str | None = None,
    document: str | None = None,
    timeout: float,
) -> str:
    """Log in, store the login, and return in words where it is stored.

    show: gets the URL for the browser. port: for the redirect from the browser, 0 for any. scope: to request instead of
    the one that the server proposes. document: the URL of a client metadata document for a source that names no client
    of its own; used if the authorization server takes such documents. timeout: seconds for everything, the person
    included. Raises BbfsError.
    """
    logging.getLogger(_SDK_LOGGER).setLevel(logging.CRITICAL)  # it also logs the errors that it raises
    if document is not None:
        require_document_url(document, CLIENT_VARIABLE)
    loopback = Loopback(port, place.source_id)
    try:
        with trio.fail_after(timeout):
            login = await _Attempt(place, loopback, show, scope or place.settings.scope, document).login()
            kept = await _keep(place, store, login)
        loopback.end()
        return kept
    except BbfsError as error:
        loopback.end(str(error))
        raise type(error)(server_redactor(place.server)(str(error))) from None
    except trio.TooSlowError:
        raise DeadlineExceeded(f"no login within {timeout:g} s; begin again with `bbfs login`") from None
    finally:
        with trio.CancelScope(shield=True):
            await loopback.close()


async def _keep(place: LoginPlace, store: TokenStore, login: StoredLogin) -> str:
    try:
        return await trio.to_thread.run_sync(store.save, place.settings.key(place.url), login)
    except KeyringUnusable as error:
        raise Denied(f"the login could not be kept: {error}") from None
    except OSError as error:
        raise Denied(f"the login could not be kept: {error.strerror or error}") from None


class _Attempt:
    """One login: passes messages between the SDK's provider, the servers and the browser."""

    def __init__(
        self,
        place: LoginPlace,
        loopback: Loopback,
        show: Callable[[str], Awaitable[None]],
        scope: str | None,
        document: str | None,
    ) -> None:
        self._place = place
        self._loopback = loopback
        self._show = show
        self._scope = scope
        self._ways: tuple[str, ...] = ()
        self._requests = LoginRequests(place.url)
        settings = place.settings
        redirect_uris = [loopback.redirect_uri]
        self._memory = LoginMemory(None, _registered(settings, redirect_uris))
        self._provider = OAuthClientProvider(
            place.url,
            client_metadata(redirect_uris),
            self._memory,
            redirect_handler=self._send_to_browser,
            callback_handler=loopback.answer,
            client_metadata_url=settings.client_metadata_url or document,
        )

    async def login(self) -> StoredLogin:
        """Log in and return the login. Raises BbfsError."""
        request = self._probe()
        flow = self._provider.async_auth_flow(request)
        context = self._provider.context
        try:
            async with self._requests as requests:
                outgoing = await anext(flow)
                outgoing = await flow.asend(self._challenge(request, await self._probed(requests, request)))
                while outgoing is not request:
                    outgoing = await flow.asend(await self._answered(requests, outgoing))
                if await self._probed(requests, request) is not None:
                    raise Denied("the server does not accept what its authorization server gave")
        except OAuthFlowError as error:
            raise self._explained(error) from None
        finally:
            await flow.aclose()
        tokens, registered = self._memory.tokens, self._memory.client
        if tokens is None or registered is None:
            raise ProtocolViolation("the authorization server gave no tokens")
        return StoredLogin(
            tokens=tokens,
            client=registered,
            expires_at=expiry(tokens, time.time()),
            metadata=context.oauth_metadata,
            resource=context.protected_resource_metadata,
        )

    async def _answered(self, requests: LoginRequests, request: httpx2.Request) -> httpx2.Response:
        """Send a request of the provider. Try another way to show the client's secret if the first one is refused.

        A client is registered for one way, and only the authorization server knows which.
        """
        response = await requests.send(request)
        client = self._provider.context.client_info
        for method in self._ways[1:]:
            if client is None or error_code(response) != "invalid_client":
                break
            client.token_endpoint_auth_method = method
            response = await requests.send(with_client(self._provider.context, request))
        return response

    def _probe(self) -> httpx2.Request:
        """Return a request without effect, which shows whether the server requires a login."""
        url, headers = self._place.url, dict(self._place.server.headers)
        if self._place.server.transport == "sse":
            return httpx2.Request("GET", url, headers={**headers, "accept": "text/event-stream"})
        accept = {"accept": "application/json, text/event-stream"}
        return httpx2.Request("POST", url, headers={**headers, **accept}, json=_PING)

    async def _probed(self, requests: LoginRequests, request: httpx2.Request) -> httpx2.Response | None:
        """Return the refusal (401), or None for any other answer below 500. Raises Unreachable."""
        response = await requests.send(request, whole=False)
        if response.status_code >= 500:
            raise Unreachable(f"{request.url.host} answers HTTP {response.status_code}")
        return response if response.status_code == 401 else None

    def _challenge(self, request: httpx2.Request, refusal: httpx2.Response | None) -> httpx2.Response:
        """Return the 401 that makes the provider log in, also for a server that answers without a login.

        A requested scope replaces the one that the server proposes.
        """
        if refusal is not None and self._scope is None:
            return refusal
        challenge = "Bearer"
        where = None if refusal is None else extract_resource_metadata_from_www_auth(refusal)
        parameters = {"resource_metadata": where, "scope": self._scope}
        challenge += ",".join(f' {name}="{value}"' for name, value in parameters.items() if value)
        return httpx2.Response(401, headers={"www-authenticate": challenge}, request=request)

    async def _send_to_browser(self, url: str) -> None:
        context, settings = self._provider.context, self._place.settings
        if context.client_info is not None and settings.client_id not in (None, context.client_info.client_id):
            raise self._elsewhere()
        if context.client_info is not None and settings.client_secret:
            self._ways = secret_methods(context.oauth_metadata)
            context.client_info.token_endpoint_auth_method = self._ways[0]
        self._requests.require_allowed(httpx2.URL(url))
        self._loopback.expect(url)
        await self._show(url)

    def _elsewhere(self) -> Denied:
        """Return the error of a server whose authorization server is not that of the configured client."""
        issuer = self._place.settings.issuer
        return Denied(f"the server names another authorization server than {issuer} (auth.issuer)")

    def _explained(self, error: OAuthFlowError) -> BbfsError:
        """Return the error of a failed login. The SDK's own texts may quote whole answers, with tokens in them."""
        context = self._provider.context
        if isinstance(error, OAuthRegistrationError) and self._place.settings.client_id is not None:
            return self._elsewhere()  # the provider has dropped the client, and has tried to register another one
        if context.oauth_metadata is None and isinstance(error, OAuthRegistrationError):
            return NotSupported("the server offers no login: it names no OAuth authorization server")
        if isinstance(error, OAuthRegistrationError):
            return NotSupported(
                "the authorization server does not let bbfs register itself; register a client there by hand, with "
                f"{self._loopback.redirect_uri} or any port as its redirect URI, and put its id into the source: "
                'auth = { clientId = "…" }; or serve a document of bbfs (bbfs login --client-metadata)'
            )
        if isinstance(error, OAuthTokenError):
            return Denied("the authorization server did not give a token for the login")
        return ProtocolViolation(f"the login failed: {shown(str(error), 300)}")


def _registered(settings: ClientSettings, redirect_uris: list[str]) -> OAuthClientInformationFull | None:
    """Return the client that the user has registered, if one is configured."""
    if settings.client_id is None:
        return None
    return OAuthClientInformationFull(
        client_id=settings.client_id,
        client_secret=settings.client_secret,
        token_endpoint_auth_method=SECRET_METHODS[0] if settings.client_secret else "none",
        redirect_uris=[AnyUrl(uri) for uri in redirect_uris],
        issuer=settings.issuer,
    )


def secret_methods(metadata: OAuthMetadata | None) -> tuple[str, ...]:
    """Return the ways to show a client's secret at the token endpoint, the first one first.

    Without a statement of the server it is `client_secret_basic` (RFC 8414, section 2; RFC 6749, 2.3.1).
    """
    offered = None if metadata is None else metadata.token_endpoint_auth_methods_supported
    return tuple(method for method in SECRET_METHODS if offered is None or method in offered) or SECRET_METHODS


def with_client(context: OAuthContext, request: httpx2.Request) -> httpx2.Request:
    """Return a token request with the present way of authentication of the client."""
    form = dict(parse_qsl(request.content.decode(), keep_blank_values=True))
    form.pop("client_secret", None)
    data, headers = context.prepare_token_auth(form, {"content-type": "application/x-www-form-urlencoded"})
    return httpx2.Request("POST", request.url, data=data, headers=headers)


async def log_out(place: LoginPlace, store: TokenStore) -> str | None:
    """Remove a stored login, and revoke it if the server can (RFC 7009).

    Returns why it could not be revoked, or None. Raises BbfsError: ConfigError if there is no login.
    """
    key = place.settings.key(place.url)
    if store.stamp(key) is None:
        raise ConfigError(f"{place.source_id}: there is no login")
    try:
        login = await trio.to_thread.run_sync(store.load, key)
        problem = None if login is None else await _revoke(place, login)
    except Denied as error:
        problem = str(error)  # an unreadable login can still be removed
    try:
        await trio.to_thread.run_sync(store.forget, key)
    except (OSError, KeyringUnusable) as error:
        raise Denied(f"the login could not be removed: {error}") from None
    return problem


async def _revoke(place: LoginPlace, login: StoredLogin) -> str | None:
    """Revoke the tokens. Returns why they are still valid, or None."""
    endpoint = None if login.metadata is None else login.metadata.revocation_endpoint
    if endpoint is None:
        return "the server offers no revocation, so the tokens end by themselves"
    # The refresh token first: with it goes the access token, at most servers (RFC 7009, 2.1).
    tokens = {"refresh_token": login.tokens.refresh_token, "access_token": login.tokens.access_token}
    provider = OAuthClientProvider(place.url, client_metadata(()), LoginMemory(login.tokens, login.client))
    provider.context.client_info = login.client
    try:
        async with LoginRequests(place.url) as requests:
            for hint, token in tokens.items():
                if token is None:
                    continue
                form = {"token": token, "token_type_hint": hint, "client_id": login.client.client_id or ""}
                data, headers = provider.context.prepare_token_auth(form, {})
                response = await requests.send(httpx2.Request("POST", str(endpoint), data=data, headers=headers))
                if error_code(response) == "invalid_request" and login.client.client_secret is None:
                    # Servers on the MCP SDK want the field, which may be left out where it is empty (RFC 6749, 2.3.1).
                    data["client_secret"] = ""
                    response = await requests.send(httpx2.Request("POST", str(endpoint), data=data, headers=headers))
                if response.status_code != 200:
                    code = error_code(response) or f"HTTP {response.status_code}"
                    return f"the server did not revoke the tokens ({code})"
    except (OAuthFlowError, Denied, Unreachable) as error:
        return f"the tokens could not be revoked: {error}"
    return None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
