"""Documents as text: what each kind becomes, and what is refused."""

from collections.abc import Callable, Mapping
from contextlib import suppress

import office_documents as made
import pytest
from hostile_documents import HOSTILE_FILES, changed

from bbfs.model.errors import NotSupported, ProtocolViolation, TooLarge
from bbfs.model.values import DocumentBounds, ResourceMetadata
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.documents import converter
from bbfs.sources.documents.converter import DocumentReader, kind_of

MIB = 1 << 20


async def text(document: bytes, kind: str, reader: DocumentReader | None = None) -> str:
    reader = reader or DocumentReader()
    return (await reader.text(MemoryContent(document), kind, owner="docs", what="report")).decode()


async def test_each_kind_becomes_markdown() -> None:
    reader = DocumentReader()
    assert await text(made.pdf("Renew it", "", "Then wait"), "pdf", reader) == (
        "## Page 1\n\nRenew it\n\n## Page 3\n\nThen wait\n"
    )
    assert await text(made.word("Renew it", "a &lt;b&gt;"), "word", reader) == "Renew it\n\na <b>\n"
    assert await text(made.word("map", body=made.WORD_PICTURE, more=made.WORD_PICTURE_PARTS), "word", reader) == (
        "map\n\na fjord\n"
    )
    assert await text(made.powerpoint("Plan", "first", "say so"), "powerpoint", reader) == (
        "## Slide 1\n\nPlan\n\nfirst\n\n### Notes of slide 1\n\nsay so\n"
    )
    table = "Sales\n\n|  | Sales |\n| --- | --- |\n| North | 1.5 |\n| South | 2 |"
    assert await text(made.drawn_powerpoint(), "powerpoint", reader) == (
        f"## Slide 1\n\n{table}\n\n- plan\n- build\n\nconfidential\n\n> Ann: check this\n\n## Slide 2\n\nconfidential\n"
    )
    damaged = made.drawn_powerpoint()
    for part, piece in (
        ("comment.xml", b"<l>"),
        ("diagram.xml", b"<d:pt>"),
        ("slides/_rels/slide1.xml.rels", b"/slideLayout"),
    ):
        was, damaged = (
            damaged,
            changed(damaged, f"ppt/{part}", lambda data, piece=piece: data.replace(piece, b"/none", 1)),
        )
        assert was != damaged
    assert await text(damaged, "powerpoint", reader) == f"## Slide 1\n\n{table}\n\n## Slide 2\n\nconfidential\n"
    table = made.excel("Costs", ("what", "sum"), (), ("a|b", 1.5, None), (None, "x\ny"))
    assert await text(table, "excel", reader) == (
        "## Costs\n\n| what | sum |\n| --- | --- |\n| a\\|b | 1.5 |\n|  | x y |\n"
    )
    small = changed(table, "xl/worksheets/sheet1.xml", lambda sheet: sheet.replace(b'ref="A1:C4"', b'ref="A1"'))
    assert small != table
    assert await text(small, "excel", reader) == await text(table, "excel", reader)
    book = made.epub("<h1>One</h1><p>first</p>", "<h1>Two</h1>")
    assert await text(book, "epub", reader) == "# One\n\nfirst\n\n# Two\n"
    assert await text(b"<h1>a</h1><script>b</script>", "html", reader) == "# a\n"
    assert await text(made.pdf(""), "pdf", reader) == ""


@pytest.mark.parametrize(
    ("name", "mime_type", "kind"),
    [
        ("report.pdf", None, "pdf"),
        ("REPORT.PDF", "application/octet-stream", "pdf"),
        ("report", "application/pdf; version=1", "pdf"),
        ("notes.docx", None, "word"),
        ("a.html", None, "html"),
        ("a.JPG", "image/jpeg", "picture"),
        ("scan.odt", None, "opendocument"),
        ("letter", "message/rfc822", "mail"),
        ("old.doc", "application/msword", "word 97"),
        ("report", None, None),
        ("pdf", None, None),
        ("a.txt", "text/plain", None),
    ],
)
def test_the_type_or_the_name_says_what_a_document_is(name: str, mime_type: str | None, kind: str | None) -> None:
    assert kind_of(ResourceMetadata(f"x://{name}", f"x://{name}", name, mime_type=mime_type)) == kind


async def test_without_the_extra_a_sentence_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converter, "_is_installed", lambda _kind: False)
    with pytest.raises(NotSupported, match=r"report: its text needs the extra 'documents' "):
        await text(made.pdf("a"), "pdf")


def _large() -> bytes:
    return made.word("a", more={"x": bytes(2 * MIB)})


BOUNDS: Mapping[str, tuple[DocumentBounds, Callable[[], bytes], str, str]] = {
    "size": (DocumentBounds(max_size=10), lambda: made.pdf("a"), "pdf", "max_size"),
    "unpacked": (DocumentBounds(max_unpacked=MIB), _large, "word", "max_unpacked"),
    "unpacked behind something": (DocumentBounds(max_unpacked=MIB), lambda: b"x" + _large(), "word", "max_unpacked"),
    "text": (DocumentBounds(max_text=100), lambda: made.word("a" * 200), "word", "max_text"),
    "members": (
        *(DocumentBounds(), lambda: made.archive({str(n): b"" for n in range(10_001)}), "epub", "10000 members"),
    ),
}


@pytest.mark.parametrize("name", BOUNDS)
async def test_a_bound_names_its_option(name: str) -> None:
    bounds, document, kind, option = BOUNDS[name]
    with pytest.raises(TooLarge, match=rf"^report: .*{option}"):
        await text(document(), kind, DocumentReader(bounds))


@pytest.mark.parametrize("name", HOSTILE_FILES)
async def test_a_hostile_document_is_refused_in_bounded_time(name: str) -> None:
    kind, document = HOSTILE_FILES[name]
    reader = DocumentReader(DocumentBounds(seconds=1))
    with pytest.raises((TooLarge, ProtocolViolation), match=r"^report: "):
        await text(document(), kind, reader)


@pytest.mark.parametrize("kind", ["pdf", "word", "excel", "epub"])
async def test_a_cut_document_is_refused_or_read(kind: str) -> None:
    whole = {"pdf": made.pdf, "word": made.word, "epub": made.epub, "excel": lambda each: made.excel("a", (each,))}
    reader, document = DocumentReader(DocumentBounds(seconds=3)), whole[kind]("a")
    for cut in (len(document) // 3, len(document) - 30):
        with suppress(TooLarge, ProtocolViolation):
            await text(document[:cut], kind, reader)
