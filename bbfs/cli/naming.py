"""`bbfs path` and `bbfs uri`: from a URI to its path on a mount, and back."""

import os
from typing import TYPE_CHECKING

import click

from bbfs.cli import output
from bbfs.cli.options import SourceChoice, source_options
from bbfs.cli.rule import components, path_by_rule, uri_by_rule
from bbfs.errors import BbfsError, ConfigError, DeadlineExceeded, LoginRequired, NotFound, Unreachable
from bbfs.mounts import MountError
from bbfs.uri import parse_data_source_uri

if TYPE_CHECKING:
    from bbfs.cli.trees import Trees

_UNKNOWABLE = (Unreachable, DeadlineExceeded, LoginRequired, MountError)
"""Nobody can say what the source lists; anything else is an answer."""

_RULE = click.option("--rule", is_flag=True, help="By the rule alone, without asking anything.")

_PATH_EXAMPLES = """\b
Examples:
  bbfs path mcp-server+docs+resource://guide/install       /home/me/mnt/mcp-server+docs+resource/guide/install
  bbfs path --rule bb-filesystem+notes+file:./a%20b.md     bb-filesystem+notes+file/a b.md
  less "$(bbfs path mcp-server+docs+resource://guide/install)"
\b
On a mount that has the source the path is absolute, else it is below the root of any mount.
Where the source cannot be asked, the rule alone decides and standard error says so.
"""


@click.command(epilog=_PATH_EXAMPLES)
@click.argument("uri", metavar="URI")
@_RULE
@source_options
def path(choice: SourceChoice, uri: str, rule: bool) -> None:
    """Print the path of a URI: the URI with '://' or ':' written as '/'."""
    by_rule = "/".join(path_by_rule(uri))
    if rule:
        output.line(by_rule)
        return
    from bbfs.cli import trees  # noqa: PLC0415 - trio

    async def exact(opened: "Trees") -> str:
        target = await opened.target(uri)
        found = await target.located()
        await target.tree.entry(found, exact=False)
        return os.path.join(target.tree.mount or "", *found)

    try:
        output.line(trees.run(choice, exact))
    except BbfsError as error:
        _by_rule_if_unknowable(choice, error, by_rule, parse_data_source_uri(uri).base_prefix)


_URI_EXAMPLES = """\b
Examples:
  bbfs uri ~/mnt/mcp-server+docs/resource/guide/install     mcp-server+docs+resource://guide/install
  bbfs uri docs/resource/guide/install
  bbfs uri --rule 'bb-filesystem+notes+file/a b.md'         bb-filesystem+notes+file:./a%20b.md
\b
Where the source cannot be asked, the rule alone decides and standard error says so.
"""


@click.command(epilog=_URI_EXAMPLES)
@click.argument("path", metavar="PATH")
@_RULE
@source_options
def uri(choice: SourceChoice, path: str, rule: bool) -> None:
    """Print the URI of a path inside a mount, or below a source."""
    from bbfs.cli import trees  # noqa: PLC0415 - trio

    inside = trees.inside_mount(path)
    names = components(path) if inside is None else inside[1]
    if rule:
        output.line(uri_by_rule(names))
        return

    async def exact(opened: "Trees") -> str:
        target = await opened.target(path)
        document = await target.tree.description(await target.located())
        return document.uri or uri_by_rule(document.path)

    try:
        output.line(trees.run(choice, exact))
    except BbfsError as error:
        _by_rule_if_unknowable(choice, error, lambda: uri_by_rule(names), names[0] if names else path)
