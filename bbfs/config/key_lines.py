"""The lines of the keys of a TOML text: `tomllib` gives values, but no lines.

Grammar: TOML 1.0. `tomllib` has accepted the text before, so this follows its structure only (headers, dotted and
quoted keys, inline tables, arrays, the four kinds of strings, comments) and skips values.
"""

import re
import tomllib

from bbfs.config.problems import KeyPath

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BASIC = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LITERAL = re.compile(r"'[^'\n]*'")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})' r"|'''.*?'''(?:'{0,2})" rf"|{_BASIC.pattern}|{_LITERAL.pattern}",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]*")


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line (from 1) of every key path of a valid TOML text; entries of arrays are numbered from 0."""
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._at = 0
        self._counted = (0, 1)
        self._tables: dict[KeyPath, int] = {}

    def document(self) -> None:
        table: KeyPath = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)

    def _header(self) -> KeyPath:
        line = self._line()
        is_array = self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        names = self._key()
        self._at += 2 if is_array else 1
        path: KeyPath = ()
        for index, name in enumerate(names):
            path = (*path, name)
            self.lines.setdefault(path, line)
            if is_array and index == len(names) - 1:
                self._tables[path] = self._tables.get(path, -1) + 1
            if path in self._tables:
                # A header goes into the latest table of an array of tables.
                path = (*path, self._tables[path])
                self.lines.setdefault(path, line)
        return path

    def _pair(self, table: KeyPath) -> None:
        line = self._line()
        path = table
        for name in self._key():
            path = (*path, name)
            self.lines.setdefault(path, line)
        self._at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(path)

    def _key(self) -> list[str]:
        names: list[str] = []
        while True:
            self._skip(_SPACE)
            if self._text[self._at] in "\"'":
                quoted = self._take(_BASIC if self._text[self._at] == '"' else _LITERAL)
                names.append(tomllib.loads(f"key = {quoted}")["key"])
            else:
                names.append(self._take(_BARE_KEY))
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return names
            self._at += 1

    def _value(self, path: KeyPath) -> None:
        first = self._text[self._at]
        if first in "\"'":
            self._take(_STRING)
        elif first == "[":
            self._array(path)
        elif first == "{":
            self._inline_table(path)
        else:
            self._take(_SCALAR)

    def _array(self, path: KeyPath) -> None:
        self._at += 1
        index = 0
        self._skip(_BLANK)
        while self._text[self._at] != "]":
            self.lines.setdefault((*path, index), self._line())
            self._value((*path, index))
            index += 1
            self._skip(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1
                self._skip(_BLANK)
        self._at += 1

    def _inline_table(self, path: KeyPath) -> None:
        self._at += 1
        self._skip(_BLANK)
        while self._text[self._at] != "}":
            self._pair(path)
            self._skip(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1
                self._skip(_BLANK)
        self._at += 1

    def _skip(self, pattern: re.Pattern[str]) -> None:
        self._take(pattern)

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise ValueError(f"not the TOML that was parsed, at line {self._line()}")
        self._at = match.end()
        return match[0]

    def _line(self) -> int:
        """Return the line of the current position. It is counted from the last call, so a file costs one pass."""
        at, line = self._counted
        line += self._text.count("\n", at, self._at)
        self._counted = (self._at, line)
        return line
