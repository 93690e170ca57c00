"""XML of a stranger's server, parsed within bounds on its structure, in portions between turns of the event loop.

Expat builds what a document says: 4 MiB of `<a/>` are a million elements. So the bounds are checked on the bytes,
before the parser sees them. Namespaces stay unresolved and attributes are dropped: a short document can repeat a long
namespace or have many attributes, and no answer here needs them.
"""

from xml.etree import ElementTree
from xml.parsers import expat

import trio

from bbfs.model.errors import ProtocolViolation

MAX_TAGS = 50_000
"""Limit on the tags of a document. A page of an S3 listing has a thousand entries of at most 26 tags."""
LONGEST = 1 << 14
"""Bytes that a tag and the text after it may have; a key of S3 has at most 3 KiB in a listing."""
_PORTION = 1 << 14
"""Bytes that are parsed between two turns of other tasks."""


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


def local_name(element: ElementTree.Element) -> str:
    """Return the name of an element without the prefix of its namespace."""
    return element.tag.rpartition(":")[2]


class _Parser:
    def __init__(self, body: bytes) -> None:
        _check(body)
        self._builder = builder = ElementTree.TreeBuilder()
        # The given encoding overrides a declared one, in which `<` may be another byte than the one that was counted.
        self._expat = expat.ParserCreate("utf-8")
        self._expat.buffer_text = True
        self._expat.StartElementHandler = lambda name, _attributes: builder.start(name, {})
        self._expat.EndElementHandler = builder.end
        self._expat.CharacterDataHandler = builder.data

    def feed(self, portion: bytes, *, is_last: bool = False) -> None:
        try:
            self._expat.Parse(portion, is_last)
        except expat.ExpatError as error:
            raise ProtocolViolation(f"an answer that is no XML: {error}") from None

    def root(self) -> ElementTree.Element:
        self.feed(b"", is_last=True)
        return self._builder.close()


def _check(body: bytes) -> None:
    # Only XML in UTF-16 has zero bytes, and these words would not be found in it.
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body or b"\0" in body:
        raise ProtocolViolation("an answer that defines entities of its own, or may")
    if body.count(b"<") > MAX_TAGS:
        raise ProtocolViolation(f"an answer of more than {MAX_TAGS} XML tags")
    if max(map(len, body.split(b"<"))) > LONGEST:
        raise ProtocolViolation(f"an answer with an XML tag or a text of more than {LONGEST} bytes")
