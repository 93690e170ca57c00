"""The store of logins: what it is keyed by, who may read it, the keyring and the file, and what changes its stamp."""

import os
import threading
from pathlib import Path
from typing import Any

import keyring
import keyring.backend
import keyring.errors
import pytest
import trio
import trio.testing
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken

from bbfs.config import system_keyring
from bbfs.config.system_keyring import KeyringUnusable
from bbfs.model.errors import ConfigError, Denied, Unreachable
from bbfs.model.values import McpServer
from bbfs.sources.mcp.login.refresh import ClientSettings, Login
from bbfs.sources.mcp.login.token_store import LoginKey, StoredLogin, TokenStore

KEY = LoginKey.of("https://example.com/mcp")
LOGIN = StoredLogin(
    tokens=OAuthToken(access_token="hush-access", refresh_token="hush-refresh", expires_in=60),
    client=OAuthClientInformationFull(client_id="bbfs-1", client_secret="hush-client"),
    expires_at=1000.0,
    metadata=OAuthMetadata.model_validate(
        {
            "issuer": "https://as.example",
            "authorization_endpoint": "https://as.example/a",
            "token_endpoint": "https://t",
        }
    ),
)


class MemoryKeyring(keyring.backend.KeyringBackend):
    """A keyring as a desktop has it, but in memory. locked: refuses. gate: what every call waits for."""

    priority = 5  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], str] = {}
        self.locked = False
        self.gate: threading.Event | None = None
        self.threads: set[str] = set()

    def _enter(self) -> None:
        self.threads.add(threading.current_thread().name)
        if self.gate is not None:
            assert self.gate.wait(30)
        if self.locked:
            raise keyring.errors.KeyringLocked("Failed to unlock the collection!")

    def get_password(self, service: str, username: str) -> str | None:
        self._enter()
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._enter()
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._enter()
        del self.entries[service, username]


@pytest.fixture
def memory_keyring():
    before = keyring.get_keyring()
    backend = MemoryKeyring()
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(before)


def test_urls_that_are_the_same_have_one_login():
    assert LoginKey.of("HTTPS://Example.COM:443#frag") == LoginKey.of("https://example.com/")
    assert LoginKey.of("http://[::1]:80/mcp").url == "http://[::1]/mcp"
    assert LoginKey.of("https://joe:pw@example.com/mcp") == LoginKey.of("https://example.com/mcp")
    keys = [
        LoginKey.of("https://example.com/mcp"),
        LoginKey.of("https://example.com/mcp/"),
        LoginKey.of("https://example.com/MCP"),
        LoginKey.of("https://example.com/mcp?team=a"),
        LoginKey.of("https://example.com:8443/mcp"),
        LoginKey.of("http://example.com/mcp"),
        LoginKey.of("https://example.com/mcp", "client"),
    ]
    assert len({key.digest for key in keys}) == len(keys)


@pytest.mark.semantics("S30")
def test_a_file_is_the_users_alone(tmp_path: Path):
    store = TokenStore(tmp_path / "a" / "logins", "file")
    assert store.load(KEY) is None
    assert store.stamp(KEY) is None
    where = Path(store.save(KEY, LOGIN))
    assert os.stat(where).st_mode & 0o777 == 0o600
    assert os.stat(where.parent).st_mode & 0o777 == 0o700
    assert store.load(KEY) == LOGIN
    assert str(LOGIN.metadata.issuer) == "https://as.example"  # type: ignore[union-attr]
    loaded = store.load(KEY)
    assert loaded is not None
    assert str(loaded.metadata.issuer) == "https://as.example", "an issuer is compared as a string"  # type: ignore[union-attr]
    assert store.load(LoginKey.of("https://example.com/other")) is None
    assert [path.name for path in where.parent.iterdir()] == [where.name], "nothing is left of the writing"


@pytest.mark.semantics("S30")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int):
    store = TokenStore(tmp_path / "logins", "file")
    where = Path(store.save(KEY, LOGIN))
    where.chmod(mode)
    with pytest.raises(Denied, match=f"open to other users .mode {mode:04o}.: run `chmod 600"):
        store.load(KEY)
    where.chmod(0o600)
    assert store.load(KEY) == LOGIN


@pytest.mark.semantics("S30")
def test_a_directory_that_others_can_use_is_refused(tmp_path: Path):
    directory = tmp_path / "logins"
    directory.mkdir(mode=0o755)
    with pytest.raises(Denied, match="chmod 700"):
        TokenStore(directory, "file").save(KEY, LOGIN)
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"kept": "file", "login": {"tokens": "hush"}}', "hush \xff", "[" * 100_000]
)
def test_a_damaged_file_is_told_without_its_content(tmp_path: Path, text: str):
    store = TokenStore(tmp_path / "logins", "file")
    where = Path(store.save(KEY, LOGIN))
    where.write_text(text, "latin-1")
    with pytest.raises(Denied, match="is damaged") as caught:
        store.load(KEY)
    assert "hush" not in f"{caught.value!r} {caught.value.__context__!r}"


def test_a_symbolic_link_is_not_followed(tmp_path: Path):
    store = TokenStore(tmp_path / "logins", "file")
    where = Path(store.save(KEY, LOGIN))
    where.rename(tmp_path / "elsewhere")
    where.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Denied, match="cannot be read"):
        store.load(KEY)


def test_the_stamp_tells_of_every_change(tmp_path: Path):
    store = TokenStore(tmp_path / "logins", "file")
    stamps = [store.stamp(KEY)]
    for _ in range(3):
        store.save(KEY, LOGIN)
        stamps.append(store.stamp(KEY))
    assert store.forget(KEY)
    assert not store.forget(KEY)
    assert store.stamp(KEY) is None
    assert len(set(stamps)) == 4


@pytest.mark.semantics("S30")
@pytest.mark.parametrize("kept", ["auto", "keyring"])
def test_the_keyring_holds_the_secrets_and_the_file_none(tmp_path: Path, memory_keyring: MemoryKeyring, kept: str):
    store = TokenStore(tmp_path / "logins", kept)  # type: ignore[arg-type]
    assert store.load(KEY) is None
    assert not memory_keyring.threads, "a server without a login costs no call to the keyring"
    assert store.save(KEY, LOGIN) == "the system keyring"
    (file,) = (tmp_path / "logins").iterdir()
    assert "hush" not in file.read_text()
    assert os.stat(file).st_mode & 0o777 == 0o600
    assert store.load(KEY) == LOGIN
    ((service, username),) = memory_keyring.entries
    assert (service, username.split(" ")[0]) == ("bbfs", KEY.url)
    assert memory_keyring.threads == {"keyring"}, "never in the thread that asks"
    assert store.forget(KEY)
    assert memory_keyring.entries == {}
    assert list((tmp_path / "logins").iterdir()) == []


def test_a_keyring_that_is_locked(tmp_path: Path, memory_keyring: MemoryKeyring):
    store = TokenStore(tmp_path / "logins")
    store.save(KEY, LOGIN)
    memory_keyring.locked = True
    with pytest.raises(Denied, match="kept in the keyring: the system keyring failed: Failed to unlock") as caught:
        store.load(KEY)
    assert "hush" not in repr(caught.value)
    assert store.save(KEY, LOGIN).endswith(".json"), "without a keyring that works a file is next best"
    with pytest.raises(KeyringUnusable):
        TokenStore(tmp_path / "logins", "keyring").save(KEY, LOGIN)


def test_a_keyring_that_does_not_answer(memory_keyring: MemoryKeyring):
    memory_keyring.gate = threading.Event()
    try:
        with pytest.raises(KeyringUnusable, match="did not answer"):
            system_keyring.write("a", "b", "c", within=0.05)
    finally:
        memory_keyring.gate.set()


def test_a_backend_that_keeps_nothing_is_none(memory_keyring: MemoryKeyring, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(MemoryKeyring, "priority", 0)
    with pytest.raises(KeyringUnusable, match="no usable system keyring"):
        system_keyring.read("a", "b")


def test_the_switch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, memory_keyring: MemoryKeyring):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    where = TokenStore.of_user({"BBFS_TOKEN_STORE": "file"}).save(KEY, LOGIN)
    assert Path(where).parent == tmp_path / "bbfs" / "logins"
    assert TokenStore.of_user({"BBFS_TOKEN_STORE": "keyring"}).save(KEY, LOGIN) == "the system keyring"
    assert TokenStore.of_user({}).load(KEY) == LOGIN
    with pytest.raises(ConfigError, match="BBFS_TOKEN_STORE should be"):
        TokenStore.of_user({"BBFS_TOKEN_STORE": "files"})


async def test_one_renewal_at_a_time(tmp_path: Path):
    first, second = TokenStore(tmp_path / "logins"), TokenStore(tmp_path / "logins", lock_timeout=0.2)
    async with first.locked(KEY):
        with pytest.raises(Unreachable, match="another bbfs"):
            async with second.locked(KEY):
                raise AssertionError("two have the lock")
        async with second.locked(LoginKey.of("https://example.com/other")):
            pass
    with trio.fail_after(60):
        async with second.locked(KEY):
            pass


async def test_a_store_that_hangs_takes_one_thread_and_none_of_other_sources(tmp_path: Path):
    entered, released = trio.Event(), threading.Event()
    loads: list[int] = []
    loop = trio.lowlevel.current_trio_token()

    class Hung(TokenStore):
        def stamp(self, key: LoginKey) -> Any:
            return 1

        def load(self, key: LoginKey) -> None:
            loads.append(1)
            loop.run_sync_soon(entered.set)
            released.wait(30)

    server = McpServer("http", url="https://example.com/mcp")
    login = Login("x", server, ClientSettings(), Hung(tmp_path / "logins"), lambda secrets: None)
    try:
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(login.token)
                await entered.wait()
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        assert loads == [1]
    finally:
        released.set()


def test_no_secret_is_in_a_repr():
    assert "hush" not in f"{LOGIN!r} {LOGIN} {[LOGIN]}"
