"""The tools `write_resource` and `remove_resource`, for the data sources that can be written."""

import base64
import re
from typing import Any

import mcp_types as types
from pydantic import Field, model_validator

from bbfs.model.errors import BbfsError, Conflict, NotFound
from bbfs.model.versions import Expected
from bbfs.resources.commands.answers import asked
from bbfs.resources.commands.table import Put, Remove, Stored
from bbfs.resources.manager import ResourceManager
from bbfs.server import documents
from bbfs.server.answers import AnsweredArguments
from bbfs.server.errors import certain
from bbfs.server_parts.bounds import LONGEST_URI

WRITE = "write_resource"
REMOVE = "remove_resource"
_DIGEST = re.compile(r"[0-9a-f]{32}")
"""The version of bytes that were written without an ETag in the answer; some ETags have this form as well."""
_LONGEST_VERSION = 1024
"""Characters."""


class RemoveArguments(AnsweredArguments):
    """The arguments of `remove_resource`."""

    uri: str = Field(max_length=LONGEST_URI)
    ifMatch: str | None = Field(  # noqa: N815 - as the header of HTTP, in the spelling of this server's arguments
        default=None,
        max_length=_LONGEST_VERSION,
        description="The version to change, from load_resources: another is a conflict. '*': any. '': none yet.",
    )


class WriteArguments(RemoveArguments):
    """The arguments of `write_resource`."""

    text: str | None = Field(default=None, description="The whole new content. Either this or blob.")
    blob: str | None = Field(default=None, description="The same in Base64.")

    @model_validator(mode="after")
    def _one_content(self) -> "WriteArguments":
        if (self.text is None) == (self.blob is None):
            raise ValueError("give either text or blob")
        self.data()
        return self

    def data(self) -> bytes:
        """Return the content. Raise ValueError for what stands for no bytes."""
        return self.text.encode() if self.text is not None else base64.b64decode(self.blob or "", validate=True)


class Writings:
    """Answers `write_resource` and `remove_resource`."""

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager

    async def write(self, given: WriteArguments) -> types.CallToolResult:
        """Return the metadata of what was written. The client keeps a content that its source does not take."""
        try:
            expected = await self._expected(given)
            request = Put(uri=given.uri, data=given.data(), expected=expected, keep=False, by_owner=False)
            (written,) = await asked(self._manager, request)
            metadata = await self._metadata(written)
        except BbfsError as error:
            return self._failure(given, error)
        version = f", version={metadata['version']}" if "version" in metadata else ""
        return given.answer({"uri": written.uri, "metadata": metadata}, f"written: {written.uri}{version}")

    async def _metadata(self, written: Stored) -> dict[str, Any]:
        """Describe a resource that was just written; without size and version, if its source does not tell them.

        The version is that of this write where its answer tells one: a later one may be that of another client.
        """
        uri = written.uri
        source, record = self._manager.by_uri.record_of(uri)
        if written.version is not None:
            known = documents.resource(self._manager.contents, source, record, record.path)
            return {**known, "size": written.size, "version": written.version}
        if record.metadata.etag is None and (record.digest is None or record.invalidated):
            try:
                await self._manager.by_uri.load(uri)
            except BbfsError:
                known = documents.resource(self._manager.contents, source, record, record.path)
                return {key: value for key, value in known.items() if key not in ("size", "version")}
            source, record = self._manager.by_uri.record_of(uri)
        return documents.resource(self._manager.contents, source, record, record.path)

    async def remove(self, given: RemoveArguments) -> types.CallToolResult:
        """Return the URI of what was removed."""
        try:
            request = Remove(uri=given.uri, expected=await self._expected(given), by_owner=False)
            await asked(self._manager, request)
        except BbfsError as error:
            return self._failure(given, error)
        return given.answer({"uri": given.uri}, f"removed: {given.uri}")

    async def _expected(self, given: RemoveArguments) -> Expected:
        """Return the state that the source must have. Raise BbfsError, Conflict among them."""
        if given.ifMatch is None:
            return Expected()
        if given.ifMatch in ("", "*"):
            return Expected(exists=given.ifMatch == "*")
        _, record = self._manager.by_uri.record_of(given.uri)
        if record.metadata.etag is None and record.digest is None:  # only a load tells which of the two there will be
            try:
                await self._manager.by_uri.load(given.uri)
            except NotFound as error:
                raise Conflict(f"{given.uri}: it is gone: {error}") from error
        etag = record.metadata.etag
        if etag is not None and (etag == given.ifMatch or not _DIGEST.fullmatch(given.ifMatch)):
            return Expected(exists=True, etag=given.ifMatch)
        return Expected(exists=True, version=given.ifMatch)

    def _failure(self, given: RemoveArguments, error: BbfsError) -> types.CallToolResult:
        return given.refusal(certain(self._manager, given.uri, error), uri=given.uri)
