"""`bbfs run`: a command that sees the sources with a scratch of its own."""

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from bbfs.cli import lazy, output
from bbfs.cli.commands.mount import DIRECTORY, LogChoice, log_options
from bbfs.cli.commands.writing.scratch import applied, show
from bbfs.cli.operands.access import ends_with_its_process
from bbfs.cli.options import SourceChoice, source_options
from bbfs.fuse import mountpoint
from bbfs.fuse.mountpoint import MountError
from bbfs.fuse.scratch import settling
from bbfs.fuse.scratch.changes import changes
from bbfs.fuse.scratch.directory import Scratch
from bbfs.model.errors import ConfigError
from bbfs.runtime.private_files import own_directory

if TYPE_CHECKING:
    from bbfs.fuse.scratch.directory import Scratch
    from bbfs.model.values import DataSource

_NO_GRANT = "its option capabilities does not grant write (-o NAME.capabilities=read,list,search,write)"
_EXAMPLES = """\b
Examples:
  bbfs run -- claude                               the sources of the configuration file, at ~/bb
  bbfs run --dir notes=~/notes --at ~/work -- make -C ~/work
  bbfs run --on ~/bb --on-exit discard -- some-agent
  bbfs run --scratch ~/try --on-exit keep -- sh -c 'echo new > ~/bb/*/plan'

\b
Exit status: that of COMMAND, 128 and the number of a signal that ended it; 127 if it was not found and 126 if it cannot
be executed, as with env(1); 32 if there was no mount for it; 1 if COMMAND ended with 0 and something was to be applied
that was not.
"""


@click.command(
    epilog=_EXAMPLES,
    short_help="Run a command that may write anywhere in the sources' mount.",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.argument("command", metavar="COMMAND…", nargs=-1, required=True, type=click.UNPROCESSED)
@source_options
@click.option("--at", metavar="MNT", type=DIRECTORY, default="~/bb", help="Where the command sees the mount; ~/bb.")
@click.option("--on", metavar="MNT", type=DIRECTORY, help="Use the sources of this mount.")
@click.option("--scratch", metavar="DIR", type=DIRECTORY, help="Keep what the command writes in DIR.")
@click.option(
    "--on-exit",
    type=click.Choice(("ask", "apply", "keep", "discard")),
    help="What becomes of the changes: ask, on a terminal, otherwise keep.",
)
@log_options
def run(
    choice: SourceChoice,
    command: tuple[str, ...],
    at: str,
    on: str | None,
    scratch: str | None,
    on_exit: str | None,
    log: LogChoice,
) -> None:
    """Run COMMAND with the sources mounted at MNT, where it may write anything, and no source is touched.

    It has a mount namespace and a process namespace of its own: no other program sees the mount, and when it ends,
    nothing of it is left. Then its changes are listed: they can be applied to the sources, kept or discarded.
    """
    if on is not None and choice.given:
        raise click.UsageError("--on names the sources; leave out the options that name others")
    config = None if on is not None else choice.load_to_serve()
    if config is not None:
        lazy.mounting.require()
        log.set_up(choice.verbosity, config, among_others=True)
        # The address belongs to the mount that lasts. No scraper reaches the mount of a run.
        config = replace(config, mount=replace(config.mount, metrics=None))

    lower = None if on is None else _lower(on)
    if on_exit == "apply":
        _require_grant(_refusing(config.sources) if config is not None else _refusing_on(lower or ""))
    at = os.path.expanduser(at)
    made = Scratch.made(_directory() if scratch is None else scratch, at)
    is_ours = scratch is None
    try:
        with lazy.session.run(config, lower, at, made, list(command)) as ended:
            brief = (
                [] if config is None else [each.uri_prefix for each in config.sources if ends_with_its_process(each)]
            )
            settled = _settle(made, on_exit, brief)
    except BaseException:
        if is_ours and not os.listdir(made.upper):
            settling.remove(made)
        raise
    if is_ours and not settled.is_kept:
        settling.remove(made)
    click.get_current_context().exit(ended.status or int(settled.is_refused))


def _refusing(sources: Iterable["DataSource"]) -> dict[str, str | None]:
    """Return for each source by name why no change of it can be applied, or None if some may."""
    return {
        each.name: "its source is in the memory of this run alone (see --on)"
        if ends_with_its_process(each)
        else None
        if each.grants_write
        else _NO_GRANT
        for each in sources
    }


def _refusing_on(mount: str) -> dict[str, str | None]:
    """Return the same for the sources of a mount, by their directories."""
    found: dict[str, str | None] = {}
    for entry in os.scandir(mount):
        with suppress(OSError):  # no directory of a source
            capabilities = os.getxattr(entry.path, "user.bbfs.capabilities", follow_symlinks=False).decode()
            found[entry.name] = None if "write" in re.split(r"\W+", capabilities) else _NO_GRANT
    return found


def _require_grant(refusing: Mapping[str, str | None]) -> None:
    """Say which sources take no change, before the command works for nothing. Raise ConfigError if that is all."""
    told = [f"nothing can be applied to {name}: {why}" for name, why in refusing.items() if why is not None]
    if told and len(told) == len(refusing):
        raise ConfigError("\n".join(told))
    for text in told:
        output.message(text)


def _lower(on: str) -> str:
    """Return the mount to use: the one of the sources, if another scratch is over it. Raise MountError."""
    path = mountpoint.canonical(on)
    scratch = Scratch.mounted(path)
    path = path if scratch is None else scratch.lower
    mount = mountpoint.mount_at(path)
    if mount is None or not mount.is_bbfs:
        raise MountError(f"{on} is no bbfs mount")
    return path


def _directory() -> str:
    """Make a directory for the scratch of one run. On a disk: what is kept survives a restart of the machine."""
    parent = os.path.join(lazy.platformdirs.user_state_dir("bbfs"), "scratches")  # a cache may be cleared at any time
    own_directory(parent)
    return tempfile.mkdtemp(prefix="run-", dir=parent)


@dataclass(frozen=True, slots=True)
class _Settled:
    """The outcome of a run: whether changes are kept, and whether some could not be applied as asked."""

    is_kept: bool
    is_refused: bool = False


def _settle(scratch: "Scratch", on_exit: str | None, brief: Sequence[str]) -> _Settled:
    """Show the changes, and apply, keep or discard them.

    brief: directories of sources that end with this process. What were applied to them would be lost.
    """
    found = changes(scratch)
    if not found:
        return _Settled(is_kept=False)
    if on_exit in (None, "ask"):
        show(found)
        is_asked = on_exit == "ask" or (sys.stdin.isatty() and sys.stderr.isatty())
        on_exit = _asked() if is_asked else "keep"
    if on_exit == "discard":
        settling.discard(scratch, None, is_holder=True)
        return _Settled(is_kept=False)
    if on_exit == "apply":
        lost = [change for change in found if change.path.partition("/")[0] in brief]
        for change in lost:
            output.message(
                f"not applied: {output.quoted(change.path)}: its source is in the memory of this run alone (see --on)"
            )
        is_refused = applied(scratch, [change for change in found if change not in lost], is_holder=True) > 0
        return _Settled(is_refused or bool(lost), is_refused or bool(lost))
    if on_exit == "keep":
        output.message(
            f"{output.count(len(found), 'change')} kept in {scratch.path}: --scratch with it goes on,"
            " and --on-exit applies or discards"
        )
    return _Settled(is_kept=True)


def _asked() -> str:
    try:
        return str(
            click.prompt(
                "(a)pply, (k)eep or (d)iscard?", default="keep", show_default=True, value_proc=_answer, err=True
            )
        )
    except click.Abort:
        return "keep"


def _answer(text: str) -> str:
    """Return the answer that a word or its beginning stands for. Raise click.UsageError."""
    found = [each for each in ("apply", "keep", "discard") if text and each.startswith(text.strip().lower())]
    if len(found) != 1:
        raise click.UsageError(f"{text!r} is none of apply, keep and discard")
    return found[0]
