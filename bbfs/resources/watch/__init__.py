"""Reports changes below a path: resources that were added, removed, or have a new content.

A watch reports real differences only: an announcement after which the content is the same is dropped. It listens to
the announcements of a source and polls, at the time to live, what the source does not announce.
"""

from collections.abc import Callable, Iterable
from functools import partial

import trio

from bbfs.model.errors import BbfsError, NotFound, NotSupported
from bbfs.model.values import Change
from bbfs.resources.catalog.record import Path
from bbfs.resources.manager import ResourceManager, SourceChange
from bbfs.resources.source import Source
from bbfs.resources.watch.source import Scope, SourceWatch


class Watch:
    """Reports every change at or below some paths to `sink` while `run` runs, and failing sources to `note`.

    Paths are from the mount's root and contain no symbolic links. recursive: include the directories below. Neither
    `sink` nor `note` may block or raise.
    """

    def __init__(
        self,
        manager: ResourceManager,
        paths: Iterable[Path],
        sink: Callable[[Change], None],
        note: Callable[[str], None],
        *,
        recursive: bool = True,
    ) -> None:
        self._manager = manager
        self._paths = tuple(dict.fromkeys(paths))
        self._sink = sink
        self._note = note
        self._recursive = recursive
        self._running: dict[str, tuple[SourceWatch, trio.CancelScope]] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled. It has started when every source was listed, or failed to be, within its timeout.

        Raise NotFound, NotSupported or the source's error before the start if a path cannot be watched.
        """
        scopes: dict[str, list[Scope]] = {}
        for path in self._paths:
            scope = await self._scope(path)
            sources = [self._manager.tree.place(path)[0]] if path else self._manager.sources.values()
            for source in sources:
                if source.data.base_prefix not in self._manager.sources:
                    raise NotSupported(f"{source.data.uri_prefix} cannot be watched")
                scopes.setdefault(source.data.base_prefix, []).append(scope)
        async with trio.open_nursery() as nursery:
            stop = self._manager.source_changes.subscribe(partial(self._source_changed, nursery))
            try:
                async with trio.open_nursery() as starting:
                    for base, of_source in scopes.items():
                        watch = SourceWatch(
                            self._manager, self._manager.sources[base], of_source, self._sink, self._note
                        )
                        starting.start_soon(nursery.start, self._watch, self._manager.sources[base], watch)
                task_status.started()
                await trio.sleep_forever()
            finally:
                stop()

    async def _watch(
        self, source: Source, watch: SourceWatch, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Watch a source until it is removed."""
        with trio.CancelScope() as scope:
            self._running[source.key] = watch, scope
            await watch.run(task_status=task_status)
        if not watch.is_started:
            task_status.started()

    def _source_changed(self, nursery: trio.Nursery, change: SourceChange) -> None:
        """Follow the sources of the mount."""
        if change.event == "added":
            nursery.start_soon(self._watch_new, change.source)
        elif (running := self._running.pop(change.source.key, None)) is not None:
            watch, scope = running
            scope.cancel()
            watch.end()

    async def _watch_new(self, source: Source) -> None:
        """Watch a source that was added, if it is among the paths."""
        paths = [path for path in self._paths if not path or path[0] == source.data.uri_prefix]
        try:
            scopes = [await self._scope(path) for path in paths]
        except BbfsError as error:
            self._note(f"{source.data.uri_prefix}: {error}")
            return
        if scopes:
            await self._watch(source, SourceWatch(self._manager, source, scopes, self._sink, self._note, is_new=True))

    async def _scope(self, path: Path) -> Scope:
        if len(path) < 2:
            if path:
                self._manager.tree.place(path)
            return Scope(path, single=False, recursive=self._recursive)
        node = await self._manager.tree.find(path)
        record = node.candidate or node.record
        if record is not None and (node.candidate is not None or record.provisional):
            try:  # a template makes the name: only a load shows if the resource exists
                await self._manager.contents.learn(record)
            except NotFound:
                if node.kind != "directory":
                    raise
            node = await self._manager.tree.find(path)
        if node.kind == "symlink":
            raise NotSupported(f"{'/'.join(path)} is a symbolic link: watch what it leads to")
        several = node.record is not None and node.record.parts is not None
        return Scope(path, single=node.kind == "file" or several, recursive=self._recursive)
