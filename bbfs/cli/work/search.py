"""A search in the sources of a tree: by the daemon of a mount, or in the sources that this process opens."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bbfs.cli.operands import control_client, location
from bbfs.cli.operands.access import SourceTree
from bbfs.cli.operands.direct import DirectTree
from bbfs.cli.operands.mounted import MountedTree
from bbfs.cli.operands.rule import Path, components

if TYPE_CHECKING:
    from bbfs.cli.operands.operand import Trees


@dataclass(frozen=True, slots=True)
class TreeHit:
    """A hit in a tree. shown: its path for people and programs, absolute on a mount. document: its fields as JSON."""

    tree: SourceTree
    path: Path
    shown: str
    document: dict[str, Any]


async def scopes(opened: "Trees", operands: Sequence[str]) -> list[tuple[SourceTree, list[Path]]]:
    """Return the trees that the operands of a search lead to, with the paths in each; none for all of a tree."""
    if not operands:
        return [(tree, []) for tree in await opened.roots()]
    found: dict[str | None, tuple[SourceTree, list[Path]]] = {}
    for operand in operands:
        target = await opened.target(operand)
        path = await target.located()
        if path and target.tree.mount is not None:
            path = await control_client.resolved(target.tree.mount, path)
        elif path and isinstance(target.tree, DirectTree):
            path = await target.tree.resolved(path)
        found.setdefault(target.tree.mount, (target.tree, []))[1].append(path)
    return [*found.values()]


async def search(tree: SourceTree, request: dict[str, Any], paths: Collection[Path]) -> tuple[list[TreeHit], list[str]]:
    """Return the hits, the best first, and the sentences about sources that may have more. Raise BbfsError, OSError.

    request: as `bbfs.resources.commands.search` describes it, without its paths.
    """
    hits: list[TreeHit] = []
    problems: list[str] = []
    has_scratch = isinstance(tree, MountedTree) and tree.has_scratch
    for message in await _messages(tree, request, paths):
        match message:
            case {"hit": {"path": str(path), "uri": str(_)} as document}:
                shown = os.path.join(tree.mount or "", path)
                if has_scratch and location.is_removed(shown):
                    continue
                hits.append(TreeHit(tree, components(path), shown, {**document, "path": shown}))
            case {"problem": str(problem)}:
                problems.append(problem)
    return hits, problems


async def _messages(tree: SourceTree, request: dict[str, Any], paths: Collection[Path]) -> list[dict[str, Any]]:
    if isinstance(tree, DirectTree):
        from bbfs.resources.commands.search import search as search_in  # noqa: PLC0415 - the handlers

        return await search_in(tree.manager, request, paths)
    asked = {"request": "search", **request, "paths": ["/".join(path) for path in paths]}
    return [message async for message in control_client.answers(tree.mount, asked)]
