"""The tool `load_resources`: many resources at once, by a URI template or by their URIs, each with its own outcome."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import mcp_types as types
from pydantic import Field, model_validator

from bbfs.model.errors import BbfsError
from bbfs.model.uri import parse_data_source_uri
from bbfs.resources.by_uri import LoadedResource
from bbfs.resources.manager import ResourceManager
from bbfs.server import documents
from bbfs.server.answers import AnsweredArguments, problem
from bbfs.server.contents import Budget, ContentItem, items_of
from bbfs.server.errors import certain, described
from bbfs.serving.bounds import LONGEST_URI

NAME = "load_resources"
MOST = 1000
"""Resources of one call."""
AT_ONCE = 64
"""Of these, how many are loaded at once: their contents are held until they are answered."""
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
class _Outcome:
    """What became of one resource. metadata: as in the structured content. error: None if it was loaded."""

    uri: str
    metadata: dict[str, Any]
    items: Sequence[ContentItem] = ()
    error: dict[str, Any] | None = None


class Resources:
    """Answers `load_resources`. most_bytes: of all contents of one answer."""

    def __init__(self, manager: ResourceManager, most_bytes: int) -> None:
        self._manager = manager
        self._most_bytes = most_bytes

    async def load(self, given: ResourceArguments) -> types.CallToolResult:
        """Return the result, with an error for each resource that failed. The call fails if all resources failed."""
        found: list[_Outcome] = []
        budget = Budget(self._most_bytes)
        for start in range(0, len(given.templateResources or given.directUris or ()), AT_ONCE):
            for each in await self._loaded(given, slice(start, start + AT_ONCE)):
                found.append(await self._outcome(each, budget))
        failed = bool(found) and all(each.error is not None for each in found)
        if given.format == "json":
            document = {"resources": [_document(each) for each in found]}
            blocks = [types.TextContent(text=_said(each)) for each in found if failed]
            return types.CallToolResult(content=[*blocks], structured_content=document, is_error=failed)
        return types.CallToolResult(content=[block for each in found for block in _blocks(each)], is_error=failed)

    async def _loaded(self, given: ResourceArguments, some: slice) -> list[LoadedResource]:
        if given.directUris is not None:
            return await self._manager.by_uri.load_many("direct", direct_uris=given.directUris[some])
        values = (given.templateResources or [])[some]
        return await self._manager.by_uri.load_many(
            "template", uri_template=given.uriTemplate, template_resources=values
        )

    async def _outcome(self, loaded: LoadedResource, budget: Budget) -> _Outcome:
        try:
            if loaded.error is not None:
                raise loaded.error
            parsed = parse_data_source_uri(loaded.uri)
            items = await items_of(loaded, parsed.base_prefix, budget)
        except BbfsError as error:
            return _Outcome(loaded.uri, {}, error=described(certain(self._manager, loaded.uri, error)))
        source, record = self._manager.by_uri.record_of(loaded.uri)
        metadata = documents.resource(self._manager.contents, source, record, record.path)
        return _Outcome(loaded.uri, metadata, items)


def _document(outcome: _Outcome) -> dict[str, Any]:
    """Return an item of the structured content."""
    if outcome.error is not None:
        return {"uri": outcome.uri, "error": outcome.error}
    contents: list[dict[str, Any]] = []
    for item in outcome.items:
        facts: dict[str, Any] = {"size": len(item.data)}
        facts |= {"uri": item.uri} if item.uri != outcome.uri else {}
        facts |= {"mimeType": item.mime_type} if item.mime_type is not None else {}
        facts |= {"text": item.text} if item.text is not None else {"blob": item.base64}
        contents.append(facts)
    return {"uri": outcome.uri, "metadata": outcome.metadata, "contents": contents}


def _blocks(outcome: _Outcome) -> Iterator[types.ContentBlock]:
    """Yield the blocks for a model: a line about each content, and the content byte for byte."""
    if outcome.error is not None:
        yield types.TextContent(text=_said(outcome))
    version = f", version={outcome.metadata['version']}" if "version" in outcome.metadata else ""
    for item in outcome.items:
        block = item.block()
        left_out = ", binary: format=json has it in Base64" if block is None else ""
        about = f"{item.uri}: {item.mime_type or 'no MIME type'}, {len(item.data)} bytes{version}{left_out}"
        yield types.TextContent(text=about)
        if block is not None:
            yield block


def _said(outcome: _Outcome) -> str:
    """Return what went wrong with a resource."""
    return f"{outcome.uri}: {problem(outcome.error or {})}"
