"""`bbfs login` and `bbfs logout`: the tokens of MCP servers over HTTP that ask for OAuth."""

import os
import threading
import time
import webbrowser
from typing import TYPE_CHECKING

import click

from bbfs.cli import lazy, output
from bbfs.cli.completion import complete_source
from bbfs.cli.operands.access import NoSuchSource
from bbfs.cli.options import SourceChoice, source_options
from bbfs.cli.progress import Progress
from bbfs.model.errors import ConfigError

if TYPE_CHECKING:
    from bbfs.model.values import DataSource

_LOGIN_EXAMPLES = """\b
Examples:
  bbfs login github                                         a source of the configuration file
  bbfs login docs --mcp docs=https://example.com/mcp        named as for 'bbfs mount'
  bbfs login github --no-browser --port 8400                on another machine, reached by
                                                            ssh -L 8400:127.0.0.1:8400 …
  bbfs login github --scope 'repo read:org'
  bbfs login --client-metadata https://example.com/bbfs.json > bbfs.json

\b
A login belongs to the URL of the server: every source with that URL uses it, a mount that runs at once.
It is kept in the system's keyring, or without one in a file of mode 0600 below ~/.local/share/bbfs.

\b
An authorization server may know bbfs by a document that you serve, instead of letting it register. Serve what
--client-metadata writes at that URL, and set BBFS_CLIENT_METADATA to the URL for all who log in. A server that
takes no such documents does not get to see it.

\b
Environment:
  BBFS_TOKEN_STORE  'keyring' or 'file' forces one of them, here and for 'bbfs mount'
  BROWSER           the program to open the URL with
  BBFS_CLIENT_METADATA  the URL of a client metadata document that you serve
"""
_LOGOUT_EXAMPLES = """\b
Examples:
  bbfs logout github
  bbfs logout docs --mcp docs=https://example.com/mcp
"""


@click.command(epilog=_LOGIN_EXAMPLES, short_help="Log in to an MCP server.")
@click.argument("source", required=False, shell_complete=complete_source)
@click.option("--no-browser", is_flag=True, help="Open no browser; only print the URL to open.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Of 127.0.0.1, for the way back from the browser.  [default: any that is free]",
)
@click.option("--scope", metavar="SCOPES", help="What to ask for, instead of what the server proposes.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="For all of it, your part included.",
)
@click.option("--client-metadata", metavar="URL", help="Only write the document that is to be served at this URL.")
@source_options
def login(
    choice: SourceChoice,
    source: str | None,
    no_browser: bool,
    port: int,
    scope: str | None,
    timeout: float,
    client_metadata: str | None,
) -> None:
    """Log in to the MCP server of SOURCE, a name or id out of the configuration, through a browser.

    The URL to open is printed on standard error in any case.
    """
    if client_metadata is not None:
        output.as_json(lazy.login.document_of_client(client_metadata, port))
        return
    if source is None:
        raise click.UsageError("Missing argument 'SOURCE'.")
    data = find_source(choice, source)

    place, store = lazy.login.LoginPlace.of(data), lazy.token_store.TokenStore.of_user(os.environ)

    progress, ends = Progress(quiet=choice.verbosity.quiet), time.monotonic() + timeout

    async def show(url: str) -> None:
        output.message(f"to log in to {data.id}, open this in a browser:")
        click.echo(output.printable(url), err=True)
        if not no_browser and has_browser():
            # Some browsers run until the user closes them, so do not wait.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        progress.note = lambda: f"waiting for the browser, {max(0, round(ends - time.monotonic()))} s left"

    async def work() -> str:
        with progress.shown():
            document = os.environ.get(lazy.login.CLIENT_VARIABLE) or None
            return await lazy.login.log_in(
                place, store, show, port=port, scope=scope, document=document, timeout=timeout
            )

    kept = lazy.trio.run(work)
    if not choice.verbosity.quiet:
        output.message(f"logged in to {data.id}; the login is kept in {kept}")


@click.command(epilog=_LOGOUT_EXAMPLES, short_help="Forget a login.")
@click.argument("source", shell_complete=complete_source)
@source_options
def logout(choice: SourceChoice, source: str) -> None:
    """Forget the login of SOURCE, and revoke it at the server where the server offers that."""
    data = find_source(choice, source)

    place, store = lazy.login.LoginPlace.of(data), lazy.token_store.TokenStore.of_user(os.environ)
    problem = lazy.trio.run(lazy.login.log_out, place, store)
    if problem is not None:
        output.message(f"{data.id}: {problem}")
    if not choice.verbosity.quiet:
        output.message(f"the login of {data.id} is forgotten")


def find_source(choice: SourceChoice, name: str) -> "DataSource":
    """Return the configured source with this name, id or prefix. Raise ConfigError."""
    config = choice.load_some()
    found = [s for s in config.sources if name in (s.id, s.name, s.base_prefix, s.uri_prefix)]
    if len(found) > 1:
        raise ConfigError(f"{name!r} names several sources: {', '.join(data.uri_prefix for data in found)}")
    if not found:
        there = ", ".join(data.id for data in config.sources)
        raise NoSuchSource(f"no source {name!r}; there are: {there}. A login needs the options that name the source")
    return found[0]


def has_browser() -> bool:
    """Return whether there is a browser that does not run in this terminal."""
    return any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
