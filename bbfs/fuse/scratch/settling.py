"""Discarding changes of a scratch, and applying them to the sources below it.

Applying writes through the mount below, as any program: what `fsync` and `rename` acknowledge, the source has. A file
is written under a name that programs do not keep and renamed, so a source has the old content or the new one. A change
leaves the scratch after the source has it: a kill at any step leaves it in one of them, or in both.
"""

import errno
import os
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from bbfs.fuse.mountpoint import MountError
from bbfs.fuse.scratch.changes import Change, is_beneath
from bbfs.fuse.scratch.directory import Scratch
from bbfs.fuse.scratch.entries import remove_tree
from bbfs.fuse.scratch.layers import Layers
from bbfs.fuse.scratch.session import editable
from bbfs.model.errors import BbfsError, Conflict

AT_ONCE = 16
"""Files that are applied at once: most of the time of one is a wait for the disk or the source."""
_AGAIN = 2
"""Times that a change is begun again where the source has another version by then."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one change. error: why it stays in the scratch; None if it is applied."""

    change: Change
    error: str | None


def discard(scratch: Scratch, chosen: Sequence[Change] | None, *, is_holder: bool = False) -> None:
    """Drop changes; None: all. is_holder: as for `editable`.

    Raise MountError if a program uses the overlay, BbfsError, OSError.
    """
    with editable(scratch, is_holder=is_holder):
        if chosen is None:
            clear(scratch)
            return
        with Layers(scratch) as layers:
            for change in chosen:
                layers.restore(change)


def apply(
    scratch: Scratch, chosen: Sequence[Change], *, overwrite: bool = False, is_holder: bool = False
) -> Generator[Outcome, None, None]:
    """Write changes to the sources, and yield what became of each. Raise MountError if a program uses the overlay.

    New directories come first, then files, many at once, removals last, but where something new takes the name.
    overwrite: also what the source has changed since. is_holder: as for `editable`. After an exception of the caller no
    change is begun; those under way are ended first.
    """
    with editable(scratch, is_holder=is_holder), Layers(scratch) as layers:
        layers.resume()
        failed: list[Change] = []
        applying = _Applying(layers, failed, overwrite=overwrite)
        steps: dict[int, list[Change]] = {}
        new = chosen_names(chosen)
        for change in ordered(chosen):
            steps.setdefault(_step(change, new), []).append(change)
        for number, step in sorted(steps.items()):
            for outcome in applying.at_once(step) if number == _FILES else map(applying.outcome, step):
                if outcome.error is not None:
                    failed.append(outcome.change)
                yield outcome
            layers.close_parents()
        layers.prune(chosen)


_FIRST, _DIRECTORIES, _FILES, _LAST = range(4)
"""The steps of applying: removals where something new takes the name, new directories, files, the other removals."""


def chosen_names(chosen: Sequence[Change]) -> set[str]:
    """Return the names that something new takes."""
    return {change.path for change in chosen if change.what != "removed"}


def _step(change: Change, new: set[str]) -> int:
    if change.what == "removed":
        return _FIRST if change.path in new else _LAST
    return _DIRECTORIES if change.is_directory else _FILES


def ordered(chosen: Sequence[Change]) -> list[Change]:
    """Return changes in the order in which they are applied."""
    new = chosen_names(chosen)
    return sorted(chosen, key=lambda change: (_step(change, new), change.path))


@dataclass(slots=True)
class _Applying:
    """Applies single changes. failed: those that stay in the scratch, filled by the caller."""

    layers: Layers
    failed: Sequence[Change]
    overwrite: bool

    def outcome(self, change: Change) -> Outcome:
        """Apply one change. Raise nothing that is about this change alone."""
        try:
            for other in self.failed if change.what == "removed" else ():
                if other.old is not None and is_beneath(other.old, change.path):
                    raise Conflict(f"{other.old} was moved to {other.path}, which is not applied")
            self._apply(change)
        except (BbfsError, OSError, UnicodeError) as caught:
            return Outcome(change, self.layers.reason(change, caught))
        return Outcome(change, None)

    def _apply(self, change: Change) -> None:
        """Apply a change. What a source has changed meanwhile is met once more: `overwrite` means that, too."""
        for _ in range(_AGAIN if self.overwrite else 0):
            try:
                return self.layers.apply(change, overwrite=True)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                self.layers.reason(change, error)  # it drops the pending write of this attempt
        return self.layers.apply(change, overwrite=self.overwrite)

    def at_once(self, changes: Sequence[Change]) -> Iterator[Outcome]:
        """Apply changes that do not depend on each other, and yield them in their order."""
        if len(changes) == 1:
            yield self.outcome(changes[0])
            return
        waiting = iter(changes)
        under_way: deque[Future[Outcome]] = deque()
        threads = ThreadPoolExecutor(AT_ONCE, "apply")
        try:
            while True:
                for change in waiting:
                    under_way.append(threads.submit(self.outcome, change))
                    if len(under_way) >= 4 * AT_ONCE:
                        break
                if not under_way:
                    return
                yield under_way.popleft().result()
        finally:
            threads.shutdown(wait=True, cancel_futures=True)


def clear(scratch: Scratch) -> None:
    """Drop all changes. No overlay may be mounted."""
    for layer in (scratch.upper, scratch.work):
        remove_tree(*(os.path.join(layer, name) for name in os.listdir(layer)))


def remove(scratch: Scratch) -> None:
    """Remove the whole directory. Nothing may be mounted in it."""
    if os.path.ismount(scratch.lower):
        raise MountError(f"{scratch.lower} is still mounted")
    remove_tree(scratch.path)
