"""`bbfs demo`."""

import click

from bbfs.cli.options import Verbosity, verbosity_options

_EXAMPLES = """\b
Examples:
  bbfs demo                 on a terminal, the mount stays until Ctrl-C
  bbfs demo </dev/null      shows the session, unmounts and exits
"""


@click.command(epilog=_EXAMPLES, short_help="Show a session on a small knowledge base.")
@click.option("--keep", is_flag=True, help="Keep the folder with the documents.")
@verbosity_options
def demo(_verbosity: Verbosity, keep: bool) -> None:
    """Mount a small knowledge base and a folder, and show a session on them.

    Everything is made in a temporary folder, which is removed at the end.
    """
    from bbfs.cli import demo as demonstration  # noqa: PLC0415 - used by this command alone

    click.get_current_context().exit(demonstration.run(keep=keep))
