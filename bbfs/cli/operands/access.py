"""The requests of commands to a tree of sources. A mount serves the sources (`mounted`), or this process opens them
(`direct`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from bbfs.cli import lazy
from bbfs.cli.operands.rule import Path
from bbfs.model.errors import BbfsError, NotFound
from bbfs.model.uri import parse_data_source_uri, parse_uri_prefix

if TYPE_CHECKING:
    from bbfs.model.values import DataSource
    from bbfs.model.versions import Labels
    from bbfs.resources.commands.requests import Request
    from bbfs.resources.writing.pending import PendingStore

A = TypeVar("A")


TROUBLED_WITHIN = 2.0
"""Seconds that a command over all sources waits for one that was down, or is not connected yet."""


class NoSuchSource(NotFound):
    """Neither a mount nor the configuration has the source."""


class Kept(BbfsError):
    """A source has not taken a content, which is a pending write now. The text has the reason and the id."""


def ends_with_its_process(source: "DataSource") -> bool:
    """Return whether what is written to a source lasts no longer than the process that opened it."""
    return source.type == "memory" and not source.config.get("file")


def troubled(status: Mapping[str, Any]) -> list[str]:
    """Return the directories of the sources that are down or not connected yet. status: the state of a mount."""
    return [row["uri_prefix"] for row in status.get("sources", ()) if row["state"] in ("down", "connecting")]


def pending_store() -> "PendingStore":
    return lazy.pending.PendingStore(lazy.pending.pending_path())


def pending_ids() -> Collection[str]:
    return pending_store().ids()


def kept_write(before: Collection[str], *, uri: str | None = None, path: Path | None = None) -> Kept | None:
    """Return the error for a write that its source has not taken, or None. before: the IDs that were pending."""
    found = pending_store().refused_since(before, uri=uri, path=path)
    return Kept(f"{found[-1].reason}; 'bbfs pending' has it as {found[-1].id}") if found else None


def with_pending(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the descriptions of sources; `pending` is the number of their writes that they have not taken."""
    counts = Counter(parse_data_source_uri(each.uri).base_prefix for each in pending_store().items())
    if not counts:
        return rows
    found = [counts[parse_uri_prefix(row["uriPrefix"]).base] if "uriPrefix" in row else 0 for row in rows]
    return [{**row, "pending": count} if count else row for row, count in zip(rows, found, strict=True)]


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One name of a tree. size: bytes, None if unknown. error: the reason why it is unknown."""

    path: Path
    kind: Literal["directory", "file", "symlink"]
    size: int | None = None
    modified_ns: int | None = None
    mime_type: str | None = None
    uri: str | None = None
    target: str | None = None
    error: str | None = None


class SourceTree(Protocol):
    """The names, metadata and contents of some sources. Paths are from the root, beginning with a source's directory.

    All methods raise BbfsError or OSError.
    """

    mount: str | None

    async def ask(self, request: "Request[A]", hear: Callable[[A], object] | None = None) -> None:
        """Ask the sources, and have `hear` called with each answer, if somebody wants them."""
        ...

    async def resolved(self, path: Path) -> Path:
        """Return a path without symbolic links. Raise Denied if they lead out of the tree."""
        ...

    def has(self, path: str) -> bool:
        """Return whether the tree shows a path of the sources: a scratch over a mount may have removed it."""
        ...

    async def locate(self, uri: str) -> Path:
        """Return the path of a bbfs URI."""
        ...

    async def children(self, path: Path, *, exact: bool) -> list[TreeEntry]:
        """Return the entries of a directory. exact: load the sizes and other fields that a listing leaves open."""
        ...

    async def described(self, entries: list[TreeEntry]) -> list[TreeEntry]:
        """Return listed entries with all metadata that is known. That loads no content."""
        ...

    async def entry(self, path: Path, *, exact: bool) -> TreeEntry: ...

    async def document(self, target: "Target") -> dict[str, Any]:
        """Return all metadata, under the names of the data model, with `kind`."""
        ...

    async def copy(self, target: "Target", write: Callable[[bytes], object]) -> None:
        """Write the content, or several contents in order."""
        ...

    async def require_written(self, target: "Target") -> None:
        """Raise the error that a write would end with, if the source is not written at all."""
        ...

    async def write(
        self,
        target: "Target",
        file: IO[bytes],
        *,
        replace: bool,
        labels: "Labels | None" = None,
        by_owner: bool = False,
    ) -> None:
        """Store all bytes of a file as a resource. The source has it on return.

        replace: also if it is there. labels: the description of the writer. by_owner: as the owner of a mount may,
        where the configuration does not grant the capability `write`. Raise Kept if the bytes are a pending write now.
        """
        ...

    async def remove(self, target: "Target", *, by_owner: bool = False) -> None:
        """Remove a resource. by_owner: as for `write`."""
        ...

    async def why(self, path: Path, error: OSError) -> str | None:
        """Return the source's reason for an error at a path, if it says more than the error. The wait is bounded."""
        ...

    async def sources(self, timeout: float | None) -> list[dict[str, Any]]:
        """Return each source with its state, after a contact of at most `timeout` seconds (None: no contact)."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """The resource of one operand. path: from the root of the tree; None while only the URI is known.

    looked: the mounts that were looked at, if several have the source.
    """

    tree: SourceTree
    path: Path | None
    uri: str | None = None
    looked: str | None = None

    async def located(self) -> Path:
        if self.path is not None:
            return self.path
        assert self.uri is not None
        return await self.tree.locate(self.uri)

    async def directory(self) -> str | None:
        """Return the directory of its source at the root; None for the root. Raise BbfsError, OSError.

        A short name such as `git` is a link in a mount, and leads to `mcp-server+git`.
        """
        path = await self.tree.resolved((await self.located())[:1])
        return path[0] if path else None
