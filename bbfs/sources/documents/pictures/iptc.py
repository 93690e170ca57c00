"""The captions, keywords and names of IPTC-IIM 4.2, in the resources of Photoshop or alone."""

from collections.abc import Iterator, Mapping

from bbfs.sources.documents.decoding import decoded

MOST_RECORDS = 5000
_NAMES: Mapping[int, str] = {
    5: "Title", 15: "Category", 20: "Category", 25: "Keywords", 40: "Instructions", 55: "Created", 80: "Author",
    85: "Author's position", 90: "City", 92: "Place", 95: "State", 100: "Country code", 101: "Country",
    103: "Reference", 105: "Headline", 110: "Credit", 115: "Source", 116: "Copyright", 118: "Contact",
    120: "Description", 122: "Description by", 65: "Software",
}  # fmt: skip
_IPTC = 0x0404


def records_of_resources(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the records in the resources of Photoshop."""
    at = 0
    for _ in range(MOST_RECORDS):
        if data[at : at + 4] != b"8BIM" or at + 7 > len(data):
            return
        kind = int.from_bytes(data[at + 4 : at + 6], "big")
        at += 6 + (1 + data[at + 6] + 1 & ~1)  # a name of its own, to an even length
        size = int.from_bytes(data[at : at + 4], "big")
        if kind == _IPTC:
            yield from records(data[at + 4 : at + 4 + size])
        at += 4 + (size + 1 & ~1)


def records(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the names and values of the records of the second part, which describes the picture."""
    at, charset = 0, None
    for _ in range(MOST_RECORDS):
        if at + 5 > len(data) or data[at] != 0x1C:
            return
        part, number, size = data[at + 1], data[at + 2], int.from_bytes(data[at + 3 : at + 5], "big")
        if size & 0x8000:  # a length of more bytes: no text
            return
        value = data[at + 5 : at + 5 + size]
        at += 5 + size
        if (part, number) == (1, 90):
            charset = "utf-8" if value == b"\x1b%G" else None
        elif part == 2 and number in _NAMES and (text := " ".join(decoded(value, charset).split())):
            yield _NAMES[number], text
