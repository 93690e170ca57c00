"""Hostile authorization: refusals, the renewal of a login by the daemon, and the documents that `bbfs login` reads."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from harness import SourceTable, State
from hostile import MEMORY, Case
from hostile_messages import VALUES
from hostile_sources import JSON, Reply, over_http
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken
from pydantic import AnyHttpUrl

from bbfs.sources.mcp.login.token_store import LoginKey, StoredLogin, TokenStore

MIB = 1 << 20
FEW = 15 * MIB
LARGE = 30 * MIB
QUICK = {"a token of arrays, gzip"}
LOGIN_TIMEOUT = 3
"""Seconds that the command waits for a browser that never comes."""
SLOWEST = 30.0
"""Seconds for the command as a whole."""


def touch(directory: Path) -> Sequence[Sequence[str | Path]]:
    return [("cat", directory / "hostile" / "a"), ("ls", "-lR", directory)]


def logged_in(home: Path, table: SourceTable) -> None:
    """Store a login for the source's server whose token has expired."""
    url: str = table["mcpConfig"]["url"]
    metadata = OAuthMetadata(
        issuer=AnyHttpUrl(url),
        authorization_endpoint=AnyHttpUrl(f"{url}/authorize"),
        token_endpoint=AnyHttpUrl(f"{url}/token"),
    )
    tokens = OAuthToken(access_token="old", refresh_token="refresh", expires_in=1)
    client = OAuthClientInformationFull(redirect_uris=None, client_id="bbfs")
    login = StoredLogin(tokens=tokens, client=client, expires_at=1.0, metadata=metadata)
    TokenStore(home / ".local" / "share" / "bbfs" / "logins", "file").save(LoginKey.of(url), login)


def refusals() -> Iterator[Case]:
    """Yield refusals of every request, by a server without a stored login."""
    headers: Mapping[str, Mapping[str, str]] = {
        "many parameters": {"www-authenticate": "Bearer " + 'a="b", ' * 6_000},
        "quotes": {"www-authenticate": 'Bearer realm="' + '\\"' * 20_000},
        "the metadata of another machine": {
            "www-authenticate": 'Bearer resource_metadata="http://169.254.169.254/latest"'
        },
        "a scope of a line": {"www-authenticate": 'Bearer error="insufficient_scope", scope="' + "x " * 20_000 + '"'},
    }
    for name, given in headers.items():
        for status in (401, 403):
            source = over_http({"*": Reply(status=status, headers=given)})
            yield Case(f"a refusal ({status}) with {name}", source, "mcp-server+hostile", touch)
    source = over_http({"*": Reply(b"x" * MIB, status=401, endless=True)})
    yield Case("a refusal for ever", source, "mcp-server+hostile", touch)


def renewals() -> Iterator[Case]:
    """Yield answers to the renewal of a login."""
    replies = {
        f"a token of {value}, gzip": Reply(
            lambda value=value: b'{"access_token":"a","token_type":"Bearer","more":' + VALUES[value](LARGE) + b"}",
            headers={"content-type": JSON},
            encodings=["gzip"],
        )
        for value in ("arrays", "deep arrays", "one integer", "one text")
    }
    replies |= {
        "a token for ever": Reply(
            b"x" * MIB, begins=b'{"access_token":"', headers={"content-type": JSON}, endless=True
        ),
        "an error for ever": Reply(b"x" * MIB, status=400, headers={"content-type": JSON}, endless=True),
        "a token that expires at once": Reply(
            b'{"access_token":"a@N@","token_type":"Bearer","expires_in":0,"refresh_token":"r"}',
            headers={"content-type": JSON},
        ),
        "a token that lasts too long": Reply(
            b'{"access_token":"a","token_type":"Bearer","expires_in":' + b"9" * 4000 + b"}",
            headers={"content-type": JSON},
        ),
        "a token of line breaks": Reply(
            b'{"access_token":"a\\r\\nx: y","token_type":"Bearer"}', headers={"content-type": JSON}
        ),
        "a redirect to another machine": Reply(status=307, headers={"location": "http://169.254.169.254/token"}),
    }
    for name, reply in replies.items():
        source = over_http({"POST /token": reply})
        yield Case(name, source, "mcp-server+hostile", touch, quick=name in QUICK, prepare=logged_in)


@pytest.mark.parametrize("case", [*refusals(), *renewals()], ids=str)
def test_hostile_authorization_harms_nobody(case: Case, holds: Callable[[Case], None]) -> None:
    holds(case)


PLACES = ("GET /.well-known/oauth-protected-resource*", "GET /.well-known/o*")
DOCUMENTS = {
    "arrays": Reply(lambda: VALUES["arrays"](FEW), headers={"content-type": JSON}, encodings=["gzip"]),
    "deep arrays": Reply(lambda: VALUES["deep arrays"](FEW), headers={"content-type": JSON}),
    "spaces for ever": Reply(b" " * MIB, headers={"content-type": JSON}, endless=True),
    "a gzip for ever": Reply(
        b"[]," * 100_000,
        headers={"content-type": JSON, "content-encoding": "gzip"},
        encodings=["gzip"],
        endless=True,
    ),
    "another machine": Reply(
        b'{"resource":"http://127.0.0.1/","authorization_servers":["http://169.254.169.254/"]}',
        headers={"content-type": JSON},
    ),
}


def documents() -> Iterator[Case]:
    """Yield servers whose documents `bbfs login` reads."""
    refusal = Reply(status=401, headers={"www-authenticate": "Bearer"})
    for name, reply in DOCUMENTS.items():
        for place in PLACES:
            replies = {place: reply, "*initialize": refusal, "server/discover": refusal, "POST *": refusal}
            source = over_http(replies)
            yield Case(f"{name} at {place}", source, "", quick=name == "arrays" and place == PLACES[0])


@pytest.mark.parametrize("case", [*documents()], ids=str)
def test_a_login_reads_documents_within_bounds(case: Case, tmp_path: Path) -> None:
    url: str = case.source(tmp_path)["mcpConfig"]["url"]
    state = State()
    command = [sys.executable, "-m", "bbfs", "login", "hostile", "--mcp", f"hostile={url}", "--no-browser"]
    try:
        with subprocess.Popen(
            [*command, "--config", os.devnull, "--timeout", str(LOGIN_TIMEOUT)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=state.environ(),
        ) as process:
            status, used = _ended(process)
    finally:
        state.remove()
    assert status != 0
    assert used < MEMORY


def _ended(process: "subprocess.Popen[bytes]") -> tuple[int, int]:
    """Return the status and the largest memory (bytes) of a process at its end. Raises AssertionError."""
    deadline, most = time.monotonic() + SLOWEST, 0
    while (status := process.poll()) is None:
        with contextlib.suppress(OSError):
            found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
            most = max(most, int(found[1]) * 1024 if found else 0)
        if time.monotonic() > deadline:
            process.kill()
            raise AssertionError(f"the command has not ended within {SLOWEST:g} s")
        time.sleep(0.02)
    return status, most
