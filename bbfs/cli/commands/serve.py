"""`bbfs serve`."""

import os
import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from bbfs.cli import output
from bbfs.cli.commands.mount import SIZE, set_up_log
from bbfs.cli.options import SourceChoice, source_options
from bbfs.model.errors import ConfigError

if TYPE_CHECKING:
    from bbfs.config import Config
    from bbfs.server.run import Settings

_EXAMPLES = """\b
Examples:
  bbfs serve                                              the sources of ~/.config/bbfs/config.toml
  bbfs serve --dir notes=~/notes --mcp 'docs=uvx some-server'
  bbfs serve --http 127.0.0.1:8765 --token-file ~/.config/bbfs/token
  claude mcp add bbfs -- bbfs serve --dir notes=~/notes

\b
Tools of the server: load_datasource, load_resources. All resources are there under their bbfs URIs as well.
"""


class _Address(click.ParamType):
    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        host, colon, port = str(value).rpartition(":")
        if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
            self.fail(f"{value!r} is not HOST:PORT", param, ctx)
        return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


@click.command(epilog=_EXAMPLES, short_help="Serve data sources to MCP hosts.")
@source_options
@click.option("--http", type=_Address(), help="Serve Streamable HTTP at http://HOST:PORT/mcp; port 0 takes a free one.")
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="The token that clients show over HTTP; made if missing. By default a new one is printed.",
)
@click.option("--no-token", is_flag=True, help="Over HTTP, serve any program of this machine.")
@click.option("--host-name", "names", multiple=True, metavar="NAME", help="A name that clients reach this machine by.")
@click.option("--depth", type=click.IntRange(min=1), help="Levels that load_datasource goes down by default.")
@click.option("--max-result", type=SIZE, help="The most that one answer holds of contents, by default 4MiB.")
@click.option("--cache", type=SIZE, help="Memory for contents, such as 256MiB.")
@click.option("--log", metavar="FILE", type=click.Path(dir_okay=False), help="Log to FILE, not to standard error.")
def serve(
    choice: SourceChoice,
    http: tuple[str, int] | None,
    token_file: str | None,
    no_token: bool,
    names: tuple[str, ...],
    depth: int | None,
    max_result: int | None,
    cache: int | None,
    log: str | None,
) -> None:
    """Serve data sources as an MCP server, to language models above all.

    The sources, options and caches are those of 'bbfs mount'; neither a mount nor FUSE is needed. One client is served
    on standard input and output, or over HTTP any number of those that show a token.
    """
    if http is None and (token_file or no_token or names):
        raise click.UsageError("--token-file, --no-token and --host-name are for --http")
    if token_file and no_token:
        raise click.UsageError("give either --token-file or --no-token")
    config = choice.load_some()
    set_up_log(choice.verbosity, config, log)
    if cache is not None:
        config = replace(config, cache_bytes=cache)
    from bbfs.server import run as running  # noqa: PLC0415 - the MCP SDK costs a second

    settings = running.Settings(depth, max_result or running.MAX_RESULT)
    if http is None:
        if sys.stdin is None:  # what is opened next would be descriptor 0, and be taken for the client
            raise click.UsageError("standard input is closed: a host starts this and writes to it; or give --http")
        if sys.stdin.isatty():
            output.message("waiting for an MCP client on standard input, which a host starts this for; Ctrl-C ends")
        running.serve_stdio(config, settings)
    else:
        _serve_http(config, settings, http, token_file, no_token, names)


def _serve_http(
    config: "Config",
    settings: "Settings",
    address: tuple[str, int],
    token_file: str | None,
    no_token: bool,
    names: tuple[str, ...],
) -> None:
    from bbfs.server import run as running  # noqa: PLC0415 - as above
    from bbfs.server.transport import http  # noqa: PLC0415 - as above

    host, port = address
    token = None if no_token else http.token_of_file(os.path.expanduser(token_file)) if token_file else http.new_token()
    try:
        listener = http.Listener(http.Listen(host, port, token, names))
    except OSError as error:
        raise ConfigError(f"--http {host}:{port}: {error.strerror or error}") from None

    def ready(url: str) -> None:
        click.echo(url)
        sys.stdout.flush()
        if token is not None and token_file is None:
            output.message(f"clients show this token, which is new each time: {token}")

    with closing(listener):
        running.serve_http(config, settings, listener, ready)
