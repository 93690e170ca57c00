"""`bbfs refresh`: make a mount ask its sources again."""

from typing import TYPE_CHECKING

import click

from bbfs.cli.options import SourceChoice, Verbosity, verbosity_options
from bbfs.cli.target.access import Target
from bbfs.model.errors import NotFound

if TYPE_CHECKING:
    from bbfs.cli.target.operand import Trees

_EXAMPLES = """\b
An operand is
  a path inside a mount        ~/mnt/mcp-server+docs/resource/guide
  a mount point                ~/mnt
  a source and a path below    docs   or   docs/resource/guide
  a bbfs URI                   mcp-server+docs+resource://guide

\b
Cached names, sizes and contents there are dropped, also names cached as absent: the next use asks the
source. While a source is down, its cached contents are still served.

\b
Examples:
  bbfs refresh ~/mnt                                everything
  bbfs refresh docs                                 one source
  bbfs refresh mcp-server+docs+resource://guide     one resource
"""


@click.command(epilog=_EXAMPLES, short_help="Have a mount ask its sources again.")
@click.argument("operands", metavar="URI|PATH…", nargs=-1, required=True)
@verbosity_options
def refresh(verbosity: Verbosity, operands: tuple[str, ...]) -> None:
    """Drop what a mount has cached at and below each path, so that the next use asks the source."""
    from bbfs.cli.target import control_client, operand  # noqa: PLC0415 - trio

    async def drop(target: Target) -> None:
        mount = target.tree.mount
        if mount is None:
            raise NotFound("not at any mount; without one, nothing is kept from one command to the next")
        path = await control_client.resolved(mount, await target.located())
        async with control_client.daemon_of(mount) as link:
            await link.send([{"id": 1, "request": "refresh", "paths": ["/".join(path)]}])
            control_client.require_ok(await link.receive())

    async def work(opened: "Trees") -> bool:
        return await operand.each(opened, operands, drop)

    well = operand.run(SourceChoice.none(verbosity), work)
    click.get_current_context().exit(0 if well else 1)
