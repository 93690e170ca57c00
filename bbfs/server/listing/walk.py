"""Walks through the listing of a source, which another walk can continue.

The order is the order of the paths as tuples, so a directory comes before its entries. A path is therefore all that a
later walk needs: changes meanwhile make it neither skip nor repeat an unchanged entry. The client gets the path as an
opaque token: JSON in Base64, checked when it comes back.
"""

import base64
import binascii
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import trio

from bbfs.model.errors import BbfsError, DeadlineExceeded, NotFound, Unreachable
from bbfs.model.uri_paths import MAX_DEPTH
from bbfs.resources.catalog.base import Shown, View
from bbfs.resources.catalog.record import Node, Path, Record
from bbfs.resources.source import Source
from bbfs.server.errors import Fault

LONGEST_TOKEN = 1 << 16
"""Characters."""


def page_token(purpose: Sequence[Any], place: Sequence[Any]) -> str:
    """Return a token for `place`, valid for requests with an equal `purpose` only."""
    text = json.dumps([_mark(purpose), *place], ensure_ascii=True, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place_of(purpose: Sequence[Any], text: str) -> list[Any]:
    """Return the place of a token. Raises Fault."""
    try:
        if len(text) > LONGEST_TOKEN:
            raise ValueError
        found = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        found = None
    if not isinstance(found, list) or not found or not isinstance(found[0], str):
        raise Fault("invalid_token", f"not a token of this server: {text[:100]!r}")
    if found[0] != _mark(purpose):
        raise Fault("invalid_token", "the token belongs to another request: begin again without one")
    return found[1:]


def texts_of(value: Any) -> tuple[str, ...]:
    """Return a part of a place, which must be a list of texts. Raises Fault."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise Fault("invalid_token", "not a token of this server")
    return tuple(value)


def _mark(purpose: Sequence[Any]) -> str:
    return blake2b(json.dumps(list(purpose)).encode(), digest_size=6).hexdigest()


MOST_PROBLEMS = 10


@dataclass(frozen=True, slots=True)
class Found:
    """An entry on the way. record: None for a directory of a flat source."""

    path: Path
    record: Record | None


@dataclass(slots=True)
class Walk:
    """One walk from `start` down `depth` directories (1 for `start` alone, None for all), up to `most` entries.

    A directory of a flat source is found only where `depth` ends the walk. after: begin behind this path. hidden:
    include names that begin with a dot. more: whether `most` ended it. names: how many the start has, found or not.
    problems: errors of directories by path.
    """

    source: Source
    start: Path
    depth: int | None
    most: int
    after: Path | None = None
    hidden: bool = True
    found: list[Found] = field(default_factory=list)
    more: bool = False
    names: int = 0
    problems: dict[Path, BbfsError] = field(default_factory=dict)

    async def run(self) -> None:
        """Walk. Raises the source's error, and NotFound or NotADirectory for the start."""
        with self.source.waiters:
            await self._below(self.start, self.depth)

    async def _below(self, directory: Path, depth: int | None) -> None:
        is_start = directory == self.start  # only here are the names that the source completes
        view = await self.source.catalog.view(directory, completed=is_start and bool(directory))
        if is_start:
            self.names = len(view)
        async with aclosing(_children(view)) as children:
            async for name, shown in children:
                path = (*directory, name)
                if self._passed(path) or (not self.hidden and name.startswith(".")):
                    continue
                deeper = _leads_on(shown) and (depth is None or depth > 1) and len(path) < MAX_DEPTH
                if (self.after is None or path > self.after) and not (deeper and _record(shown) is None):
                    if len(self.found) >= self.most:
                        self.more = True
                        return
                    record = self.source.catalog.record(shown) if isinstance(shown, str) else shown.record
                    self.found.append(Found(path, record))
                if deeper:
                    await self._descend(path, None if depth is None else depth - 1)
                    if self.more:
                        return

    async def _descend(self, path: Path, depth: int | None) -> None:
        try:
            await self._below(path, depth)
        except (Unreachable, DeadlineExceeded):
            raise
        except NotFound:
            return  # removed during the walk
        except BbfsError as error:
            if len(self.problems) < MOST_PROBLEMS:
                self.problems[path] = error

    def _passed(self, path: Path) -> bool:
        """Return whether a path and all below it come before `after`."""
        return self.after is not None and path < self.after and self.after[: len(path)] != path


def _record(shown: Shown) -> Record | None:
    return shown.record if isinstance(shown, Node) else None


def _leads_on(shown: Shown) -> bool:
    """Return whether it is a directory other than a resource of several contents."""
    if not isinstance(shown, Node) or shown.kind != "directory":
        return False
    return shown.record is None or shown.record.parts is None


async def _children(view: View) -> AsyncGenerator[tuple[str, Shown]]:
    """Yield the entries of a directory, sorted."""
    for portion, _ in view.portions():
        for child in zip(portion.names, portion.shown, strict=True):
            yield child
        await trio.lowlevel.checkpoint()
