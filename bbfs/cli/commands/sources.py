"""`bbfs sources`: each source and its state."""

from typing import TYPE_CHECKING, Any

import click

from bbfs.cli import lazy, output
from bbfs.cli.completion import complete_operand
from bbfs.cli.options import SourceChoice, source_options

if TYPE_CHECKING:
    from bbfs.cli.operands.access import SourceTree
    from bbfs.cli.operands.operand import Trees

_EXAMPLES = """\b
Examples:
  bbfs sources                                 of a mount, else of the configuration file
  bbfs sources ~/bb                            of one mount
  bbfs sources git                             one source
  bbfs sources --mcp-config ~/.claude.json     are the servers of an MCP host fit for bbfs?
  bbfs sources --check && echo all are up

\b
JSON: an array of objects with id, name, uriPrefix, accessMethod, type, capabilities, state (idle,
connecting, up, down), resources (a number, or null where it was not counted), mount (a path, or
null), and where known title, protocolVersion, server, templates, tools, prompts (numbers), proposedSearch,
proposedWrite, proposedMap (lines for the configuration), pending (a number of writes, see 'bbfs pending'), error.
A server that the mount has left out has id, state, error and mount alone.
"""


@click.command(epilog=_EXAMPLES, short_help="List the sources and how they fare.")
@click.argument("source", required=False, shell_complete=complete_operand)
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@click.option("--offline", is_flag=True, help="Contact no source.")
@click.option("--check", is_flag=True, help="Exit with 1 if a source does not answer.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="For all sources, which are asked at once.",
)
@source_options
def sources(
    choice: SourceChoice, source: str | None, as_json: bool, offline: bool, check: bool, timeout: float
) -> None:
    """List SOURCE, the sources of a mount, or all sources.

    A row has the state, protocol version and capabilities, and how many resources and other things there are. Each
    is asked for its listing. One that is down is told in its row.
    """
    rows = gather(choice, None if offline else timeout, source)
    if as_json:
        output.as_json(rows)
    else:
        several = len({row.get("mount") for row in rows}) > 1
        counts = ("RESOURCES", *(name.upper() for name in output.OFFERS))
        heading = ("SOURCE", "STATE", "PROTOCOL", *counts, "CAPABILITIES", "PREFIX", "MOUNT")
        table = [heading, *map(_cells, rows)]
        output.table(table if several else [cells[:-1] for cells in table], right=[3, 4, 5, 6])
        for row in rows:
            place = f" at {row['mount']}" if several else ""
            for problem in filter(None, (row.get("error"), output.pending_writes(row))):
                output.message(f"{row['id']}{place}: {problem}")
        for mount in sorted({row["mount"] for row in rows if row.get("mount") and row.get("error")}):
            if (log := lazy.places.log_path(mount)).exists():
                output.message(f"the log of {mount}: {log}")
    click.get_current_context().exit(1 if check and any(map(_fails, rows)) else 0)


def _fails(row: dict[str, Any]) -> bool:
    """Return whether a source fails. One that is up and listed may report an error of a single resource."""
    return bool(row.get("error")) and (row.get("state") != "up" or row.get("resources") is None)


def gather(choice: SourceChoice, timeout: float | None, source: str | None = None) -> list[dict[str, Any]]:
    """Return a row for each source. Raise BbfsError, OSError.

    timeout: seconds for a contact, None for no contact. source: an operand that names one source or a mount.
    """

    async def work(opened: "Trees") -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []

        async def add(tree: "SourceTree") -> None:
            rows.extend(await tree.sources(timeout))

        if source is None:
            await lazy.operand.each_root(opened, add)
            return rows
        target = await opened.target(source)
        directory = await target.directory()
        await add(target.tree)
        return [row for row in rows if directory in (None, row.get("uriPrefix"))]

    return lazy.operand.run(choice, work)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    resources = row.get("resources")
    name, state, *others = map(
        output.printable,
        (
            row.get("id", "?"),
            row.get("state", "idle"),
            row.get("protocolVersion") or "-",
            "-" if resources is None else str(resources),
            *(str(row.get(name, "-")) for name in output.OFFERS),
            ",".join(row.get("capabilities", ())),
            row.get("uriPrefix", "-"),
            row.get("mount") or "-",
        ),
    )
    return (name, click.style(state, fg=output.STATE_COLOURS.get(state)), *others)
