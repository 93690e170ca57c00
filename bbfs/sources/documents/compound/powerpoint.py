"""PowerPoint files before 2007 ([MS-PPT]): the texts of the slides in their order, and the notes of the speaker.

Each save may append changed slides. The directory of the last save says where each slide is now.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.sources.documents.compound.streams import Streams

MOST_RECORDS = 1_000_000
MOST_SAVES = 10_000
DEEPEST = 60
"""Records inside each other."""
_HEADER = struct.Struct("<HHI")
_DOCUMENT, _SLIDE, _SLIDE_ATOM, _NOTES = 1000, 1006, 1007, 1008
_PERSISTED, _OUTLINE_TEXT, _TEXT, _BYTES = 1011, 3998, 4000, 4008
_LIST, _EDIT, _DIRECTORY, _ENCRYPTION = 4080, 4085, 6002, 12052
_TEXT_HEADER = 3999
_FOOTERS, _FOOTERS_SHOWN, _STRING = 4057, 4058, 4026
_OF_ALL_SLIDES = 3
_FOOTER, _HAS_FOOTER = 2, 0x20
_OF_SLIDES, _OF_NOTES = 0, 2
_CONTAINER = 0xF
_ENCRYPTED = 0xF3D1C4DF


def read(document: bytes) -> Iterator[str]:
    """Yield each slide below a heading with its number, and the notes of its speaker."""
    streams = Streams(document)
    yield from text_of(streams.read("PowerPoint Document"), streams.read("Current User"))


def text_of(data: bytes, user: bytes) -> Iterator[str]:
    """Yield the texts of a file. data and user: its streams "PowerPoint Document" and "Current User"."""
    if len(data) < 8:
        raise ProtocolViolation("is no PowerPoint file")
    if len(user) >= 16 and struct.unpack_from("<I", user, 12)[0] == _ENCRYPTED:
        raise ProtocolViolation("is encrypted")
    edit = struct.unpack_from("<I", user, 16)[0] if len(user) >= 20 else len(data)
    yield from _Slides(data, edit).pieces()


@dataclass(frozen=True, slots=True)
class _Record:
    """A record: its instance and type, and where its contents begin and end."""

    instance: int
    type: int
    begin: int
    end: int
    is_container: bool


@dataclass(frozen=True, slots=True)
class _Listed:
    """A slide or the notes of one, as the document lists it: its place in the directory, its number, its texts."""

    reference: int
    number: int
    texts: list[str]


class _Slides:
    def __init__(self, data: bytes, edit: int) -> None:
        self._data = data
        self._left = MOST_RECORDS
        self._places: dict[int, int] = {}
        self._document = self._read_saves(edit)

    def pieces(self) -> Iterator[str]:
        lists = {_OF_SLIDES: list[_Listed](), _OF_NOTES: list[_Listed]()}
        common = self._footer(self._document, _OF_ALL_SLIDES)
        for record in self._children(self._document, 0):
            if record.type == _LIST and record.instance in lists:
                lists[record.instance] += self._listed(record)
        notes = {each.number: each for each in lists[_OF_NOTES]}
        for number, slide in enumerate(lists[_OF_SLIDES], 1):
            yield f"## Slide {number}\n\n"
            found = self._at(slide.reference, _SLIDE)
            texts = list(self._texts(found, slide.texts)) if found else slide.texts
            footer = self._footer(found, 0) if found else None
            yield from (f"{text}\n\n" for text in (*texts, common if footer is None else footer) if text)
            said = notes.get(self._notes_of(found)) if found else None
            page = self._at(said.reference, _NOTES) if said else None
            spoken = list(self._texts(page, said.texts)) if said and page else []
            if any(text.strip("*\n ") for text in spoken):
                yield f"### Notes of slide {number}\n\n"
                yield from (f"{text}\n\n" for text in spoken if text.strip("*\n "))

    def _read_saves(self, edit: int) -> _Record:
        """Return the record of the document, and fill the directory, from the last save on back."""
        document: int | None = None
        for _ in range(MOST_SAVES):
            record = self._record(edit)
            if record is None or record.type != _EDIT or record.end - record.begin < 20:
                break
            before, directory, reference = struct.unpack_from("<III", self._data, record.begin + 8)
            document = reference if document is None else document
            self._read_directory(directory)
            if not 0 < before < edit:
                break
            edit = before
        found = self._at(document, _DOCUMENT) if document is not None else None
        if found is None:
            raise ProtocolViolation("has no readable directory of slides")
        return found

    def _read_directory(self, at: int) -> None:
        record = self._record(at)
        if record is None or record.type != _DIRECTORY:
            raise ProtocolViolation("has a damaged directory of slides")
        at = record.begin
        while at + 4 <= record.end:
            said = struct.unpack_from("<I", self._data, at)[0]
            first, count = said & 0xFFFFF, min(said >> 20, (record.end - at - 4) // 4)
            for number, place in enumerate(struct.unpack_from(f"<{count}I", self._data, at + 4)):
                self._places.setdefault(first + number, place)
            at += 4 + 4 * count

    def _record(self, at: int) -> _Record | None:
        if at + _HEADER.size > len(self._data):
            return None
        self._left -= 1
        if self._left < 0:
            raise TooLarge(f"has more than {MOST_RECORDS} records")
        version, kind, size = _HEADER.unpack_from(self._data, at)
        begin = at + _HEADER.size
        return _Record(version >> 4, kind, begin, min(begin + size, len(self._data)), version & 0xF == _CONTAINER)

    def _at(self, reference: int, kind: int) -> _Record | None:
        place = self._places.get(reference)
        record = None if place is None else self._record(place)
        return record if record is not None and record.type == kind else None

    def _children(self, parent: _Record, depth: int) -> Iterator[_Record]:
        if depth > DEEPEST:
            raise TooLarge("nested too deeply")
        at = parent.begin
        while at < parent.end and (record := self._record(at)) is not None:
            yield record
            at = record.end

    def _listed(self, parent: _Record) -> Iterator[_Listed]:
        texts: list[str] = []
        for record in self._children(parent, 1):
            if record.type == _PERSISTED and record.end - record.begin >= 16:
                reference, _, _, number = struct.unpack_from("<IIII", self._data, record.begin)
                texts = []
                yield _Listed(reference, number, texts)
            elif record.type == _TEXT_HEADER:
                texts.append("")  # a text may be missing after its header
            elif record.type in (_TEXT, _BYTES) and texts:
                texts[-1] = self._text(record)

    def _notes_of(self, slide: _Record) -> int:
        for record in self._children(slide, 1):
            if record.type == _SLIDE_ATOM and record.end - record.begin >= 20:
                return int(struct.unpack_from("<I", self._data, record.begin + 16)[0])
        return 0

    def _footer(self, parent: _Record, instance: int) -> str | None:
        """Return the text at the foot of a slide, "" if it shows none, or None if the slide does not say (2.4.15)."""
        for record in self._children(parent, 0):
            if record.type == _FOOTERS and record.instance == instance:
                parts = list(self._children(record, 1))
                flags = (self._data[part.begin + 2 : part.end][:1] for part in parts if part.type == _FOOTERS_SHOWN)
                if not any(_HAS_FOOTER & int.from_bytes(each, "little") for each in flags):
                    return ""
                footer = (part for part in parts if part.type == _STRING and part.instance == _FOOTER)
                return next(map(self._text, footer), "")
        return None

    def _texts(self, parent: _Record, outline: list[str], depth: int = 1) -> Iterator[str]:
        """Yield the texts of the shapes in a record. outline: the texts that shapes refer to by their numbers."""
        for record in self._children(parent, depth):
            text = ""
            if record.is_container:
                yield from self._texts(record, outline, depth + 1)
            elif record.type in (_TEXT, _BYTES):
                text = self._text(record)
            elif record.type == _OUTLINE_TEXT and record.end - record.begin >= 4:
                number = struct.unpack_from("<I", self._data, record.begin)[0]
                text = outline[number] if number < len(outline) else ""
            if text:
                yield text

    def _text(self, record: _Record) -> str:
        encoding = "latin-1" if record.type == _BYTES else "utf-16-le"
        text = self._data[record.begin : record.end].decode(encoding, "replace")
        return text.replace("\r", "\n").replace("\x0b", "\n").strip()
