"""The tools of the server: `search_knowledge`. Synchronous: the server runs it in a worker thread."""

from typing import Any

import mcp_types as types
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bbfs.knowledge.database.store import Store
from bbfs.knowledge.documents import MAX_ID_BYTES, Hit, NotFound
from bbfs.knowledge.server import catalogue, rendering
from bbfs.serving.bounds import shortened

NAME = "search_knowledge"


class SearchArguments(BaseModel):
    """The arguments of `search_knowledge`."""

    model_config = ConfigDict(title="Arguments", extra="forbid", strict=True)

    query: str = Field(
        max_length=1000, description="Words to look for. Documents with all of them come, or else those with any."
    )
    collection: str | None = Field(
        default=None, max_length=MAX_ID_BYTES, description="The id of the one collection to search; all without it."
    )
    limit: int = Field(default=10, ge=1, le=50, description="How many documents to answer at most.")


_HIT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "uri": {"type": "string", "description": "The document's resource."},
        "collection": {"type": "string"},
        "id": {"type": "string"},
        "name": {"type": "string"},
        "mimeType": {"type": "string"},
        "size": {"type": "integer", "description": "In bytes."},
        "createdAt": {"type": "string"},
        "lastUpdated": {"type": "string"},
        "score": {"type": "number", "description": "Larger is better (BM25)."},
        "snippet": {"type": "string", "description": "The passage that matched, with the words found in **."},
    },
    "required": ["uri", "collection", "id", "name", "mimeType", "size", "createdAt", "lastUpdated", "score"],
}

TOOL = types.Tool(
    name=NAME,
    title="Search the knowledge base",
    description="Full-text search over the documents; the best matches first, each with the passage that matched.",
    input_schema=SearchArguments.model_json_schema(),
    output_schema={
        "type": "object",
        "properties": {"results": {"type": "array", "items": _HIT}},
        "required": ["results"],
    },
    annotations=types.ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    ),
)


def search_knowledge(store: Store, arguments: dict[str, Any] | None) -> types.CallToolResult:
    """Run the tool. Wrong arguments are explained in the result, for the model to read."""
    try:
        given = SearchArguments.model_validate(arguments or {})
        with store.snapshot() as snapshot:
            hits = snapshot.search(given.query, given.collection, given.limit)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:10])
        return _failure(f"invalid arguments: {shortened(problems, 2000)}")
    except NotFound as error:
        return _failure(f"{error}; resource://knowledge/collections lists those there are")
    links = [types.ResourceLink(**dict(catalogue.resource(hit.document))) for hit in hits]
    return types.CallToolResult(
        content=[types.TextContent(text=_summary(hits)), *links],
        structured_content={"results": [_result(hit) for hit in hits]},
    )


def _result(hit: Hit) -> dict[str, Any]:
    result = {"collection": hit.document.collection, **rendering.document(hit.document), "score": hit.score}
    return result if hit.snippet is None else {**result, "snippet": hit.snippet}


def _summary(hits: list[Hit]) -> str:
    if not hits:
        return "Nothing found."
    lines = [f"{_result(hit)['uri']}\n{hit.snippet or hit.document.name}" for hit in hits]
    return "\n\n".join(lines)


def _failure(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
