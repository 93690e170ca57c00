"""Expat without entities: their declarations are refused, since a few of them make gigabytes."""

from collections.abc import Callable
from typing import NoReturn
from xml.parsers import expat

from bbfs.model.errors import ProtocolViolation

LONGEST_NAMESPACE = 1000
"""Characters: each name in a namespace is made with all of it."""


def parser(
    start: Callable[[str, dict[str, str]], None], end: Callable[[str], None], characters: Callable[[str], None]
) -> expat.XMLParserType:
    """Return a parser whose names are `NAMESPACE NAME`. It raises ProtocolViolation for a declared entity."""
    made = expat.ParserCreate(namespace_separator=" ")
    made.buffer_text = True
    made.StartElementHandler = start
    made.EndElementHandler = end
    made.CharacterDataHandler = characters
    made.EntityDeclHandler = _refuse
    made.StartNamespaceDeclHandler = _check_namespace
    return made


def _check_namespace(_prefix: str | None, uri: str | None) -> None:
    """Raise ProtocolViolation for a namespace that is too long."""
    if uri is not None and len(uri) > LONGEST_NAMESPACE:
        raise ProtocolViolation(f"has a namespace of more than {LONGEST_NAMESPACE} characters")


def _refuse(*_declaration: object) -> NoReturn:
    raise ProtocolViolation("declares entities")
