"""PowerPoint files before 2007 ([MS-PPT]): the texts of the slides in their order, and the notes of the speaker.

Each save may append changed slides. The directory of the last save says where each slide is now.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.sources.documents.compound.drawn import Drawn
from bbfs.sources.documents.compound.streams import Streams
from bbfs.sources.documents.decoding import decoded

MOST_RECORDS = 1_000_000
MOST_SAVES = 10_000
DEEPEST = 60
"""Records inside each other."""
_BOTH = ("PP97_DUALSTORAGE",)
"""The storage with the streams of this version in a file that PowerPoint 95 can read as well."""
_HEADER = struct.Struct("<HHI")
_DOCUMENT, _SLIDE, _SLIDE_ATOM, _NOTES, _MASTER = 1000, 1006, 1007, 1008, 1016
_PERSISTED, _OUTLINE_TEXT, _TEXT, _BYTES = 1011, 3998, 4000, 4008
_LIST, _EDIT, _DIRECTORY = 4080, 4085, 6002
_TEXT_HEADER = 3999
_FOOTERS, _FOOTERS_SHOWN, _STRING = 4057, 4058, 4026
_OF_ALL_SLIDES = 3
_STRINGS = ((0, 0x04), (2, 0x20))
"""The instances of the date that the author has written and of the footer, and the flags that show them (2.4.15.2)."""
_OF_SLIDES, _OF_MASTERS, _OF_NOTES = 0, 1, 2
_SHAPE, _CLIENT_DATA, _PLACEHOLDER = 0xF004, 0xF011, 3011
_SHOWS_MASTER = 1
_MOST_MASTERS = 2
"""The master of a slide, and the one of a title master."""
_TO_PICTURES, _PICTURE = (1035, 0xF000, 0xF001), 0xF007
_PROPERTIES, _PICTURE_OF_SHAPE = 0xF00B, 0x0104
_TO_COMMENTS, _COMMENT = (5000, 5002, 5003), 12000
_CONTAINER = 0xF
_ENCRYPTED = 0xF3D1C4DF


def read(document: bytes) -> Iterator[str]:
    """Yield each slide below a heading with its number, and the notes of its speaker."""
    streams = Streams(document)
    beside = _BOTH if streams.has(*_BOTH) else ()
    data, user, pictures = (streams.read(*beside, name) for name in ("PowerPoint Document", "Current User", "Pictures"))
    if not beside and (plain := streams.read("Text_Content")):
        yield decoded(plain).replace("\r", "\n")
    else:
        yield from text_of(data, user, pictures)


def text_of(data: bytes, user: bytes, pictures: bytes) -> Iterator[str]:
    """Yield the texts of a file. Its streams are "PowerPoint Document", "Current User" and "Pictures"."""
    if len(data) < 8:
        raise ProtocolViolation("is no PowerPoint file")
    if len(user) >= 16 and struct.unpack_from("<I", user, 12)[0] == _ENCRYPTED:
        raise ProtocolViolation("is encrypted")
    edit = struct.unpack_from("<I", user, 16)[0] if len(user) >= 20 else len(data)
    yield from _Slides(data, edit, Drawn(pictures)).pieces()


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


@dataclass(frozen=True, slots=True)
class _Atom:
    """What a slide says of itself (2.5.10): the numbers of its master and of its notes, and its flags."""

    master: int
    notes: int
    flags: int


class _Slides:
    def __init__(self, data: bytes, edit: int, drawn: Drawn) -> None:
        self._data = data
        self._drawn = drawn
        self._left = MOST_RECORDS
        self._places: dict[int, int] = {}
        self._document = self._read_saves(edit)
        self._pictures = [*self._listed_pictures(self._document, 0)]

    def pieces(self) -> Iterator[str]:
        lists = {_OF_SLIDES: list[_Listed](), _OF_MASTERS: list[_Listed](), _OF_NOTES: list[_Listed]()}
        common = self._footer(self._document, _OF_ALL_SLIDES)
        for record in self._children(self._document, 0):
            if record.type == _LIST and record.instance in lists:
                lists[record.instance] += self._listed(record)
        notes = {each.number: each for each in lists[_OF_NOTES]}
        self._masters = {each.number: each.reference for each in lists[_OF_MASTERS]}
        for number, slide in enumerate(lists[_OF_SLIDES], 1):
            yield f"## Slide {number}\n\n"
            found = self._at(slide.reference, _SLIDE)
            own = self._footer(found, 0) if found else None
            foot = (common or []) if own is None else own
            texts = (*self._texts(found, slide.texts), *self._behind(found)) if found else slide.texts
            yield from (f"{text}\n\n" for text in (*texts, *foot) if text)
            yield from self._comments(found, 0) if found else ()
            said = notes.get(self._atom(found).notes) if found else None
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

    def _atom(self, slide: _Record) -> _Atom:
        for record in self._children(slide, 1):
            if record.type == _SLIDE_ATOM and record.end - record.begin >= 22:
                return _Atom(*struct.unpack_from("<IIH", self._data, record.begin + 12))
        return _Atom(0, 0, 0)

    def _behind(self, slide: _Record) -> Iterator[str]:
        """Yield the texts that its masters show on a slide: those of shapes that are no placeholders."""
        for _ in range(_MOST_MASTERS):
            atom = self._atom(slide)
            reference = self._masters.get(atom.master, -1)
            master = self._at(reference, _MASTER) or self._at(reference, _SLIDE)
            if master is None or not atom.flags & _SHOWS_MASTER:
                return
            yield from self._texts(master, None)
            slide = master

    def _footer(self, parent: _Record, instance: int) -> list[str] | None:
        """Return the date and the text at the foot of a slide, or None if the slide does not say (2.4.15)."""
        for record in self._children(parent, 0):
            if record.type == _FOOTERS and record.instance == instance:
                parts = list(self._children(record, 1))
                flags = (self._data[part.begin + 2 : part.end][:1] for part in parts if part.type == _FOOTERS_SHOWN)
                shown = int.from_bytes(next(flags, b""), "little")
                strings = {part.instance: self._text(part) for part in parts if part.type == _STRING}
                return [strings.get(number, "") for number, flag in _STRINGS if shown & flag]
        return None

    def _comments(self, parent: _Record, depth: int) -> Iterator[str]:
        """Yield the comments of a slide, with their authors (2.5.24)."""
        for record in self._children(parent, depth):
            if depth < len(_TO_COMMENTS):
                if record.type == _TO_COMMENTS[depth]:
                    yield from self._comments(record, depth + 1)
            elif record.type == _COMMENT:
                parts = (part for part in self._children(record, depth) if part.type == _STRING)
                strings = {part.instance: " ".join(self._text(part).split()) for part in parts}
                yield f"> {strings.get(0, '')}: {strings.get(1, '')}\n\n"

    def _listed_pictures(self, parent: _Record, depth: int) -> Iterator[int]:
        """Yield the place of each picture of the file, in the stream "Pictures" ([MS-ODRAW] 2.2.32)."""
        for record in self._children(parent, depth):
            if depth < len(_TO_PICTURES) and record.type == _TO_PICTURES[depth]:
                yield from self._listed_pictures(record, depth + 1)
            elif record.type == _PICTURE:
                data = self._data[record.begin : record.end]
                yield struct.unpack_from("<I", data, 28)[0] if len(data) >= 36 else -1

    def _picture(self, properties: _Record) -> str:
        """Return the text of the picture that properties of a shape name ([MS-ODRAW] 2.2.9)."""
        data = self._data[properties.begin : min(properties.end, properties.begin + 6 * properties.instance)]
        self._left -= len(data) // 6
        for code, value in struct.iter_unpack("<HI", data[: len(data) // 6 * 6]):
            if code & 0x3FFF == _PICTURE_OF_SHAPE and 0 < value <= len(self._pictures):
                return self._drawn.text(self._pictures[value - 1])
        return ""

    def _is_placeholder(self, shape: _Record, depth: int) -> bool:
        return any(
            part.type == _PLACEHOLDER
            for record in self._children(shape, depth)
            if record.type == _CLIENT_DATA
            for part in self._children(record, depth)
        )

    def _texts(self, parent: _Record, outline: list[str] | None, depth: int = 1) -> Iterator[str]:
        """Yield the texts of the shapes in a record.

        outline: the texts that shapes refer to by their numbers; None for a master, whose placeholders are left out.
        """
        for record in self._children(parent, depth):
            text = ""
            if outline is None and record.type == _SHAPE and self._is_placeholder(record, depth):
                continue
            if record.is_container:
                yield from self._texts(record, outline, depth + 1)
            elif record.type in (_TEXT, _BYTES):
                text = self._text(record)
            elif record.type == _PROPERTIES:
                text = self._picture(record)
            elif record.type == _OUTLINE_TEXT and record.end - record.begin >= 4:
                number = struct.unpack_from("<I", self._data, record.begin)[0]
                text = outline[number] if outline and number < len(outline) else ""
            if text:
                yield text

    def _text(self, record: _Record) -> str:
        encoding = "latin-1" if record.type == _BYTES else "utf-16-le"
        self._left -= (record.end - record.begin) // 1000  # any number of slides may have the same texts
        text = self._data[record.begin : record.end].decode(encoding, "replace")
        return text.replace("\r", "\n").replace("\x0b", "\n").strip()
