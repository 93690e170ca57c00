"""The words that a browser shows of a text in HTML, for the index: no tags, comments, scripts and styles.

One pass over the text, in linear time for any text; what is no HTML stays what it is.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module

EXTENSIONS = ("html", "htm", "xhtml")
_NOT_SHOWN = {
    name: re.compile(f"</{name}", re.IGNORECASE | re.ASCII)
    for name in ("script", "style", "template", "noscript", "svg")
}
"""Elements whose text is not shown, with their ends."""
_WITHIN_WORDS = frozenset(
    ("a", "abbr", "b", "bdi", "bdo", "cite", "code", "del", "dfn", "em", "font", "i", "ins", "kbd", "mark", "q", "s")
).union(("samp", "small", "span", "strong", "sub", "sup", "tt", "u", "var", "wbr"))
"""Elements that may begin or end within a word; any other tag separates words."""
_TAG_NAME = re.compile(r"/?([A-Za-z][A-Za-z0-9]*)")
_BLANKS = re.compile(r"[ \t\r\f]+")


def shown(pieces: Sequence[str]) -> list[str]:
    """Return the words that are shown of each piece of a text in HTML. A tag may go over the end of a piece."""
    words: list[list[str]] = [[] for _ in pieces]
    place, end = 0, len(pieces[0]) if pieces else 0
    for begin, stop, separated in _shown_spans("".join(pieces)):
        while begin < stop:
            while begin >= end:
                place += 1
                end += len(pieces[place])
            start = end - len(pieces[place])
            if separated:
                words[place].append(" ")
            words[place].append(pieces[place][begin - start : stop - start])
            begin, separated = min(stop, end), False
    return [_BLANKS.sub(" ", _unescaped("".join(some))).strip(" ") for some in words]


def _shown_spans(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield what is shown as spans of the text, each with whether a tag separates it from the one before."""
    at, separated = 0, False
    while (begin := text.find("<", at)) >= 0:
        if at < begin:
            yield at, begin, separated
            separated = False
        name = _TAG_NAME.match(text, begin + 1)
        if name is None and not text.startswith(("<!", "<?"), begin):
            yield begin, begin + 1, separated  # less than
            at, separated = begin + 1, False
            continue
        is_comment = text.startswith("<!--", begin)
        last = text.find("-->" if is_comment else ">", begin + 1)
        if last < 0:
            if not is_comment:
                yield begin, len(text), separated
            return
        at = last + (3 if is_comment else 1)
        element = "" if name is None else name[1].lower()
        separated = separated or element not in _WITHIN_WORDS
        if element in _NOT_SHOWN and text[begin + 1] != "/" and text[last - 1] != "/":
            closed = _NOT_SHOWN[element].search(text, at)
            if closed is None:
                return
            at = closed.start()
    if at < len(text):
        yield at, len(text), separated


def _unescaped(text: str) -> str:
    unescape: Callable[[str], str] = import_module("html").unescape  # its table is large, and few texts are HTML
    try:
        return unescape(text)
    except ValueError:  # a reference to a character by a number of thousands of digits
        return text
