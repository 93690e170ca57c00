"""Indexing of sources: by the daemon of a mount, or of the sources that this process opens."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from bbfs.cli import output
from bbfs.cli.operands import control_client
from bbfs.cli.operands.access import SourceTree
from bbfs.cli.operands.direct import DirectTree
from bbfs.cli.operands.operand import Trees
from bbfs.fuse.mountpoint import MOUNT_VARIABLE
from bbfs.model.errors import BbfsError

Counts = Mapping[str, Any]
"""The counts of a walk, as `bbfs.resources.commands.indexing` describes them."""


async def each(
    trees: Trees, operands: Sequence[str], *, dry_run: bool
) -> AsyncIterator[tuple[str, Counts | BbfsError | OSError]]:
    """Index sources one by one; without operands those of the options or the configuration file.

    Yield each name with its counts, or its error.
    """
    for name, tree, directory in await _chosen(trees, operands):
        try:
            yield name, await _index(trees, tree, directory, dry_run=dry_run)
        except (BbfsError, OSError) as error:
            yield name, error


async def _chosen(trees: Trees, operands: Sequence[str]) -> list[tuple[str, SourceTree, str]]:
    """Return the sources meant: the name, the tree that has it, and its directory at the root."""
    found: list[tuple[str, SourceTree, str]] = []
    for operand in operands:
        target = await trees.target(operand)
        path = await target.located()
        found += [(operand, target.tree, path[0])] if path else await _all_of(target.tree)
    if not operands:
        # Not all mounts of this user: other programs may have made them, and an index loads all texts of a source.
        for tree in await trees.roots() if os.environ.get(MOUNT_VARIABLE) else [await trees.direct()]:
            found += await _all_of(tree)
    return found


async def _all_of(tree: SourceTree) -> list[tuple[str, SourceTree, str]]:
    entries = await tree.children((), exact=False)
    return [(entry.path[0], tree, entry.path[0]) for entry in entries if entry.kind == "directory"]


async def _index(trees: Trees, tree: SourceTree, directory: str, *, dry_run: bool) -> Counts:
    counts: Counts = {}

    def note(told: Counts) -> None:
        nonlocal counts
        counts = told

    def shown() -> str | None:
        if not counts:
            return None
        done = counts["loaded"] + counts["left_out"] + counts["failed"]
        return f"{directory}: {done} of {output.count(counts['to_load'], 'resource')} read"

    before, trees.progress.note = trees.progress.note, lambda: shown() or before()
    request = {"source": directory, "dryRun": dry_run}
    try:
        if isinstance(tree, DirectTree):
            from bbfs.resources.commands.indexing import indexed  # noqa: PLC0415 - the handlers

            return await indexed(tree.manager, request, note)
        async for message in control_client.answers(tree.mount, {"request": "index", **request}):
            if isinstance(message.get("indexed"), dict):
                note(message["indexed"])
        return counts
    finally:
        trees.progress.note = before
