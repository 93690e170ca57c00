"""PowerPoint files: the texts of the slides in their order, what lies behind them, notes and comments."""

from collections.abc import Iterator
from functools import partial
from io import BytesIO
from typing import Any

from pptx import Presentation

from bbfs.sources.documents.office_open import drawings
from bbfs.sources.documents.office_open.drawings import Drawings, metafile, name_of, root_of

_OF_PAGES = ("dt", "hdr", "ftr", "sldNum", "sldImg")
"""Placeholders of notes that say nothing of the slide."""


def read(document: bytes) -> Iterator[str]:
    """Yield each slide below a heading with its number, and the notes of its speaker. A slide listed twice comes once.

    What several slides have in common is read once.
    """
    opened = Presentation(BytesIO(document))
    authors = dict(_authors(opened.part))
    drawn, before = Drawings(), set[str]()
    for number, slide in enumerate(opened.slides, 1):
        if slide.part.partname in before:
            continue
        before.add(slide.part.partname)
        yield f"## Slide {number}\n\n"
        yield from _shapes(drawn, slide, lambda _kind: True)
        yield from _behind(drawn, slide, "slide_layout", "slide_master")
        yield from _objects(drawn, slide.part, before)
        yield from _comments(drawn, slide.part, authors)
        if slide.has_notes_slide:
            page = slide.notes_slide
            said = drawn.once(page.part, "notes", partial(_shapes, drawn, page, lambda kind: kind not in _OF_PAGES))
            notes = "".join(said).strip()
            yield f"### Notes of slide {number}\n\n{notes}\n\n" if notes else ""


def _shapes(drawn: Drawings, page: Any, wanted: Any) -> Iterator[str]:
    return drawn.texts(page.shapes.element, page.part, wanted)


def _behind(drawn: Drawings, page: Any, *behind: str) -> Iterator[str]:
    """Yield the texts that its layout and its master show on a slide: those that are no placeholders (19.3.1.38)."""
    if not behind or page.element.get("showMasterSp", "1") in ("0", "false"):
        return
    try:
        found = getattr(page, behind[0])
    except (KeyError, ValueError, AttributeError, RecursionError):  # none, several, another part, itself
        return

    def shown() -> Iterator[str]:
        yield from _shapes(drawn, found, lambda kind: kind is None)
        yield from _behind(drawn, found, *behind[1:])

    yield from drawn.once(found.part, behind[0], shown)


def _objects(drawn: Drawings, part: Any, before: set[str]) -> Iterator[str]:
    """Yield the texts of the metafiles that show objects of a slide, where a drawing beside it (VML) has them alone.

    before: the names of parts that were read.
    """
    own = {relation.target_part.partname for relation in part.rels.values() if not relation.is_external}
    for relation in part.rels.values():
        if relation.reltype.endswith("/vmlDrawing") and not relation.is_external:
            beside = relation.target_part
            if beside.partname in before:
                continue
            before.add(beside.partname)
            for image in beside.rels.values():
                if not image.is_external and image.target_part.partname not in own:
                    yield from drawn.once(image.target_part, "metafile", partial(metafile, image.target_part))


def _related(part: Any, *kinds: str) -> Iterator[Any]:
    """Yield the parts that a part is related to, by the end of the type of the relationship."""
    for relation in part.rels.values():
        if not relation.is_external and relation.reltype.rpartition("/")[2] in kinds:
            yield relation.target_part


def _authors(part: Any) -> Iterator[tuple[str, str]]:
    """Yield the id and the name of each author of comments."""
    for said in _related(part, "commentAuthors", "authors"):
        yield from ((each.get("id", ""), each.get("name", "")) for each in root_of(said))


def _comments(drawn: Drawings, part: Any, authors: dict[str, str]) -> Iterator[str]:
    """Yield the comments of a slide (section 19.4), and the answers to them."""
    for said in _related(part, "comments"):
        yield from drawn.once(said, "comments", partial(_commented, said, authors))


def _commented(part: Any, authors: dict[str, str]) -> Iterator[str]:
    for comment in root_of(part).iter():
        if name_of(comment) in ("cm", "reply"):
            body = next((each for each in comment if name_of(each) in ("text", "txBody")), None)
            said = "" if body is None else body.text if name_of(body) == "text" else drawings.paragraphs(body)
            yield f"> {authors.get(comment.get('authorId', ''), '')}: {' '.join((said or '').split())}\n\n"
