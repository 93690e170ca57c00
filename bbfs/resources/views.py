"""What bbfs shows beside the names of the sources: their status and descriptions, searches, and texts of documents."""

from collections.abc import Sequence

from bbfs.model.errors import BbfsError
from bbfs.model.values import DataSource, SourceState
from bbfs.resources.catalog.base import View
from bbfs.resources.catalog.record import Node, Path
from bbfs.resources.source import Source


class SourceView:
    """A handler whose resources bbfs shows beside those of the sources, and where.

    The paths of its catalog begin at the mount's root.

    root_files: its files at the root. roots: its directories at the root. marks: each path that it `owns` has one of
    these names. depth: of the directories that it adds names to, or None for any. comes_first: before the others.
    endings: how the names end for which it ever `stands_in`; absent names are looked up all the time.
    """

    source: DataSource
    root_files: Sequence[str] = ()
    roots: Sequence[str] = ()
    marks: Sequence[str] = ()
    depth: int | None = None
    comes_first = False
    endings: tuple[str, ...] = ()

    @property
    def state(self) -> SourceState:
        return SourceState("up")

    def owns(self, path: Path) -> bool:
        """Return whether a path leads into the view, as far as can be told without a request."""
        return False

    def stands_in(self, path: Path) -> bool:
        """Return whether the view has what the source of a path does not have, by what is cached."""
        return False

    async def follows(self, path: Path, error: BbfsError) -> bool:
        """Return whether the view is to be asked for a path after the source has raised an error. Raise BbfsError."""
        return False

    def expected(self, path: Path) -> Node | None:
        """Return what the view will have at a path of which nothing is cached, or None."""
        return None

    def is_listed_in(self, source: Source) -> bool:
        """Return whether the view adds names to directories of a source."""
        return False

    async def names(self, path: Path, view: View) -> Sequence[str]:
        """Return the names that the view may have in a directory, besides those of `view`."""
        return ()
