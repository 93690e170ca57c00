"""`bbfs reload`, and `--mount` of `bbfs add` and `bbfs remove`: the sources of a running mount."""

import os
import re

import click

from bbfs.cli import lazy, output
from bbfs.cli.operands.location import asked
from bbfs.cli.options import Verbosity, verbosity_options
from bbfs.fuse import mountpoint
from bbfs.model.errors import BbfsError
from bbfs.model.quantities import counted
from bbfs.resources.commands.requests import Request
from bbfs.resources.commands.requests.live import AddSources, Reload, RemoveSource, SourcesChanged

_EXAMPLES = """\b
Examples:
  bbfs reload                   all mounts of yours
  bbfs reload ~/mnt             one mount
  kill -HUP PID                 the same; the log has the outcome

\b
Exit status: 0 reloaded; 1 the configuration is wrong (nothing has changed then), a mount does not answer, or there
is none.
"""
_ENVIRONMENT = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)")
mount_option = click.option(
    "--mount",
    "mount_point",
    metavar="MNT",
    type=click.Path(file_okay=False),
    help="Change the running mount at MNT until its unmount, and not the file unless --config names it.",
)


@click.command(epilog=_EXAMPLES, short_help="Have a mount take over a changed configuration.")
@click.argument("mount", metavar="[MNT]", required=False, type=click.Path(file_okay=False))
@verbosity_options
def reload(verbosity: Verbosity, mount: str | None) -> None:
    """Have the mount at MNT, or each of your mounts, read its configuration again.

    Sources that the configuration no longer has are removed, new ones are added, and changed ones begin again. All
    others go on undisturbed. Sources of the command line of 'bbfs mount' stay.
    """
    paths = [mountpoint.named(mount)] if mount is not None else sorted(each.path for each in mountpoint.own_mounts())
    well = bool(paths)
    if not paths:
        output.message("nothing is mounted")
    for path in paths:
        try:
            change(path, Reload(), quiet=verbosity.quiet)
        except (BbfsError, OSError) as error:
            output.messages(f"{path}: not reloaded: {output.reason(error)}")
            well = False
    click.get_current_context().exit(0 if well else 1)


def add_to_mount(mount: str, table: dict[str, object], verbosity: Verbosity) -> None:
    """Add the source of a table to a running mount. References take their values from this environment."""
    text = lazy.tomlkit.dumps({"sources": [table]})
    named = {name: os.environ[name] for name in _ENVIRONMENT.findall(text) if name in os.environ}
    change(mountpoint.named(mount), AddSources(text, os.getcwd(), named), quiet=verbosity.quiet)


def remove_from_mount(mount: str, name: str, verbosity: Verbosity) -> None:
    """Remove a source from a running mount."""
    change(mountpoint.named(mount), RemoveSource(name), quiet=verbosity.quiet)


def change(mount: str, request: Request[SourcesChanged], *, quiet: bool = False) -> None:
    """Ask a mount to change its sources, and print what it has changed. Raise BbfsError, OSError."""
    asked(mount, lambda: mountpoint.names(mount))
    for outcome in lazy.control_client.ask_now(mount, request):
        if not quiet:
            for line in _lines(outcome):
                output.message(f"{mount}: {line}")
        for note in outcome.notes:
            output.message(f"{mount}: {note}")


def _lines(outcome: SourcesChanged) -> list[str]:
    """Return an outcome for people, a line for each kind of change."""
    kinds = (("added", outcome.added), ("removed", outcome.removed), ("changed", outcome.changed))
    lines = [f"{what}: {', '.join(ids)}" for what, ids in kinds if ids]
    return [*lines, f"unchanged: {counted(outcome.kept, 'source')}"]
