"""Collecting everything that is wrong with a configuration file, so that one run tells all of it."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from bbfs.model.errors import ConfigError

KeyPath = tuple[str | int, ...]


def key_text(path: KeyPath) -> str:
    """A key path as it is written for people: `sources[2].mcpConfig.command`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'command'?` when one of the known words is close to `word`, else nothing."""
    by_folded = {name.replace("_", "").lower(): name for name in known}
    close = get_close_matches(word.replace("_", "").lower(), by_folded, n=1)
    return f"; did you mean {by_folded[close[0]]!r}?" if close else ""


def quote(text: str) -> str:
    """`text` for a message: printable and of bounded length."""
    return ascii(text if len(text) <= 80 else text[:79] + "…") if not text.isprintable() else repr(text[:80])


class Problems:
    """What is wrong with one file. `lines` gives the line of a key path, or of the longest part of it that is known."""

    def __init__(self, file: str, lines: Mapping[KeyPath, int] | None = None) -> None:
        self.file = file
        self._lines = lines or {}
        self._found: list[tuple[int, str]] = []

    def add(self, path: KeyPath, message: str) -> None:
        line = self.line(path)
        place = f"{self.file}:{line}" if line else self.file
        key = key_text(path)
        self._found.append((line, f"{place}: {key}: {message}" if key else f"{place}: {message}"))

    def extend(self, other: "Problems") -> None:
        self._found += other._found

    def line(self, path: KeyPath) -> int:
        """The line (from 1) where `path`, or else what holds it, is written; 0 where that is not known."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._lines:
                return self._lines[path[:length]]
        return 0

    def lines_below(self, path: KeyPath) -> dict[str, int]:
        """The line of each key below `path`, as text, and of `path` itself as the empty one."""
        found = {key_text(key[len(path) :]): line for key, line in self._lines.items() if key[: len(path)] == path}
        return {"": self.line(path), **found}

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[str]:
        """The messages in the order of their lines."""
        return iter(text for _, text in sorted(self._found, key=lambda found: found[0]))

    def raise_if_any(self) -> None:
        """Raises ConfigError with every message, one a line."""
        if self._found:
            raise ConfigError("\n".join(self))
