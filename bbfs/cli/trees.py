"""What the operands of a command mean: a path inside a mount, a bbfs URI, or a source with a path below it."""

import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

import trio

from bbfs import mounts
from bbfs.cli import output
from bbfs.cli.access import NoSuchSource, Target, Tree
from bbfs.cli.direct import DirectTree
from bbfs.cli.mounted import MountedTree
from bbfs.cli.options import NoSources, SourceChoice
from bbfs.cli.rule import Path, components
from bbfs.errors import BbfsError, ConfigError, InvalidUri, NotFound
from bbfs.mounts import ForeignMount, MountError
from bbfs.uri import parse_data_source_uri

T = TypeVar("T")


class Trees:
    """The trees that a command may use. Sources are opened here only when something is asked of them."""

    def __init__(self, choice: SourceChoice, stack: AsyncExitStack) -> None:
        self._choice = choice
        self._stack = stack
        self._direct: DirectTree | None = None

    async def target(self, operand: str) -> Target:
        """What an operand means. Raises NotFound, ConfigError, MountError."""
        inside = inside_mount(operand)
        if inside is not None:
            return Target(MountedTree(inside[0]), inside[1])
        if operand.startswith(("/", "./", "../", "~")) or operand in (".", "..", ""):
            raise NotFound("not inside a bbfs mount")
        try:
            parsed = parse_data_source_uri(operand)
        except InvalidUri:
            names = components(operand)
            tree, first = await self._tree_of(names[0])
            return Target(tree, (*first, *names[1:]))
        tree, _ = await self._tree_of(parsed.base_prefix)
        return Target(tree, None, operand)

    async def roots(self) -> list[Tree]:
        """The trees of all sources there are: those that options name, else all mounts, else the configuration's."""
        if not self._choice.given:
            answering = [mount for mount, _ in _answering()]
            if answering:
                return [MountedTree(mount) for mount in answering]
        return [await self.direct()]

    async def direct(self) -> DirectTree:
        """The sources of the options and the configuration file, opened in this process."""
        if self._direct is None:
            from bbfs import daemon  # noqa: PLC0415 - pyfuse3, the cache and the handlers

            config = self._choice.load_some()
            manager = await self._stack.enter_async_context(daemon.resource_manager(config, daemon.compose(config)))
            self._direct = DirectTree(manager)
        return self._direct

    async def _tree_of(self, source: str) -> tuple[Tree, Path]:
        """The tree that has a source, by prefix, name or id, and the path of the source's directory in it."""
        answering: list[str] = []
        if not self._choice.given:
            for mount, names in _answering():
                tree = MountedTree(mount)
                found = tree.source_directory(source, names)
                if found is not None:
                    return tree, found
                answering.append(mount)
        try:
            tree = await self.direct()
        except NoSources as error:
            if answering:
                raise NoSuchSource(f"no source {source!r} at {', '.join(answering)}") from error
            raise
        return tree, tree.source_directory(source)


def run(choice: SourceChoice, work: Callable[[Trees], Awaitable[T]]) -> T:
    """Do asynchronous work on trees, then close what it opened. Raises what the work raises, unwrapped."""
    results: list[T] = []
    failures: list[BaseException] = []

    async def main() -> None:
        async with AsyncExitStack() as stack:
            # Inside the stack, whose nurseries would wrap it into a group.
            try:
                results.append(await work(Trees(choice, stack)))
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - raised again below, unwrapped
                failures.append(error)

    trio.run(main)
    if failures:
        raise failures[0]
    return results[0]


async def each(trees: Trees, operands: tuple[str, ...], work: Callable[[Target], Awaitable[None]]) -> bool:
    """Do something with each operand in order, telling what fails; whether all went well."""
    well = True
    for operand in operands:
        try:
            await work(await trees.target(operand))
        except (BrokenPipeError, ConfigError):
            raise
        except (BbfsError, OSError) as error:
            output.failure(error, operand)
            well = False
    return well


def inside_mount(operand: str) -> tuple[str, Path] | None:
    """The bbfs mount that an operand leads into and the path there, if it is a path that does."""
    plain = operand.startswith(("/", ".", "~"))
    absolute = os.path.abspath(os.path.expanduser(operand))
    found = _mount_of(absolute)
    if found is None and not any(mount.is_bbfs for mount in mounts.mounts()):
        return None
    if found is None and os.path.lexists(os.path.dirname(absolute)):
        found = _mount_of(os.path.realpath(absolute))
    # A bare word in a directory of a mount may also be the name of a source.
    return found if found is not None and (plain or os.path.lexists(absolute)) else None


def _mount_of(absolute: str) -> tuple[str, Path] | None:
    """The bbfs mount that holds an absolute path, by comparing texts: nothing is touched."""
    holding: mounts.Mount | None = None
    for mount in mounts.mounts():
        is_above = mount.path == "/" or absolute == mount.path or absolute.startswith(mount.path + "/")
        if is_above and (holding is None or len(mount.path) >= len(holding.path)):
            holding = mount
    if holding is None or not holding.is_bbfs:
        return None
    return holding.path, components(absolute.removeprefix(holding.path))


def _answering() -> list[tuple[str, list[str]]]:
    """The bbfs mounts that answer, each with the names at its root; others of this user are told."""
    found: list[tuple[str, list[str]]] = []
    for path in dict.fromkeys(mount.path for mount in mounts.mounts() if mount.is_bbfs):
        try:
            found.append((path, mounts.names(path)))
        except ForeignMount:
            continue
        except MountError as error:
            output.message(f"passed over: {error}")
    return found
