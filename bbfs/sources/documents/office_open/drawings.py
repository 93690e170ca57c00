"""What drawings show as text (DrawingML, ECMA-376 part 1, section 20): paragraphs, tables, charts and diagrams."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from pptx.oxml import parse_xml

from bbfs.model.errors import TooLarge
from bbfs.sources.documents.pictures import metafiles
from bbfs.sources.documents.tables import table

DEEPEST = 100
"""Elements around a text; PowerPoint nests groups some dozens deep."""
_RELATIONSHIPS = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_PLACEHOLDERS = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_LEFT_OUT = frozenset(("style", "extLst", "spPr", "bodyPr", "lstStyle", "pPr", "rPr"))

Part = Any
"""A part of a package, as python-pptx has it."""


def name_of(element: Any) -> str:
    """Return the name of an element without its namespace, or "" for a comment."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


class Drawings:
    """Reads the drawings of one document. Each part is read once: any number of shapes and slides may show it."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], list[str]] = {}

    def once(self, part: Part, kind: str, read: Callable[[], Iterable[str]]) -> Iterator[str]:
        """Yield the texts that `read` gives for a part, or gave for it before. kind: what it reads there."""
        key = part.partname, kind
        if key in self._read:
            yield from self._read[key]
            return
        found: list[str] = []
        for each in read():
            found.append(each)
            yield each
        self._read[key] = found

    def texts(self, element: Any, part: Part, wanted: Callable[[str | None], bool], depth: int = 0) -> Iterator[str]:
        """Yield the texts in a tree of shapes, in their order.

        part: has the tree. wanted: whether shapes of a kind of placeholder count; None: shapes that are none.
        """
        if depth > DEEPEST:
            raise TooLarge("nested too deeply")
        for child in element:
            match name_of(child):
                case "sp" if not wanted(_placeholder(child)):
                    pass
                case "txBody":
                    yield f"{paragraphs(child)}\n\n"
                case "tbl":
                    rows = (row for row in child if name_of(row) == "tr")
                    yield from table([paragraphs(cell) for cell in row if name_of(cell) == "tc"] for row in rows)
                case "chart" if (said := _related(child, part, "id")) is not None:
                    yield from self.once(said, "chart", partial(_of_root, chart, said))
                case "relIds" if (said := _related(child, part, "dm")) is not None:
                    yield from self.once(said, "diagram", partial(_of_root, diagram, said))
                case "blip" if (said := _related(child, part, "embed")) is not None:
                    yield from self.once(said, "metafile", partial(metafile, said))
                case "AlternateContent":
                    choices = [list(self.texts(each, part, wanted, depth + 1)) for each in child]
                    yield from next((each for each in choices if any(map(str.strip, each))), ())
                case name if name not in _LEFT_OUT:
                    yield from self.texts(child, part, wanted, depth + 1)


def metafile(part: Part) -> Iterator[str]:
    """Yield the texts of a picture."""
    yield f"{metafiles.text_of(part.blob)}\n\n"


def _of_root(read: Callable[[Any], Iterator[str]], part: Part) -> Iterator[str]:
    return read(root_of(part))


def _placeholder(shape: Any) -> str | None:
    """Return the kind of placeholder that a shape is, or None."""
    found = shape.find(f"{_PLACEHOLDERS}nvSpPr/{_PLACEHOLDERS}nvPr/{_PLACEHOLDERS}ph")
    return None if found is None else found.get("type", "obj")


def _related(element: Any, part: Part, attribute: str) -> Part | None:
    """Return the part that an attribute names, or None."""
    relation = part.rels.get(element.get(f"{_RELATIONSHIPS}{attribute}"))
    return None if relation is None or relation.is_external else relation.target_part


def root_of(part: Part) -> Any:
    """Return the root element of a part; an empty one if it is no XML: the slide says more than this part."""
    try:
        return parse_xml(part.blob)
    except SyntaxError:
        return parse_xml(b"<none/>")


def paragraphs(body: Any) -> str:
    """Return the paragraphs in an element as lines."""
    return "\n".join(filter(None, (_line(each) for each in body.iter() if name_of(each) == "p"))).strip()


def _line(paragraph: Any) -> str:
    pieces = (
        "\n" if name == "br" else each.text or "" for each in paragraph.iter() if (name := name_of(each)) in ("t", "br")
    )
    return "".join(pieces).replace("\x0b", "\n")


def chart(root: Any) -> Iterator[str]:
    """Yield the titles of a chart (section 21.2), and a table of its series."""
    titles = [said for each in root.iter() if name_of(each) == "rich" and (said := paragraphs(each))]
    series = [_series(each) for each in root.iter() if name_of(each) == "ser"]
    if len(series) == 1 and not titles and not _has_no_title(root):
        titles = [series[0][0]]
    yield from (f"{title}\n\n" for title in titles)
    categories: dict[str, str] = {}
    for _, names, _ in series:
        categories = names | categories
    places = list(dict.fromkeys(place for _, names, values in series for place in (*names, *values)))
    rows = ([categories.get(place), *(values.get(place) for _, _, values in series)] for place in places)
    yield from table([["", *(name for name, _, _ in series)], *rows] if series else [])


def _has_no_title(root: Any) -> bool:
    """Return whether a chart of one series is not titled by its name (section 21.2.2.7)."""
    return any(name_of(each) == "autoTitleDeleted" and each.get("val", "1") in ("1", "true") for each in root.iter())


def _series(element: Any) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return the name of a series, its categories and its values by their places."""
    parts = {name_of(each): each for each in element}
    names, values = parts.get("cat", parts.get("xVal")), parts.get("val", parts.get("yVal"))
    return " ".join(_points(parts.get("tx")).values()), _points(names), _points(values)


def _points(element: Any) -> dict[str, str]:
    """Return the cached values in an element by their places; of several levels, those of one place together."""
    found: dict[str, str] = {}
    if element is None:
        return found
    for number, each in enumerate(element.iter()):
        if name_of(each) == "pt":
            place = each.get("idx", str(number))
            text = " ".join(inner.text or "" for inner in each if name_of(inner) == "v")
            found[place] = f"{text} {found[place]}" if place in found else text
        elif name_of(each) == "v" and name_of(each.getparent()) != "pt":
            found["0"] = each.text or ""
    return found


def diagram(root: Any) -> Iterator[str]:
    """Yield the texts of a diagram (SmartArt, section 21.4), an item each."""
    said = (paragraphs(each) for each in root.iter() if name_of(each) == "pt")
    yield from (f"- {' '.join(text.split())}\n" for text in said if text)
    yield "\n"
