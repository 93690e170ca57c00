"""`bbfs discover`: the files of MCP hosts on this machine, and the names of the servers in them."""

import os
from typing import Any

import click

from bbfs.cli import lazy, output
from bbfs.cli.options import Verbosity, read_yaml, verbosity_options
from bbfs.model.errors import ConfigError

_EXAMPLES = """\b
Examples:
  bbfs discover
  bbfs mount ~/bb --discover           mounts the servers of all files of yours, but of no project
  bbfs mount ~/bb --mcp-config .mcp.json
  bbfs import ~/.claude.json           copies servers into bbfs's own file

\b
JSON: an array of objects with host, path, project (whether it belongs to the current directory and not to
you), servers (an array of names), and where there are any problems (an array of texts).
"""


@click.command(epilog=_EXAMPLES, short_help="Find the files of MCP hosts.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@verbosity_options
def discover(verbosity: Verbosity, as_json: bool) -> None:
    """Find the files of MCP hosts (Claude, VS Code, Cursor, Codex, …), and list the names of their servers.

    No value of these files is shown, and no server is started.
    """
    found = [each for each in _files() if each["servers"] or "problems" in each]
    if as_json:
        return output.as_json(found)
    if not found:
        return output.message("no file of an MCP host here; --mcp-config FILE names one in another place")
    rows = [("HOST", "FILE", "SERVERS")]
    rows += [(each["host"], each["path"], ", ".join(each["servers"]) or "-") for each in found]
    output.table([tuple(map(output.printable, row)) for row in rows])
    for each in found:
        if not verbosity.quiet:
            for problem in each.get("problems", ()):
                output.messages(problem)
    return None


def _files() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for file in lazy.host_places.host_files(os.environ, os.getcwd()):
        problems: list[str] = []
        names: list[str] = []

        def refused(error: ConfigError, problems: list[str] = problems) -> None:
            problems.append(str(error))

        try:
            names = lazy.host_files.server_names(file.path, environ=os.environ, read_yaml=read_yaml)
            if not file.is_project:  # a stranger's file may refer to any file and variable
                lazy.host_files.host_servers(file.path, environ=os.environ, on_refused=refused, read_yaml=read_yaml)
        except lazy.host_files.NoServers:
            pass
        except ConfigError as error:
            refused(error)
        each = {"host": file.host, "path": file.path, "project": file.is_project, "servers": names}
        found.append({**each, "problems": problems} if problems else each)
    return found
