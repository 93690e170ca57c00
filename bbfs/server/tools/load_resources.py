"""The tool `load_resources`: many resources at once, by a URI template or by their URIs, each with its own outcome."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import mcp_types as types
from pydantic import Field, model_validator

from bbfs.model.errors import BbfsError, NotSupported
from bbfs.model.values import Part
from bbfs.resources.by_uri import LoadedResource
from bbfs.resources.manager import ResourceManager
from bbfs.server import documents
from bbfs.server.answers import AnsweredArguments, one_line, problem
from bbfs.server.contents import Budget, ContentItem, identity, is_perceived, is_picture, item_of
from bbfs.server.errors import certain, described
from bbfs.server.excerpts import HEAD, Excerpt, Wanted, excerpt
from bbfs.server.excerpts import MOST as MOST_CHARACTERS
from bbfs.server.kept import KeptResults, is_kept, kept_document
from bbfs.server_parts.bounds import LONGEST_URI
from bbfs.sources.documents.pictures.scaler import PictureScaler
from bbfs.sources.media_types import content_type_of

NAME = "load_resources"
MOST = 1000
"""Resources of one call."""
AT_ONCE = 64
"""Of these, how many are loaded at once: their contents are held until they are answered."""
LONGEST_SIDE = 8192
"""Pixels of the longest side that a picture may be scaled to."""
LONGEST_TEMPLATE = 8192
"""Characters. It is read once for each resource, and stands in what is said of each that goes wrong."""


class ResourceArguments(AnsweredArguments):
    """The arguments of `load_resources`."""

    mode: Literal["template", "direct"] | None = Field(
        default=None, description="template: uriTemplate and templateResources. direct: directUris."
    )
    uriTemplate: str | None = Field(  # noqa: N815 - the name in the protocol
        default=None,
        min_length=1,
        max_length=LONGEST_TEMPLATE,
        description="A template of load_datasource. {path} of a folder keeps its slashes.",
    )
    templateResources: list[dict[str, str | list[str]]] | None = Field(  # noqa: N815
        default=None,
        max_length=MOST,
        description="Values of the template's variables, an object for each resource.",
        json_schema_extra={"anyOf": [{"type": "array", "items": {"type": "object"}}]},
    )
    directUris: list[Annotated[str, Field(max_length=LONGEST_URI)]] | None = Field(  # noqa: N815
        default=None, max_length=MOST
    )
    offset: int = Field(default=1, ge=1, description="First line, as grep_resources counts them.")
    limit: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description=f"Lines. Default: what {HEAD} characters hold."
    )
    unit: Literal["lines", "characters"] = Field(default="lines", description="Of offset and limit.")
    pictureSide: int = Field(  # noqa: N815
        default=0,
        ge=0,
        le=LONGEST_SIDE,
        description="Scale pictures down to such a side; 1568 suits models.",
    )

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.offset, self.limit, self.unit)

    @model_validator(mode="after")
    def _one_mode(self) -> "ResourceArguments":
        template, direct = (self.uriTemplate, self.templateResources), (self.directUris,)
        by_template = self.mode == "template" or (self.mode is None and self.directUris is None)
        wanted, other = (template, direct) if by_template else (direct, template)
        if None in wanted or any(value is not None for value in other):
            raise ValueError(
                "mode 'template' takes uriTemplate and templateResources, mode 'direct' takes directUris, "
                "and neither takes what is the other's"
            )
        return self


@dataclass(frozen=True, slots=True)
class _Shown:
    """What an answer has of one content: a part of a text, or the whole of it (item), or neither.

    kept: the URI under which the result of a tool can be read on. scaled: what a picture with fewer pixels has become.
    left_out: why there is neither.
    """

    uri: str
    mime_type: str | None
    size: int
    part: Excerpt | None = None
    item: ContentItem | None = None
    kept: str | None = None
    scaled: str = ""
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of one resource. metadata: as in the structured content. error: None if it was loaded."""

    uri: str
    metadata: dict[str, Any]
    shown: Sequence[_Shown] = ()
    error: dict[str, Any] | None = None


class Resources:
    """Answers `load_resources`. most_bytes: of all contents of one answer."""

    def __init__(self, manager: ResourceManager, kept: KeptResults, most_bytes: int) -> None:
        self._manager = manager
        self._kept = kept
        self._most_bytes = most_bytes
        self._scaler = PictureScaler()

    async def load(self, given: ResourceArguments) -> types.CallToolResult:
        """Return the result, with an error for each resource that failed. The call fails if all resources failed."""
        found: list[_Outcome] = []
        room = _Room(given, self._kept, self._most_bytes, self._scaler)
        for start in range(0, len(given.templateResources or given.directUris or ()), AT_ONCE):
            for each in await self._loaded(given, slice(start, start + AT_ONCE)):
                found.append(await self._outcome(each, room))
        failed = bool(found) and all(each.error is not None for each in found)
        if given.format == "json":
            document = {"resources": [_document(each) for each in found]}
            blocks = [types.TextContent(text=_said(each)) for each in found if failed]
            return types.CallToolResult(content=[*blocks], structured_content=document, is_error=failed)
        return types.CallToolResult(content=[block for each in found for block in _blocks(each)], is_error=failed)

    async def _loaded(self, given: ResourceArguments, some: slice) -> list[LoadedResource]:
        if given.directUris is None:
            values = (given.templateResources or [])[some]
            return await self._manager.by_uri.load_many(
                "template", uri_template=given.uriTemplate, template_resources=values
            )
        uris = given.directUris[some]
        others = await self._manager.by_uri.load_many("direct", direct_uris=[uri for uri in uris if not is_kept(uri)])
        left = iter(others)
        return [self._kept.loaded(uri) if is_kept(uri) else next(left) for uri in uris]

    async def _outcome(self, loaded: LoadedResource, room: "_Room") -> _Outcome:
        try:
            if loaded.error is not None:
                raise loaded.error
            if is_kept(loaded.uri):
                return _Outcome(loaded.uri, kept_document(loaded), await room.shown(loaded, "", keep=False))
            source, record = self._manager.by_uri.record_of(loaded.uri)
            shown = await room.shown(loaded, source.data.base_prefix, keep=record.on_open)
        except BbfsError as error:
            return _Outcome(loaded.uri, {}, error=described(certain(self._manager, loaded.uri, error)))
        metadata = documents.resource(self._manager.contents, source, record, record.path)
        return _Outcome(loaded.uri, metadata, shown)


class _Room:
    """What one answer may still have: bytes, and characters of texts."""

    def __init__(self, given: ResourceArguments, kept: KeptResults, most_bytes: int, scaler: PictureScaler) -> None:
        self._scaler = scaler
        self._given = given
        self._kept = kept
        self._budget = Budget(most_bytes)
        self._characters = MOST_CHARACTERS

    async def shown(self, loaded: LoadedResource, base_prefix: str, *, keep: bool) -> list[_Shown]:
        """Return what the answer has of each content of a resource. keep: a longer text. Raise BbfsError."""
        if self._given.format == "json" and self._given.wanted == Wanted():  # either all contents, or an error
            left = [part for part in loaded.parts if not self._is_scaled(identity(loaded, part, base_prefix)[1])]
            self._budget.take(sum(part.content.size for part in left))
        return [await self._one(loaded, part, base_prefix, keep) for part in loaded.parts]

    async def _one(self, loaded: LoadedResource, part: Part, base_prefix: str, keep: bool) -> _Shown:
        uri, mime_type = identity(loaded, part, base_prefix)
        content, is_json = part.content, self._given.format == "json"
        shown = _Shown(uri, mime_type, content.size)
        if self._is_scaled(mime_type):
            return await self._picture(shown, loaded, part, base_prefix)
        if is_json and self._given.wanted == Wanted():
            return replace(shown, item=await item_of(loaded, part, base_prefix))
        if content_type_of(mime_type) != "binary":
            if self._characters <= 0:
                return replace(shown, left_out=f"left out: {MOST_CHARACTERS} characters are in this answer already")
            limit = self._characters if self._given.limit is not None else min(HEAD, self._characters)
            found = await excerpt(content, self._given.wanted, limit)
            if found is not None:
                self._characters -= len(found.text)
                kept = self._kept.keep(content, mime_type) if keep and not found.is_whole else None
                return replace(shown, part=found, kept=kept)
        if not is_json and not is_perceived(mime_type):
            return replace(shown, left_out="binary: format=json has it in Base64")
        self._budget.take(content.size)
        return replace(shown, item=await item_of(loaded, part, base_prefix))

    def _is_scaled(self, mime_type: str | None) -> bool:
        """Return whether the call asks for a picture in fewer pixels. A drawing in SVG is a text."""
        return self._given.pictureSide > 0 and is_picture(mime_type) and content_type_of(mime_type) == "binary"

    async def _picture(self, shown: _Shown, loaded: LoadedResource, part: Part, base_prefix: str) -> _Shown:
        """Return a picture as the call asks for it, or why it cannot be scaled. Raise BbfsError."""
        try:
            made = await self._scaler.scaled(part.content, self._given.pictureSide, what=shown.uri)
        except NotSupported as error:
            return replace(shown, left_out=f"left out: {error}")
        if made is None:
            self._budget.take(part.content.size)
            return replace(shown, item=await item_of(loaded, part, base_prefix))
        data, mime_type = made
        self._budget.take(len(data))
        return replace(
            shown,
            item=ContentItem(shown.uri, mime_type, data, None),
            scaled=f"scaled to {len(data)} bytes as {mime_type}",
        )


def _document(outcome: _Outcome) -> dict[str, Any]:
    """Return an item of the structured content."""
    if outcome.error is not None:
        return {"uri": outcome.uri, "error": outcome.error}
    contents: list[dict[str, Any]] = []
    for each in outcome.shown:
        facts: dict[str, Any] = {"size": each.size}
        facts |= {"uri": each.uri} if each.uri != outcome.uri else {}
        facts |= {"mimeType": each.mime_type} if each.mime_type is not None else {}
        facts |= {"kept": each.kept} if each.kept is not None else {}
        facts |= {"scaled": each.scaled} if each.scaled else {}
        if each.part is not None:
            facts |= {"text": each.part.text, "part": str(each.part)}
        elif each.item is not None:
            facts |= {"text": each.item.text} if each.item.text is not None else {"blob": each.item.base64}
        else:
            facts["part"] = each.left_out
        contents.append(facts)
    return {"uri": outcome.uri, "metadata": outcome.metadata, "contents": contents}


def _blocks(outcome: _Outcome) -> Iterator[types.ContentBlock]:
    """Yield the blocks for a model: a line about each content, and the content byte for byte."""
    if outcome.error is not None:
        yield types.TextContent(text=_said(outcome))
    version = f"version={outcome.metadata['version']}" if "version" in outcome.metadata else ""
    for each in outcome.shown:
        part = str(each.part) if each.part is not None and not each.part.is_whole else ""
        kept = f"kept for later calls as {each.kept}" if each.kept is not None else ""
        facts = (one_line(each.mime_type) or "no MIME type", f"{each.size} bytes", version, part, kept, each.scaled)
        yield types.TextContent(text=f"{each.uri}: {', '.join(fact for fact in (*facts, each.left_out) if fact)}")
        if each.part is not None:
            yield types.TextContent(text=each.part.text)
        elif each.item is not None:
            yield each.item.block()


def _said(outcome: _Outcome) -> str:
    """Return what went wrong with a resource."""
    return f"{outcome.uri}: {problem(outcome.error or {})}"
