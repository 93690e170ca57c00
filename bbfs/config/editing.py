"""Changes of the configuration file by commands. Its comments and its form stay.

The file is written whole, in place of the old one, and only if it can be loaded. One that a command makes is for this
user alone, because it may hold secrets.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import tomlkit
from tomlkit.items import InlineTable, Table

from bbfs.config.key_lines import key_lines
from bbfs.config.problems import KeyPath, quote, suggestion
from bbfs.config.toml import parse_config, parse_toml, read_text
from bbfs.config.values import Config, default_config_path
from bbfs.model.errors import BbfsError, ConfigError
from bbfs.runtime.files import replace_file

_BEGINNING = "# Sources of bbfs. 'bbfs add', 'bbfs remove', 'bbfs import' and 'bbfs config edit' change this file.\n"
_SECRET_TABLES = ("auth", "env", "headers", "document_headers", "documentHeaders")
_SECRET_KEYS = re.compile(r"(?i)password|secret|token|key\Z")
_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):[^/@\s]+@")
_HIDDEN = "***"


class ConfigFile:
    """The text of one configuration file, with its comments. A missing file is empty. Raises ConfigError."""

    def __init__(self, path: str | None, environ: Mapping[str, str]) -> None:
        self.path = os.path.realpath(os.path.expanduser(path or default_config_path(environ)))
        self._environ = environ
        self.exists = os.path.lexists(self.path)
        self.text = read_text(self.path) if self.exists else _BEGINNING

    def config(self) -> Config:
        """Load the text as it is. Raise ConfigError with every fault."""
        return parse_config(self.path, self.text, environ=self._environ)

    def add(self, source: Mapping[str, Any]) -> None:
        """Add a source after the others. Raise ConfigError if its name is taken."""
        listed = self._listed()
        name = str(source["name"])
        for index, table in enumerate(listed):
            if name in (table.get("name"), table.get("id")):
                place = f"{self.path}:{key_lines(self.text)['sources', index]}"
                raise ConfigError(f"{place}: there is a source {quote(name)} already; 'bbfs remove' removes it")
        if self._is_array():
            document = tomlkit.parse(self.text)
            sources: Any = document["sources"]
            sources.append(_inline(source))
            text = tomlkit.dumps(document)
        else:
            block = tomlkit.document()
            block["sources"] = tomlkit.aot()
            block["sources"].append(_table(source))  # type: ignore[union-attr]
            gap = "" if not self.text else "\n" if self.text.endswith("\n") else "\n\n"
            text = self.text + gap + tomlkit.dumps(block).strip() + "\n"
        self._change([text], [*listed, dict(source)])

    def remove(self, name: str) -> None:
        """Remove the source with a name or id. Raise ConfigError if there is none, or more than one."""
        listed = self._listed()
        names = [{str(table.get("name")), str(table.get("id", table.get("name")))} for table in listed]
        found = [index for index, of_one in enumerate(names) if name in of_one]
        if not found:
            raise ConfigError(f"{self.path}: no source {quote(name)}{suggestion(name, sorted(set().union(*names)))}")
        if len(found) > 1:
            raise ConfigError(f"{self.path}: {quote(name)} names several sources; 'bbfs config edit' opens the file")
        if self._is_array():
            document = tomlkit.parse(self.text)
            sources: Any = document["sources"]
            del sources[found[0]]
            candidates: Iterable[str] = [tomlkit.dumps(document)]
        else:
            candidates = self._without(found[0])
        self._change(candidates, [table for index, table in enumerate(listed) if index != found[0]])

    def _listed(self) -> list[dict[str, Any]]:
        listed = parse_toml(self.path, self.text).get("sources", [])
        if not isinstance(listed, list) or not all(isinstance(table, dict) for table in listed):
            self.config()  # names the fault
        return listed

    def _is_array(self) -> bool:
        """Return whether the sources are an array in brackets, not tables with headers."""
        return bool(re.search(r"(?m)^\s*sources\s*=", self.text))

    def _without(self, index: int) -> Iterator[str]:
        """Yield texts without the tables of one source, and without the comment right above them.

        A comment that an empty line separates from the source stays. A later text ends at a later empty line, since one
        may be in a value.
        """
        own: KeyPath = ("sources", index)
        lines, places = self.text.splitlines(keepends=True), key_lines(self.text)
        start = places[own] - 1
        others = [line - 1 for path, line in places.items() if path[:2] != own and line - 1 > start]
        end = min(others, default=len(lines))
        last = max(line for path, line in places.items() if path[:2] == own)
        while start > 1 and lines[start - 1].lstrip().startswith("#"):
            start -= 1
        for after in [*(at for at in range(last, end) if not lines[at].strip()), end]:
            is_gap = after < end and start > 0 and not lines[start - 1].strip()
            yield "".join(lines[:start] + lines[after + 1 if is_gap else after :])

    def _change(self, candidates: Iterable[str], sources: list[dict[str, Any]]) -> None:
        """Take the first new text that says what it should. Raise BbfsError if none does."""
        expected = {**parse_toml(self.path, self.text), "sources": sources}
        for text in candidates:
            try:
                document = tomllib.loads(text)
            except tomllib.TOMLDecodeError:
                continue
            if {"sources": [], **document} == expected:
                self.text = text
                return
        raise BbfsError(f"{self.path}: no command can change a file of this form; 'bbfs config edit' opens it")

    def save(self) -> None:
        """Write the text in place of the file. Raise OSError."""
        directory = os.path.dirname(self.path)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        replace_file(self.path, self.text.encode(), os.stat(self.path).st_mode & 0o777 if self.exists else 0o600)

    def shown(self) -> str:
        """Return the text with `***` for every secret that is no reference."""
        parse_toml(self.path, self.text)  # names a fault by its line
        document = tomlkit.parse(self.text)
        for table, key in _secrets(document, hidden=False):
            table[key] = _HIDDEN
        return _PASSWORD.sub(rf"\1:{_HIDDEN}@", tomlkit.dumps(document))


def _secrets(value: Any, *, hidden: bool) -> Iterator[tuple[MutableMapping[str, Any], str]]:
    """Yield the place of each text that may be a secret. hidden: all texts in this table are."""
    if isinstance(value, MutableMapping):
        for key, item in list(value.items()):
            if isinstance(item, str):
                if (hidden or _SECRET_KEYS.search(key)) and "${" not in item:
                    yield value, key
            else:
                yield from _secrets(item, hidden=hidden or key in _SECRET_TABLES)
    elif isinstance(value, list):
        for item in value:
            yield from _secrets(item, hidden=hidden)


def _table(source: Mapping[str, Any]) -> Table:
    """Return a table with a header for each table in it; the tables in those are in braces."""
    made = tomlkit.table()
    for key, value in source.items():
        if not isinstance(value, Mapping):
            made.add(key, value)
    for key, value in source.items():
        if isinstance(value, Mapping):
            inner = tomlkit.table()
            for name, item in value.items():
                inner.add(name, _inline(item) if isinstance(item, Mapping) else item)
            made.add(key, inner)
    return made


def _inline(value: Mapping[str, Any]) -> InlineTable:
    made = tomlkit.inline_table()
    for key, item in value.items():
        made.append(key, _inline(item) if isinstance(item, Mapping) else item)
    return made
