"""XML of a stranger's server, parsed within bounds on its structure, in portions between turns of the event loop.

Expat builds what a document says: 4 MiB of `<a/>` are a million elements. So the bounds are checked on the bytes,
before the parser sees them. Namespaces stay unresolved and attributes are dropped: a short document can repeat a long
namespace or have many attributes, and no answer here needs them.
"""

from collections.abc import AsyncIterable, Callable
from xml.etree import ElementTree
from xml.parsers import expat

import trio

from bbfs.model.errors import ProtocolViolation
from bbfs.model.redaction import shown

MAX_TAGS = 50_000
"""Limit on the tags of a document. A page of an S3 listing has a thousand entries of at most 26 tags."""
LONGEST = 1 << 14
"""Bytes that a tag and the text after it may have; a key of S3 has at most 3 KiB in a listing."""
LONGEST_ENTRY = 1 << 16
"""Bytes of one entry in a document that is read entry by entry, all that is between two entries included."""
_PORTION = 1 << 14
"""Bytes that are parsed between two turns of other tasks."""
_FORBIDDEN = (b"<!DOCTYPE", b"<!ENTITY", b"\0")
"""A document type may define entities. Only XML in UTF-16, in which it would not be found, has zero bytes."""
_OVERLAP = max(map(len, _FORBIDDEN)) - 1


async def parse_xml(body: bytes) -> ElementTree.Element:
    """Return the root of a document. Raises ProtocolViolation."""
    parser = _Parser(body)
    for begin in range(0, len(body), _PORTION):
        parser.feed(body[begin : begin + _PORTION])
        await trio.lowlevel.checkpoint()
    return parser.root()


def parse_small_xml(body: bytes) -> ElementTree.Element:
    """Return the root of a document of some kilobytes, without a turn of other tasks. Raises ProtocolViolation."""
    parser = _Parser(body)
    parser.feed(body)
    return parser.root()


async def read_entries(pieces: AsyncIterable[bytes], root: str, take: Callable[[ElementTree.Element], bool]) -> None:
    """Give each child of the root to `take` while the document arrives, until it returns False.

    root: its name. The caller bounds the document, and what it keeps of the entries. Raises ProtocolViolation.
    """
    parser = _EntryParser(root)
    async for piece in pieces:
        for begin in range(0, len(piece), _PORTION):
            if not all(map(take, parser.feed(piece[begin : begin + _PORTION]))):
                return
            await trio.lowlevel.checkpoint()
    parser.end()


def local_name(element: ElementTree.Element) -> str:
    """Return the name of an element without the prefix of its namespace."""
    return _local(element.tag)


def _local(name: str) -> str:
    return name.rpartition(":")[2]


def _expat() -> expat.XMLParserType:
    # The given encoding overrides a declared one, in which `<` may be another byte than the one that was counted.
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    return parser


def _parse(parser: expat.XMLParserType, portion: bytes, *, is_last: bool = False) -> None:
    try:
        parser.Parse(portion, is_last)
    except expat.ExpatError as error:
        raise ProtocolViolation(f"an answer that is no XML: {error}") from None


class _Parser:
    def __init__(self, body: bytes) -> None:
        _check(body)
        self._builder = builder = ElementTree.TreeBuilder()
        self._expat = _expat()
        self._expat.StartElementHandler = lambda name, _attributes: builder.start(name, {})
        self._expat.EndElementHandler = builder.end
        self._expat.CharacterDataHandler = builder.data

    def feed(self, portion: bytes) -> None:
        _parse(self._expat, portion)

    def root(self) -> ElementTree.Element:
        _parse(self._expat, b"", is_last=True)
        return self._builder.close()


class _EntryParser:
    """A parser for a document that arrives in pieces. It keeps one entry, of a bounded length."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._expat = _expat()
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._finish
        self._expat.CharacterDataHandler = self._characters
        self._end = b""  # of the document so far
        self._size = self._last = 0  # bytes until the end, and until the last entry
        self._depth = 0
        self._builder = ElementTree.TreeBuilder()
        self._complete: list[ElementTree.Element] = []

    def feed(self, piece: bytes) -> list[ElementTree.Element]:
        """Return the entries that end in a piece. Raises ProtocolViolation."""
        seen = self._end + piece
        _refuse_entities(seen)
        self._end = seen[-_OVERLAP:]
        self._size += len(piece)
        _parse(self._expat, piece)
        if self._size - self._last > LONGEST_ENTRY + len(piece):
            raise ProtocolViolation(f"an answer with an entry of more than {LONGEST_ENTRY} bytes")
        complete, self._complete = self._complete, []
        return complete

    def end(self) -> None:
        """Raise ProtocolViolation if the document is not complete."""
        _parse(self._expat, b"", is_last=True)

    def _start(self, name: str, _attributes: object) -> None:
        self._depth += 1
        if self._depth > 1:
            self._builder.start(name, {})
        elif _local(name) != self._root:
            raise ProtocolViolation(f"an answer that is <{shown(_local(name)[:40])}>, not <{self._root}>")

    def _finish(self, name: str) -> None:
        self._depth -= 1
        if self._depth:
            element = self._builder.end(name)
            if self._depth == 1:
                self._complete.append(element)
                self._builder, self._last = ElementTree.TreeBuilder(), self._expat.CurrentByteIndex

    def _characters(self, text: str) -> None:
        if self._depth > 1:
            self._builder.data(text)


def _refuse_entities(data: bytes) -> None:
    if any(word in data for word in _FORBIDDEN):
        raise ProtocolViolation("an answer that defines entities of its own, or may")


def _check(body: bytes) -> None:
    _refuse_entities(body)
    if body.count(b"<") > MAX_TAGS:
        raise ProtocolViolation(f"an answer of more than {MAX_TAGS} XML tags")
    if max(map(len, body.split(b"<"))) > LONGEST:
        raise ProtocolViolation(f"an answer with an XML tag or a text of more than {LONGEST} bytes")
