"""Rows as CSV and JSON, for databases that do not write these themselves. Pure.

CSV is that of PostgreSQL's `COPY … (FORMAT csv, HEADER)`: NULL is nothing, an empty text is `""`, a value is quoted
where it holds a comma, a quote or a line break, and lines end with a line feed. Blobs are `\\x` and hex in both forms;
in JSON so is a text that is not UTF-8.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain
from math import isfinite, isnan
from typing import Any, Literal, TypeAlias, TypeVar

from bbfs.model.uri import encodable

P = TypeVar("P", str, bytes)
Write: TypeAlias = Callable[[bytes], None]
"""Takes the next bytes of a content."""
RowFormat: TypeAlias = Literal["csv", "ndjson", "parquet"]
"""Only DuckDB writes `parquet`."""
QueryValue: TypeAlias = str | int | Decimal | bool | date | datetime | None
QueryValues: TypeAlias = Mapping[str, QueryValue]
"""The values of the parameters of a query."""
CHUNK = 1 << 18
"""Approximate bytes of one write."""
BLOB = re.compile(r"\\x((?:[0-9a-f]{2})*)")
"""A blob as rows have it."""
_QUOTED = re.compile(r'[,"\n\r]')


def write_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], format: RowFormat, write: Write) -> None:
    """Write all rows as text; CSV begins with a line of names."""
    if format == "csv":
        lines = chain([csv_line(columns)], map(csv_line, rows))
    else:
        names = [json_text(column) for column in columns]
        lines = (_object(names, row, ",", ":") + "\n" for row in rows)
    in_portions(lines, lambda held: encoded("".join(held)), write)


def in_portions(pieces: Iterable[P], join: Callable[[list[P]], bytes], write: Write) -> None:
    """Write all pieces, joined to portions of about `CHUNK`."""
    held: list[P] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= CHUNK:
            write(join(held))
            held.clear()
            size = 0
    write(join(held))


def encoded(text: str) -> bytes:
    """Encode a text as UTF-8; surrogates become the bytes that the database had."""
    return text.encode("utf-8", "surrogateescape")


def csv_line(row: Sequence[Any]) -> str:
    alone = len(row) == 1
    return ",".join([_csv_field(value, alone) for value in row]) + "\n"


def _csv_field(value: Any, alone: bool) -> str:
    if value is None:
        return ""
    text = value if type(value) is str else value_as_text(value)
    # `\\.` alone on a line would end the data of a COPY … FROM.
    if not text or _QUOTED.search(text) or (alone and text == "\\."):
        return '"' + text.replace('"', '""') + '"'
    return text


def value_as_text(value: Any) -> str:
    """Return a value as PostgreSQL would write it."""
    match value:
        case bool():
            return "t" if value else "f"
        case float():
            return repr(value) if isfinite(value) else "NaN" if isnan(value) else f"{'-' * (value < 0)}Infinity"
        case bytes() | bytearray() | memoryview():
            return "\\x" + bytes(value).hex()
        case datetime():
            return value.isoformat(" ")
        case dict() | list():
            return json_text(value)
    return str(value)


def row_json(columns: Sequence[str], row: Sequence[Any]) -> bytes:
    """Return one row as an object, with a line for each column."""
    return encoded(_object([json_text(column) for column in columns], row, ",\n ", ":") + "\n")


def _object(names: Sequence[str], row: Sequence[Any], comma: str, colon: str) -> str:
    # Written by hand, since two columns of a query may have one name.
    pairs = [f"{name}{colon}{json_text(value)}" for name, value in zip(names, row, strict=True)]
    return "{" + comma.join(pairs) + "}"


def json_text(value: Any) -> str:
    if isinstance(value, Decimal) and value.is_finite():
        return str(value)  # with all its digits
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    match value:
        case str():
            return value if encodable(value) else "\\x" + encoded(value).hex()
        case None | bool() | int():
            return value
        case float():
            return value if isfinite(value) else value_as_text(value)
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case date() | time():
            return value.isoformat()
    return value_as_text(value)
