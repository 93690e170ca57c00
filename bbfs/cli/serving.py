"""`bbfs serve`."""

import click

from bbfs.cli.mounting import SIZE, set_up_log
from bbfs.cli.options import SourceChoice, source_options

_EXAMPLES = """\b
Examples:
  bbfs serve                                              the sources of ~/.config/bbfs/config.toml
  bbfs serve --dir notes=~/notes --mcp 'docs=uvx some-server'
  claude mcp add bbfs -- bbfs serve --dir notes=~/notes

\b
Tools of the server: load_datasource, load_resources. All resources are there under their bbfs URIs as well.
"""


@click.command(epilog=_EXAMPLES, short_help="Serve data sources to MCP hosts.")
@source_options
@click.option("--depth", type=click.IntRange(min=1), help="Levels that load_datasource goes down by default.")
@click.option("--max-result", type=SIZE, help="The most that one answer holds of contents, by default 4MiB.")
@click.option("--cache", type=SIZE, help="Memory for contents, such as 256MiB.")
@click.option("--log", metavar="FILE", type=click.Path(dir_okay=False), help="Log to FILE, not to standard error.")
def serve(
    choice: SourceChoice,
    depth: int | None,
    max_result: int | None,
    cache: int | None,
    log: str | None,
) -> None:
    """Serve data sources as an MCP server, to language models above all.

    The sources, options and caches are those of 'bbfs mount'; neither a mount nor FUSE is needed. One client is served
    on standard input and output.
    """
    config = choice.load_some()
    set_up_log(choice.verbosity, config, log)
    from bbfs.server import running  # noqa: PLC0415 - the MCP SDK costs a second

    settings = running.Settings(depth, max_result or running.MAX_RESULT)
    running.serve_stdio(config, settings)
