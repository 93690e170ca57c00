"""The properties of XMP (ISO 16684-1): titles, descriptions, keywords, people and places."""

from collections.abc import Iterator
from contextlib import suppress
from xml.parsers import expat

from bbfs.model.errors import ProtocolViolation
from bbfs.sources.documents import xml_events

DEEPEST = 50
MOST_PROPERTIES = 2000
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_SPACES = frozenset(
    (
        "http://purl.org/dc/elements/1.1/",
        "http://ns.adobe.com/photoshop/1.0/",
        "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/",
        "http://iptc.org/std/Iptc4xmpExt/2008-02-29/",
        "http://ns.adobe.com/xap/1.0/",
        "http://ns.adobe.com/xap/1.0/rights/",
        "http://ns.adobe.com/lightroom/1.0/",
        "http://www.metadataworkinggroup.com/schemas/regions/",
        "http://ns.useplus.org/ldf/xmp/1.0/",
        "http://ns.microsoft.com/photo/1.0/",
        "http://www.digikam.org/ns/1.0/",
    )
)
"""The namespaces whose properties say something of the picture; the others are about cameras and programs."""
_NAMES = {
    "subject": "Keywords", "creator": "Author", "rights": "Copyright", "CreatorTool": "Software",
    "CreateDate": "Created", "ModifyDate": "Changed", "title": "Title", "description": "Description",
}  # fmt: skip
_LEFT_OUT = frozenset(
    (
        *("MetadataDate", "format", "ICCProfile", "ColorMode", "Thumbnails"),
        *("DocumentAncestors", "History", "SidecarForExtension"),
    )
)


def properties_of(packet: bytes) -> Iterator[tuple[str, str]]:
    """Yield the names and values of a packet. What comes after a fault in it is left out."""
    reader = _Reader()
    with suppress(expat.ExpatError):  # a camera that ends its packet too soon has said something before
        reader.parser.Parse(packet.strip(b"\0 \r\n\t"), True)
    yield from reader.found


class _Reader:
    def __init__(self) -> None:
        self.parser = xml_events.parser(self._start, self._end, self._characters)
        self.found: list[tuple[str, str]] = []
        self._names: list[str] = []
        self._text: list[str] = []

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._names) > DEEPEST:
            raise ProtocolViolation("nested too deeply")
        self._names.append(name)
        self._text = []
        for key, value in attributes.items():
            self._add(key, value)

    def _end(self, _name: str) -> None:
        text, self._text = "".join(self._text), []
        if text.strip():
            owner = next((each for each in reversed(self._names) if not each.startswith(_RDF)), "")
            self._add(owner, text)
        self._names.pop()

    def _characters(self, text: str) -> None:
        self._text.append(text)

    def _add(self, name: str, value: str) -> None:
        space, _, own = name.partition(" ")
        if space in _SPACES and own not in _LEFT_OUT and len(self.found) < MOST_PROPERTIES:
            self.found.append((_NAMES.get(own, own), " ".join(value.split())))
