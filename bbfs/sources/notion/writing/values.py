"""The values of a row that a text changes, as the API takes them. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from bbfs.model.errors import BbfsError, NotSupported, Rejected
from bbfs.sources.bounded.json import JsonBounds, check_json
from bbfs.sources.notion.inline import date_text
from bbfs.sources.notion.properties import flat
from bbfs.sources.notion.values import Json, as_id, items, mapping, string
from bbfs.sources.notion.writing.changes import sent_text
from bbfs.sources.notion.writing.inline import is_plain, plain_text_of

RULE = "---"
_VALUE = JsonBounds(size=1 << 18, values=2000, depth=4)


def front_matter(lines: Sequence[str]) -> tuple[dict[str, Any], int]:
    """Return the values at the beginning of a row's text, and the number of lines to its title. Raise Rejected."""
    if not lines or lines[0] != RULE:
        return {}, 0
    found: dict[str, Any] = {}
    for at, line in enumerate(lines[1:], start=1):
        if line == RULE:
            return found, at + 1 + (lines[at + 1 : at + 2] == [""])
        name, value = _pair(line, at + 1)
        if name in found:
            raise Rejected(f"line {at + 1}: {name!r:.80} is there twice")
        found[name] = value
    raise Rejected(f"the values that begin with the line {RULE!r} have no such line at their end")


def _pair(line: str, number: int) -> tuple[str, Any]:
    try:
        check_json(line.encode(), _VALUE)
        name, end = json.JSONDecoder().raw_decode(line)
        if not isinstance(name, str) or not line.startswith(": ", end):
            raise ValueError
        return name, json.loads(line[end + 2 :], parse_constant=_refuse)
    except (BbfsError, ValueError, RecursionError):
        raise Rejected(f'line {number}: a value is written as "NAME": VALUE, both as JSON') from None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def changed(given: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given values that differ. now: all columns. Raise Rejected for another name."""
    for name in given:
        if name not in now:
            raise Rejected(f"there is no column {name!r:.80}")
    return {name: value for name, value in given.items() if json.dumps(value) != json.dumps(now[name])}


def sent_values(values: Mapping[str, Any], columns: Json) -> dict[str, Any]:
    """Return values as the API takes them. columns: the values that are replaced, or the columns of a data source.

    Raise Rejected for a value that its column does not take, NotSupported for a value whose change would lose
    something.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        old = mapping(columns.get(name))
        kind = string(old.get("type"))
        try:
            found[name] = {kind: _sent(kind, value, old.get(kind))}
        except BbfsError as error:
            raise type(error)(f"{name!r:.80} ({kind}): {error}") from None
    return found


def _sent(kind: str, value: Any, old: Any) -> Any:
    if kind == "title":
        raise Rejected("the title is the name of the file: rename the file to change it")
    rule = _RULES.get(kind)
    if rule is None:
        raise Rejected("Notion makes this value itself, or takes none of its kind as text")
    return rule(value, old)


def _text(value: Any, old: Any) -> Any:
    if isinstance(old, list) and not is_plain(old):
        raise NotSupported("its text has formatting, links or mentions, which its value does not show")
    return sent_text(plain_text_of(_string(value)))


def _number(value: Any, old: Any) -> Any:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise Rejected("not a number or null")
    return value


def _checkbox(value: Any, old: Any) -> Any:
    if not isinstance(value, bool):
        raise Rejected("neither true nor false")
    return value


def _line(value: Any, old: Any) -> Any:
    return None if value is None else _string(value)


def _option(value: Any, old: Any) -> Any:
    return None if value is None else {"name": _string(value)}


def _options(value: Any, old: Any) -> Any:
    return [{"name": name} for name in _strings(value)]


def _date(value: Any, old: Any) -> Any:
    if mapping(old).get("time_zone") is not None:
        raise NotSupported("its date has a time zone, which its value does not show")
    if value is None:
        return None
    start, _, end = _string(value).partition(" → ")
    for each in filter(None, (start, end)):
        try:
            datetime.fromisoformat(each)
        except ValueError:
            raise Rejected(f"{each!r:.60} is no date as ISO 8601 has it") from None
    date = {"start": start, "end": end or None}
    if not start or date_text(date) != value:
        raise Rejected("a date is START or START → END")
    return date


def _relation(value: Any, old: Any) -> Any:
    return [{"id": _id(each)} for each in _strings(value)]


def _people(value: Any, old: Any) -> Any:
    """Take ids, and the names of people who are there already."""
    known = {name: string(person.get("id")) for person in items(old) for name in _shown(person)}
    return [{"object": "user", "id": known.get(each) or _id(each)} for each in _strings(value)]


def _shown(person: Json) -> list[str]:
    return [name for name in flat({"type": "people", "people": [person]}) if isinstance(name, str)]


def _id(text: str) -> str:
    found = as_id(text)
    if found is None:
        raise Rejected(f"{text!r:.60} is no id")
    return found


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise Rejected("not a text")
    return value


def _strings(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise Rejected("not a list of texts")
    return [*map(_string, value)]


_RULES: Mapping[str, Callable[[Any, Any], Any]] = {
    "rich_text": _text,
    "number": _number,
    "checkbox": _checkbox,
    "url": _line,
    "email": _line,
    "phone_number": _line,
    "select": _option,
    "status": _option,
    "multi_select": _options,
    "date": _date,
    "relation": _relation,
    "people": _people,
}
