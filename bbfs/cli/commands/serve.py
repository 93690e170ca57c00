"""`bbfs serve`."""

import sys
from dataclasses import replace

import click

from bbfs.cli import lazy, output
from bbfs.cli.commands.mount import SIZE, LogChoice, log_options
from bbfs.cli.operands import scratches
from bbfs.cli.options import SourceChoice, source_options
from bbfs.server_parts.options import HttpChoice, http_options

_EXAMPLES = """\b
Examples:
  bbfs serve                                              the sources of ~/.config/bbfs/config.toml
  bbfs serve --dir notes=~/notes --mcp 'docs=uvx some-server'
  bbfs serve --http 127.0.0.1:8765 --token-file ~/.config/bbfs/token
  claude mcp add bbfs -- bbfs serve --dir notes=~/notes

\b
Tools of the server: load_datasource, load_resources and others, and those of the MCP servers among the sources, as
SOURCE_NAME. All resources are there under their bbfs URIs as well.
"""


@click.command(epilog=_EXAMPLES, short_help="Serve data sources to MCP hosts.")
@source_options
@http_options
@click.option("--depth", type=click.IntRange(min=1), help="Levels that load_datasource goes down by default.")
@click.option("--max-result", type=SIZE, help="The most that one answer holds of contents, by default 4MiB.")
@click.option("--cache", type=SIZE, help="Memory for contents, such as 256MiB.")
@log_options
def serve(
    choice: SourceChoice,
    http: HttpChoice | None,
    depth: int | None,
    max_result: int | None,
    cache: int | None,
    log: LogChoice,
) -> None:
    """Serve data sources as an MCP server, to language models above all.

    The sources, options and caches are those of 'bbfs mount'; neither a mount nor FUSE is needed. One client is served
    on standard input and output, or over HTTP any number of those that show a token.
    """
    config = choice.load_to_serve()
    if (shown := scratches.running()) is not None:
        config = scratches.read_only(config)
        output.message(f"'bbfs run' runs this server, so it writes to no source; programs write in {shown}")
    # A host shows what a server says on standard error. What bbfs's own servers say there is for -v.
    log.set_up(choice.verbosity, config, among_others=http is None and config.log_level == "info")
    if cache is not None:
        config = replace(config, cache_bytes=cache)

    settings = lazy.server.Settings(depth, max_result or lazy.server.MAX_RESULT)
    if http is None:
        if sys.stdin is None:  # the next opened file would be descriptor 0, and count as the client
            raise click.UsageError("standard input is closed: a host starts this and writes to it; or give --http")
        if sys.stdin.isatty():
            output.message("waiting for an MCP client on standard input, which a host starts this for; Ctrl-C ends")
        lazy.server.serve(config, settings)
    else:
        with http.listening(output.message) as listener:
            lazy.server.serve(config, settings, listener)
