"""Scratches as commands see them: which mounts have one, and which writes would go past it to the sources.

The checks guard against accidents. They are no sandbox: a program may open a source without bbfs.
"""

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from bbfs.fuse import mountpoint
from bbfs.fuse.mountpoint import MountError
from bbfs.fuse.scratch.directory import IN_RUN, Scratch
from bbfs.model.errors import Denied, NotSupported

if TYPE_CHECKING:
    from bbfs.config import Config


def is_tree(mount: mountpoint.Mount) -> bool:
    """Return whether a mount shows sources: one of bbfs, or the overlay of a scratch."""
    return mount.is_bbfs or Scratch.of_mount(mount) is not None


def own_trees() -> list[str]:
    """Return this user's mounts that show sources. A scratch stands for the mount below it."""
    scratches = {
        mount.path: scratch for mount in mountpoint.mounts() if (scratch := Scratch.of_mount(mount)) is not None
    }
    below = {scratch.lower for scratch in scratches.values()}
    return [*scratches, *(mount.path for mount in mountpoint.own_mounts() if mount.path not in below)]


def require_no_scratch(mount: str | None) -> None:
    """Raise Denied if a write to the sources of a mount would go past a scratch. mount: None for no mount."""
    scratch = None if mount is None else Scratch.mounted(mount)
    if scratch is not None:
        raise Denied(f"{mount} has a scratch, which this would go past: write files in {mount}, and 'bbfs apply' them")
    above = None if mount is None else Scratch.above(mount)
    if above is not None:
        shown = above.mounted_at() or "its mount point"
        raise Denied(f"{mount} is below a scratch: write in {shown}, and 'bbfs apply' writes to the sources")
    if (shown := running()) is not None:
        raise Denied(f"'bbfs run' runs this command: it writes in {shown}, and no source is touched meanwhile")


def read_only(config: "Config") -> "Config":
    """Return a configuration that grants no source the capability `write`."""
    sources = (replace(each, capabilities=replace(each.capabilities, write=False)) for each in config.sources)
    return replace(config, sources=tuple(sources))


def running() -> str | None:
    """Return the mount of the `bbfs run` that this process runs in, or None.

    The table of mounts and the state of the scratch tell it, not the environment alone.
    """
    for mount in mountpoint.mounts():
        scratch = Scratch.of_mount(mount)
        if scratch is not None:
            with suppress(PermissionError, MountError):  # another user's; or a damaged one
                if scratch.state.get("in_run") and scratch.is_held():
                    return mount.path
    return os.environ.get(IN_RUN)


def control_of(scratch: Scratch) -> str:
    """Return the control socket of the daemon below a scratch. Raise NotSupported, MountError, OSError."""
    address = scratch.state.get("control")
    if not isinstance(address, str):
        raise NotSupported(f"the daemon below the scratch {scratch.path} has no control socket; its log says why")
    return address
