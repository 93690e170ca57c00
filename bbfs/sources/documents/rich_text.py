"""Rich Text Format (version 1.9.1): paragraphs, headings, lists, tables and notes."""

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.sources.documents.tables import TableWriter

DEEPEST = 1000
"""Groups inside each other."""
_TOKEN = re.compile(
    rb"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,10})?[ ]?|\\'(?P<hex>[0-9a-fA-F]{2})|\\(?P<symbol>[^a-zA-Z])"
    rb"|(?P<brace>[{}])|(?P<text>[^\\{}\r\n]+)|[\r\n\\]"
)
_LEFT_OUT = frozenset((
    "fonttbl", "colortbl", "stylesheet", "info", "pict", "object", "header", "headerl", "headerr", "headerf",
    "footer", "footerl", "footerr", "footerf", "fldinst", "revtbl", "annotation", "atnid", "atnauthor", "filetbl",
    "nonshppict", "xe", "tc", "rxe", "listtext", "pntext", "ftnsep", "ftnsepc", "aftnsep", "aftnsepc", "sp",
    "shprslt", "template", "bkmkstart", "bkmkend", "nesttableprops", "private", "listtable",
))  # fmt: skip
"""Groups whose text is none of the document's, or repeats what a list or a shape has anyway."""
_KEPT = frozenset(("shpinst", "footnote", "shptxt"))
"""Groups marked as unknown to old programs, whose text is the document's."""
_CHARACTERS = {
    "tab": "\t", "line": "\n", "emdash": "—", "endash": "–", "lquote": "‘", "rquote": "’", "ldblquote": "“",
    "rdblquote": "”", "bullet": "•", "emspace": " ", "enspace": " ", "qmspace": " ", "nestcell": " ", "nestrow": " ",
}  # fmt: skip
_SYMBOLS = {b"~": " ", b"_": "-", b"\\": "\\", b"{": "{", b"}": "}"}
_LINE_ENDS = (b"0a", b"0d")
"""Bytes of a text that end a line in it."""
_ENDS = frozenset(("par", "sect", "page", "column"))
_FONT_CHARSETS = {
    77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gbk", 136: "big5", 161: "cp1253", 162: "cp1254",
    163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250",
}  # fmt: skip
"""The encoding of a font by its number in `fcharset`, where it is another than the document's."""
_CODE_PAGES = {10000: "mac_roman", 936: "gbk", 65001: "utf-8"}


def read(document: bytes) -> Iterator[str]:
    """Yield paragraphs and the rows of tables."""
    if not document[:100].lstrip().startswith(b"{\\rtf"):
        raise ProtocolViolation("is no Rich Text Format")
    yield from _Reader().pieces(document)


@dataclass(frozen=True, slots=True)
class _Group:
    """What holds until a group ends. skip: the characters after one in Unicode that old programs show instead."""

    is_left_out: bool = False
    is_hidden: bool = False
    is_font_table: bool = False
    is_note: bool = False
    skip: int = 1
    encoding: str | None = None


class _Reader:
    """Reads one document, token by token."""

    def __init__(self) -> None:
        self._groups = [_Group()]
        self._encoding = "cp1252"
        self._fonts: dict[int, str] = {}
        self._font = 0
        self._bytes = bytearray()
        """What is not decoded yet: a character may take two bytes, each with a token of its own."""
        self._to_skip = 0
        self._is_starred = False
        self._begins = False
        """Whether a group has begun and nothing has come since: a star elsewhere means nothing."""
        self._paragraph: list[str] = []
        self._around: list[list[str]] = []
        """The paragraphs around the open notes."""
        self._notes: list[str] = []
        self._note_count = 0
        self._level = 0
        self._bullet = ""
        self._indent = 0
        self._is_in_list = False
        self._is_in_table = False
        self._cells: list[str] = []
        self._table: TableWriter | None = None

    def pieces(self, document: bytes) -> Iterator[str]:
        at = 0
        while (token := _TOKEN.match(document, at)) is not None:
            at = token.end()
            kind = token.lastgroup
            if kind == "hex" and not self._to_skip and token["hex"].lower() in _LINE_ENDS:
                self._decode()
                self._add(" ")
                continue
            if kind in ("text", "hex"):
                self._take(bytes.fromhex(token["hex"].decode()) if kind == "hex" else token["text"])
                continue
            if kind is None:
                continue  # the end of a line means nothing
            self._decode()
            begins, self._begins = self._begins, kind == "brace" and token["brace"] == b"{"
            if kind == "brace":
                self._brace(token["brace"])
                if not self._groups:
                    break
            elif kind == "symbol":
                self._is_starred = begins and token["symbol"] == b"*"
                yield from self._symbol(token["symbol"])
            else:
                number = None if token["number"] is None else int(token["number"])
                if token["word"] == b"bin":
                    at += max(0, number or 0)  # the bytes of a picture or an object
                else:
                    yield from self._word(token["word"].decode(), number)
        self._groups = self._groups or [_Group()]
        self._decode()
        yield from self._end_paragraph()

    # -- characters --------------------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        if self._to_skip:
            skipped = min(self._to_skip, len(data))
            self._to_skip -= skipped
            data = data[skipped:]
        if not (self._groups[-1].is_left_out or self._groups[-1].is_hidden):
            self._bytes += data

    def _decode(self) -> None:
        if self._bytes:
            self._paragraph.append(self._bytes.decode(self._groups[-1].encoding or self._encoding, "replace"))
            self._bytes.clear()

    def _add(self, text: str) -> None:
        if not (self._groups[-1].is_left_out or self._groups[-1].is_hidden):
            self._paragraph.append(text)

    def _text(self) -> str:
        """Return the text of the paragraph. Characters beyond U+FFFF come as pairs."""
        text = "".join(self._paragraph)
        self._paragraph = []
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").strip()

    # -- groups ------------------------------------------------------------------------------------------------------

    def _brace(self, brace: bytes) -> None:
        self._to_skip, self._is_starred = 0, False
        if brace == b"{":
            if len(self._groups) > DEEPEST:
                raise TooLarge("nested too deeply")
            self._groups.append(replace(self._groups[-1], is_note=False))
            return
        group = self._groups.pop()
        if group.is_note:
            self._note_count += 1
            self._notes.append(f"[^{self._note_count}]: {' '.join(self._text().split())}\n\n")
            self._paragraph = self._around.pop()
            self._paragraph.append(f"[^{self._note_count}]")
        if len(self._groups) == 1:
            self._groups.clear()  # the end of the document, whatever follows

    def _change(self, **changes: bool | int | str | None) -> None:
        self._groups[-1] = replace(self._groups[-1], **changes)  # type: ignore[arg-type]

    # -- controls ----------------------------------------------------------------------------------------------------

    def _symbol(self, symbol: bytes) -> Iterator[str]:
        if symbol in b"\r\n":
            yield from self._word("par", None)
        elif symbol in _SYMBOLS:
            self._add(_SYMBOLS[symbol])

    def _word(self, word: str, number: int | None) -> Iterator[str]:
        is_starred, self._is_starred = self._is_starred, False
        if (is_starred and word not in _KEPT) or word in _LEFT_OUT:
            self._change(is_left_out=True, is_font_table=word == "fonttbl")
            if word in ("listtext", "pntext"):
                self._bullet = "- "
        if self._groups[-1].is_font_table:
            self._describe_font(word, number or 0)
        elif not self._groups[-1].is_left_out and not self._set(word, number):
            yield from self._lay_out(word, number)

    def _describe_font(self, word: str, number: int) -> None:
        if word == "f":
            self._font = number
        elif word == "fcharset" and number in _FONT_CHARSETS:
            self._fonts[self._font] = _FONT_CHARSETS[number]

    def _set(self, word: str, number: int | None) -> bool:
        """Change what holds for characters, or add one. Return whether the word does that."""
        value = 0 if number is None else number
        if word == "u":
            self._add(chr(value & 0xFFFF))
            self._to_skip = self._groups[-1].skip
        elif word == "uc":
            self._change(skip=max(0, value))
        elif word in _CHARACTERS:
            self._add(_CHARACTERS[word])
        elif word == "f":
            self._change(encoding=self._fonts.get(value))
        elif word in ("v", "deleted"):
            self._change(is_hidden=number != 0)
        elif word == "plain":
            self._change(is_hidden=False, encoding=None)
        elif word in ("ansicpg", "mac", "pc", "pca"):
            named = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}.get(word)
            with suppress(LookupError):
                encoding = named or _CODE_PAGES.get(value, f"cp{value}")
                codecs.lookup(encoding)
                self._encoding = encoding
        elif word == "footnote":
            self._change(is_note=True)
            self._around.append(self._paragraph)
            self._paragraph = []
        else:
            return False
        return True

    def _lay_out(self, word: str, number: int | None) -> Iterator[str]:
        if word == "pard":
            self._level, self._bullet, self._indent, self._is_in_table = 0, "", 0, False
        elif word == "intbl":
            self._is_in_table = True
        elif word == "outlinelevel":
            self._level = number + 1 if number is not None and 0 <= number < 6 else 0
        elif word == "ilvl":
            self._indent = number if number is not None and 0 <= number < 9 else 0
        elif word == "cell":
            self._cells.append(self._text())
        elif word == "row":
            if self._table is None:
                self._table = TableWriter()
                yield from self._end_list()
            yield self._table.row(self._cells)
            self._cells = []
        elif word in _ENDS:
            if self._around or self._is_in_table or self._cells:
                self._paragraph.append(" ")
            else:
                yield from self._end_paragraph()

    def _end_paragraph(self) -> Iterator[str]:
        text = self._text()
        if self._cells:
            text, self._cells = " ".join((*self._cells, text)), []  # of a row that never ends
        if self._table is not None:
            self._table = None
            yield "\n"
        if text and self._bullet:
            yield f"{'  ' * self._indent}{self._bullet}{text}\n"
            self._bullet, self._is_in_list = "", True
        elif text:
            yield from self._end_list()
            yield f"{'#' * self._level} {text}\n\n" if self._level else f"{text}\n\n"
        notes, self._notes = self._notes, []
        yield from notes

    def _end_list(self) -> Iterator[str]:
        if self._is_in_list:
            yield "\n"
        self._is_in_list = False
