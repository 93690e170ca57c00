"""What tools answer, as the entries of a directory, the content of a file, or an error. Pure.

Everything here is a stranger's text. A long answer takes a second: call these in a thread.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

from bbfs.model.errors import BbfsError, NotFound, NotSupported, ProtocolViolation, TooLarge, ToolFailed
from bbfs.model.quantities import counted
from bbfs.model.redaction import shown
from bbfs.model.uri import encodable
from bbfs.model.values import Content
from bbfs.sources.bounded.json import JsonBounds, check_json, parse_json
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.mcp.arguments import pointed
from bbfs.sources.mcp.client.decode import utf8
from bbfs.sources.mcp.maps.forms import Form, Path, filled, variables_of
from bbfs.sources.mcp.results import MAX_ERROR, is_error, json_bytes, parsed_result, texts_of, tool_result

MOST_ENTRIES = 100_000
"""Entries of one directory; each takes 1 KB of memory."""
_CUT = f"only the first {MOST_ENTRIES} entries are there"
LONGEST_NAME = 4096
"""Characters of a name in an answer."""
_MOST_LINES = 5 * MOST_ENTRIES
_BOUNDS = JsonBounds(size=32 << 20)
_LONGEST = 32 << 20
"""Characters of an answer that has names."""
_LONGEST_PYTHON = 4 << 20
"""Characters of the text of a Python value: one search in it holds the global lock."""
_REPLACED = "\ufffd"
_TOKENS = re.compile(
    r"""(?P<text>'[^'\\]*+(?:\\.[^'\\]*+)*+'|"[^"\\]*+(?:\\.[^"\\]*+)*+")|(?P<word>True|False|None)\b|(?P<open>\()"""
    r"""|(?P<close>,\s*+\)|\))|(?P<bad>['"])""",
    re.DOTALL,
)
_ESCAPES = re.compile(r"\\(?:x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8})|(.))|([\"\x00-\x1f])", re.DOTALL)
_ABSENT = re.compile(r"\bENOENT\b|no such |not found|(?:does not|doesn't) exist", re.IGNORECASE)
_WORDS = {"True": "true", "False": "false", "None": "null"}


@dataclass(frozen=True, slots=True)
class Named:
    """Where the names in an answer are. lines: forms of lines with the templates of names, items: pointers with them.

    directories: members of items that are directories. is_python: the answer is the text of a Python value.
    """

    lines: Sequence[tuple[Form, str]] = ()
    items: Sequence[tuple[str, str]] = ()
    directories: Mapping[str, Any] = field(default_factory=dict[str, Any])
    is_python: bool = False


@dataclass(frozen=True, slots=True)
class Names:
    """The names in an answer, each with a slash at its end if it is a directory. problem: what was left out."""

    names: tuple[str, ...]
    problem: str | None = None


@dataclass(slots=True)
class _Taken:
    """The names so far, and how much was left out."""

    names: dict[str, None] = field(default_factory=dict[str, None])
    unfit: int = 0
    is_cut: bool = False

    def add(self, name: str | None) -> bool:
        """Take a name, None if there is none; return whether there is room for more."""
        if name is None or not is_name(name):
            self.unfit += 1
            self.is_cut = self.unfit > MOST_ENTRIES
        elif len(self.names) < MOST_ENTRIES:
            self.names[name] = None
        else:
            self.is_cut = True
        return not self.is_cut


def is_name(name: str) -> bool:
    """Return whether a text can be the name of an entry, or a path of such names."""
    parts = [part for part in name.split("/") if part]
    fits = bool(parts) and len(name) <= LONGEST_NAME and encodable(name) and "\0" not in name
    return fits and {".", ".."}.isdisjoint(parts)


def names_in(result: Mapping[str, Any], named: Named) -> Names:
    """Return the names in the answer of a tool. Raise ProtocolViolation, TooLarge."""
    taken = _Taken()
    if named.lines:
        found = _of_lines(texts_of(result), named.lines)
    else:
        found = _of_items(value_of(result, is_python=named.is_python), named)
    for name in found:
        if not taken.add(name):
            break
    problems = [_CUT] if taken.is_cut else []
    problems += [f"lines or items of the answer that are no names: {taken.unfit}"] if taken.unfit else []
    return Names(tuple(taken.names), "; ".join(problems) or None)


def all_names(pages: Sequence[Names]) -> Names:
    """Return the names of all pages."""
    if len(pages) == 1:
        return pages[0]
    names = tuple(dict.fromkeys(name for page in pages for name in page.names))
    problems = dict.fromkeys(page.problem for page in pages if page.problem is not None)
    if len(names) > MOST_ENTRIES:
        problems[_CUT] = None
    return Names(names[:MOST_ENTRIES], "; ".join(problems) or None)


def _of_lines(texts: Sequence[str], forms: Sequence[tuple[Form, str]]) -> Iterator[str | None]:
    """Yield the names in the lines of texts, None for a line without one."""
    if sum(map(len, texts)) > _LONGEST:
        raise TooLarge(f"an answer of more than {_LONGEST} characters")
    lines = (line for text in texts for line in _lines(text))
    for number, line in enumerate(lines):
        if number == _MOST_LINES:
            raise TooLarge(f"an answer of more than {_MOST_LINES} lines")
        if line.strip():
            yield from _of_line(line, forms)


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text. Other characters than line feeds may be part of a name."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end].removesuffix("\r")
        start = end + 1


def _of_line(line: str, forms: Sequence[tuple[Form, str]]) -> Iterator[str | None]:
    values = None
    for form, name in forms if len(line) <= LONGEST_NAME else ():
        values = form.match(line)
        if values is not None:
            if name:
                yield filled(name, values)
            return
    yield None


def _of_items(value: Any, named: Named) -> Iterator[str | None]:
    for pointer, name in named.items:
        wanted = variables_of(name)
        for key, item in _pairs(pointed(value, pointer)):
            values = {each: _member(item, key, each) for each in wanted}
            if any(text is None for text in values.values()):
                yield None
                continue
            is_directory = bool(named.directories) and all(
                _at(item, where) == expected for where, expected in named.directories.items()
            )
            yield filled(name, values) + ("/" if is_directory else "")


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        return iter(value.items())
    if isinstance(value, list):
        return ((str(number), item) for number, item in enumerate(value))
    if value is None:
        return iter(())
    raise ProtocolViolation("no array or object where the map says that the names are")


def _member(item: Any, key: str, name: str) -> str | None:
    """Return the value of a variable of an item as one name, or None. A slash in it is no end of the name."""
    value = key if name == "key" else item if name == "item" else _at(item, name)
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value)


def _at(item: Any, name: str) -> Any:
    """Return the member of an item: by its whole name, else by steps with dots between them."""
    if isinstance(item, dict) and name in item:
        return item[name]
    for step in name.split("."):
        item = item.get(step) if isinstance(item, dict) else None
    return item


def value_of(result: Mapping[str, Any], *, is_python: bool = False) -> Any:
    """Return the value of an answer: its structured content, or of its texts, if they are JSON (or Python).

    What SDKs wrap as `{"result": …}` counts as what is in it. Raise ProtocolViolation if there is no value, TooLarge.
    """
    value = parsed_result(result)
    if isinstance(value, dict) and value.keys() == {"result"}:
        value = value["result"]
    texts = texts_of(result) if value is None else [value] if isinstance(value, str) else []
    if len(texts) == 1:
        text = python_json(texts[0]) if is_python else texts[0]
        return parse_json(utf8(text), _BOUNDS)
    return _items(texts) if texts else value


def _items(texts: Sequence[str]) -> list[Any]:
    """Return an item a text: its value, or itself if it is no JSON. Together they have the bounds of one document."""
    found: list[Any] = []
    bounds = _BOUNDS
    for text in islice(texts, MOST_ENTRIES):
        data = utf8(text)
        left = bounds.values - check_json(data, bounds)
        try:
            found.append(parse_json(data, bounds))
        except ProtocolViolation:
            found.append(text)
        bounds = replace(bounds, size=bounds.size - len(data), values=left)
    return found


def python_json(text: str) -> str:
    """Return the JSON of the text that Python shows of a value: of texts, numbers, lists, tuples and dicts.

    Raise ProtocolViolation for a text without end, TooLarge. What else is no such value is no JSON either.
    """
    if len(text) > _LONGEST_PYTHON:
        raise TooLarge(f"a Python value of {len(text)} characters, more than {_LONGEST_PYTHON}")
    return _TOKENS.sub(_json_token, text)


def _json_token(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "text":
            return f'"{_ESCAPES.sub(_json_escape, found[0][1:-1])}"'
        case "word":
            return _WORDS[found[0]]
        case "open":
            return "["
        case "close":
            return "]"
    raise ProtocolViolation("a text of Python without its end")


def _json_escape(found: re.Match[str]) -> str:
    short, long, plain, raw = found.groups()
    if short is not None:
        return f"\\u00{short}"
    if long is not None:
        number = int(long, 16)
        if number > 0x10FFFF:
            raise ProtocolViolation(f"a text of Python with {shown(found[0])}")
        return chr(number) if number >= 0x20 else f"\\u{number:04x}"
    if raw is not None:
        return f"\\u{ord(raw):04x}"
    return "'" if plain == "'" else f"\\{plain}"


def mark_in(result: Mapping[str, Any], pointer: str | None, *, is_python: bool = False) -> Any:
    """Return what says that an answer has more pages, else None. Raise ProtocolViolation, TooLarge."""
    mark = None if pointer is None else pointed(value_of(result, is_python=is_python), pointer)
    if isinstance(mark, dict | list):
        raise ProtocolViolation(f"an object or an array at {pointer!r}, where the map says that the next page is")
    return mark or None


def joined(pages: Sequence[Any]) -> Content:
    """Return the content of all pages of `content_of`. Raise ProtocolViolation if they do not fit together."""
    if all(isinstance(page, str) for page in pages):
        return MemoryContent(utf8("".join(pages)))
    if len(pages) == 1:
        return pages[0] if isinstance(pages[0], MemoryContent) else MemoryContent(json_bytes(pages[0]))
    if all(isinstance(page, list) for page in pages):
        return MemoryContent(json_bytes([item for page in pages for item in page]))
    raise ProtocolViolation("pages that are neither texts nor arrays")


def content_of(result: Mapping[str, Any], pointer: str | None, answer: Literal["json", "python"] | None) -> Any:
    """Return the content of a file in the answer of a tool: a content, a text, or a value of JSON.

    Raise NotFound if it is not there, ProtocolViolation, and NotSupported for a text in which the server has replaced
    bytes, and for an answer of several parts.
    """
    if pointer is None and answer is None:
        parts = tool_result(result).parts
        if len(parts) != 1:
            raise NotSupported(f"an answer of {counted(len(parts), 'part')}; the map has to say which (result)")
        content = parts[0].content
        texts = texts_of(result)
        if len(texts) == 1:
            _require_whole(texts[0])
        return content
    value = pointed(value_of(result, is_python=answer == "python"), pointer or "")
    if value is None:
        raise NotFound(f"the answer has nothing at {pointer!r}, where the map says that the content is")
    if isinstance(value, str):
        _require_whole(value)
    return value


def _require_whole(text: str) -> None:
    """Raise NotSupported if a text cannot be the bytes that the server has."""
    if _REPLACED in text:
        raise NotSupported("not the bytes that the server has: a tool that answers texts has replaced some (U+FFFD)")


def require_answer(
    result: Mapping[str, Any], errors: Sequence[tuple[Form, type[BbfsError]]], arguments: Mapping[str, Any]
) -> None:
    """Raise the error of a result that is one, or whose text is one line that is an error by the map.

    Its class is that of the map, else NotFound where it says that what one of the arguments names is not there.
    """
    failed = is_error(result)
    if not failed and not errors:
        return
    texts = texts_of(result)
    text = "\n".join(texts).strip() if sum(map(len, texts)) <= 4 * MAX_ERROR else ""
    line, rest, _ = text.partition("\n")
    found = next((error for form, error in errors if (failed or not rest) and form.match(line) is not None), None)
    if found is None and failed and _says_absent(line, arguments):
        found = NotFound
    if found is not None:
        raise found(shown(text, MAX_ERROR))
    if failed:
        tool_result(result)
        raise ToolFailed("the tool failed")


def _says_absent(line: str, arguments: Mapping[str, Any]) -> bool:
    names = (each.rstrip("/").rpartition("/")[2] for each in arguments.values() if isinstance(each, str))
    return _ABSENT.search(line) is not None and any(name and name in line for name in names)


def below(names: Sequence[str], path: Path) -> Iterator[str]:
    """Yield the entries of a directory among paths from the root. A path that goes on makes a directory."""
    for name in names:
        parts = [part for part in name.split("/") if part]
        if len(parts) > len(path) and tuple(parts[: len(path)]) == path:
            ends = len(parts) == len(path) + 1 and not name.endswith("/")
            yield parts[len(path)] + ("" if ends else "/")
