"""Compares what a source has with the state that a write replaces, where the source does not compare itself.

A handler with `detects_conflicts` compares and stores in one step, and raises Conflict itself.
The version of a resource after a write is the one in the answer to the write, never that of a later look: another
program may have replaced the resource in between. Where an answer has no version, the digest of the bytes stands for
it. Then one load gives the bytes to compare and the ETag for the condition of the next write, so that no change of
another program can fall between the two.
"""

from dataclasses import dataclass, replace

from bbfs.model.errors import BbfsError, Conflict, NotFound
from bbfs.model.values import Content, ResourceMetadata
from bbfs.model.versions import Expected
from bbfs.resources.source import Source
from bbfs.sources import CanLoad, CanStat
from bbfs.sources.content.buffer import content_digest


@dataclass(frozen=True, slots=True)
class Present:
    """What a source has: one load of a resource with a single content.

    version: as its handler states it for loads. digest: of the bytes. metadata: of exactly these bytes, if the load
    has some.
    """

    size: int
    version: str
    digest: str
    metadata: ResourceMetadata | None

    @property
    def etag(self) -> str | None:
        return None if self.metadata is None else self.metadata.etag

    @property
    def state(self) -> Expected:
        return Expected(exists=True, etag=self.etag, version=self.digest)


async def present(source: Source, native_uri: str) -> Present | None:
    """Load a resource past all caches. Return None if it has several contents. Raise NotFound, BbfsError."""
    if not isinstance(source.handler, CanLoad):
        return None
    loaded = await source.handler.load(native_uri)
    try:
        if len(loaded.parts) != 1:
            return None
        content = loaded.parts[0].content
        return Present(content.size, content.version, await content_digest(content), loaded.metadata)
    finally:
        for part in loaded.parts:
            part.content.close()


async def require_state(source: Source, native_uri: str, expected: Expected) -> Expected:
    """Raise Conflict unless a source has the expected state. Return that state with the ETag that it has now, if any.

    Without a strong ETag to compare by, one load tells both: whether the bytes are the expected ones, and their ETag. A
    weak one may stay when the bytes change (RFC 9110, section 8.8.1).
    """
    if expected == Expected():
        return expected
    handler = source.handler
    try:
        is_strong = expected.etag is not None and not expected.etag.startswith("W/")
        if isinstance(handler, CanStat) and (is_strong or expected.version is None):
            etag = (await handler.stat(native_uri)).etag
            _require_existence(native_uri, expected, is_there=True)
            if etag == expected.etag or expected.etag is None or (etag is None and expected.version is None):
                return expected
            if expected.version is None:
                await require_steady(source, native_uri)
                raise _changed(native_uri)
        there = await present(source, native_uri)
    except NotFound:
        _require_existence(native_uri, expected, is_there=False)
        return expected
    _require_existence(native_uri, expected, is_there=True)
    if there is None:
        return expected
    if expected.version is None:
        if expected.etag is not None and there.etag not in (None, expected.etag):
            raise _changed(native_uri)
        return expected
    is_same_etag = is_strong and there.etag == expected.etag
    if expected.version not in (there.version, there.digest) and not is_same_etag:
        raise _changed(native_uri)
    return Expected(exists=True, etag=there.etag, version=expected.version)


async def require_stored(
    source: Source, native_uri: str, content: Content, metadata: ResourceMetadata
) -> ResourceMetadata:
    """Raise BbfsError unless a source has exactly the bytes that it was given. Return the metadata with their size.

    The ETag of this load belongs to these bytes, whoever wrote them.
    """
    try:
        there = await present(source, native_uri)
    except NotFound:
        raise BbfsError(f"{native_uri}: the source took it, and has no such resource") from None
    if there is None:
        return metadata
    if there.digest != await content_digest(content):
        raise BbfsError(
            f"{native_uri}: the source has other bytes than it was given ({there.size}, not {content.size}): it keeps "
            "no content as it is, or somebody else has changed it since"
        )
    return replace(metadata, size=there.size, etag=there.etag or metadata.etag)


def _require_existence(native_uri: str, expected: Expected, *, is_there: bool) -> None:
    if expected.exists is not None and expected.exists != is_there:
        raise Conflict(f"{native_uri}: somebody else has changed it: it is {'there' if is_there else 'gone'} now")


def _changed(native_uri: str) -> Conflict:
    return Conflict(f"{native_uri}: somebody else has changed it")


async def require_steady(source: Source, native_uri: str) -> None:
    """Raise Conflict with the reason if a source states another ETag at each request: then no ETag tells a change."""
    if not isinstance(source.handler, CanStat):
        return
    try:
        one, other = await source.handler.stat(native_uri), await source.handler.stat(native_uri)
    except BbfsError:
        return
    if one.etag != other.etag and (one.size, one.modified_ns) == (other.size, other.modified_ns):
        raise Conflict(
            f"{native_uri}: the source states another ETag at each request, so nothing tells if somebody else has "
            "changed it"
        )
