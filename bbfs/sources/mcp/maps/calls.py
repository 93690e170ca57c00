"""A map, checked and ready: which call is for a path, and the arguments of that call. Pure."""

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from bbfs.model.errors import BbfsError, ConfigError, InvalidUri, NotSupported, TooLarge, ToolFailed
from bbfs.model.redaction import shown
from bbfs.sources.mcp.maps.answers import Named
from bbfs.sources.mcp.maps.forms import OWN, Form, Path, Place, filled, own_values, require_known, variables_of
from bbfs.sources.mcp.maps.options import (
    AnswerOptions,
    CallOptions,
    ListOptions,
    MapOptions,
    ReadOptions,
    RenameOptions,
    WriteOptions,
)
from bbfs.sources.mcp.writing import ERRORS

OptionsT = TypeVar("OptionsT", bound=CallOptions)
_ERRORS: Mapping[str, type[BbfsError]] = {**ERRORS, "failed": ToolFailed}
_CONTENT, _PAGES = ("content", "blob"), ("page", "next")
_NEW = tuple("to" if name == "path" else f"to_{name}" for name in OWN)
_MORE = {
    "rename": _NEW,
    "write": _CONTENT,
    "create": _CONTENT,
    "search": ("query", "limit", *_PAGES),
    "list": _PAGES,
    "read": _PAGES,
}
"""Variables of calls beside those of paths."""


@dataclass(frozen=True, slots=True)
class Prepared(Generic[OptionsT]):
    """A call for one path: its options, the values of all variables, the arguments with them, and where the names in
    its answer are."""

    options: OptionsT
    values: Mapping[str, Any]
    arguments: Mapping[str, Any]
    named: Named


class _Rules(Generic[OptionsT]):
    """The calls of one operation. Raise ConfigError for a template that cannot be used."""

    def __init__(self, key: str, options: Sequence[OptionsT], values: Mapping[str, str], where: str) -> None:
        self._values = values
        self._more = _MORE.get(key, ())
        self._rules: list[tuple[OptionsT, tuple[Place, ...], tuple[Place, ...], Named]] = []
        for number, each in enumerate(options, 1):
            at = f"{where}.{key}" + (f"[{number}]" if len(options) > 1 else "")
            try:
                places = tuple(map(Place, each.at or ()))
                new = tuple(map(Place, (each.to or ()) if isinstance(each, RenameOptions) else ()))
                for place in places or (None,):
                    for other in new or (None,):
                        variables = {name for some in (place, other) if some is not None for name in some.variables}
                        require_known(each.arguments, {*OWN, *values, *variables, *self._more})
                self._rules.append((each, places, new, _named(each)))
            except InvalidUri as error:
                raise ConfigError(f"{at}: {error}") from None

    def __bool__(self) -> bool:
        return bool(self._rules)

    @property
    def tools(self) -> list[str]:
        return [options.tool for options, *_ in self._rules if options.tool]

    def has(self, path: Path) -> bool:
        return self._fitting(path) is not None

    def _fitting(self, path: Path, to: Path | None = None) -> tuple[OptionsT, dict[str, str], Named] | None:
        for options, places, new, named in self._rules:
            found = _matched(places, path)
            there = {} if to is None else _matched(new, to)
            if found is None or there is None or any(found.get(key, value) != value for key, value in there.items()):
                continue
            return options, {**there, **found}, named
        return None

    def call(
        self, path: Path, more: Mapping[str, Any] | None = None, to: Path | None = None
    ) -> Prepared[OptionsT] | None:
        """Return the call for a path, or None. more: values beside those of the path. to: the new path of a rename.

        Raise NotSupported.
        """
        found = self._fitting(path, to)
        if found is None:
            return None
        options, matched, named = found
        renamed = {} if to is None else dict(zip(_NEW, own_values(to).values(), strict=True))
        values = {**self._values, **own_values(path), **renamed, **matched}
        used = variables_of(options.arguments)
        for name in used & values.keys():
            if bad := set(values[name]).intersection(options.without):
                raise NotSupported(f"{shown(values[name])}: a value with {min(bad)!r}, which the map refuses (without)")
        whole = {**values, **(more or {})}
        arguments = filled(options.arguments, whole)
        return Prepared(options, whole, {key: value for key, value in arguments.items() if value is not None}, named)


class TreeMap:
    """The calls of a map, by operation. Raises ConfigError that names the key of what cannot be used."""

    def __init__(self, options: MapOptions, where: str) -> None:
        values = options.values
        for key in ("list", "read"):
            if not getattr(options, key):
                raise ConfigError(f"{where}.{key}: this option is required: a table with the tool that does it")
        self.list = _Rules[ListOptions]("list", options.list, values, where)
        self.read = _Rules[ReadOptions]("read", options.read, values, where)
        self.write = _Rules[WriteOptions]("write", options.write, values, where)
        self.create = _Rules[WriteOptions]("create", options.create, values, where)
        self.remove = _Rules[CallOptions]("remove", options.remove, values, where)
        self.rename = _Rules[RenameOptions]("rename", options.rename, values, where)
        self.make_directory = _Rules[CallOptions]("make_directory", options.make_directory, values, where)
        self.remove_directory = _Rules[CallOptions]("remove_directory", options.remove_directory, values, where)
        self.search = _Rules[AnswerOptions]("search", options.search, values, where)
        self.changes = any(each.changes for each in (*options.write, *options.create))
        self.errors: list[tuple[Form, type[BbfsError]]] = []
        for number, each in enumerate(options.list, 1):
            if not (each.names or (each.tool and (each.lines or each.items))):
                at = f"{where}.list" + (f"[{number}]" if len(options.list) > 1 else "")
                raise ConfigError(f"{at}: should have names, or a tool with lines or items")
        for text, word in options.errors.items():
            if word not in _ERRORS:
                raise ConfigError(f"{where}.errors: {shown(word)!r} is none of {', '.join(sorted(_ERRORS))}")
            self.errors.append((_form(text, f"{where}.errors"), _ERRORS[word]))

    @property
    def reading(self) -> Collection[str]:
        """Return the names of the tools that list, read and search, each once, in this order."""
        return dict.fromkeys([*self.list.tools, *self.read.tools, *self.search.tools])

    @property
    def writing(self) -> Collection[str]:
        """Return the names of the tools that change something."""
        names = self.rename, self.make_directory, self.remove_directory
        rules = (self.write, self.create, self.remove, *names)
        return dict.fromkeys(tool for each in rules for tool in each.tools)

    def storing(self, path: Path, size: int, *, is_new: bool) -> Prepared[WriteOptions]:
        """Return the call that stores a content of so many bytes, without it. Raise NotSupported, TooLarge."""
        rules = self.create if is_new and self.create.has(path) else self.write
        found = rules.call(path, {"content": "", "blob": ""})
        if found is None:
            raise NotSupported(f"{shown('/'.join(path))}: the map {'makes' if is_new else 'writes'} no such file")
        if size > found.options.max_size:
            raise TooLarge(f"{size} bytes, more than {found.options.max_size} (option map.write.max_size)")
        return found

    @staticmethod
    def with_content(found: Prepared[WriteOptions], data: bytes) -> Prepared[WriteOptions]:
        """Return a call of `storing` with the content. Raise NotSupported."""
        content: dict[str, str] = {}
        if "blob" in (used := variables_of(found.options.arguments)):
            content["blob"] = base64.b64encode(data).decode()
        if "content" in used:
            try:
                content["content"] = data.decode()
            except UnicodeDecodeError:
                raise NotSupported("no UTF-8 text, and the tool that writes takes texts only") from None
        return replace(found, arguments=filled(found.options.arguments, {**found.values, **content}))


def _matched(places: Sequence[Place], path: Path) -> dict[str, str] | None:
    """Return the values of the variables of the first place that a path fits, or None. Without places, all fit."""
    if not places:
        return {}
    return next((found for place in places if (found := place.match(path)) is not None), None)


def _named(options: CallOptions) -> Named:
    if not isinstance(options, AnswerOptions):
        return Named()
    lines = [(Form.of(line), name) for line, name in options.lines.items()]
    for form, name in lines:
        if unknown := variables_of(name) - set(form.names):
            raise InvalidUri(f"lines: {{{min(unknown)}}} is not in the form of the line")
    for pointer, name in options.items.items():
        if pointer and not pointer.startswith("/"):
            raise InvalidUri(f"items: {pointer!r} is no JSON pointer, which begins with a slash")
        variables_of(name)
    return Named(lines, [*options.items.items()], options.directories, options.format == "python")


def _form(text: str, where: str) -> Form:
    try:
        return Form.of(text)
    except InvalidUri as error:
        raise ConfigError(f"{where}: {error}") from None
