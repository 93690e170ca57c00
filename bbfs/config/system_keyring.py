"""The system's keyring (Secret Service, KWallet, …) through the `keyring` library, every call within a bound.

A locked keyring asks the user for a password, and a broken one may never answer. So each call runs in a thread of its
own, which is abandoned after `TIMEOUT`. The thread imports the library too: that takes 0.1 s, and few users need it.
"""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

TIMEOUT = 60.0
"""Seconds for one call: enough for a user to type the keyring's password."""
_LEAST_PRIORITY = 1
"""The library's priority of a usable backend; backends that store nothing, or in plain text, are below it."""


class KeyringUnusable(Exception):
    """The keyring is missing, locked or broken. The text says which and holds no secret."""


def read(service: str, username: str) -> str | None:
    """Return the password of an entry, or None if there is no such entry. Raise KeyringUnusable."""
    return _bounded(lambda keyring: keyring.get_password(service, username))


def write(service: str, username: str, password: str, within: float = TIMEOUT) -> None:
    """Make or replace an entry within some seconds. Raise KeyringUnusable."""
    _bounded(lambda keyring: keyring.set_password(service, username, password), within)


def delete(service: str, username: str) -> None:
    """Remove an entry, if there is one. Raise KeyringUnusable."""

    def remove(keyring: Any) -> None:
        if keyring.get_password(service, username) is not None:
            keyring.delete_password(service, username)

    _bounded(remove)


def _bounded(work: Callable[[Any], T], within: float = TIMEOUT) -> T:
    """Return the result of `work` on the usable keyring, within some seconds."""
    outcomes: SimpleQueue[tuple[T | None, KeyringUnusable | None]] = SimpleQueue()
    threading.Thread(target=lambda: outcomes.put(_outcome(work)), name="keyring", daemon=True).start()
    try:
        value, error = outcomes.get(timeout=within)
    except Empty:
        raise KeyringUnusable(f"the system keyring did not answer within {within:g} s; it may be locked") from None
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


def _outcome(work: Callable[[Any], T]) -> tuple[T | None, KeyringUnusable | None]:
    try:
        import keyring  # noqa: PLC0415 - see the module's docstring

        backend = keyring.get_keyring()
        if backend.priority < _LEAST_PRIORITY:
            return None, KeyringUnusable("this session has no usable system keyring")
        return work(backend), None
    except Exception as error:  # noqa: BLE001 - backends raise whatever their desktop's bus raises
        # The texts of other exceptions could quote the password.
        said = str(error) if type(error).__module__ == "keyring.errors" else type(error).__name__
        return None, KeyringUnusable(f"the system keyring failed: {said or type(error).__name__}")
