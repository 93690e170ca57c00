"""The tools of the server: a search, and two that write. Synchronous: the server runs them in worker threads."""

import base64
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import mcp_types as types
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bbfs.knowledge import addresses
from bbfs.knowledge.addresses import DOCUMENT_TEMPLATE, Address
from bbfs.knowledge.database.store import Store
from bbfs.knowledge.documents import (
    MAX_ID_BYTES,
    Conflict,
    Document,
    Hit,
    InvalidName,
    KnowledgeError,
    NotFound,
    Outcome,
    TooLarge,
)
from bbfs.knowledge.server import catalogue, rendering
from bbfs.serving.bounds import LONGEST_URI, shortened

_T = TypeVar("_T", bound=BaseModel)
_LONGEST_NAME = 1000
"""Characters of the name of a document, of a MIME type and of a version."""


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
        "version": {"type": "string", "description": "Changes with the document."},
    },
    "required": ["uri", "collection", "id", "name", "mimeType", "size", "createdAt", "lastUpdated", "score"],
}

_SEARCH = types.Tool(
    name="search_knowledge",
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


class PutArguments(BaseModel):
    """The arguments of `put_document`."""

    model_config = ConfigDict(title="Arguments", extra="forbid", strict=True)

    uri: str = Field(max_length=LONGEST_URI, description=f"The document, as {DOCUMENT_TEMPLATE}.")
    content: str | None = Field(default=None, description="The whole new text. Either this or blob.")
    blob: str | None = Field(default=None, description="The whole new content in Base64, if it is no text.")
    version: str | None = Field(
        default=None,
        max_length=_LONGEST_NAME,
        description=(
            "The version that is replaced, as a read has it in _meta.etag: another one is a conflict, and nothing is "
            "written. An empty text if there must be no such document. Any is replaced without it."
        ),
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=_LONGEST_NAME,
        description="The file name, such as setup.md. Without it, a new document has its id, another one its old name.",
    )
    mime_type: str | None = Field(
        default=None,
        min_length=1,
        max_length=_LONGEST_NAME,
        description="The MIME type, if the name does not tell it.",
    )


class RemoveArguments(BaseModel):
    """The arguments of `remove_document`."""

    model_config = ConfigDict(title="Arguments", extra="forbid", strict=True)

    uri: str = Field(max_length=LONGEST_URI, description=f"The document, as {DOCUMENT_TEMPLATE}.")
    version: str | None = Field(
        default=None,
        min_length=1,
        max_length=_LONGEST_NAME,
        description="The version to remove, as a read has it in _meta.etag: another one is a conflict. Any without it.",
    )


_WRITTEN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "uri": {"type": "string", "description": "The document's resource."},
        "outcome": {"enum": ["added", "updated", "unchanged", "removed"]},
        "version": {"type": "string", "description": "The version that is there now."},
        "name": {"type": "string"},
        "mimeType": {"type": "string"},
        "size": {"type": "integer", "description": "In bytes."},
        "lastUpdated": {"type": "string"},
        "code": {"type": "string", "description": "Of an error: conflict, not_found, too_large, invalid, no_space …"},
        "message": {"type": "string", "description": "Of an error."},
    },
}
_PUT = types.Tool(
    name="put_document",
    title="Put a document",
    description="Add a document, or replace one, with its collection if there is none yet. Subscribers are notified.",
    input_schema=PutArguments.model_json_schema(),
    output_schema=_WRITTEN,
    annotations=types.ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
    ),
)
_REMOVE = types.Tool(
    name="remove_document",
    title="Remove a document",
    description="Remove one document for good. Subscribers are notified.",
    input_schema=RemoveArguments.model_json_schema(),
    output_schema=_WRITTEN,
    annotations=types.ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
    ),
)


class _Invalid(Exception):
    """Arguments that do not fit the schema of a tool; the text says which."""


class _NotWritable(_Invalid):
    """A URI of a resource that the server makes itself, or of none."""


_CODES: Mapping[type[Exception], str] = {
    Conflict: "conflict",
    NotFound: "not_found",
    TooLarge: "too_large",
    _NotWritable: "not_supported",
    _Invalid: "invalid",
    InvalidName: "invalid",
}
_DATABASE_CODES = {sqlite3.SQLITE_FULL: "no_space", sqlite3.SQLITE_READONLY: "read_only"}
"""By the primary result code of SQLite."""


def search_knowledge(store: Store, arguments: dict[str, Any] | None) -> types.CallToolResult:
    """Run the tool. Wrong arguments are explained in the result, for the model to read."""
    try:
        given = _given(SearchArguments, arguments)
        with store.snapshot() as snapshot:
            hits = snapshot.search(given.query, given.collection, given.limit)
    except _Invalid as error:
        return _failure(str(error))
    except NotFound as error:
        return _failure(f"{error}; resource://knowledge/collections lists those there are")
    links = [types.ResourceLink(**dict(catalogue.resource(hit.document))) for hit in hits]
    return types.CallToolResult(
        content=[types.TextContent(text=_summary(hits)), *links],
        structured_content={"results": [_result(hit) for hit in hits]},
    )


def put_document(store: Store, arguments: dict[str, Any] | None) -> types.CallToolResult:
    """Run the tool. An error has a code in its structured content."""
    try:
        given = _given(PutArguments, arguments)
        address = _address(given.uri)
        if (given.content is None) == (given.blob is None):
            raise _Invalid("invalid arguments: give either content or blob")
        content = _encoded(given.content) if given.content is not None else _decoded(given.blob or "")
        version = (given.version or "") if "version" in given.model_fields_set else None
        outcome, document = store.replace(
            address.collection, address.document, content, version, name=given.name, mime=given.mime_type
        )
    except (_Invalid, KnowledgeError, sqlite3.OperationalError) as error:
        return _refusal(error)
    return _written(outcome, document)


def remove_document(store: Store, arguments: dict[str, Any] | None) -> types.CallToolResult:
    """Run the tool. An error has a code in its structured content."""
    try:
        given = _given(RemoveArguments, arguments)
        address = _address(given.uri)
        store.remove(address.collection, address.document, given.version)
    except (_Invalid, KnowledgeError, sqlite3.OperationalError) as error:
        return _refusal(error)
    uri = addresses.uri(address)
    return types.CallToolResult(
        content=[types.TextContent(text=f"removed {uri}")], structured_content={"uri": uri, "outcome": "removed"}
    )


Run = Callable[[Store, dict[str, Any] | None], types.CallToolResult]
READING: Mapping[str, tuple[types.Tool, Run]] = {_SEARCH.name: (_SEARCH, search_knowledge)}
"""The tools of every server, by name."""
WRITING: Mapping[str, tuple[types.Tool, Run]] = {
    _PUT.name: (_PUT, put_document),
    _REMOVE.name: (_REMOVE, remove_document),
}
"""The tools of a writable server, by name."""


def _given(model: type[_T], arguments: dict[str, Any] | None) -> _T:
    try:
        return model.model_validate(arguments or {})
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:10])
        raise _Invalid(f"invalid arguments: {shortened(problems, 2000)}") from None


def _address(uri: str) -> Address:
    address = addresses.meant(uri)
    if address is None or address.kind != "document":
        raise _NotWritable(f"{shortened(uri)}: only a document can be written, {DOCUMENT_TEMPLATE}")
    return address


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _Invalid("invalid arguments: content: a half of a surrogate pair") from None


def _decoded(blob: str) -> bytes:
    try:
        return base64.b64decode(blob, validate=True)
    except ValueError:
        raise _Invalid("invalid arguments: blob: not Base64") from None


def _written(outcome: Outcome, document: Document) -> types.CallToolResult:
    link = catalogue.resource(document)
    return types.CallToolResult(
        content=[types.TextContent(text=f"{outcome} {link.uri}"), types.ResourceLink(**dict(link))],
        structured_content={
            "uri": link.uri,
            "outcome": outcome,
            "version": document.version,
            "name": document.name,
            "mimeType": document.mime_type,
            "size": document.size,
            "lastUpdated": document.updated_at,
        },
    )


def _refusal(error: Exception) -> types.CallToolResult:
    """Return the error as the result of a tool. Raise one of the database that no other request would avoid."""
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
    if isinstance(error, sqlite3.OperationalError):
        code = _DATABASE_CODES.get(error.sqlite_errorcode & 0xFF)
    if code is None:
        raise error
    told: dict[str, Any] = {"code": code, "message": str(error)}
    if isinstance(error, Conflict) and error.version is not None:
        told["version"] = error.version
    return types.CallToolResult(content=[types.TextContent(text=str(error))], structured_content=told, is_error=True)


def _result(hit: Hit) -> dict[str, Any]:
    document = hit.document
    described = {**rendering.document(document), "version": document.version}
    result = {"collection": document.collection, **described, "score": hit.score}
    return result if hit.snippet is None else {**result, "snippet": hit.snippet}


def _summary(hits: list[Hit]) -> str:
    if not hits:
        return "Nothing found."
    lines = [f"{_result(hit)['uri']}\n{hit.snippet or hit.document.name}" for hit in hits]
    return "\n\n".join(lines)


def _failure(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
