"""The tool `load_resources`: many resources at once, by a URI template or by their URIs, each with its own outcome."""

from typing import Annotated, Any, Literal

import mcp_types as types
from pydantic import Field, model_validator

from bbfs.model.errors import BbfsError
from bbfs.model.uri import parse_data_source_uri
from bbfs.resources.by_uri import LoadedResource
from bbfs.resources.manager import ResourceManager
from bbfs.server import documents
from bbfs.server.contents import Budget, items_of
from bbfs.server.errors import Fault, certain, described
from bbfs.serving.bounds import LONGEST_URI
from bbfs.serving.tools import Arguments, array, record, text, value

NAME = "load_resources"
MOST = 1000
"""Resources of one call."""
AT_ONCE = 64
"""Of these, how many are loaded at once: their contents are held until they are answered."""
LONGEST_TEMPLATE = 8192
"""Characters. It is read once for each resource, and stands in what is said of each that goes wrong."""


class ResourceArguments(Arguments):
    """The arguments of `load_resources`."""

    mode: Literal["template", "direct"] = Field(
        description="template: uriTemplate is expanded with each object of templateResources. direct: directUris."
    )
    uriTemplate: str | None = Field(  # noqa: N815 - the name in the protocol
        default=None,
        min_length=1,
        max_length=LONGEST_TEMPLATE,
        description="One of the uriTemplates of a data source. Slashes in the value of {path} of a folder stay.",
    )
    templateResources: list[dict[str, str | list[str]]] | None = Field(  # noqa: N815
        default=None,
        max_length=MOST,
        description="For each resource the values of the template's variables, as texts or lists of texts.",
    )
    directUris: list[Annotated[str, Field(max_length=LONGEST_URI)]] | None = Field(  # noqa: N815
        default=None, max_length=MOST, description="URIs of resources."
    )

    @model_validator(mode="after")
    def _one_mode(self) -> "ResourceArguments":
        template, direct = (self.uriTemplate, self.templateResources), (self.directUris,)
        wanted, other = (template, direct) if self.mode == "template" else (direct, template)
        if None in wanted or any(value is not None for value in other):
            raise ValueError(
                "mode 'template' takes uriTemplate and templateResources, mode 'direct' takes directUris, "
                "and neither takes what is the other's"
            )
        return self


_CONTENT = record(
    "size contentIndex",
    uri=text("Of one content among several."),
    mimeType=text(),
    size=value("integer", "Bytes."),
    text=text("The content, if it is text."),
    contentIndex=value("integer", "Which item of the result's content it is, from 0."),
)
_OUTCOME = record(
    "uri", uri=text(), metadata=documents.RESOURCE_SCHEMA, contents=array(_CONTENT), error=documents.ERROR_SCHEMA
)
OUTPUT = record(
    "resources",
    resources=array(
        _OUTCOME, "One for each that was asked for, in this order: with metadata and contents, or with error."
    ),
)


class Resources:
    """Answers `load_resources`. most_bytes: of all contents of one answer."""

    def __init__(self, manager: ResourceManager, most_bytes: int) -> None:
        self._manager = manager
        self._most_bytes = most_bytes

    async def load(self, given: ResourceArguments) -> types.CallToolResult:
        """Return the result, with an error for each resource that failed. The call fails if all resources failed."""
        blocks: list[types.ContentBlock] = []
        outcomes: list[dict[str, Any]] = []
        budget = Budget(self._most_bytes)
        for start in range(0, len(given.templateResources or given.directUris or ()), AT_ONCE):
            for each in await self._loaded(given, slice(start, start + AT_ONCE)):
                outcomes.append(await self._outcome(each, blocks, budget))
        failed = bool(outcomes) and all("error" in outcome for outcome in outcomes)
        return types.CallToolResult(content=blocks, structured_content={"resources": outcomes}, is_error=failed)

    async def _loaded(self, given: ResourceArguments, some: slice) -> list[LoadedResource]:
        if given.mode == "direct":
            return await self._manager.by_uri.load_many("direct", direct_uris=(given.directUris or [])[some])
        values = (given.templateResources or [])[some]
        return await self._manager.by_uri.load_many(
            "template", uri_template=given.uriTemplate, template_resources=values
        )

    async def _outcome(
        self, loaded: LoadedResource, blocks: list[types.ContentBlock], budget: Budget
    ) -> dict[str, Any]:
        """Return one item of the structured result; append its contents to `blocks`."""
        try:
            if loaded.error is not None:
                raise loaded.error
            parsed = parse_data_source_uri(loaded.uri)
            items = await items_of(loaded, parsed.base_prefix, budget)
        except BbfsError as error:
            return self._failure(loaded.uri, certain(self._manager, loaded.uri, error), blocks)
        source, record = self._manager.by_uri.record_of(loaded.uri)
        metadata = documents.resource(self._manager.contents, source, record, record.path)
        contents: list[dict[str, Any]] = []
        for item in items:
            facts = {"size": len(item.data), "contentIndex": len(blocks)}
            facts |= {"uri": item.uri} if item.uri != loaded.uri else {}
            facts |= {"mimeType": item.mime_type} if item.mime_type is not None else {}
            facts |= {"text": item.text} if item.text is not None else {}
            contents.append(facts)
            blocks.append(item.block({"uri": item.uri, "metadata": metadata}))
        return {"uri": loaded.uri, "metadata": metadata, "contents": contents}

    @staticmethod
    def _failure(uri: str, error: BbfsError | Fault, blocks: list[types.ContentBlock]) -> dict[str, Any]:
        outcome = {"uri": uri, "error": described(error)}
        blocks.append(types.TextContent(text=f"{uri}: {outcome['error']['code']}: {error}", _meta=outcome))
        return outcome
