"""JSON with comments and trailing commas, as the configuration files of editors have it."""

import json
import re
from typing import Any

_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*+"?)|(?P<comment>//[^\r\n]*|/\*.*?\*/)|(?P<space>[ \t\r\n]+)'
    r"|(?P<unclosed>/\*.*)|(?P<other>.)",  # an unclosed comment is one token: its end is looked for only once
    re.DOTALL,
)
_NOT_NEWLINE = re.compile(r"[^\r\n]")


def strip_comments(text: str) -> str:
    """Return `text` with comments and trailing commas blanked out, and every other character at its place.

    So the lines and columns of a later syntax error are those of the file. The parser refuses what is no JSON: an
    unterminated comment, and a comma with nothing before it, stay.
    """
    out: list[str] = []
    comma: int | None = None  # where in `out` a comma stands that would be a trailing one, if a bracket came next
    previous = ""  # the last significant token
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if kind == "comment":
            token = _NOT_NEWLINE.sub(" ", token)
        elif kind != "space":
            if token in "]}" and comma is not None:
                out[comma] = " "
            comma = len(out) if token == "," and previous not in ("", ",", "[", "{", ":") else None
            previous = token
        out.append(token)
    return "".join(out)


def loads(text: str) -> Any:
    """Return the value of a JSON text with comments and trailing commas. Raise json.JSONDecodeError."""
    return json.loads(strip_comments(text.removeprefix("\ufeff")))
