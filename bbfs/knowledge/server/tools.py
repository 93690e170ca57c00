"""The tools of the server: a search, and two that write. Synchronous: the server runs them in worker threads."""

import base64
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

import mcp_types as types
from pydantic import Field

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
from bbfs.server_parts.bounds import LONGEST_URI, shortened
from bbfs.server_parts.tools import (
    Arguments,
    InvalidArguments,
    arguments_of,
    array,
    failure,
    input_schema,
    record,
    text,
    value,
)

_LONGEST_NAME = 1000
"""Characters of the name of a document, of a MIME type and of a version."""


class SearchArguments(Arguments):
    """The arguments of `search_knowledge`."""

    query: str = Field(
        max_length=1000, description="Words to look for. Documents with all of them come, or else those with any."
    )
    collection: str | None = Field(
        default=None, max_length=MAX_ID_BYTES, description="The id of the one collection to search; all without it."
    )
    limit: int = Field(default=10, ge=1, le=50, description="How many documents to answer at most.")


_HIT = record(
    "uri collection id name mimeType size createdAt lastUpdated score",
    uri=text("The document's resource."),
    collection=text(),
    id=text(),
    name=text(),
    mimeType=text(),
    size=value("integer", "In bytes."),
    createdAt=text(),
    lastUpdated=text(),
    score=value("number", "Larger is better (BM25)."),
    snippet=text("The passage that matched, with the words found in **."),
    version=text("Changes with the document."),
)

_SEARCH = types.Tool(
    name="search_knowledge",
    title="Search the knowledge base",
    description="Full-text search over the documents; the best matches first, each with the passage that matched.",
    input_schema=input_schema(SearchArguments),
    output_schema=record("results", results=array(_HIT)),
    annotations=types.ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    ),
)


class PutArguments(Arguments):
    """The arguments of `put_document`."""

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
        default=None, min_length=1, max_length=_LONGEST_NAME, description="The MIME type, if the name does not tell it."
    )


class RemoveArguments(Arguments):
    """The arguments of `remove_document`."""

    uri: str = Field(max_length=LONGEST_URI, description=f"The document, as {DOCUMENT_TEMPLATE}.")
    version: str | None = Field(
        default=None,
        min_length=1,
        max_length=_LONGEST_NAME,
        description="The version to remove, as a read has it in _meta.etag: another one is a conflict. Any without it.",
    )


_WRITTEN = record(
    uri=text("The document's resource."),
    outcome={"enum": ["added", "updated", "unchanged", "removed"]},
    version=text("The version that is there now."),
    name=text(),
    mimeType=text(),
    size=value("integer", "In bytes."),
    lastUpdated=text(),
    code=text("Of an error: conflict, not_found, too_large, invalid, no_space …"),
    message=text("Of an error."),
)
_WRITES = types.ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)
_PUT = types.Tool(
    name="put_document",
    title="Put a document",
    description="Add a document, or replace one, with its collection if there is none yet. Subscribers are notified.",
    input_schema=input_schema(PutArguments),
    output_schema=_WRITTEN,
    annotations=_WRITES,
)
_REMOVE = types.Tool(
    name="remove_document",
    title="Remove a document",
    description="Remove one document for good. Subscribers are notified.",
    input_schema=input_schema(RemoveArguments),
    output_schema=_WRITTEN,
    annotations=_WRITES,
)


class _NotWritable(InvalidArguments):
    """A URI of a resource that the server makes itself, or of none."""


_CODES: Mapping[type[Exception], str] = {
    Conflict: "conflict",
    NotFound: "not_found",
    TooLarge: "too_large",
    _NotWritable: "not_supported",
    InvalidArguments: "invalid",
    InvalidName: "invalid",
}
_DATABASE_CODES = {sqlite3.SQLITE_FULL: "no_space", sqlite3.SQLITE_READONLY: "read_only"}
"""By the primary result code of SQLite."""


def search_knowledge(store: Store, arguments: dict[str, Any] | None) -> types.CallToolResult:
    """Run the tool. Wrong arguments are explained in the result, for the model to read."""
    try:
        given = arguments_of(SearchArguments, arguments)
        with store.snapshot() as snapshot:
            hits = snapshot.search(given.query, given.collection, given.limit)
    except InvalidArguments as error:
        return failure(str(error))
    except NotFound as error:
        return failure(f"{error}; resource://knowledge/collections lists those there are")
    links = [types.ResourceLink(**dict(catalogue.resource(hit.document))) for hit in hits]
    return types.CallToolResult(
        content=[types.TextContent(text=_summary(hits)), *links],
        structured_content={"results": [_result(hit) for hit in hits]},
    )


def put_document(store: Store, arguments: dict[str, Any] | None) -> types.CallToolResult:
    """Run the tool. An error has a code in its structured content."""
    try:
        given = arguments_of(PutArguments, arguments)
        address = _address(given.uri)
        if (given.content is None) == (given.blob is None):
            raise InvalidArguments("invalid arguments: give either content or blob")
        content = _encoded(given.content) if given.content is not None else _decoded(given.blob or "")
        version = (given.version or "") if "version" in given.model_fields_set else None
        outcome, document = store.replace(
            address.collection, address.document, content, version, name=given.name, mime=given.mime_type
        )
    except (InvalidArguments, KnowledgeError, sqlite3.OperationalError) as error:
        return _refusal(error)
    return _written(outcome, document)


def remove_document(store: Store, arguments: dict[str, Any] | None) -> types.CallToolResult:
    """Run the tool. An error has a code in its structured content."""
    try:
        given = arguments_of(RemoveArguments, arguments)
        address = _address(given.uri)
        store.remove(address.collection, address.document, given.version)
    except (InvalidArguments, KnowledgeError, sqlite3.OperationalError) as error:
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


def _address(uri: str) -> Address:
    address = addresses.meant(uri)
    if address is None or address.kind != "document":
        raise _NotWritable(f"{shortened(uri)}: only a document can be written, {DOCUMENT_TEMPLATE}")
    return address


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidArguments("invalid arguments: content: a half of a surrogate pair") from None


def _decoded(blob: str) -> bytes:
    try:
        return base64.b64decode(blob, validate=True)
    except ValueError:
        raise InvalidArguments("invalid arguments: blob: not Base64") from None


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
    return failure(str(error), told)


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
