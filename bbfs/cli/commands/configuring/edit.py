"""`bbfs add`, `bbfs remove`, `bbfs import`: sources in the configuration file, whose comments stay."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import click

from bbfs.cli import lazy, output
from bbfs.cli.commands.configuring.live import add_to_mount, mount_option, remove_from_mount
from bbfs.cli.commands.doctor import check_sources
from bbfs.cli.options import (
    SourceChoice,
    Verbosity,
    assignment_options,
    assignments,
    configured_sources,
    read_yaml,
    verbosity_options,
)
from bbfs.model.errors import ConfigError

if TYPE_CHECKING:
    from bbfs.config import Config
    from bbfs.config.editing import ConfigFile
    from bbfs.config.hosts.files import Imported
    from bbfs.model.values import McpServer

_URLS = {"api": ("document", "server"), "notion": ("base_url",), "url": ("urls", "llms_txt", "sitemap")}
"""The options with URLs of the types that read no private address by themselves."""
_ADD_EXAMPLES = """\b
TARGET is a folder, a database or archive file, a URL, or the command line of an MCP server ('--' before it
lets it have options). A URL that ends in /mcp or /sse is an MCP server; --as says what any other one is. The
URL of a host alone has bbfs ask that host where its MCP server is. A server.json describes a server for a
registry; what is secret in it becomes a reference. NAME may be left out before a URL or a server.json.

\b
Examples:
  bbfs add notes ~/notes
  bbfs add git -- uvx mcp-server-git --repository .
  bbfs add kb https://kb.example.com/mcp --header 'Authorization: Bearer ${env:KB_TOKEN}'
  bbfs add logs s3://logs/2026 -o region=eu-central-1 -o ttl=5m
  bbfs add shop shop.db
  bbfs add https://kb.example.com             asks where the server is: its server card, /mcp, /sse
  bbfs add ./server.json                      or: bbfs add io.github.user/weather --registry servers.json
  bbfs add logs ./logs --mount ~/mnt          in a running mount until its unmount, and not in the file

\b
References such as ${env:NAME} are written as they are. The file is ~/.config/bbfs/config.toml, or that of --config.
"""
_CONTACTED_WITHIN = 30.0
"""Seconds for a source that is checked: a program may have to start."""
_REMOVE_EXAMPLES = """\b
Examples:
  bbfs remove git weather
  bbfs remove git --mount ~/mnt    from a running mount until its unmount or 'bbfs reload', and not from the file
"""
_IMPORT_EXAMPLES = """\b
Examples:
  bbfs import ~/.claude.json
  bbfs import ~/.codex/config.toml .mcp.json
  bbfs discover                               which files there are

\b
Variables of the host become references (${VAR} becomes ${env:VAR}); other values are copied. --mcp-config uses such
a file without a copy.
"""
config_option = click.option(
    "--config", "config_file", metavar="FILE", type=click.Path(), help="The configuration file."
)


@click.command(epilog=_ADD_EXAMPLES, short_help="Add a source to the configuration file.")
@click.argument("operands", metavar="[NAME] TARGET...", nargs=-1, required=True)
@click.option("--as", "kind", type=click.Choice(["mcp", "dir", "source"]), help="The kind of the target.")
@click.option(
    "--registry",
    metavar="FILE",
    type=click.Path(),
    help="A list of servers, as the API of an MCP registry answers it. TARGET is the name of one of them.",
)
@click.option(
    "--package",
    type=click.Choice(["remote", "npm", "pypi", "oci", "nuget"]),
    help="The way to a server of a registry, if it has several.",
)
@click.option("--check", is_flag=True, help="Contact the source, and say how it fares. Exit status 1 if it fails.")
@assignment_options
@config_option
@mount_option
@verbosity_options
def add(
    verbosity: Verbosity,
    operands: tuple[str, ...],
    kind: Literal["mcp", "dir", "source"] | None,
    registry: str | None,
    package: str | None,
    check: bool,
    set_options: tuple[str, ...],
    headers: tuple[str, ...],
    tools: tuple[str, ...],
    config_file: str | None,
    mount_point: str | None,
) -> None:
    """Add a source under NAME to the configuration file, or to a running mount."""
    file, adding = opened(config_file), lazy.adding
    given = assignments(set_options, headers, tools)
    made = adding.make(adding.Operands(operands, kind, registry, package), given, file.path)
    table, name = made.table, made.name
    for note in () if verbosity.quiet else made.notes:
        output.message(note)
    unset = [f"{name}: {each.variable} is not set: {each.text}" for each in made.lacking]
    if unset and (check or mount_point is not None):
        raise ConfigError("\n".join(unset))
    if mount_point is None or config_file is not None:
        file.add({**table, "enabled": False} if unset else table)
        check_options(file.config(), name)
        file.save()
        if not verbosity.quiet:
            output.message(f"{name} is in {file.path} now")
    for text in unset:
        output.message(text)
    if unset:
        output.message(f"{name} is off until then: take out its 'enabled = false' afterwards ('bbfs config edit')")
    if mount_point is not None:
        add_to_mount(mount_point, table, verbosity)
    if check:
        _check(file, name, mount_point, verbosity, table)


def _check(
    file: "ConfigFile", name: str, mount_point: str | None, verbosity: Verbosity, table: dict[str, object]
) -> None:
    """Contact a source that was added, and exit by how it fares. table: of it."""
    text = lazy.tomlkit.dumps({"sources": [table]})
    config = lazy.toml.parse_config(file.path, text, environ=os.environ) if mount_point is not None else file.config()
    config = replace(config, sources=tuple(source for source in config.sources if source.name == name))
    well = check_sources(SourceChoice(verbosity), config, _CONTACTED_WITHIN)
    if not well:
        place = f"the mount at {mount_point}" if mount_point is not None else file.path
        undo = f" --mount {mount_point}" if mount_point is not None else ""
        output.message(f"{name} stays in {place} all the same; 'bbfs remove {name}{undo}' takes it out")
    click.get_current_context().exit(0 if well else 1)


def _complete_name(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [source.name for source in configured_sources(ctx) if source.name.startswith(incomplete)]


@click.command(epilog=_REMOVE_EXAMPLES, short_help="Remove sources from the configuration file.")
@click.argument("names", metavar="NAME…", nargs=-1, required=True, shell_complete=_complete_name)
@config_option
@mount_option
@verbosity_options
def remove(verbosity: Verbosity, names: tuple[str, ...], config_file: str | None, mount_point: str | None) -> None:
    """Remove the sources of these names from the configuration file, or from a running mount.

    All or none of them leave the file. The data of a source is not touched.
    """
    if mount_point is None or config_file is not None:
        file = opened(config_file)
        for name in names:
            file.remove(name)
        file.save()
        if not verbosity.quiet:
            output.message(f"no longer in {file.path}: {', '.join(names)}")
    if mount_point is not None:
        for name in names:
            remove_from_mount(mount_point, name, verbosity)


@click.command("import", epilog=_IMPORT_EXAMPLES, short_help="Copy servers of MCP hosts into the file.")
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@config_option
@verbosity_options
def import_(verbosity: Verbosity, files: tuple[str, ...], config_file: str | None) -> None:
    """Copy the servers in the files of MCP hosts into the configuration file.

    A server that is there already is left out, and one whose name is taken gets another name.
    """
    file = opened(config_file)
    taken = list(file.config().sources)
    beside = os.path.dirname(os.path.abspath(file.path))

    def refused(error: ConfigError) -> None:
        output.messages(f"left out: {error}")

    added: list[str] = []
    for path in map(os.path.expanduser, files):
        servers = lazy.host_files.host_servers(path, environ=os.environ, on_refused=refused, read_yaml=read_yaml)
        there = [source.mcp for source in taken]
        servers = [each for each in servers if each.source.mcp not in there and _started_in(beside, each) not in there]
        free = lazy.config.give_way([each.source for each in servers], taken)
        taken += free
        for source, each in zip(free, servers, strict=True):
            file.add({**each.table, "name": source.name})
            added.append(source.name)
    file.config()
    if added:
        file.save()
    if not verbosity.quiet:
        output.message(f"{', '.join(added)}: in {file.path} now" if added else f"nothing new for {file.path}")


def _started_in(directory: str, server: "Imported") -> "McpServer | None":
    """Return a server of an MCP host as a file in a directory has it: a program without `cwd` is started there."""
    found = server.source.mcp
    return found if found is None or found.command is None or found.cwd else replace(found, cwd=directory)


def opened(path: str | None) -> "ConfigFile":
    """Return the configuration file of an option, by default the user's own."""
    return lazy.editing.ConfigFile(path, os.environ)


def check_options(config: "Config", name: str | None = None) -> None:
    """Check the options of all sources, or of one source, without contacting a source. Raise ConfigError.

    Warn of sources that name a private address and do not allow it: nothing can be read from there.
    """
    checked = tuple(each for each in config.sources if name in (None, each.name, each.id))

    async def work() -> None:
        lazy.opening.compose(replace(config, sources=checked))

    lazy.trio.run(work)
    for source in checked:
        urls = [lazy.source_options.as_given(source, key) for key in _URLS.get(source.type, ())]
        one_by_one = [url for each in urls for url in (each if isinstance(each, list | tuple) else [each])]
        private = [url for url in one_by_one if isinstance(url, str) and lazy.addresses.names_private(url)]
        option = lazy.addresses.OPTION
        if private and not lazy.source_options.as_given(source, option):
            output.message(
                f"warning: {source.name}: a private or local address, which bbfs reads only with"
                f" -o {source.name}.{option}=true, or config.{option} = true in the configuration file"
            )
