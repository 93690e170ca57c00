"""Small documents of each kind that bbfs reads as text, made when a test needs them."""

import zipfile
from collections.abc import Mapping
from io import BytesIO
from typing import Any

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_OFFICE = "application/vnd.openxmlformats-officedocument"
_RELATIONSHIPS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
WORD_TYPES = (
    f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="xml" ContentType="application/xml"/>'
    f'<Default Extension="rels" ContentType="{_PACKAGE.removeprefix("http://schemas.")}"/>'
    f'<Override PartName="/word/document.xml" ContentType="{_OFFICE}.wordprocessingml.document.main+xml"/></Types>'
)
WORD_LINKS = (
    f'<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="r" Type="{_RELATIONSHIPS}/officeDocument" Target="word/document.xml"/></Relationships>'
)
_DRAWING = "http://schemas.openxmlformats.org/drawingml/2006"
WORD_PICTURE = (
    f'<w:p><w:r><w:drawing><wp:inline xmlns:wp="{_DRAWING}/wordprocessingDrawing"><wp:docPr descr="a fjord"/>'
    f'<a:graphic xmlns:a="{_DRAWING}/main"><a:graphicData><pic:pic xmlns:pic="{_DRAWING}/picture"><pic:blipFill>'
    f'<a:blip xmlns:r="{_RELATIONSHIPS}" r:embed="p"/></pic:blipFill></pic:pic></a:graphicData></a:graphic>'
    "</wp:inline></w:drawing></w:r></w:p>"
)
"""A picture with a text that describes it, for the body of a Word file."""
WORD_PICTURE_PARTS: Mapping[str, str | bytes] = {
    "word/_rels/document.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="p" Type="{_RELATIONSHIPS}/image" Target="media/p.png"/></Relationships>',
    "word/media/p.png": b"",
}


def archive(members: Mapping[str, str | bytes]) -> bytes:
    """Return a zip archive."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, text in members.items():
            opened.writestr(name, text)
    return out.getvalue()


def word(*paragraphs: str, body: str = "", more: Mapping[str, str | bytes] | None = None) -> bytes:
    """Return a Word file. body: XML after the paragraphs. more: other members."""
    text = "".join(f"<w:p><w:r><w:t>{each}</w:t></w:r></w:p>" for each in paragraphs)
    document = f'<w:document xmlns:w="{_WORD}"><w:body>{text}{body}</w:body></w:document>'
    members = {"[Content_Types].xml": WORD_TYPES, "_rels/.rels": WORD_LINKS, "word/document.xml": document}
    return archive({**members, **(more or {})})


def pdf(*pages: str) -> bytes:
    """Return a PDF file with a line of text on each page."""
    kids = " ".join(f"{number} 0 R" for number in range(4, 4 + 2 * len(pages), 2))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >>"
            f" /Contents {5 + 2 * number} 0 R >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    return pdf_of(objects)


def pdf_of(objects: list[str]) -> bytes:
    """Return a PDF file of objects, numbered from 1; the first is the catalog."""
    out = bytearray(b"%PDF-1.4\n")
    places: list[int] = []
    for number, text in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{text}\nendobj\n".encode()
    table = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n".encode()
    return bytes(out)


def powerpoint(title: str, text: str, notes: str = "") -> bytes:
    """Return a PowerPoint file with one slide."""
    from pptx import Presentation
    from pptx.shapes.placeholder import SlidePlaceholder

    made = Presentation()
    slide = made.slides.add_slide(made.slide_layouts[1])
    assert slide.shapes.title is not None
    slide.shapes.title.text = title
    body = slide.placeholders[1]
    assert isinstance(body, SlidePlaceholder)
    body.text_frame.text = text
    if notes:
        frame = slide.notes_slide.notes_text_frame
        assert frame is not None
        frame.text = notes
    out = BytesIO()
    made.save(out)
    return out.getvalue()


def drawn_powerpoint() -> bytes:
    """Return a PowerPoint file with a slide that has a chart, a diagram, a comment, and text on its master."""
    from pptx import Presentation
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE
    from pptx.opc.package import Part
    from pptx.opc.packuri import PackURI
    from pptx.oxml import parse_xml

    made = Presentation()
    slide = made.slides.add_slide(made.slide_layouts[6])
    data = CategoryChartData()
    data.categories = ["North", "South"]
    data.add_series("Sales", (1.5, 2))
    shapes: Any = slide.shapes
    shapes.add_chart(XL_CHART_TYPE.BAR_CLUSTERED, 0, 0, 9, 9, data)

    def related(to: Part, name: str, kind: str, xml: str) -> str:
        part = Part(PackURI(f"/ppt/{name}.xml"), "application/xml", to.package, xml.encode())
        return to.relate_to(part, f"{_RELATIONSHIPS}/{kind}")

    nodes = "".join(f"<d:pt><d:t><a:p><a:r><a:t>{each}</a:t></a:r></a:p></d:t></d:pt>" for each in ("plan", "build"))
    spaces = f'xmlns:a="{_DRAWING}/main" xmlns:d="{_DRAWING}/diagram"'
    diagram = related(slide.part, "diagram", "diagramData", f"<d:dataModel {spaces}>{nodes}</d:dataModel>")
    shapes.element.append(parse_xml(f'<d:relIds {spaces} xmlns:r="{_RELATIONSHIPS}" r:dm="{diagram}"/>'))
    related(slide.part, "comment", "comments", '<l><cm authorId="0"><text>check this</text></cm></l>')
    related(made.part, "authors", "commentAuthors", '<l><a id="0" name="Ann"/></l>')
    more: Any = made.slides.add_slide(made.slide_layouts[6]).shapes
    sample = more.add_textbox(0, 0, 9, 9)
    sample.text_frame.text = "confidential"
    made.slide_master.shapes.element.append(sample.element)
    out = BytesIO()
    made.save(out)
    return out.getvalue()


def excel(sheet: str, *rows: tuple[object, ...]) -> bytes:
    """Return an Excel file with one sheet."""
    from openpyxl import Workbook

    made = Workbook()
    made.remove(made.worksheets[0])
    opened = made.create_sheet(sheet)
    for row in rows:
        opened.append(row)
    out = BytesIO()
    made.save(out)
    return out.getvalue()


def epub(*chapters: str, container: str | None = None) -> bytes:
    """Return an EPUB file. chapters: the bodies of the chapters in HTML."""
    container = container or (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OEBPS/a.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    items = "".join(f'<item id="c{n}" href="text/c%20{n}.xhtml"/>' for n in range(len(chapters)))
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    package = (
        f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest><spine>{spine}</spine></package>'
    )
    texts = {f"OEBPS/text/c {n}.xhtml": f"<html><body>{text}</body></html>" for n, text in enumerate(chapters)}
    return archive({"META-INF/container.xml": container, "OEBPS/a.opf": package, **texts})


def open_content(body: str) -> str:
    """Return the XML of an OpenDocument. body: what its body holds."""
    names = ("office", "text", "table", "presentation")
    spaces = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in names)
    link = 'xmlns:xlink="http://www.w3.org/1999/xlink"'
    spaces += ' xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"'
    spaces += ' xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"'
    return f"<office:document-content {spaces} {link}><office:body>{body}</office:body></office:document-content>"


def open_document(body: str) -> bytes:
    """Return an OpenDocument text, sheet or presentation. body: what its body holds."""
    return archive({"content.xml": open_content(body)})
