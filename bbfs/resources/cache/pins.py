"""The pins in a disk cache: resources that it does not evict. Functions block and belong in a thread.

A failure of the index is logged there, and changes nothing here.
"""

from collections.abc import Collection

from bbfs.resources.cache.disk import DiskCache


def kept(disk: DiskCache, source: str) -> dict[str, int]:
    """Return the bytes of the contents of each resource of a source that has some, by URI."""
    return disk.asked(lambda index: index.kept(source), {})


def paths(disk: DiskCache, source: str) -> list[str]:
    """Return the paths of a source that users have pinned, in JSON."""
    return disk.asked(lambda index: index.paths(source), [])


def note_path(disk: DiskCache, source: str, path: str, seen: float | None) -> None:
    """Note that a user has pinned a path of a source, or has ended that (seen: None). seen: seconds since the epoch."""
    disk.asked(lambda index: index.note_path(source, path, seen), None)


def hold(disk: DiskCache, source: str, uris: Collection[str], seen: float) -> None:
    """Evict nothing of these resources of a source (`""`: of any) from now on, and others of it if need be."""
    if uris or disk.asked(lambda index: index.has_pins(source), False):
        disk.asked(lambda index: index.hold(source, uris, seen), None)
