"""Texts of others in messages and logs: without secrets (`docs/semantics.md` S30), printable, of bounded length."""

import json
import re
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, quote, unquote, urlsplit

_SHORTEST_SECRET = 4
"""Characters. Shorter values ("1", "on") are no secrets, and masking them would make every message unreadable."""

_STACK = re.compile(r"Traceback \(most recent call last\):\r?\n(?:[ \t].*\n)*")
"""A traceback of Python without its last line, which is the error."""

_SHORTEST_LINE = 8
"""Characters of the shortest line of a secret that is masked by itself."""

_LONGEST_WORD = 40
"""Characters of the longest word that is left out where a text is cut in it."""

Cut = Callable[[str, int], str]
"""A function that returns the beginning of a text, of about so many characters, as `Redactor.cut` does."""

_LOGINS_KEPT = 4
"""Renewals for which earlier tokens are still masked: an answer to an earlier request may quote them."""


class Redactor:
    """Replaces secrets in any text, in all their spellings."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._configured = frozenset(secrets)
        self._learnt: deque[frozenset[str]] = deque(maxlen=_LOGINS_KEPT)
        self._secrets = self._in_order()

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these as well: the tokens of a login, which change with each renewal."""
        self._learnt.append(frozenset(secrets))
        self._secrets = self._in_order()

    def _in_order(self) -> list[str]:
        """Return all spellings of all secrets, the longest first, since one may be a part of another."""
        found = {*self._configured, *(secret for group in self._learnt for secret in group)}
        found.update(spelling for secret in list(found) for spelling in _spellings(secret))
        return sorted((secret for secret in found if len(secret) >= _SHORTEST_SECRET), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    @property
    def longest(self) -> int:
        """Characters of the longest secret. A text must be available so far beyond the place where it is cut."""
        return len(self._secrets[0]) if self._secrets else 0

    def cut(self, text: str, length: int) -> str:
        """Return the beginning of a text, redacted, in whole words.

        The cut moves behind a secret that it would split.
        """
        end = length
        for secret in self._secrets:
            at = text.find(secret, max(0, end - len(secret) + 1), end + len(secret) - 1)
            if at != -1:
                end = max(end, at + len(secret))
        return self(text) if end >= len(text) else _whole_words(self(text[:end]), text[end])


plain_cut: Cut = Redactor(()).cut
"""Where no secrets are known."""


def _spellings(secret: str) -> set[str]:
    """Return other spellings of a secret that a server may use."""
    encoded = b64encode(secret.encode()).decode()
    lines = (line.strip() for line in secret.splitlines())  # logs show single lines, and a key has many
    parts = {line for line in lines if len(line) >= _SHORTEST_LINE}
    return {encoded, encoded.rstrip("="), quote(secret, safe=""), json.dumps(secret)[1:-1], *parts}


def header_secrets(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets of configured headers: their values, and the text after a scheme such as `Bearer`."""
    for value in headers.values():
        yield value
        yield value.partition(" ")[2]


def url_secrets(url: str) -> set[str]:
    """Return the parts of a URL that may be secret: its query, fragment, user and password."""
    parts = urlsplit(url)
    found = {parts.query, *(value for _, value in parse_qsl(parts.query)), parts.fragment}
    userinfo = parts.netloc.rpartition("@")[0]
    for text in (userinfo, *userinfo.split(":", 1)):
        found.update((text, unquote(text)))
    return found


def shown(text: str, length: int = 200) -> str:
    """Return a text for a message: printable ASCII, and not more than `length` characters of the text."""
    return ascii(text if len(text) <= length else text[: length - 1] + "~")[1:-1]


def shortened(text: str, longest: int) -> str:
    """Return the whole words of a text within so many characters, and an ellipsis for the others."""
    return text if len(text) <= longest else _whole_words(text[: longest - 1], text[longest - 1])


def _whole_words(begun: str, following: str) -> str:
    """Return the beginning of a text without the word that it splits, unless that is a long one."""
    space = -1 if following.isspace() else begun.rfind(" ", max(0, len(begun) - _LONGEST_WORD))
    return f"{(begun if space < 1 else begun[:space]).rstrip()}…"


def one_line(text: str) -> str:
    """Return a text of a source in one printable line, without the stack of a traceback: its last line says it all."""
    return " ".join(printable(_STACK.sub("", text)).split())


def printable(text: str) -> str:
    """Return a text with a space for each character that could control a terminal or begin a line."""
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)
