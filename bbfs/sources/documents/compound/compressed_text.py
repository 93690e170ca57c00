"""The compressed Rich Text Format of Outlook ([MS-OXRTFCP])."""

import struct

from bbfs.model.errors import ProtocolViolation, TooLarge

MOST_TEXT = 64 << 20
"""Bytes of a text: each reference makes at most 17 of two."""
_HEADER = struct.Struct("<IIII")
_COMPRESSED, _PLAIN = 0x75465A4C, 0x414C454D
_WINDOW = 4096
_KNOWN = (
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript \\fdecor "
    b"MS Sans SerifSymbolArialTimes New RomanCourier{\\colortbl\\red0\\green0\\blue0\r\n\\par "
    b"\\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)
"""What the window begins with (section 2.1.2.1)."""


def decompressed(data: bytes) -> bytes:
    """Return the text. Raise TooLarge, ProtocolViolation."""
    if len(data) < _HEADER.size:
        raise ProtocolViolation("has a cut text")
    _, size, kind, _ = _HEADER.unpack_from(data)
    if kind == _PLAIN:
        return data[_HEADER.size :][:size]
    if kind != _COMPRESSED:
        raise ProtocolViolation("has a text in an unknown form")
    if size > MOST_TEXT:
        raise TooLarge(f"its text has more than {MOST_TEXT} bytes")
    window = bytearray(_KNOWN.ljust(_WINDOW, b"\0"))
    end, at, out = len(_KNOWN), _HEADER.size, bytearray()
    while at < len(data) and len(out) < size:
        control, at = data[at], at + 1
        for bit in range(8):
            is_reference = control >> bit & 1
            if at + is_reference >= len(data):
                return bytes(out)
            if not is_reference:
                piece, at = data[at : at + 1], at + 1
            else:
                place, at = data[at] << 8 | data[at + 1], at + 2
                if place >> 4 == end:
                    return bytes(out)
                piece = b""
                for number in range((place & 15) + 2):
                    one = window[(place >> 4) + number & _WINDOW - 1]
                    piece += bytes((one,))
                    window[end] = one
                    end = end + 1 & _WINDOW - 1
                out += piece
                continue
            out += piece
            window[end] = piece[0]
            end = end + 1 & _WINDOW - 1
    return bytes(out[:size])
