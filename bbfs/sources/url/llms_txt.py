"""`llms.txt` (llmstxt.org): a page in Markdown that lists what is worth reading, with a word to each. Pure."""

import re
from dataclasses import dataclass

_LINK = re.compile(
    r"^[ \t]*[-*+][ \t]*\[(?P<title>[^\]]{0,500})\]"
    r"\(<?(?P<url>[^)\s>]{1,8192})>?[^)]{0,500}\)(?P<rest>.*)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Link:
    """One entry. url: as it stands there, maybe relative."""

    url: str
    title: str | None
    description: str | None


def links(text: str) -> list[Link]:
    """The entries of its lists, in their order: `- [title](url): description`."""
    return [
        Link(found["url"], _words(found["title"]), _words(found["rest"].strip().removeprefix(":")))
        for found in _LINK.finditer(text)
    ]


def _words(text: str) -> str | None:
    return " ".join(text.split())[:1000] or None
