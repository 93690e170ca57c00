"""The output of the commands: data on standard output, messages on standard error, JSON, colour, sizes and times."""

import codecs
import errno
import io
import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from bbfs.fuse.mountpoint import MountError
from bbfs.model.errors import BbfsError, ConfigError
from bbfs.model.quantities import counted as count

STATE_COLOURS = {"up": "green", "down": "red", "connecting": "yellow"}
"""The colours of the states of sources."""
OFFERS = ("templates", "tools", "prompts")
"""Names of numbers in the description of a source: of what it may have beside resources."""
_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udc7f\udd00-\udfff]"
)
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_DECEIVING = re.compile(rf'["\\]|{_CONTROL.pattern}|{_SURROGATE.pattern}')
_ESCAPES = {
    "\\": r"\\",
    '"': r"\"",
    "\a": r"\a",
    "\b": r"\b",
    "\t": r"\t",
    "\n": r"\n",
    "\v": r"\v",
    "\f": r"\f",
    "\r": r"\r",
}


def _bytes_of_names(error: UnicodeError, *, terminal: bool) -> tuple[bytes, int]:
    """Encode characters that UTF-8 cannot: bytes of a file name that is not UTF-8 unchanged, all others as escapes.

    A terminal may execute the bytes 0x80 to 0x9f, so there they are escapes as well.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = bytearray()
    for character in error.object[error.start : error.end]:
        byte = ord(character) - 0xDC00
        if (0xA0 if terminal else 0x80) <= byte <= 0xFF:
            found.append(byte)
        else:
            escaped = chr(byte) if 0x80 <= byte <= 0xFF else character
            found += escaped.encode("ascii", "backslashreplace")
    return bytes(found), error.end


codecs.register_error("bbfs.terminal", partial(_bytes_of_names, terminal=True))
codecs.register_error("bbfs.names", partial(_bytes_of_names, terminal=False))


def set_up_streams() -> None:
    """Make standard output and error accept names that are not UTF-8; Python's own would raise, or write `\\udce9`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="bbfs.terminal" if stream.isatty() else "bbfs.names")
    sys.excepthook = lambda _kind, error, _trace: _report(error)


def message(text: str) -> None:
    """Print a message on standard error, in one line: a source's text cannot begin another one."""
    click.echo(f"bbfs: {printable(text)}", err=True)


def messages(text: str) -> None:
    """Print a text of bbfs on standard error, each line as a message."""
    for each in text.split("\n"):
        message(each)


def failure(error: BaseException, about: str | None = None, why: str | None = None, *, of_mount: bool = False) -> None:
    """Print the reason of a failure in a line; with `--verbose` also the traceback.

    why: the reason of its source. of_mount: of the command that mounts, which logs at INFO unasked.
    """
    told = messages if isinstance(error, ConfigError) else message
    told(": ".join(filter(None, (about, reason(error), why))))
    # What is wrong with a configuration or a mount point is nowhere in the code.
    is_outside = isinstance(error, ConfigError | MountError) or (of_mount and isinstance(error, OSError))
    if logging.getLogger().isEnabledFor(logging.DEBUG if is_outside else logging.INFO):
        _report(error)


def _report(error: BaseException) -> None:
    click.echo(printable_traceback(error), err=True)


def printable_traceback(error: BaseException) -> str:
    """Return the traceback of an error. Its lines are indented, so that no line looks like a message of bbfs."""
    lines = "".join(traceback.format_exception(error)).rstrip("\n").split("\n")
    return "\n".join(f"  {printable(each)}" for each in lines)


def reason(error: BaseException) -> str:
    """Return the text of an error: bbfs's own text if it has one, else the system's text."""
    if isinstance(error, OSError) and not isinstance(error, BbfsError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def errno_name(error: BaseException) -> str:
    """Return the errno of an error as a program on the mount sees it, such as `ENOENT`."""
    number = error.errno if isinstance(error, BbfsError | OSError) and error.errno is not None else errno.EIO
    return errno.errorcode.get(number, str(number))


def printable(text: str) -> str:
    """Return `text` with escapes for the characters that control a terminal or the direction of a line."""
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape", "surrogatepass").decode(), text)


def quoted(name: str) -> str:
    """Return a name as git prints names: in double quotes with escapes if a character in it could deceive its reader.

    Such characters are control characters, line feeds, what turns the direction of a line, bytes that are not UTF-8,
    `"`, `\\`.
    """
    if not (_CONTROL.search(name) or _SURROGATE.search(name) or '"' in name or "\\" in name):
        return name
    return f'"{_DECEIVING.sub(_escape, name)}"'


def _escape(found: re.Match[str]) -> str:
    """Return an escape of C: of one letter, or octal for each byte."""
    known = _ESCAPES.get(found.group())
    if known is not None:
        return known
    return "".join(f"\\{byte:03o}" for byte in found.group().encode("utf-8", "bbfs.names"))


def line(text: str) -> None:
    """Print one line of data: unchanged for a program, printable on a terminal."""
    lines([text])


def lines(texts: Iterable[str]) -> None:
    """Print lines of data at once, each as `line` prints it."""
    if sys.stdout.isatty():
        said, form = "".join(f"{printable(text)}\n" for text in texts), "bbfs.terminal"
    else:
        said, form = "".join(f"{text}\n" for text in texts), "bbfs.names"
    click.echo(said.encode("utf-8", form), nl=False)


def names(texts: Iterable[str]) -> None:
    """Print names for a program, each with a NUL behind it."""
    click.echo(b"".join(text.encode("utf-8", "bbfs.names") + b"\0" for text in texts), nl=False)


class Contents:
    """Contents on standard output, byte for byte. size: the bytes so far."""

    def __init__(self) -> None:
        self.size = 0
        self._last = b"\n"

    def write(self, data: bytes) -> None:
        self.size += len(data)
        self._last = data[-1:] or self._last
        sys.stdout.buffer.write(data)

    def end(self) -> None:
        """End the line of a content without a final line feed on a terminal: what comes next begins a line."""
        if sys.stdout.isatty() and self._last != b"\n":
            self._last = b"\n"
            sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()


def as_json(value: Any) -> None:
    """Print one JSON document, with escapes for unprintable characters."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    if _CONTROL.search(text.replace("\n", "")) or _SURROGATE.search(text):
        text = json.dumps(value, indent=2, default=str)
    click.echo(text)


def fields(document: Mapping[str, Any]) -> None:
    """Print a document as `key: value` lines."""
    width = max(map(len, document), default=0) + 1
    for key, value in document.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        click.echo(f"{click.style(printable(f'{key}:').ljust(width), bold=True)} {printable(shown)}")


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print rows in aligned columns. right: the numbers of columns aligned on the right."""
    widths = [max(len(click.unstyle(cell)) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells: list[str] = []
        for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
            padding = " " * (width - len(click.unstyle(cell)))
            cells.append(padding + cell if number in right else cell + padding)
        click.echo("  ".join(cells).rstrip())


def local_time(modified_ns: int | None) -> str:
    """Return nanoseconds since the epoch as local time, to the minute."""
    if modified_ns is None:
        return "-"
    return datetime.fromtimestamp(modified_ns // 1_000_000_000, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def offers(document: Mapping[str, Any]) -> str:
    """Return what a source has beside resources, such as `2 templates, 1 tool`; empty if nothing."""
    return ", ".join(count(document[name], name.removesuffix("s")) for name in OFFERS if document.get(name))


def pending_writes(document: Mapping[str, Any]) -> str | None:
    """Return a sentence about the pending writes of a source, or None if it has no pending writes."""
    number = document.get("pending", 0)
    return f"{count(number, 'pending write')}; see 'bbfs pending'" if number else None


def no_colour() -> bool:
    """Return whether the user has turned colours off (https://no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))
