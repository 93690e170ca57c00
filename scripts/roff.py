"""Pages of the manual: the parts that a page is made of, written as roff for man(1) or as Markdown.

The inline text of a part is Markdown with `code`, **bold** and links only. What a command says in plain text is made
such text by `plain`.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_INLINE = re.compile(r"(?<!\\)``(.+?)``|(?<!\\)`(.+?)`|\*\*(.+?)\*\*|\[((?:[^]`]|`[^`]*`)+)\]\([^)]*\)")
_MARKDOWN = re.compile(r"([\\*<`]|\[(?=[^]]*\]\())")
"""What Markdown would read as something else in plain text."""
_ESCAPED = re.compile(r"\\([\\*<`\[])")
_OPTION = re.compile(r"(?<![\w-])-{1,2}(?=\w)")
"""The dash of an option, which has to stay one where a reader copies it."""


@dataclass(frozen=True)
class Heading:
    """The heading of a section, or of a part of a section where level is 2."""

    text: str
    level: int = 1


@dataclass(frozen=True)
class Name:
    """The name of a page of the manual, and what the page is about, as whatis(1) lists them."""

    name: str
    about: str


@dataclass(frozen=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True)
class Literal:
    """Lines that stay as they are."""

    text: str


@dataclass(frozen=True)
class Terms:
    """Terms, each with its meaning: options, variables, keys. A term is shown as code."""

    rows: Sequence[tuple[str, str]]


Part = Heading | Name | Paragraph | Literal | Terms


def plain(text: str) -> str:
    """Return the inline text that shows a plain text."""
    return _MARKDOWN.sub(r"\\\1", text)


def manual(name: str, section: int, parts: Iterable[Part], *, version: str, date: str) -> str:
    """Return a page of the manual. date: as YYYY-MM-DD; may be empty."""
    lines = [f'.TH "{name.upper()}" {section} "{date}" "bbfs {version}" "bbfs"', ".nh", ".ad l"]
    fresh = True  # nothing since the heading, which makes room itself
    for part in parts:
        lines += [line for line in _part(part, fresh) if line]
        fresh = isinstance(part, Heading)
    return "\n".join(lines) + "\n"


def _part(part: Part, fresh: bool) -> Iterator[str]:
    space = "" if fresh else ".PP"
    match part:
        case Heading(text, level):
            yield f'.{"SH" if level == 1 else "SS"} "{_text(text).replace(chr(34), chr(92) + "(dq")}"'
        case Name(name, about):
            yield rf"{name} \- {_text(about)}"
        case Paragraph(text):
            yield space
            yield from _wrapped(text)
        case Literal(text):
            yield from (space, ".RS 4", ".nf")
            yield from (_line(_code(line)) or "\\&" for line in text.splitlines())
            yield from (".fi", ".RE")
        case Terms(rows):
            for term, meaning in rows:
                yield from (".TP", rf"\fB{_code(term)}\fR", *(_wrapped(meaning) or ["\\&"]))


def _wrapped(markdown: str) -> list[str]:
    """Return inline text as lines of at most 79 characters, as roff is written."""
    lines = textwrap.wrap(_text(markdown), 79, break_long_words=False, break_on_hyphens=False)
    return [_line(line) for line in lines]


def _line(text: str) -> str:
    """Return a line that begins no request."""
    return rf"\&{text}" if text[:1] in (".", "'") else text


def _text(markdown: str) -> str:
    """Return inline Markdown as roff."""
    parts: list[str] = []
    end = 0
    for found in _INLINE.finditer(markdown):
        parts.append(_prose(markdown[end : found.start()]))
        code = found[1] or found[2]
        parts.append(rf"\fB{_code(code)}\fR" if code else rf"\fB{_prose(found[3])}\fR" if found[3] else _text(found[4]))
        end = found.end()
    return "".join([*parts, _prose(markdown[end:])])


def _prose(text: str) -> str:
    text = _ascii(_ESCAPED.sub(r"\1", text).replace("\\", "\\e"))
    return _OPTION.sub(lambda found: found[0].replace("-", "\\-"), text)


def _code(text: str) -> str:
    return _ascii(text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga"))


def _ascii(text: str) -> str:
    """Return roff in ASCII, since a terminal may have no more."""
    text = text.replace("…", "...")
    return "".join(each if each.isascii() else f"\\[u{ord(each):04X}]" for each in text)


def markdown(parts: Iterable[Part], *, depth: int) -> str:
    """Return the parts as Markdown. depth: the level of the headings of sections; those below become bold."""
    written: list[str] = []
    for part in parts:
        match part:
            case Heading(text, level):
                written.append(f"{'#' * depth} {text}" if level == 1 else f"**{text}**")
            case Name(name, about):
                written.append(f"`{name}`: {about}")
            case Paragraph(text):
                written.append(text)
            case Literal(text):
                written.append(f"```\n{text}\n```")
            case Terms(rows):
                cells = ((_cell(f"`` {term} ``" if "`" in term else f"`{term}`"), _cell(said)) for term, said in rows)
                written.append("\n".join(["| | |", "|---|---|", *(f"| {term} | {said} |" for term, said in cells)]))
    return "\n\n".join(written) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
