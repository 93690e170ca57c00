"""An MCP server that wants a login, and its authorization server (the SDK's server side) at an origin of its own.

    python oauth.py [--lifetime SECONDS] [--cimd URL] [--client ID:SECRET] [--method METHOD] [--no-registration]
                    [--transport http|sse] [--json]

The first line on stdout is the URL of the MCP server. It has `vault://secret` and, for the scope `admin` alone,
`vault://admin`. `/authorize` grants at once, as a user would who clicks "yes". What tests ask for besides, by GET at
the MCP server's origin: `/control/state` (JSON: how often each thing was asked for, and all tokens ever given), and
`/control/{expire,revoke,deny,break,mend,slow}`: end all access tokens; end all tokens; refuse logins; answer 503 at
`/token`; undo the last two; hold up the next request to `/token` until `/control/mend`.
"""

import argparse
import contextlib
import secrets
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware, get_access_token
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    ProviderTokenVerifier,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.routes import (
    build_metadata,
    build_resource_metadata_url,
    create_auth_routes,
    create_protected_resource_routes,
)
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp.shared.exceptions import MCPError
from pydantic import AnyHttpUrl, AnyUrl
from starlette.applications import Starlette
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

parser = argparse.ArgumentParser()
parser.add_argument("--lifetime", type=int, default=3600, help="seconds of an access token")
parser.add_argument("--cimd", help="URL of a client metadata document that the server is taken to have fetched")
parser.add_argument("--client", help="a client that is registered already, as ID:SECRET")
parser.add_argument("--method", default="client_secret_post", help="how that client shows its secret")
parser.add_argument("--no-registration", action="store_true")
parser.add_argument("--transport", choices=("http", "sse"), default="http")
parser.add_argument("--json", action="store_true", help="answer with JSON, not with event streams")

SCOPES = ["read", "admin"]


class Provider:
    """The authorization server: clients, codes and tokens in memory. A refresh token is good for one use."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.lifetime: int = options.lifetime
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.counts: Counter[str] = Counter()
        self.issued: list[str] = []
        self.challenges: list[str] = []
        self.denying = self.broken = False
        self.gate: anyio.Event | None = None
        if options.cimd:
            self.add_client(client_id=options.cimd, token_endpoint_auth_method="none")
        if options.client:
            client_id, _, secret = options.client.partition(":")
            self.add_client(client_id=client_id, client_secret=secret, token_endpoint_auth_method=options.method)

    def add_client(self, **fields: Any) -> None:
        self.clients[fields["client_id"]] = AnyPort(redirect_uris=None, scope=" ".join(SCOPES), **fields)

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.counts["register"] += 1
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.counts["authorize"] += 1
        self.challenges.append(params.code_challenge)
        if self.denying:
            why = {"error": "access_denied", "error_description": "not today"}
            return construct_redirect_uri(str(params.redirect_uri), state=params.state, **why)
        code = secrets.token_urlsafe(32)
        self.codes[code] = AuthorizationCode(
            code=code,
            client_id=client.client_id,
            scopes=params.scopes or ["read"],
            expires_at=time.time() + 60,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject="alice",
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        self.counts["code"] += 1
        del self.codes[authorization_code.code]
        return self.issue(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.counts["refresh"] += 1
        del self.refresh[refresh_token.token]
        return self.issue(client.client_id, scopes, refresh_token.resource)

    def issue(self, client_id: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = f"access-{secrets.token_hex(16)}", f"refresh-{secrets.token_hex(16)}"
        facts: dict[str, Any] = {"client_id": client_id, "scopes": scopes, "resource": resource, "subject": "alice"}
        self.access[access] = AccessToken(token=access, expires_at=int(time.time()) + self.lifetime, **facts)
        self.refresh[refresh] = RefreshToken(token=refresh, **facts)
        self.issued += [access, refresh]
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=self.lifetime, scope=" ".join(scopes))

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.counts["revoke"] += 1
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    async def exchange_identity_assertion(self, client: Any, params: Any) -> OAuthToken:
        raise NotImplementedError

    async def control(self, request: Request) -> Response:
        match request.path_params["what"]:
            case "expire":
                self.access.clear()
            case "revoke":
                self.access.clear()
                self.refresh.clear()
            case "deny":
                self.denying = True
            case "break":
                self.broken = True
            case "slow":
                self.gate = anyio.Event()
            case "mend":
                self.broken = self.denying = False
                if self.gate is not None:
                    self.gate.set()
                    self.gate = None
            case _:
                pass
        state = {"counts": self.counts, "issued": self.issued, "clients": list(self.clients)}
        return JSONResponse({**state, "challenges": self.challenges, "waiting": self.counts["waiting"]})


class AnyPort(OAuthClientInformationFull):
    """A client that may come back to any port of the loopback interface (RFC 8252, 7.3)."""

    def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
        assert redirect_uri is not None
        assert redirect_uri.host == "127.0.0.1"
        return redirect_uri


def authorization_server(provider: Provider, issuer: AnyHttpUrl, options: argparse.Namespace) -> Any:
    registration = ClientRegistrationOptions(
        enabled=not options.no_registration, valid_scopes=SCOPES, default_scopes=SCOPES
    )
    revocation = RevocationOptions(enabled=True)
    routes = create_auth_routes(provider, issuer, None, registration, revocation)
    if options.cimd:
        metadata = build_metadata(issuer, None, registration, revocation)
        document = metadata.model_dump(mode="json", exclude_none=True) | {"client_id_metadata_document_supported": True}
        routes.insert(0, Route("/.well-known/oauth-authorization-server", lambda _: JSONResponse(document)))
    app = Starlette(routes=routes)

    async def with_faults(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/token":
            if provider.gate is not None:
                provider.counts["waiting"] += 1
                await provider.gate.wait()
            if provider.broken:
                await Response("down for maintenance", 503)(scope, receive, send)
                return
        await app(scope, receive, send)

    return with_faults


def mcp_server(provider: Provider) -> Server[Any]:
    async def list_resources(_context: Any, _params: Any) -> types.ListResourcesResult:
        provider.counts["list"] += 1
        names = ("secret", "admin")
        found = [types.Resource(uri=f"vault://{name}", name=name, mime_type="text/plain") for name in names]
        return types.ListResourcesResult(resources=found, ttl_ms=0, cache_scope="private")

    async def read(_context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        provider.counts["read"] += 1
        token = get_access_token()
        if token is None:
            raise MCPError(code=-32603, message="no token")
        text = f"read number {provider.counts['read']} by {token.subject}\n"
        content = types.TextResourceContents(uri=params.uri, text=text)
        return types.ReadResourceResult(contents=[content], ttl_ms=0, cache_scope="private")

    return Server("vault", version="1", on_list_resources=list_resources, on_read_resource=read)


class NeedsScope:
    """403 insufficient_scope for reads of vault://admin without that scope."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body() if request.method == "POST" else b""
        if b"vault://admin" in body and "admin" not in scope["auth"].scopes:
            challenge = 'Bearer error="insufficient_scope", scope="admin"'
            await JSONResponse({}, 403, headers={"www-authenticate": challenge})(scope, receive, send)
            return
        sent = False

        async def replay() -> Any:
            nonlocal sent
            if sent or request.method != "POST":
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)


def resource_server(provider: Provider, origin: str, issuer: AnyHttpUrl, options: argparse.Namespace) -> Any:
    path = "/sse" if options.transport == "sse" else "/mcp"
    url = AnyHttpUrl(origin + path)
    metadata = build_resource_metadata_url(url)
    server = mcp_server(provider)
    control = Route("/control/{what}", provider.control)
    routes: list[Any] = [control, *create_protected_resource_routes(url, [issuer], ["read"])]
    lifespan: Any = None
    if options.transport == "sse":
        transport = SseServerTransport("/messages/")

        async def connect(scope: Scope, receive: Receive, send: Send) -> None:
            async with transport.connect_sse(scope, receive, send) as streams:
                await server.run(*streams, server.create_initialization_options())

        endpoint: Any = connect
        messages = RequireAuthMiddleware(NeedsScope(transport.handle_post_message), [], metadata)
        routes.append(Mount("/messages/", app=messages))
    else:
        security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        inner = server.streamable_http_app(json_response=options.json, transport_security=security)
        endpoint = inner

        @contextlib.asynccontextmanager
        async def run(_app: Any) -> AsyncIterator[None]:
            async with inner.router.lifespan_context(inner):
                yield

        lifespan = run
    guarded = RequireAuthMiddleware(NeedsScope(endpoint), [], metadata)
    routes.append(Route(path, endpoint=_Asgi(guarded)))
    app: Any = AuthContextMiddleware(Starlette(routes=routes, lifespan=lifespan))
    return AuthenticationMiddleware(app, backend=BearerAuthBackend(ProviderTokenVerifier(provider)))


class _Asgi:
    """Starlette calls a function as a handler of requests, and an object as an ASGI application."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def listener() -> tuple[socket.socket, str]:
    bound = socket.create_server(("127.0.0.1", 0))
    return bound, f"http://127.0.0.1:{bound.getsockname()[1]}"


async def main() -> None:
    options = parser.parse_args()
    provider = Provider(options)
    (first, issuer), (second, origin) = listener(), listener()
    async with anyio.create_task_group() as group:
        apps = (
            (authorization_server(provider, AnyHttpUrl(issuer), options), first),
            (resource_server(provider, origin, AnyHttpUrl(issuer), options), second),
        )
        for app, bound in apps:
            config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
            group.start_soon(uvicorn.Server(config).serve, [bound])
        print(f"{origin}/{'sse' if options.transport == 'sse' else 'mcp'}", flush=True)


if __name__ == "__main__":
    anyio.run(main)
