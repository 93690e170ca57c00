"""All faults of a configuration file, so that one run reports them together."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from bbfs.model.errors import ConfigError

KeyPath = tuple[str | int, ...]
_LONGEST_STEP = 80
"""Characters of a key that stand as they are in a message."""


def key_text(path: KeyPath) -> str:
    """Return a key path for people: `sources[2].mcpConfig.command`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            named = step if step.isprintable() and len(step) <= _LONGEST_STEP else quote(step)
            text += f".{named}" if text else named
    return text


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'command'?` if one of the known words is close to `word`, else an empty text."""
    by_folded = {name.replace("_", "").lower(): name for name in known}
    close = get_close_matches(word.replace("_", "").lower(), by_folded, n=1)
    return f"; did you mean {by_folded[close[0]]!r}?" if close else ""


def quote(text: str) -> str:
    """Return `text` for a message: printable and of bounded length."""
    return ascii(text if len(text) <= 80 else text[:79] + "…") if not text.isprintable() else repr(text[:80])


class Problems:
    """The faults of one file. lines: the line of each key path; a longer path has that of its longest known part."""

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
        """Return the line (from 1) of `path`, or of the table that holds it; 0 if neither is known."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._lines:
                return self._lines[path[:length]]
        return 0

    def lines_below(self, path: KeyPath) -> dict[str, int]:
        """Return the line of each key below `path`, by its text, and of `path` itself by the empty text."""
        found = {key_text(key[len(path) :]): line for key, line in self._lines.items() if key[: len(path)] == path}
        return {"": self.line(path), **found}

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[str]:
        """Yield the messages in the order of their lines."""
        return iter(text for _, text in sorted(self._found, key=lambda found: found[0]))

    def raise_if_any(self) -> None:
        """Raise ConfigError with all messages, one a line, if there are any."""
        if self._found:
            raise ConfigError("\n".join(self))
