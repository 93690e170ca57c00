"""The HTTP client over TLS: certificates are checked against the name, also where the address was checked before."""

import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from certificates import certificate
from http_server import Answers, HttpServer

from bbfs.model.errors import Unreachable
from bbfs.model.values import DataSource, Policy
from bbfs.sources.http import addresses
from bbfs.sources.http.client import WebClient


class TlsServer(HttpServer):
    """Answers every request with the names that it was asked by: of TLS, and of the header `Host`."""

    def __init__(self, public: Path, private: Path) -> None:
        names: list[str | None] = []

        class Named(Answers):
            def answer(self) -> None:
                self.reply(200, f"{names[-1]} {self.headers['host']}".encode())

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(public, private)
        context.sni_callback = lambda _socket, name, _context: names.append(name)
        super().__init__(Named, context)


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TlsServer]:
    """A server for the name localhost that is trusted."""
    public, private = certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(public))
    with closing(TlsServer(public, private)) as server:
        yield server


def client(**options: Any) -> WebClient:
    return WebClient(DataSource("web", "web", "url", "bb", "bb-url+web", policy=Policy(timeout=10)), **options)


@pytest.mark.parametrize("guarded", [False, True])
async def test_the_name_is_what_is_checked(trusted: TlsServer, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if guarded:
        monkeypatch.setattr(addresses, "is_public", lambda _: True)
    web = client(allow_private=not guarded)
    response = await web.get(f"https://localhost:{trusted.port}/")
    assert response.body.decode() == f"localhost localhost:{trusted.port}"
    with pytest.raises(Unreachable, match="certificate verify failed"):
        await web.get(f"https://127.0.0.1:{trusted.port}/")
    await web.aclose()


async def test_a_certificate_that_nobody_trusts(trusted: TlsServer, tmp_path: Path) -> None:
    server = TlsServer(*certificate(tmp_path, "elsewhere.example"))
    web = client(allow_private=True)
    try:
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await web.get(f"https://localhost:{server.port}/")
    finally:
        server.close()
        await web.aclose()


async def test_what_is_no_tls(trusted: TlsServer) -> None:
    web = client(allow_private=True)
    with pytest.raises(Unreachable):
        await web.get(f"http://localhost:{trusted.port}/")
    await web.aclose()
