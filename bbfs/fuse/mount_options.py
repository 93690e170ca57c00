"""The options with which the kernel mounts, and whether that is read-only."""

from collections.abc import Iterable
from dataclasses import replace

from bbfs.config import Config
from bbfs.sources import CanWrite, Handler


def can_be_written(handlers: Iterable[Handler]) -> bool:
    """Return whether a source can write, and the configuration grants it."""
    return any(each.source.grants_write and isinstance(each, CanWrite) for each in handlers)


def passed_folders(config: Config, handlers: Iterable[Handler]) -> list[str]:
    """Return the prefixes of the local folders that are passed through, in the order of their numbers."""
    folders = [each.source for each in handlers if each.source.type == "filesystem"]
    return [each.uri_prefix for each in folders if each.grants_write or config.mount.allow_other]


def options(config: Config, handlers: Iterable[Handler] = (), *, has_events: bool = False) -> set[str]:
    """Return the mount options (S28): read-only unless something can be written, or events need calls that write."""
    access = "rw" if has_events or can_be_written(handlers) else "ro"
    chosen = {"fsname=bbfs", "subtype=bbfs", "default_permissions", "nosuid", "nodev", "noexec", access}
    if config.mount.allow_other:
        chosen.add("allow_other")
    return chosen


def without_writes(config: Config) -> Config:
    """Return a configuration that grants no source a write."""
    sources = [replace(each, capabilities=replace(each.capabilities, write=False)) for each in config.sources]
    return replace(config, sources=tuple(sources))
