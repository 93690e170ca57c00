"""Mails of Outlook ([MS-OXMSG]): who wrote what to whom, and what is attached."""

import email
import re
import struct
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.sources.documents import html_markdown, mail, rich_text
from bbfs.sources.documents.compound.compressed_text import decompressed
from bbfs.sources.documents.compound.streams import Streams
from bbfs.sources.documents.decoding import decoded

DEEPEST = 10
"""Mails attached to each other."""
MOST_PARTS = 1000
"""Attachments, and recipients whose addresses are shown."""
_PROPERTIES = "__properties_version1.0"
_ATTACHED = "__attach_version1.0_"
_SUBJECT, _BODY, _RICH_TEXT, _HTML, _HEADERS = 0x0037, 0x1000, 0x1009, 0x1013, 0x007D
_TIMES = (0x0039, 0x0E06)
"""When the mail was sent, or delivered."""
_REPLY_TO = 0x0050
_SENDER, _ADDRESSES = 0x0C1A, (0x5D01, 0x5D02, 0x0C1F, 0x0065)
_LONGEST_HEADERS = 1 << 16
"""Characters of the headers with which the mail came. They have what its properties lack."""
_TITLE = re.compile(r"\A[^:\r\n]*\r?\n")
"""The line with which Exchange begins them, which is no header."""
_RECIPIENT, _RECIPIENT_TYPE, _NAME = "__recip_version1.0_", 0x0C15, 0x3001
_RECIPIENTS = {"To": (1, 0x0E04), "Cc": (2, 0x0E03), "Bcc": (3, 0x0E02)}
"""The type of a recipient, and where the mail has the names of all of that type."""
_RECIPIENT_ADDRESSES = (0x39FE, 0x3003)
_NAMES = (0x3707, 0x3704, 0x3001)
_TYPE, _DATA, _ENCODINGS = 0x370E, 0x3701, (0x3FDE, 0x3FFD)
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)


def read(document: bytes) -> Iterator[str]:
    """Yield the mail below a heading with its subject, and the mails that are attached."""
    streams = Streams(document)
    if not streams.has(_PROPERTIES):
        raise ProtocolViolation("is no mail")
    yield from _Mail(streams, (), header=32).pieces(0)


class _Mail:
    """The mail, or the recipient, in one storage of a compound file.

    path: that of the storage. header: bytes before its properties.
    """

    def __init__(self, streams: Streams, path: tuple[str, ...], header: int) -> None:
        self._streams = streams
        self._path = path
        self._values = self._fixed(header)
        self._page = self._values.get(_ENCODINGS[0])
        page = next((self._values[tag] for tag in _ENCODINGS if tag in self._values), 1252) & 0xFFFFFFFF
        self._encoding = {65001: "utf-8", 20127: "ascii", 28591: "latin-1"}.get(page, f"cp{page}")

    def pieces(self, depth: int) -> Iterator[str]:
        if depth > DEEPEST:
            raise TooLarge("nested too deeply")
        yield f"# {' '.join(self._text(_SUBJECT).split()) or '(no subject)'}\n\n"
        sent = next((self._values[tag] for tag in _TIMES if tag in self._values), None)
        headers = {
            "From": _person(self._text(_SENDER), map(self._text, _ADDRESSES)),
            **self._recipients(),
            "Reply-To": self._text(_REPLY_TO),
            "Date": "" if sent is None else _moment(sent),
        }
        if transported := self._text(_HEADERS):
            carried = email.message_from_string(_TITLE.sub("", transported[:_LONGEST_HEADERS]))
            for name, shown in headers.items():
                if (value := str(carried.get(name, ""))) and ("@" not in shown if name != "Date" else not shown):
                    headers[name] = mail.decoded_words(value)
        yield "".join(f"- {name}: {' '.join(text.split())}\n" for name, text in headers.items() if text) + "\n"
        yield from self._body()
        yield from self._attachments(depth)

    def _body(self) -> Iterator[str]:
        if (text := self._text(_BODY)).strip():
            yield text.replace("\r\n", "\n").replace("\r", "\n").strip() + "\n\n"
        elif page := self._binary(_HTML) or self._text(_HTML).encode():
            yield (
                html_markdown.job(page, {"charset": self._encoding if self._page is not None else None}).decode() + "\n"
            )
        elif compressed := self._binary(_RICH_TEXT):
            yield from rich_text.read(decompressed(compressed))

    def _recipients(self) -> dict[str, str]:
        """Return the recipients by the names of headers."""
        found: dict[int, list[str]] = {}
        for place in self._storages(_RECIPIENT)[:MOST_PARTS]:
            one = _Mail(self._streams, (*self._path, place), header=8)
            person = _person(one._text(_NAME), map(one._text, _RECIPIENT_ADDRESSES))
            found.setdefault(one._values.get(_RECIPIENT_TYPE, 1) & 0xF, []).append(person)
        return {
            header: ", ".join(found[kind]) if kind in found else self._text(tag)
            for header, (kind, tag) in _RECIPIENTS.items()
        }

    def _storages(self, beginning: str) -> list[str]:
        """Return the names of the storages in this one that begin so."""
        return sorted({name for name in self._streams.names(*self._path) if name.startswith(beginning)})

    def _attachments(self, depth: int) -> Iterator[str]:
        places = self._storages(_ATTACHED)
        if len(places) > MOST_PARTS:
            raise TooLarge(f"has more than {MOST_PARTS} attachments")
        lines: list[str] = []
        for place in places:
            attached = _Attached(self._streams, (*self._path, place), self._encoding)
            if self._streams.has(*attached.mail):
                yield from _Mail(self._streams, attached.mail, header=24).pieces(depth + 1)
            else:
                lines.append(attached.line())
        if lines:
            yield f"Attachments:\n\n{''.join(lines)}\n"

    def _fixed(self, header: int) -> dict[int, int]:
        """Return the properties of a few bytes: numbers and times (section 2.4)."""
        said = self._streams.read(*self._path, _PROPERTIES)
        entries = (said[at : at + 16] for at in range(header, len(said) - 15, 16))
        return {tag >> 16: value for tag, _, value in map(struct.Struct("<IIq").unpack, entries)}

    def _text(self, tag: int) -> str:
        return _text(self._streams, self._path, tag, self._encoding)

    def _binary(self, tag: int) -> bytes:
        return self._streams.read(*self._path, _stream(tag, 0x0102))


class _Attached:
    """An attachment. mail: the path of the storage that it is, if it is a mail."""

    def __init__(self, streams: Streams, path: tuple[str, ...], encoding: str) -> None:
        self._streams, self._path, self._encoding = streams, path, encoding
        self.mail = (*path, _stream(_DATA, 0x000D))

    def line(self) -> str:
        names = (_text(self._streams, self._path, tag, self._encoding) for tag in _NAMES)
        name = next((" ".join(name.split()) for name in names if name), "(no name)")
        kind = _text(self._streams, self._path, _TYPE, self._encoding) or "application/octet-stream"
        size = len(self._streams.read(*self._path, _stream(_DATA, 0x0102)))
        return f"- {name} ({' '.join(kind.split())}, {size} bytes)\n"


def _person(name: str, addresses: Iterable[str]) -> str:
    """Return a name with its address. Those of Exchange, which are no addresses elsewhere, are left out."""
    address = next((text for text in addresses if "@" in text), "")
    return f"{name} <{address}>" if address and address != name else name


def _stream(tag: int, kind: int) -> str:
    return f"__substg1.0_{tag:04X}{kind:04X}"


def _text(streams: Streams, path: tuple[str, ...], tag: int, encoding: str) -> str:
    """Return a property that is a text, in UTF-16 or in the encoding of the mail."""
    if data := streams.read(*path, _stream(tag, 0x001F)):
        return data.decode("utf-16-le", "replace").rstrip("\0")
    return decoded(streams.read(*path, _stream(tag, 0x001E)), encoding).rstrip("\0")


def _moment(value: int) -> str:
    """Return a time in hundreds of nanoseconds since 1601 as a text, or "" for one beyond the calendar."""
    try:
        return format_datetime(_EPOCH + timedelta(microseconds=value // 10))
    except OverflowError:
        return ""
