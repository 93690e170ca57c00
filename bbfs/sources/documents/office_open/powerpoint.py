"""PowerPoint files: the texts of the slides in their order, what lies behind them, notes and comments."""

from collections.abc import Iterator
from io import BytesIO
from typing import Any

from pptx import Presentation

from bbfs.sources.documents.office_open import drawings
from bbfs.sources.documents.office_open.drawings import name_of, root_of
from bbfs.sources.documents.pictures import metafiles

_OF_PAGES = ("dt", "hdr", "ftr", "sldNum", "sldImg")
"""Placeholders of notes that say nothing of the slide."""


def read(document: bytes) -> Iterator[str]:
    """Yield each slide below a heading with its number, and the notes of its speaker."""
    opened = Presentation(BytesIO(document))
    authors = dict(_authors(opened.part))
    for number, slide in enumerate(opened.slides, 1):
        yield f"## Slide {number}\n\n"
        yield from _shapes(slide, lambda _kind: True)
        yield from _behind(slide)
        yield from _objects(slide.part)
        yield from _comments(slide.part, authors)
        if slide.has_notes_slide:
            notes = "".join(_shapes(slide.notes_slide, lambda kind: kind not in _OF_PAGES)).strip()
            yield f"### Notes of slide {number}\n\n{notes}\n\n" if notes else ""


def _shapes(page: Any, wanted: Any) -> Iterator[str]:
    return drawings.texts(page.shapes.element, page.part, wanted)


def _behind(slide: Any) -> Iterator[str]:
    """Yield the texts that its layout and its master show on a slide: those that are no placeholders (19.3.1.38)."""
    page = slide
    for behind in ("slide_layout", "slide_master"):
        if page.element.get("showMasterSp", "1") in ("0", "false"):
            return
        try:
            page = getattr(page, behind)
        except (KeyError, ValueError, AttributeError, RecursionError):  # none, several, another part, itself
            return
        yield from _shapes(page, lambda kind: kind is None)


def _objects(part: Any) -> Iterator[str]:
    """Yield the texts of the metafiles that show objects of a slide, where a drawing beside it (VML) has them alone."""
    own = {relation.target_part.partname for relation in part.rels.values() if not relation.is_external}
    for relation in part.rels.values():
        if relation.reltype.endswith("/vmlDrawing") and not relation.is_external:
            for image in relation.target_part.rels.values():
                if not image.is_external and image.target_part.partname not in own:
                    yield f"{metafiles.text_of(image.target_part.blob)}\n\n"


def _related(part: Any, *kinds: str) -> Iterator[Any]:
    """Yield the root elements of the parts that a part is related to, by the end of the type of the relationship."""
    for relation in part.rels.values():
        if not relation.is_external and relation.reltype.rpartition("/")[2] in kinds:
            yield root_of(relation.target_part)


def _authors(part: Any) -> Iterator[tuple[str, str]]:
    """Yield the id and the name of each author of comments."""
    for root in _related(part, "commentAuthors", "authors"):
        yield from ((each.get("id", ""), each.get("name", "")) for each in root)


def _comments(part: Any, authors: dict[str, str]) -> Iterator[str]:
    """Yield the comments of a slide (section 19.4), and the answers to them."""
    for root in _related(part, "comments"):
        for comment in root.iter():
            if name_of(comment) in ("cm", "reply"):
                body = next((each for each in comment if name_of(each) in ("text", "txBody")), None)
                said = "" if body is None else body.text if name_of(body) == "text" else drawings.paragraphs(body)
                yield f"> {authors.get(comment.get('authorId', ''), '')}: {' '.join((said or '').split())}\n\n"
