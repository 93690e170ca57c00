"""An OAuth-protected server on a real mount: logged in to, renewed silently, revoked, logged in to again, left."""

import json
import os
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import DEVNULL, CompletedProcess, run
from typing import Any

import pytest
from forked_daemon import forked
from harness import Mounts, State
from programs import printed_url, wait_until
from repository import SERVERS

SERVER = SERVERS / "oauth.py"
BROWSER = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=30).read()"
BOUND = 40.0


@pytest.fixture
def protected() -> Iterator[Callable[..., str]]:
    """Starts servers that want a login, and gives their URLs."""
    with ExitStack() as stack:
        yield lambda *options: stack.enter_context(printed_url(*forked(SERVER, *options)))


def control(url: str, what: str = "state") -> dict[str, Any]:
    with urllib.request.urlopen(f"{url.rpartition('/')[0]}/control/{what}", timeout=10) as answer:
        return json.load(answer)


def bbfs(state: State, *arguments: str) -> "CompletedProcess[str]":
    """A command of a user whose browser follows redirects and needs no eyes."""
    browser = state.home / "browser.py"
    browser.write_text(BROWSER)
    environ = state.environ() | {"BROWSER": f"{sys.executable} {browser} %s"}
    command = forked("-m", "bbfs", *arguments)
    return run(command, env=environ, stdin=DEVNULL, capture_output=True, text=True, timeout=BOUND, check=False)


def cat(path: Path) -> "CompletedProcess[str]":
    environ = os.environ | {"LC_ALL": "C"}
    return run(["cat", path], stdin=DEVNULL, capture_output=True, text=True, timeout=BOUND, check=False, env=environ)


@pytest.mark.semantics("S23", "S30")
@pytest.mark.timeout(180)
def test_the_life_of_a_login(mounted: Mounts, protected: Callable[..., str]) -> None:
    url = protected("--lifetime", "2")
    state = mounted.state()
    options = ("--mcp", f"vault={url}")
    table = {"name": "vault", "mcpConfig": {"url": url}, "ttl": {"listing": 0, "content": 0}}
    mount = mounted(table, state=state, expected=["bbfs login vault"])
    secret = mount / "mcp-server+vault/vault/secret"

    def told() -> dict[str, Any]:
        """What `bbfs sources` says of this mount, among all that there are."""
        rows = json.loads(bbfs(state, "sources", "--json").stdout)
        return next(row for row in rows if row["mount"] == str(mount.path))

    refused = cat(secret)
    assert "Permission denied" in refused.stderr
    row = told()
    assert row["state"] == "down"
    assert row["error"].startswith("needs a login: run `bbfs login vault`")

    login = bbfs(state, "login", "vault", *options)
    assert login.returncode == 0, login.stderr
    assert "open this in a browser:\nhttp://127.0.0.1:" in login.stderr
    wait_until(lambda: cat(secret).returncode == 0, "the login works")

    wait_until(lambda: cat(secret).returncode == 0 and control(url)["counts"].get("refresh", 0) >= 2, "it is renewed")
    counts = control(url)["counts"]
    assert counts["code"] == counts["register"] == 1, "nobody was asked again"
    assert counts["refresh"] < counts["read"]
    before = mount.log().count("bbfs.mcp: vault: needs a login")
    assert before == 1, mount.log()

    control(url, "revoke")
    wait_until(lambda: "Permission denied" in cat(secret).stderr, "the login has ended")
    for _ in range(5):
        assert "Permission denied" in cat(secret).stderr
    row = told()
    assert row["state"] == "down"
    assert row["error"].startswith("needs a login, the earlier one has expired or was revoked: run `bbfs login vault`")
    assert "needs a login, the earlier one" in bbfs(state, "sources").stderr
    # A listing that the loss has cut in half is a second warning, of the catalog.
    assert mount.log().count("bbfs.mcp: vault: needs a login") == before + 1, mount.log()

    assert bbfs(state, "login", "vault", *options).returncode == 0
    wait_until(lambda: cat(secret).returncode == 0, "the login works")
    assert told()["state"] == "up"

    logout = bbfs(state, "logout", "vault", *options)
    assert logout.returncode == 0, logout.stderr
    assert control(url)["counts"]["revoke"] >= 1
    wait_until(lambda: "Permission denied" in cat(secret).stderr, "the login has ended")
    attributes = {name: os.getxattr(secret.parents[1], name) for name in os.listxattr(secret.parents[1])}
    shown = f"{mount.log()} {login.stderr} {login.stdout} {logout.stderr} {row} {attributes}"
    assert not [token for token in control(url)["issued"] if token in shown]


@pytest.mark.semantics("S30")
def test_what_cannot_be_logged_in_to(mounted: Mounts, protected: Callable[..., str], tmp_path: Path) -> None:
    state = mounted.state()
    url = protected()
    for arguments, message in [
        (["other", "--mcp", f"vault={url}"], "no source 'other'; there are: vault."),
        (["docs", "--mcp", "docs=uvx some-server"], "docs: is a program that bbfs starts"),
        (["notes", "--dir", f"notes={tmp_path}"], "notes: a local source needs no login"),
        (["vault"], "no sources to work with"),
    ]:
        answer = bbfs(state, "login", *arguments)
        assert (answer.returncode, message in answer.stderr) == (1, True), answer.stderr
    control(url, "deny")
    answer = bbfs(state, "login", "vault", "--mcp", f"vault={url}")
    assert answer.returncode == 1
    assert "the login was refused: you, or the server, refused it (not today)" in answer.stderr
    answer = bbfs(state, "login", "vault", "--mcp", f"vault={url}", "--no-browser", "--timeout", "1")
    assert answer.returncode == 1
    assert "no login within 1 s" in answer.stderr
    assert f"{url.rpartition(':')[0]}:" in answer.stderr, "the URL is printed"
    assert bbfs(state, "logout", "vault", "--mcp", f"vault={url}").returncode == 1
