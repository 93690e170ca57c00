"""Expat without entities: their declarations are refused, since a few of them make gigabytes."""

from collections.abc import Callable
from typing import NoReturn
from xml.parsers import expat

from bbfs.model.errors import ProtocolViolation


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
    return made


def _refuse(*_declaration: object) -> NoReturn:
    raise ProtocolViolation("declares entities")
