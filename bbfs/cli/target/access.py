"""What a command can ask of a tree of sources, however it is reached: through a mount that serves them (`mounted`), or
opened in this process (`direct`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from bbfs.cli.target.rule import Path
from bbfs.model.errors import NotFound


class NoSuchSource(NotFound):
    """Neither a mount nor the configuration has the source."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One name of a tree. size: bytes, None where it is not known. error: why it is not."""

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

    Everything raises BbfsError or OSError.
    """

    mount: str | None

    async def locate(self, uri: str) -> Path:
        """The path of a bbfs URI."""
        ...

    async def children(self, path: Path, *, exact: bool) -> list[TreeEntry]:
        """The entries of a directory; `exact` learns sizes and all else that a plain listing leaves open."""
        ...

    async def entry(self, path: Path, *, exact: bool) -> TreeEntry: ...

    async def document(self, target: "Target") -> dict[str, Any]:
        """All metadata, under the names of the data model, with `kind`."""
        ...

    async def copy(self, target: "Target", write: Callable[[bytes], object]) -> None:
        """Write the content, of several contents all in order."""
        ...

    async def why(self, path: Path, error: OSError) -> str | None:
        """What the source says of an error at a path, where it says more than the error does. Bounded."""
        ...

    async def sources(self, timeout: float | None) -> list[dict[str, Any]]:
        """Every source with its state, after contact with it for at most `timeout` seconds (None: no contact)."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """What one operand means. path: from the root of the tree; None where only the URI is known yet."""

    tree: SourceTree
    path: Path | None
    uri: str | None = None

    async def located(self) -> Path:
        if self.path is not None:
            return self.path
        assert self.uri is not None
        return await self.tree.locate(self.uri)
