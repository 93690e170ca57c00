"""What documents in compound files become, and what is refused."""

import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import compound_documents as made
import office_documents as newer
import pytest

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.sources.documents.compound.compressed_text import decompressed
from bbfs.sources.documents.markdown import job


def text(kind: str, document: bytes) -> str:
    return job(document, {"kind": kind, "max_unpacked": 1 << 24, "max_text": 1 << 20}).decode()


def test_a_word_file_has_headings_tables_and_the_results_of_fields() -> None:
    in_table, row = b"\0\0\x16\x24\1", b"\0\0\x16\x24\1\x17\x24\1"
    styles = {"\x13": b"\2\0", "a|b": in_table, "c": in_table, "\x07": row, "d": in_table}
    heading = "\x13 TOC \x14Plan\r"
    heading += "a|b\x07c\x07\x07d\x07\x07"
    words = f"{heading}see \x13 HYPERLINK \x13PAGE\x14 7\x15\x14there\x15\x15, caf\xe9 \U0001f600\r"
    assert text("word 97", made.word(words, styles=styles)) == (
        "## Plan\n\n| a\\|b | c |\n| --- | --- |\n| d |\n\nsee there, café 😀\n"
    )


def test_a_powerpoint_file_has_the_slides_of_its_last_save() -> None:
    assert text("powerpoint 97", made.powerpoint("Plan", "first\rsecond", "say so")) == (
        "## Slide 1\n\nPlan\n\nfirst\nsecond\n\n### Notes of slide 1\n\nsay so\n"
    )


@pytest.mark.parametrize(
    ("own", "footer"),
    [(b"", "\nfor all\n"), (made.footer("mine", 0), "\nmine\n"), (made.footer("mine", 0, shown=False), "")],
)
def test_a_slide_has_its_own_footer_or_that_of_all(own: bytes, footer: str) -> None:
    document = made.powerpoint("Plan", "first", "", common=made.footer("for all", 3), own=own)
    assert text("powerpoint 97", document) == f"## Slide 1\n\nPlan\n\nfirst\n{footer}"


def test_a_slide_has_what_its_master_and_its_objects_show_and_its_comments() -> None:
    def shape(text: str, *, is_placeholder: bool) -> bytes:
        kind = made.record(0xF011, made.record(3011, bytes(8)) if is_placeholder else b"", holds=True)
        return made.record(0xF004, kind + made.record(4008, text.encode()), holds=True)

    listed, named, drawn = made.picture_of(made.drawn_text(("Sal", 0), ("es", 30), ("2031", 90)))
    own = named + made.comment("Ann", "check\rthis")
    master = shape("Click to edit", is_placeholder=True) + shape("confidential", is_placeholder=False)
    document = made.powerpoint("Plan", "first", "", common=listed, own=own, master=master, drawn=drawn)
    assert text("powerpoint 97", document) == (
        "## Slide 1\n\nPlan\n\nfirst\n\nSales 2031\n\nconfidential\n\n> Ann: check this\n"
    )


@pytest.mark.parametrize("place", [(), ("PP97_DUALSTORAGE",)])
def test_a_file_that_powerpoint_95_reads_has_its_text_beside_or_a_newer_file_in_it(place: tuple[str, ...]) -> None:
    inside = dict.fromkeys(place, made.powerpoint_streams("Plan", "first", ""))
    tree: made.Tree = {"Text_Content": b"Plan\rfirst", **inside}
    expected = "## Slide 1\n\nPlan\n\nfirst\n" if place else "Plan\nfirst\n"
    assert text("powerpoint 97", made.compound(tree)) == expected


def test_a_mail_of_outlook_says_where_answers_go() -> None:
    came = {"__substg1.0_007D001F": "Reply-To: Ann <ann@x>\r\n\r\n".encode("utf-16-le")}
    assert "\n- Reply-To: Ann <ann@x>\n- Date: " in text("outlook", made.outlook("Plan", "Hello", attached={**came}))


def test_an_excel_file_has_a_table_for_each_sheet() -> None:
    formula = b"\x2d" + bytes(8)  # relative to a cell, which xlrd refuses in a name
    assert text("excel 97", made.excel("Costs", ("what", "sum"), (), ("a|é", 1.5), (None, 3.0), formula=formula)) == (
        "## Costs\n\n| what | sum |\n| --- | --- |\n| a\\|é | 1.5 |\n|  | 3 |\n"
    )


def test_a_mail_of_outlook_has_what_is_attached() -> None:
    tree: made.Tree = {
        "__attach_version1.0_#00000000": {
            "__substg1.0_3707001F": "a.pdf".encode("utf-16-le"),
            "__substg1.0_370E001F": "application/pdf".encode("utf-16-le"),
            "__substg1.0_37010102": b"x" * 5000,
        },
        "__recip_version1.0_#00000000": {
            "__properties_version1.0": bytes(8) + struct.pack("<IIq", 0x0C150003, 0, 1),
            "__substg1.0_3001001F": "Bob".encode("utf-16-le"),
            "__substg1.0_39FE001F": "bob@x".encode("utf-16-le"),
        },
        "__attach_version1.0_#00000001": {"__substg1.0_3701000D": made.message("Inner", "quoted", 24)},
    }
    said = "- From: Jürgen <j@x>\n- To: Bob{}\n- Date: Wed, 17 Apr 2019 18:40:00 +0000\n\n"
    assert text("outlook", made.outlook("Plan", "Hello\r\nyou", attached=tree)) == (
        f"# Plan\n\n{said.format(' <bob@x>')}Hello\nyou\n\n# Inner\n\n{said.format('')}quoted\n\n"
        "Attachments:\n\n- a.pdf (application/pdf, 5000 bytes)\n"
    )


def test_the_headers_with_which_a_mail_came_have_what_it_lacks() -> None:
    headers = "Microsoft Mail Internet Headers Version 2.0\r\n"
    headers += "From: =?utf-8?q?J=C3=BCrgen?= <j@x>\r\nTo: Bob <bob@x>\r\nDate: today\r\n\r\n"
    streams = {name: data for name, data in made.message("Plan", "x", 32).items() if "5D01" not in name}
    mail = made.compound({**streams, "__substg1.0_007D001F": headers.encode("utf-16-le")})
    assert text("outlook", mail) == (
        "# Plan\n\n- From: Jürgen <j@x>\n- To: Bob <bob@x>\n- Date: Wed, 17 Apr 2019 18:40:00 +0000\n\nx\n"
    )


def test_a_mail_in_compressed_rich_text_is_read() -> None:
    plain = rb"{\rtf1\ansi Hello\par}"
    kept = struct.pack("<IIII", 0, len(plain), 0x414C454D, 0) + plain
    assert "Hello" in text("outlook", made.outlook("Plan", kept))
    # The example of [MS-OXRTFCP], section 3.1.1.
    packed = bytes.fromhex("2d0000002b0000004c5a4675f1c5c7a703000a00726370673132354232") + bytes.fromhex(
        "0af320 68656c090020 6277 05b0 6c64 7d 0a800fa0".replace(" ", "")
    )
    assert decompressed(packed) == b"{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n"


@pytest.mark.parametrize(
    ("kind", "document", "meant"),
    [
        ("word 97", b"{\\rtf1 rich\\par}", "rich\n"),
        ("word 97", newer.word("new"), "new\n"),
        ("word", made.word("old\r"), "old\n"),
        ("excel 97", b"<html><table><tr><th>a</th></tr></table></html>", "| a |\n| --- |\n"),
        ("word 97", "only tëxt\r\n".encode(), "only tëxt\n"),
        ("outlook", b"string name\n", "string name\n"),
    ],
)
def test_the_bytes_decide_where_names_are_used_for_other_files(kind: str, document: bytes, meant: str) -> None:
    assert text(kind, document) == meant


LOOP = made.record(4085, struct.pack("<IIIIIII", 0, 0, 8, 0, 1, 0, 0))
HOSTILE: Mapping[str, tuple[str, Callable[[], bytes]]] = {
    "an encrypted text": ("word 97", lambda: made.word("x\r", flags=0x0100)),
    "an encrypted file": ("word", lambda: made.compound({"EncryptedPackage": b"x"})),
    "an empty file": ("word 97", lambda: b""),
    "streams of another kind": ("word 97", lambda: made.compound({"Other": b"x"})),
    "a beginning alone": ("powerpoint 97", lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504)),
    "garbage": ("outlook", lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(range(256)) * 40),
    "a sector that follows itself": ("word 97", lambda: looping(made.word("x" * 9000))),
    "saves in a circle": (
        "powerpoint 97",
        lambda: made.compound({"PowerPoint Document": LOOP, "Current User": struct.pack("<IIIII", 0, 0, 20, 0, 0)}),
    ),
    "records in records": (
        "powerpoint 97",
        lambda: made.powerpoint("x", "x", "x").replace(
            struct.pack("<HHI", 0xF, 1036, 10), struct.pack("<HHI", 0xF, 1036, 0x7FFFFFFF)
        ),
    ),
    "a picture that unpacks to much": ("powerpoint 97", lambda: with_picture(bytes(1 << 28))),
    "strings of the same bytes": ("powerpoint 97", lambda: with_picture(many_strings())),
    "strings of the same zeros": ("powerpoint 97", lambda: with_picture(many_strings(20_000, 500_000, 2_000_000))),
    "slides of the same blanks": ("powerpoint 97", lambda: same_slides(20_000, 500_000)),
    "streams of the same bytes": ("outlook", lambda: same_streams(300)),
    "no sheets": ("excel 97", lambda: b"\x09\x08\x10\x00\x00\x06" + bytes(100)),
    "mails in mails": ("outlook", lambda: made.outlook("x", "y", attached=nested(30))),
}


READ = (
    "records in records",
    "a sector that follows itself",
    "a picture that unpacks to much",
    "strings of the same zeros",
)
"""Those that are read as far as they go."""


def with_picture(metafile: bytes) -> bytes:
    listed, named, drawn = made.picture_of(made.drawn_text() + metafile)
    return made.powerpoint("x", "x", "", common=listed, own=100 * named, drawn=drawn)


def many_strings(number: int = 1000, characters: int = 1000, zeros: int = 0) -> bytes:
    """Return a record of a metafile whose strings are all of its bytes, each, or all of the zeros behind them."""
    begin = 40 + 40 * number if zeros else 40
    placed = struct.pack("<iiIII16xI", 0, 0, characters, begin, 0, begin if zeros else 0)
    return struct.pack("<II28xI", 96, 40 + 40 * number + zeros, number) + number * placed + bytes(zeros)


def same_slides(number: int, blanks: int) -> bytes:
    """Return a file that lists one slide again and again, which has a text of blanks."""
    slide = made.record(1006, made.record(4008, b" " * blanks), holds=True)
    listed = made.record(1011, struct.pack("<IIIII", 1, 0, 0, 256, 0)) * number
    document = made.record(1000, made.record(4080, listed, holds=True), holds=True)
    places = made.record(6002, struct.pack("<III", 2 << 20 | 1, 0, len(slide)))
    edit = made.record(4085, struct.pack("<IIIIIII", 0, 0, 0, len(slide + document), 2, 0, 0))
    user = struct.pack("<HHIIII", 0, 4086, 12, 20, 0, len(slide + document + places))
    return made.compound({"PowerPoint Document": slide + document + places + edit, "Current User": user})


def same_streams(number: int) -> bytes:
    """Return a mail whose recipients all have their properties in the same sectors."""
    name = "__properties_version1.0"
    people: made.Tree = {f"__recip_version1.0_#{each:08X}": {name: b""} for each in range(number)}
    data = bytearray(made.compound({**made.message("x", "y", 32), **people, "a": {name: bytes(4_000_000)}}))
    entries = [*_places(data, name.encode("utf-16-le"))]
    large = max((data[at + 0x74 : at + 0x80] for at in entries), key=lambda each: struct.unpack("<IQ", each)[1])
    for at in entries:
        data[at + 0x74 : at + 0x80] = large
    return bytes(data)


def _places(data: bytearray, wanted: bytes) -> Iterator[int]:
    at = -1
    while (at := data.find(wanted, at + 1)) >= 0:
        yield at


def looping(document: bytes) -> bytes:
    """Return a compound file whose second sector is followed by itself."""
    first = struct.unpack_from("<I", document, 0x4C)[0]
    changed = bytearray(document)
    struct.pack_into("<I", changed, 512 * (first + 1) + 4, 1)
    return bytes(changed)


def nested(depth: int) -> made.Tree:
    inner: made.Tree = {}
    for _ in range(depth):
        inner = {"__attach_version1.0_#00000000": {"__substg1.0_3701000D": {**made.message("x", "y", 24), **inner}}}
    return inner


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_or_read_soon(name: str) -> None:
    kind, document = HOSTILE[name]
    data, begin = document(), time.process_time()
    if name in READ:
        assert len(text(kind, data)) < 10_000
    else:
        with pytest.raises((ProtocolViolation, TooLarge, RecursionError)):
            text(kind, data)
    assert time.process_time() - begin < 20


@pytest.mark.parametrize("kind", ["word 97", "powerpoint 97", "outlook"])
def test_a_cut_file_is_refused_or_read(kind: str) -> None:
    whole = {
        "word 97": made.word("abc\r"),
        "powerpoint 97": made.powerpoint("a", "b", "c"),
        "outlook": made.outlook("a", "b"),
    }
    for cut in range(600, len(whole[kind]), len(whole[kind]) // 12):
        with suppress(ProtocolViolation, TooLarge):
            assert len(text(kind, whole[kind][:cut])) < 1000


def test_a_reference_of_a_compressed_text_makes_little() -> None:
    packed = struct.pack("<IIII", 0, 1 << 30, 0x75465A4C, 0) + b"\xff" * 1000
    with pytest.raises(TooLarge):
        decompressed(packed)
    with pytest.raises(ProtocolViolation):
        decompressed(b"short")
