"""Stored logins: tokens in the system keyring or in a file of mode 0600 (`docs/semantics.md` S30).

Each login has a file in a directory of mode 0700. Without a usable keyring the file holds the whole login; else it
names the server, and the keyring holds the login. So a server without a login needs no call to a keyring, which may ask
the user for a password. A daemon sees in the status of the file (`stamp`) that a login was made, renewed or removed.

A login belongs to the URL of a server and not to the name of a source: configurations share it, and a source with a
changed URL sends no tokens elsewhere.
"""

import errno
import fcntl
import json
import os
import stat
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import platformdirs
import trio
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from pydantic import BaseModel, ConfigDict, ValidationError

from bbfs.config import system_keyring
from bbfs.config.system_keyring import KeyringUnusable
from bbfs.model.errors import ConfigError, Denied, Unreachable
from bbfs.runtime.files import closed_after, replace_file

STORE_VARIABLE = "BBFS_TOKEN_STORE"
"""Environment variable for where to store logins: `keyring`, `file`, or `auto` (the keyring if it works)."""
_LOCK_PAUSE = 0.05
_KEYRING_SERVICE = "bbfs"
_LARGEST = 1 << 20
_DEFAULT_PORTS = {"http": 80, "https": 443}

Kept: TypeAlias = Literal["auto", "keyring", "file"]
Stamp: TypeAlias = tuple[int, int, int]
"""Inode, time of change (nanoseconds) and size (bytes) of a login's file. Every write changes it."""


@dataclass(frozen=True, slots=True)
class LoginKey:
    """The key of a login: the canonical URL of the server, and the configured client, if any."""

    url: str
    client: str = ""

    @classmethod
    def of(cls, url: str, client: str | None = None) -> "LoginKey":
        """Return the key with the URL normalised (RFC 3986, 6.2), without userinfo and fragment."""
        parts = urlsplit(url)
        scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
        host = f"[{host}]" if ":" in host else host
        port = "" if parts.port in (None, _DEFAULT_PORTS.get(scheme)) else f":{parts.port}"
        return cls(urlunsplit((scheme, host + port, parts.path or "/", parts.query, "")), client or "")

    @property
    def digest(self) -> str:
        """The name of files and keyring entries. A URL may be too long, and its query secret."""
        return sha256(f"{self.url}\0{self.client}".encode()).hexdigest()[:32]


class StoredLogin(BaseModel):
    """One login, with the metadata and the client that its renewal needs.

    expires_at: seconds since the epoch, None if the server does not tell. metadata, resource: RFC 8414 and RFC 9728.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    tokens: OAuthToken
    client: OAuthClientInformationFull
    expires_at: float | None = None
    metadata: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None

    def __repr__(self) -> str:
        return f"StoredLogin(client_id={self.client.client_id!r}, expires_at={self.expires_at})"

    __str__ = __repr__

    @property
    def access_token(self) -> str:
        return self.tokens.access_token

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that no text may contain."""
        found = (self.tokens.access_token, self.tokens.refresh_token, self.client.client_secret)
        return tuple(secret for secret in found if secret)

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at


class TokenStore:
    """The logins of one user. All methods but `locked` block and belong in a thread; `stamp` is one system call.

    directory: created with mode 0700 for the first login. kept: where new logins go.
    lock_timeout: seconds to wait for another process that renews the same login.
    """

    def __init__(self, directory: Path, kept: Kept = "auto", lock_timeout: float = 30.0) -> None:
        self._directory = directory
        self._kept = kept
        self._lock_timeout = lock_timeout

    @classmethod
    def of_user(cls, environ: Mapping[str, str]) -> "TokenStore":
        """Return the store in `~/.local/share/bbfs/logins` (XDG Base Directory Specification). Raises ConfigError."""
        match environ.get(STORE_VARIABLE) or "auto":
            case "auto" | "keyring" | "file" as kept:
                return cls(Path(platformdirs.user_data_dir("bbfs")) / "logins", kept)
        raise ConfigError(f"{STORE_VARIABLE} should be 'keyring', 'file' or 'auto'")

    def stamp(self, key: LoginKey) -> Stamp | None:
        """Return the stamp of a login, or None if there is no login."""
        try:
            status = os.stat(self._path(key))
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def load(self, key: LoginKey) -> StoredLogin | None:
        """Return a login, or None. Raises Denied for a login that is unreadable, or readable for other users."""
        path = self._path(key)
        try:
            text = self._read(path)
            if text is None:
                return None
            document = json.loads(text)
            if document["kept"] == "keyring":
                text = system_keyring.read(_KEYRING_SERVICE, self._entry(key))
                return None if text is None else StoredLogin.model_validate_json(text)
            return StoredLogin.model_validate(document["login"])
        except KeyringUnusable as error:
            raise Denied(f"the login is kept in the keyring: {error}") from None
        except OSError as error:
            raise Denied(f"{path} cannot be read: {error.strerror}") from None
        except (ValidationError, ValueError, LookupError, TypeError, RecursionError):
            pass  # their texts may quote the file
        raise Denied(f"{path} is damaged; `bbfs login` replaces it")

    def save(self, key: LoginKey, login: StoredLogin) -> str:
        """Store a login, and return in words where. Raises OSError, Denied, KeyringUnusable."""
        kept = self._kept
        if kept != "file":
            try:
                system_keyring.write(_KEYRING_SERVICE, self._entry(key), login.model_dump_json())
            except KeyringUnusable:
                if kept == "keyring":
                    raise
                kept = "file"
            else:
                kept = "keyring"
        document: dict[str, Any] = {"url": _shown(key.url), "kept": kept}
        if kept == "file":
            document["login"] = login.model_dump(mode="json")
        path = self._path(key)
        self._require_directory()
        replace_file(path, json.dumps(document, indent=1).encode())
        return "the system keyring" if kept == "keyring" else str(path)

    def forget(self, key: LoginKey) -> bool:
        """Remove a login. Returns whether there was one. Raises OSError, KeyringUnusable."""
        path = self._path(key)
        if not path.exists():
            return False
        try:
            in_keyring = json.loads(path.read_bytes()).get("kept") == "keyring"
        except (ValueError, AttributeError, RecursionError):
            in_keyring = False
        if in_keyring:
            system_keyring.delete(_KEYRING_SERVICE, self._entry(key))
        path.unlink()
        return True

    @asynccontextmanager
    async def locked(self, key: LoginKey) -> AsyncGenerator[None]:
        """Exclude other processes of this user from renewing the login: a refresh token may be valid only once.

        Raises Unreachable if another process holds the lock for too long, Denied if the lock cannot be opened.
        """
        self._require_directory()
        path = self._path(key).with_suffix(".lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise Denied(f"{path} cannot be opened: {error.strerror}") from None
        with closed_after(descriptor):
            with trio.move_on_after(self._lock_timeout) as bound:
                while not _try_lock(descriptor):  # noqa: ASYNC110 - held by a process, which sets no event of ours
                    await trio.sleep(_LOCK_PAUSE)
            if bound.cancelled_caught:
                raise Unreachable(f"another bbfs has been renewing this login for {self._lock_timeout:g} s")
            yield

    def _path(self, key: LoginKey) -> Path:
        return self._directory / f"{key.digest}.json"

    @staticmethod
    def _entry(key: LoginKey) -> str:
        """Return the user name of the keyring's entry, which a keyring manager shows."""
        return f"{_shown(key.url)} ({key.digest[:8]})"

    def _require_directory(self) -> None:
        """Create the directory. Raises Denied if it is not private to this user."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = os.stat(self._directory)
        except OSError as error:
            raise Denied(f"{self._directory} cannot be used: {error.strerror}") from None
        _require_private(self._directory, status)

    def _read(self, path: Path) -> bytes | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            _require_private(path, status)
            return file.read(_LARGEST)


def _require_private(path: Path, status: os.stat_result) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid():
        raise Denied(f"{path} belongs to another user, so no login is taken from it")
    if mode & 0o077:
        wanted = "700" if stat.S_ISDIR(status.st_mode) else "600"
        raise Denied(f"{path} is open to other users (mode {mode:04o}): run `chmod {wanted} {path}`")


def _shown(url: str) -> str:
    """Return a URL without its query, which may be secret."""
    return urlunsplit((*urlsplit(url)[:3], "", ""))


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
