"""`bbfs watch`: print what changes, or run a command for it."""

from functools import partial

import click

from bbfs.cli.completion import complete_operand
from bbfs.cli.options import SourceChoice, source_options

_EXAMPLES = """\b
An operand is
  a path inside a mount        ~/mnt/mcp-server+docs/resource/guide
  a mount point                ~/mnt
  a source and a path below    docs   or   docs/resource/guide
  a bbfs URI                   mcp-server+docs+resource://guide
A directory stands for everything below it. The last two are watched through a mount that has the source,
if there is one and no option names sources; else the source is opened here.

\b
A line is 'added PATH', 'changed PATH' or 'removed PATH'; 'missed PATH' says that more has changed below
it than could be told. Only another content is a change: an announcement after which it is the same is not.
On standard error, 'watching PATH' says that the watch has begun; -q leaves that out.

\b
Examples:
  bbfs watch docs
  bbfs watch --once ~/mnt/mcp-server+docs/resource/guide && make
  bbfs watch --exec 'cp {} ~/copies/' mcp-server+docs+resource://guide
  bbfs watch --json ~/mnt | jq -r 'select(.event == "added").uri'

\b
JSON: one object a line, with event, path, uri, source (its id), time (ISO 8601, UTC). That of --ready has
only the event.
The command of --exec has BBFS_EVENT, BBFS_PATH, BBFS_URI and BBFS_SOURCE in its environment; {} stands for
"$BBFS_PATH", so no name can become a command. Among other text in quotes write $BBFS_PATH.
Exit status 124 says that --timeout was over.
"""


@click.command(epilog=_EXAMPLES, short_help="Print what changes.")
@click.argument("operands", metavar="URI|PATH…", nargs=-1, required=True, shell_complete=complete_operand)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help="Run a shell command for each change instead of printing it, one at a time; {} is the path, as a word.",
)
@click.option("--ready", is_flag=True, help="Print 'ready' as the first line: from then on no change is missed.")
@click.option("-1", "--once", is_flag=True, help="Exit after the first change.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Exit after this time at most."
)
@source_options
def watch(
    choice: SourceChoice,
    operands: tuple[str, ...],
    as_json: bool,
    command: str | None,
    ready: bool,
    once: bool,
    timeout: float | None,
) -> None:
    """Print a line for each resource that is added, changed or removed, until interrupted."""
    from bbfs.cli.operands import operand  # noqa: PLC0415 - trio
    from bbfs.cli.work import changes  # noqa: PLC0415 - as above

    if as_json and command is not None:
        raise click.UsageError("--json and --exec exclude each other: a command is run instead of printing")
    try:
        teller = changes.Teller(as_json, command, once, ready)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--exec'") from None
    work = partial(changes.watch, operands=operands, teller=teller, timeout=timeout)
    click.get_current_context().exit(operand.run(choice, work))
