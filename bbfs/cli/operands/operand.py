"""The operands of a command: a path inside a mount, a bbfs URI, or a source with a path below it."""

import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from bbfs.cli import lazy, output, progress
from bbfs.cli.operands import scratches
from bbfs.cli.operands.access import NoSuchSource, SourceTree, Target
from bbfs.cli.operands.location import inside_mount
from bbfs.cli.operands.mounted import MountedTree
from bbfs.cli.operands.rule import Path, components, path_by_rule
from bbfs.cli.options import NoSources, SourceChoice
from bbfs.cli.progress import Progress
from bbfs.fuse import mountpoint
from bbfs.fuse.mountpoint import MOUNT_VARIABLE, ForeignMount, MountError
from bbfs.model.errors import BbfsError, ConfigError, InvalidUri, NotFound, NotSupported, Unreachable
from bbfs.model.uri import native_scheme, parse_data_source_uri, parse_uri_prefix, source_uri

if TYPE_CHECKING:
    from bbfs.cli.operands.direct import DirectTree
    from bbfs.config import Config

T = TypeVar("T")
AWAY = (MountError, NotSupported, Unreachable, OSError)
"""Errors with which a mount that is gone, or the control socket of a mount, answers nothing."""
_SOURCES_OWN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def _lazy(config: "Config") -> "Config":
    """Return the configuration without `start = "eager"`: a command contacts only the sources that it needs."""
    return replace(
        config,
        sources=tuple(
            replace(source, mcp=replace(source.mcp, start="lazy")) if source.mcp is not None else source
            for source in config.sources
        ),
    )


class Trees:
    """The trees that a command may use. It opens sources in this process only when the command needs them.

    takes_files: an operand of the command may be a local file, too.
    """

    def __init__(self, choice: SourceChoice, stack: AsyncExitStack, config: "Config | None" = None) -> None:
        self.progress = Progress(quiet=choice.verbosity.quiet)
        self.progress.note = self._waited_for
        self._choice = choice
        self._config = config
        self._stack = stack
        self._direct: DirectTree | None = None
        self._has_loop = False
        self._answering: list[tuple[str, list[str]]] | None = None
        self._told: set[tuple[str, str | None]] = set()
        self.takes_files = False
        self._used: list[str] = []

    def _waited_for(self) -> str | None:
        """Return the work of the sources in words. It may block: the mount answers that."""
        if self._direct is not None:
            return progress.of_sources(lazy.status.document(self._direct.manager, 0.0)["sources"])
        found: list[dict[str, Any]] = []
        for mount in dict.fromkeys(self._used):
            found += MountedTree(mount).status().get("sources", ())
        return progress.of_sources(found)

    async def target(self, operand: str) -> Target:
        """Return the target of an operand. Raise NotFound, ConfigError, MountError."""
        try:
            target = await self._target(operand)
        except NoSuchSource as error:
            if not self.takes_files or not _is_local(operand):
                raise
            raise NoSuchSource(f"{error}; a local file is ./{operand}") from error
        if target.tree.mount is not None:
            self._used.append(target.tree.mount)
        return target

    async def _target(self, operand: str) -> Target:
        inside = inside_mount(operand)
        if inside is not None:
            return Target(MountedTree(inside[0]), inside[1])
        if operand.startswith(("/", "./", "../", "~")) or operand in (".", "..", ""):
            raise NotFound("not inside a bbfs mount")
        try:
            source, uri, below = parse_data_source_uri(operand).base_prefix, operand, ()
        except InvalidUri:
            if _SOURCES_OWN.match(operand):
                return await self._of_sources_own(operand)
            (source, *below), uri = components(operand), None
        having = self._mounts_with(source) if not self._choice.given else []
        if len(having) > 1:
            found = await _of_several(having, tuple(below), uri)
            self._say_which(source, found, [str(tree.mount) for tree, _ in having])
            return found
        tree, first = having[0] if having else await self._tree_of(source)
        return Target(tree, (*first, *below) if uri is None else None, uri)

    async def _of_sources_own(self, native_uri: str) -> Target:
        """Return the target of a URI as its source has it, if one source has it. Raise NotFound, ConfigError."""
        found: list[Target] = []
        failed: list[str] = []
        for tree in await self.roots():
            for row in await tree.sources(None):
                prefix = parse_uri_prefix(row["uriPrefix"]) if "uriPrefix" in row else None
                if prefix is None or prefix.scheme not in (None, native_scheme(native_uri)):
                    continue
                uri = source_uri(prefix.base, native_uri)
                try:
                    found.append(Target(tree, await tree.locate(uri), uri))
                except (NotFound, FileNotFoundError, NotADirectoryError):
                    continue
                except (BbfsError, OSError) as error:
                    failed.append(f"; {prefix.base}: {output.reason(error)}")
        if not found:
            hint = "one that begins with a source, as SOURCE+URI, is always understood"
            raise NotFound(f"no source has this URI; {hint}{''.join(failed)}")
        if len(found) > 1:
            raise ConfigError(f"several sources have {native_uri}: {', '.join(str(each.uri) for each in found)}")
        return found[0]

    def _say_which(self, source: str, found: Target, mounts: list[str]) -> None:
        """Say once which of several mounts with a source is used. (An error names all that were looked at.)"""
        if found.looked != found.tree.mount or self._choice.verbosity.quiet or (source, found.tree.mount) in self._told:
            return
        self._told.add((source, found.tree.mount))
        others = ", ".join(mount for mount in mounts if mount != found.tree.mount)
        output.message(f"{source}: at {found.tree.mount}, not at {others}; {MOUNT_VARIABLE} or a path chooses another")

    async def roots(self) -> list[SourceTree]:
        """Return the trees of all sources: those of the options, else of all mounts, else of the configuration."""
        if not self._choice.given:
            mounted: list[SourceTree] = [MountedTree(mount, names) for mount, names in self._mounts()]
            self._used += [mount for mount, _ in self._mounts()]
            if mounted:
                return mounted
        return [await self.direct()]

    async def event_loop(self) -> None:
        """Go on in an event loop. Sources that this process opens need one, and so do requests that last."""
        if not self._has_loop:
            self._has_loop = True
            await _in_event_loop()

    async def direct(self) -> "DirectTree":
        """Return the sources of the options and the configuration file, opened in this process."""
        if self._direct is None:
            await self.event_loop()
            config = self._config or self._choice.load_some()
            opening = lazy.opening
            sources = opening.resource_manager(config, opening.compose(_lazy(config)), index=opening.index_path())
            manager = await self._stack.enter_async_context(sources)
            self._stack.push_async_callback(lazy.neighbours.Neighbours(manager.changes).tell_all)
            self._direct = lazy.direct.DirectTree(manager)
        return self._direct

    def _mounts(self) -> list[tuple[str, list[str]]]:
        if self._answering is None:
            self._answering = _answering()
        return self._answering

    def _mounts_with(self, source: str) -> list[tuple[MountedTree, Path]]:
        """Return the live mounts that have a source, by prefix, name or id, each with the source's directory."""
        found: list[tuple[MountedTree, Path]] = []
        for mount, names in self._mounts():
            tree = MountedTree(mount)
            try:
                directory = tree.source_directory(source, names)
            except OSError as error:
                output.message(passed_over(tree, error))
                continue
            if directory is not None:
                found.append((tree, directory))
        return found

    async def _tree_of(self, source: str) -> tuple[SourceTree, Path]:
        """Return the tree that has a source, by prefix, name or id, and the path of the source's directory in it."""
        if not self._choice.given and (having := self._mounts_with(source)):
            return having[0]
        try:
            tree = await self.direct()
            return tree, await tree.source_directory(source)
        except (NoSources, NoSuchSource) as error:
            answering = [mount for mount, _ in self._mounts()] if not self._choice.given else []
            for mount in answering:
                if (why := MountedTree(mount).left_out().get(source.removeprefix("mcp-server+"))) is not None:
                    raise NoSuchSource(f"no source {source!r} at {mount}: left out: {why}") from error
            if answering and isinstance(error, NoSources):
                raise NoSuchSource(f"no source {source!r} at {', '.join(answering)}") from error
            raise


def _is_local(operand: str) -> bool:
    """Return whether an operand begins with a name of the working directory."""
    return os.path.lexists(operand.partition("/")[0])


async def _of_several(having: Sequence[tuple[MountedTree, Path]], below: Path, uri: str | None) -> Target:
    """Return the target in the first of several mounts that has it; where none has it, in the first that may get it."""
    looked = ", ".join(str(tree.mount) for tree, _ in having)
    failed: Target | None = None
    for tree, first in having:
        path = None if uri is not None else (*first, *below)
        try:
            if path is None:
                return Target(tree, await tree.locate(uri or ""), uri, tree.mount)
            await tree.entry(path, exact=False)
            return Target(tree, path, None, tree.mount)
        except (NotFound, FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            failed = failed or Target(tree, path, uri, tree.mount)  # its use reports the error
    tree, first = having[0]
    return failed or Target(tree, None if uri is not None else (*first, *below), uri, looked)


def run(choice: SourceChoice, work: Callable[[Trees], Awaitable[T]], config: "Config | None" = None) -> T:
    """Do asynchronous work on trees, then close the sources that it opened. Raise the errors of the work, unwrapped.

    An event loop is imported and runs once the work needs one (`Trees.event_loop`). To import it takes longer than most
    commands that ask a mount. config: the configuration of `choice`, if it is already loaded.
    """
    results: list[T] = []
    failures: list[BaseException] = []

    async def main() -> None:
        async with AsyncExitStack() as stack:
            # Catch it inside the stack, whose nurseries would wrap it into a group.
            try:
                trees = Trees(choice, stack, config)
                with trees.progress.shown():
                    results.append(await work(trees))
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - raised again below, unwrapped
                failures.append(error)

    begun = main()
    try:
        begun.send(None)
    except StopIteration:
        pass
    else:
        lazy.trio.run(_continued, begun)
    if failures:
        raise failures[0]
    return results[0]


@coroutine
def _in_event_loop() -> Generator[None, None, None]:
    """Suspend a work that `run` has begun, which then goes on in an event loop."""
    yield


async def _continued(begun: Coroutine[Any, Any, None]) -> None:
    await _rest(begun)


@coroutine
def _rest(begun: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
    """Await a coroutine that has begun already, which `await` itself refuses."""
    yield from begun.__await__()


async def each(trees: Trees, operands: tuple[str, ...], work: Callable[[Target], Awaitable[None]]) -> bool:
    """Work on each operand in order and report failures. Return whether there were none."""
    well = True
    for operand in operands:
        target: Target | None = None
        try:
            target = await trees.target(operand)
            await work(target)
        except (BrokenPipeError, ConfigError):
            raise
        except BbfsError as error:
            output.failure(error, _about(operand, target))
            well = False
        except OSError as error:
            output.failure(error, _about(operand, target), None if target is None else await why(target, error))
            well = False
    return well


def _about(operand: str, target: Target | None) -> str:
    return operand if target is None or target.looked is None else f"{operand}: at {target.looked}"


async def each_root(trees: Trees, work: Callable[[SourceTree], Awaitable[None]]) -> None:
    """Work on the tree of every root. Report a mount that is away, and go on."""
    for tree in await trees.roots():
        try:
            await work(tree)
        except AWAY as error:
            output.message(passed_over(tree, error))


def passed_over(tree: SourceTree, error: Exception) -> str:
    """Return the line for a mount that is gone, dead, does not answer or has no control socket. Raise any other error.

    error: one of AWAY.
    """
    mount = tree.mount
    if mount is None:
        raise error
    if isinstance(error, OSError):
        if mountpoint.mount_at(mount) is None:
            error = MountError(f"{mount} has been unmounted")
        elif error.errno in mountpoint.GONE:
            error = mountpoint.dead(mount)
        else:
            raise error
    about = "" if isinstance(error, MountError) else f"{mount}: "
    return f"passed over: {about}{error}"


async def why(target: Target, error: OSError) -> str | None:
    """Return the source's reason for an error with a target, if it says more than the error."""
    path = target.path
    if path is None and target.uri is not None:
        path = path_by_rule(target.uri)
    return await target.tree.why(path, error) if path else None


def _answering() -> list[tuple[str, list[str]]]:
    """Return this user's bbfs mounts that answer, each with the names at its root. Report the others.

    The variable `BBFS_MOUNT` selects one, also one of another user.
    """
    found: list[tuple[str, list[str]]] = []
    meant = os.environ.get(MOUNT_VARIABLE)
    if meant:
        path = os.path.abspath(os.path.expanduser(meant))
        if not any(mount.path == path and scratches.is_tree(mount) for mount in mountpoint.mounts()):
            raise MountError(f"{path} is no mount of bbfs ({MOUNT_VARIABLE})")
        return [(path, mountpoint.names(path))]
    for path in scratches.own_trees():
        try:
            found.append((path, mountpoint.names(path)))
        except ForeignMount:
            continue
        except MountError as error:
            output.message(f"passed over: {error}")
    return found
