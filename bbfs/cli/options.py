"""Options of several commands: the sources, and the level of the log."""

import errno
import functools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from bbfs.cli import lazy, output
from bbfs.cli.logs import log_to_stderr
from bbfs.model.errors import BbfsError, ConfigError
from bbfs.runtime.extras import needs

if TYPE_CHECKING:
    from bbfs.config import Config
    from bbfs.config.command_line.assignments import Assignment
    from bbfs.model.values import DataSource, McpServer

NO_SOURCES = """no sources to work with. Give them in one of three ways:
  a configuration file:            --config FILE (by default ~/.config/bbfs/config.toml)
  the file of an MCP host:         --mcp-config ~/.claude.json  ('bbfs discover' finds them; --discover takes all)
  on the command line:             --mcp 'docs=uvx some-server'  or  --dir notes=~/notes
                                   or  --source app=sqlite:///home/me/app.db"""


_NAMING = ("config_file", "mcp_config", "mcp", "folders", "others", "discover")
_SETTING = ("set_options", "headers", "tools")
"""The fields of a `SourceChoice`, which are parameters of commands: those that name sources, and that set options."""


class NoSources(ConfigError):
    """No option, file or mount names a source."""

    def __init__(self, text: str = NO_SOURCES) -> None:
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Verbosity:
    """The level of the log: `-v` INFO, `-vv` DEBUG, `-q` errors alone, else warnings."""

    verbose: int = 0
    quiet: bool = False

    def level(self, default: int = logging.WARNING) -> int:
        if self.quiet:
            return logging.ERROR
        return min(default, (default, logging.INFO, logging.DEBUG)[min(self.verbose, 2)])


@dataclass(frozen=True, slots=True)
class SourceChoice:
    """The sources that the options of a command name, as the user wrote them. Without options: the mounted sources."""

    verbosity: Verbosity
    config_file: str | None = None
    mcp_config: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    set_options: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    discover: bool = False

    @property
    def names_sources(self) -> bool:
        """Return whether an option names sources besides the sources of the configuration file."""
        return any(getattr(self, name) for name in _NAMING if name != "config_file")

    @property
    def given(self) -> bool:
        """Return whether an option names sources, or sets options of them, which no mount can take over.

        Otherwise a mount or the default configuration file has them.
        """
        return any(getattr(self, name) for name in (*_NAMING, *_SETTING))

    def typed(self) -> "list[tuple[str, list[DataSource]]]":
        """Return the sources that the command line itself defines, by option. Raise ConfigError."""
        config = lazy.config
        return [
            *(("--mcp", [config.source_from_mcp_argument(text)]) for text in self.mcp),
            *(("--dir", [_folder(text)]) for text in self.folders),
            *(("--source", [_at_url(text)]) for text in self.others),
        ]

    def load(
        self,
        left_out: Callable[[str], object] | None = None,
        typed: "Sequence[tuple[str, Sequence[DataSource]]] | None" = None,
    ) -> "Config":
        """Load the sources that the options name, or else the sources of the default configuration file.

        Sources of other options replace the sources of the default file; `--config` adds the sources of its file. The
        other settings of the file always apply. Raise ConfigError. An unusable server of an MCP host's file is reported
        and left out: it is the host's file, and the other servers in it are fine. For the same reason a server whose
        name is taken gets another name. left_out: gets these reports instead of standard error. typed: what `typed` has
        returned before, for a mount that goes on: a folder of its command line may be gone by now.
        """
        config = lazy.config
        refusals: dict[str, str] = {}

        def refused(error: ConfigError) -> None:
            if isinstance(error, lazy.host_files.RefusedServer):
                refusals[error.name] = str(error)
            if left_out is None:
                output.messages(f"left out: {error}")
            else:
                left_out(str(error))

        with_sources = self.config_file is not None or not self.names_sources
        loaded = _loaded(_expanded(self.config_file), with_sources=with_sources)
        own = loaded.path or "the configuration file"
        groups: list[tuple[str, Iterable[DataSource]]] = [(own, loaded.sources)]
        groups += self._host_groups(loaded.sources, refused)
        groups += self.typed() if typed is None else typed
        given = assignments(self.set_options, self.headers, self.tools)
        sources = config.merge(*groups)
        if given:
            sources = lazy.assignments.with_options(sources, given, environ=os.environ)
        return replace(loaded, sources=sources, left_out=refusals)

    def _host_groups(
        self, taken: "Iterable[DataSource]", refused: Callable[[ConfigError], None]
    ) -> "Iterator[tuple[str, Sequence[DataSource]]]":
        """Yield the files of MCP hosts with their servers, under names that no source has. Raise ConfigError.

        taken: the sources that there are already. refused: called with the error of a server that is left out.
        """
        config, taken = lazy.config, [*taken]
        for path, is_found in [*((path, False) for path in self.mcp_config), *((path, True) for path in self._found())]:
            try:
                servers = lazy.host_files.import_mcp_hosts(
                    os.path.expanduser(path),
                    environ=os.environ,
                    on_refused=refused,
                    on_elsewhere=partial(self._elsewhere, path),
                    read_yaml=read_yaml,
                )
            except ConfigError as error:
                if not is_found:
                    raise
                if not isinstance(error, lazy.host_files.NoServers):
                    refused(error)
                continue
            if is_found:  # programs copy each other's servers
                servers = [server for server in servers if server.mcp not in [other.mcp for other in taken]]
            free = config.give_way(servers, taken)
            for before, after in zip(servers, free, strict=True):
                if before.name != after.name:
                    output.message(f"{path}: the name {before.name!r} is taken; its server is {after.name!r} here")
            taken += free
            yield path, free

    def _found(self) -> list[str]:
        """Return the files of hosts to look for. Those of a project may start programs of strangers, so name them."""
        if not self.discover:
            return []
        found = lazy.host_places.host_files(os.environ, os.getcwd())
        for file in found:
            if file.is_project and not self.verbosity.quiet:
                output.message(f"left out: {file.path}: the file of a project is used only if --mcp-config names it")
        return [file.path for file in found if not file.is_project]

    def _elsewhere(self, path: str, counts: Mapping[str, int]) -> None:
        if not self.verbosity.quiet:
            places = ", ".join(counts)
            servers = output.count(sum(counts.values()), "server")
            output.message(f"{path}: {servers} left out that only apply in another directory: {places}")

    def load_some(self) -> "Config":
        """Load as `load` does. Raise ConfigError, or NoSources if no source is named; its text names the ways to name
        sources."""
        config = self.load()
        if not config.sources:
            raise NoSources
        return config

    def load_to_serve(self, *, tells: bool = False) -> "Config":
        """Load as `load_some` does, for a process that lasts.

        Raise ConfigError also for a server of `--mcp` whose program is missing: a mistyped one would be a directory
        that is down. (The program of a configuration file may come later.) tells: report those of files.
        """
        config = self.load_some()
        typed = {lazy.config.source_from_mcp_argument(text).name for text in self.mcp}
        for source in config.sources:
            if source.mcp is None or not _lacks_program(source.mcp):
                continue
            if source.name in typed:
                raise ConfigError(f"--mcp {source.name}: there is no program {source.mcp.command!r}")
            if tells:
                output.message(
                    f"{source.name}: there is no program {source.mcp.command!r}; it is down until there is one"
                )
        return config


def _lacks_program(server: "McpServer") -> bool:
    """Return whether a server is a program that cannot be started."""
    command = server.command
    if command is None:
        return False
    if "/" in command:
        command = os.path.join(server.cwd or "", command)
    return lazy.shutil.which(command, path=server.env.get("PATH", os.environ.get("PATH"))) is None


def read_yaml(data: bytes, path: str) -> bytes:
    """Return the file of an MCP host in YAML as JSON. A process with limits reads it. Raise BbfsError."""
    if find_spec("yaml") is None:
        raise ConfigError(f"{path}: YAML {needs('web')}")
    bounds = lazy.host_files.YAML_BOUNDS
    return lazy.workers.run_once("yaml", data, bounds, what=path, max_result=bounds["size"])


def _folder(text: str) -> "DataSource":
    """Return the source of `--dir`. Raise ConfigError if there is no folder: a mistyped path would be an empty one.

    (The folder of a configuration file may come later.)
    """
    source = lazy.config.source_from_dir_argument(text)
    root = source.config["root"]
    try:
        with os.scandir(root):
            return source
    except OSError as error:
        raise ConfigError(f"--dir {source.name}: {root}: {error.strerror}") from None


def _at_url(text: str) -> "DataSource":
    """Return the source of `--source`. Raise ConfigError if it is a local file that is not there, as `_folder` does."""
    source = lazy.config.source_from_url_argument(text)
    path = lazy.config.local_file(source.config.get("url"))
    if path is not None and not os.path.lexists(path):
        raise ConfigError(f"--source {source.name}: {path}: {os.strerror(errno.ENOENT)}")
    return source


def _loaded(path: str | None, *, with_sources: bool = True) -> "Config":
    """Return the configuration of a file, by default of the user's own; an empty one if there is none."""
    if path is None and not os.path.lexists(lazy.config.default_config_path(os.environ)):
        return lazy.config.Config()  # and no import of what checks a file
    return lazy.toml.load_config(path, environ=os.environ, with_sources=with_sources)


def _expanded(path: str | None) -> str | None:
    return None if path is None else os.path.expanduser(path)


def verbosity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-v` and `-q`; the command gets a `Verbosity` first."""

    @click.option("-v", "--verbose", count=True, help="Say more on standard error; twice for all of it.")
    @click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
    @functools.wraps(command)
    def wrapped(*args: Any, verbose: int, quiet: bool, **rest: Any) -> Any:
        verbosity = Verbosity(verbose, quiet)
        log_to_stderr(verbosity.level())
        return command(verbosity, *args, **rest)

    return wrapped


def _complete_option(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete an option of a source of the configuration file."""
    names = lazy.assignments.option_names(configured_sources(ctx))
    return [name for name in names if name.startswith(incomplete)]


def configured_sources(ctx: click.Context) -> "Sequence[DataSource]":
    """Return the sources of the configuration file of a command line; none if the file has a fault."""
    try:
        return _loaded(_expanded(ctx.params.get("config_file"))).sources
    except (BbfsError, OSError):
        return ()


def assignment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that set options of sources; the command gets `set_options`, `headers` and `tools`."""
    option = click.option(
        "-o",
        "--option",
        "set_options",
        multiple=True,
        metavar="[NAME.]KEY=VALUE",
        shell_complete=_complete_option,
        help="Set an option of a source, by its name in the configuration file.",
    )
    header = click.option(
        "--header", "headers", multiple=True, metavar="[NAME=]HEADER: VALUE", help="Send a header with HTTP."
    )
    tools = click.option(
        "--tools", multiple=True, metavar="[NAME=]WORD|TOOL,…", help="Set the tools of MCP servers that may be run."
    )
    return option(header(tools(command)))


def assignments(set_options: Iterable[str], headers: Iterable[str], tools: Iterable[str]) -> "list[Assignment]":
    """Return the assignments of these options. Raise ConfigError."""
    if not (set_options or headers or tools):
        return []
    parsed = lazy.assignments
    return [*map(parsed.assignment, set_options), *map(parsed.header, headers), *map(parsed.tools, tools)]


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name sources, and `-v` and `-q`; the command gets a `SourceChoice` first."""

    @click.option(
        "--config",
        "config_file",
        metavar="FILE",
        type=click.Path(),
        help="A configuration file. Beside other options, it adds its sources; those options alone replace the"
        " sources of the default file.",
    )
    @click.option(
        "--mcp-config", multiple=True, metavar="FILE", type=click.Path(), help="An MCP host's file with its servers."
    )
    @click.option("--discover", is_flag=True, help="The files of all MCP hosts of this user; see 'bbfs discover'.")
    @click.option("--mcp", multiple=True, metavar="[NAME=]COMMAND|URL", help="An MCP server.")
    @click.option("--dir", "folders", multiple=True, metavar="[NAME=]PATH", help="A local folder.")
    @click.option("--source", "others", multiple=True, metavar="[NAME=]URL", help="A database, a store, a web page, …")
    @assignment_options
    @verbosity_options
    @functools.wraps(command)
    def wrapped(verbosity: Verbosity, *args: Any, **given: Any) -> Any:
        chosen = {name: given.pop(name) for name in (*_NAMING, *_SETTING)}
        return command(SourceChoice(verbosity=verbosity, **chosen), *args, **given)

    return wrapped
