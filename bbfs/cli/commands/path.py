"""`bbfs path` and `bbfs uri`: from a URI to its path on a mount, and back."""

import errno
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from bbfs.cli import lazy, output
from bbfs.cli.completion import complete_operand
from bbfs.cli.operands.access import NoSuchSource
from bbfs.cli.operands.location import inside_mount
from bbfs.cli.operands.rule import components, path_by_rule, uri_by_rule
from bbfs.cli.options import NoSources, SourceChoice, source_options
from bbfs.fuse.mountpoint import GONE, MountError
from bbfs.model.errors import BbfsError, ConfigError, DeadlineExceeded, InvalidUri, LoginRequired, Unreachable

if TYPE_CHECKING:
    from bbfs.cli.operands.operand import Trees

_DOWN = (errno.EHOSTDOWN, errno.ETIMEDOUT, *GONE)
_UNKNOWABLE = (NoSources, NoSuchSource, Unreachable, DeadlineExceeded, LoginRequired, MountError)
"""Errors that leave the listing of the source unknown; any other error is an answer."""

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


@click.command(epilog=_PATH_EXAMPLES, short_help="From a URI to its path.")
@click.argument("uri", metavar="URI", shell_complete=complete_operand)
@_RULE
@source_options
def path(choice: SourceChoice, uri: str, rule: bool) -> None:
    """Print the path of a URI: the URI with '://' or ':' written as '/'."""
    with _told(uri):
        try:
            by_rule = "/".join(path_by_rule(uri))
        except InvalidUri as error:
            hint = "expected a bbfs URI, such as mcp-server+docs+resource://guide ('bbfs uri' takes a path)"
            raise InvalidUri(f"{hint}: {error}") from error

        async def exact(opened: "Trees") -> str:
            target = await opened.target(uri)
            found = await target.located()
            await target.tree.entry(found, exact=False)
            return os.path.join(target.tree.mount or "", *found)

        output.line(by_rule if rule else _exact_or_rule(choice, exact, lambda: by_rule))


_URI_EXAMPLES = """\b
Examples:
  bbfs uri ~/mnt/mcp-server+docs/resource/guide/install     mcp-server+docs+resource://guide/install
  bbfs uri docs/resource/guide/install
  bbfs uri --rule 'bb-filesystem+notes+file/a b.md'         bb-filesystem+notes+file:./a%20b.md

\b
Where the source cannot be asked, the rule alone decides and standard error says so.
"""


@click.command(epilog=_URI_EXAMPLES, short_help="From a path to its URI.")
@click.argument("path", metavar="PATH", shell_complete=complete_operand)
@_RULE
@source_options
def uri(choice: SourceChoice, path: str, rule: bool) -> None:
    """Print the URI of a path inside a mount, or below a source."""
    inside = inside_mount(path)
    names = components(path) if inside is None else inside[1]

    async def exact(opened: "Trees") -> str:
        target = await opened.target(path)
        entry = await target.tree.entry(await target.located(), exact=False)
        return entry.uri or uri_by_rule(entry.path)

    with _told(path):
        output.line(uri_by_rule(names) if rule else _exact_or_rule(choice, exact, lambda: uri_by_rule(names)))


@contextmanager
def _told(operand: str) -> Iterator[None]:
    """Report a failure of the block with the operand, and end the command with status 1."""
    try:
        yield
    except ConfigError:
        raise  # is about the configuration
    except (BbfsError, OSError) as error:
        output.failure(error, operand)
        click.get_current_context().exit(1)


def _exact_or_rule(choice: SourceChoice, exact: "Callable[[Trees], Awaitable[str]]", by_rule: Callable[[], str]) -> str:
    """Return the answer of the listing, or the answer of the rule if the source cannot be asked."""
    try:
        return lazy.operand.run(choice, exact)
    except _UNKNOWABLE as error:
        why = error
    except OSError as error:
        if error.errno not in _DOWN:
            raise
        why = error
    text = by_rule()
    if not choice.verbosity.quiet:
        known = "no sources are known" if isinstance(why, NoSources) else output.reason(why)
        output.message(f"by the rule alone: {known}")
    return text
