"""Requests that list and call tools."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from bbfs.model.calls import Progress, Tool
from bbfs.resources.commands.requests import Request


@dataclass(frozen=True)
class Tools(Request[Tool], name="tools", tool=Tool):
    """Describe the tools of a source; none of one that has no such things. source: its directory at the root."""

    source: str


@dataclass(frozen=True, slots=True)
class ResultPart:
    """The beginning of one part of a result. text: its bytes are UTF-8.

    link: the bbfs URI of the resource that it leads to, or an address that is none. path: of that resource, from the
    root of the mount, if it has one.
    """

    name: str | None = None
    mime_type: str | None = None
    text: bool = False
    link: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """The next bytes of a part."""

    data: bytes


@dataclass(frozen=True)
class CallTool(Request[Progress | ResultPart | Piece], name="call", progress=Progress, part=ResultPart, data=Piece):
    """Call a tool once. An error of the tool itself is raised as ToolFailed.

    values: texts, which the tool's schema converts. arguments: other arguments, as they are. confirmed: the user has
    said that a tool may run that does not declare to be read-only.
    """

    source: str
    tool: str
    values: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    arguments: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    confirmed: bool = False
