"""The configuration file of bbfs itself, in TOML. All its faults are reported at once."""

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from bbfs.config.interpolation import Interpolator, as_path
from bbfs.config.key_lines import key_lines
from bbfs.config.naming import VALID_NAME, conflicts
from bbfs.config.problems import KeyPath, Problems, quote, suggestion
from bbfs.config.schema import (
    SERVER_TOOLS,
    CacheTable,
    ConfigTable,
    FileTable,
    McpTable,
    MountTable,
    SourceTable,
    explain,
    written_path,
)
from bbfs.config.server import looks_like_command_line, make_server
from bbfs.config.shared_cache import shared_cache
from bbfs.config.values import EMBEDDINGS, NO_FILES, Config, MountOptions, default_config_path
from bbfs.model.errors import ConfigError, InvalidUri
from bbfs.model.source_types import find, fixed_scheme, mcp_scheme, meant, names, policy
from bbfs.model.uri import build_uri_prefix, parse_uri_prefix
from bbfs.model.values import AccessMethod, Capabilities, DataSource, DocumentBounds, McpServer, SharedCache

_T = TypeVar("_T", bound=ConfigTable)
LARGEST_FILE = 16 << 20
"""Characters of a configuration file. Hosts keep histories in the same file."""
MCP_KEYS = ("start", "idle_timeout", "list_limit", "roots", "tools", "prompts", "apps", *SERVER_TOOLS, "map", "shared")
"""Keys of a source that only MCP servers have."""
_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)\Z")
"""Where tomllib says that it found an error."""
_KEY = re.compile(r"\s*([^=\s]{1,200})\s*=")
_MCP_STRINGS = ("command", "args", "env", "cwd", "url", "headers")


def load_config(path: str | None, *, environ: Mapping[str, str], with_sources: bool = True) -> Config:
    """Load the file at `path`, or else the default file if it exists; else return an empty configuration.

    Relative paths inside the file start at its directory. with_sources: else the sources in the file are left out, and
    their faults. Raise ConfigError with every fault of the file.
    """
    if path is None:
        path = default_config_path(environ)
        if not os.path.lexists(path):
            return Config()
    return parse_config(path, read_text(path), environ=environ, with_sources=with_sources)


def parse_config(path: str, text: str, *, environ: Mapping[str, str], with_sources: bool = True) -> Config:
    """Return the configuration in a text, which is that of the file at `path`. Raise ConfigError with every fault."""
    document = parse_toml(path, text)
    if not with_sources:
        document.pop("sources", None)
    problems = Problems(path, key_lines(text))
    config = _Loader(path, document, problems, environ).config()
    problems.raise_if_any()
    return config


def parse_toml(path: str, text: str) -> dict[str, Any]:
    """Return the values in a text in TOML, which is that of the file at `path`. Raise ConfigError with the line."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_syntax_error(path, str(error), text) + _syntax_hint(path, str(error), text)) from None


def _syntax_hint(path: str, message: str, text: str) -> str:
    """Return a remedy for a syntax error, or an empty text."""
    if path.endswith((".json", ".jsonc")) or text.lstrip().startswith("{"):
        return "; the JSON file of an MCP host is given with --mcp-config"
    if message.startswith(("Cannot declare", "Cannot mutate")):  # `config = { … }`, and then `[sources.config.queries]`
        return (
            "; a table in braces, such as 'config = { … }', is complete: write what belongs to it in the braces as well"
        )
    if message.startswith("Cannot overwrite") and (place := _PLACE.search(message)) is not None:
        line = text.split("\n")[int(place[1]) - 1] if place[1] else text.rstrip("\n").rpartition("\n")[2]
        if (key := _KEY.match(line)) is not None:
            return f": the key {quote(key[1])} is there already, in the same table"
    return ""


def _syntax_error(path: str, message: str, text: str) -> str:
    """Return a message of tomllib, which ends in its place, as `file:line: message`."""
    place = _PLACE.search(message)
    if place is None:
        return f"{path}: {message}"
    return f"{path}:{place[1] or len(text.splitlines())}: {message[: place.start()]}"


def read_text(path: str, *, regular: bool = False) -> str:
    """Return the text of a configuration file in UTF-8. Raise ConfigError, also above `LARGEST_FILE` characters.

    regular: refuse pipes and devices. A file of strangers may be one, and then its `open` or `read` may never end.
    """
    try:
        with open(path, encoding="utf-8-sig", opener=_open_at_once if regular else None) as file:
            if regular and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path}: not a regular file")
            text = file.read(LARGEST_FILE + 1)
        if len(text) <= LARGEST_FILE:
            return text
        raise ConfigError(f"{path}: more than {LARGEST_FILE} characters")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        pass  # the error carries the file's bytes, which may be secret
    raise ConfigError(f"{path}: not UTF-8 text")


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _type_hint(word: str) -> str:
    """Return a hint at the type that a user may mean by a word."""
    known = meant(word)
    hint = f"; did you mean {known!r}?" if known else suggestion(word, names())
    return hint or f"; there are: {', '.join(names())}, and MCP servers"


class _Loader:
    """Makes the values of one parsed file. Faults go to `problems`; a faulty source is left out."""

    def __init__(self, path: str, document: dict[str, Any], problems: Problems, environ: Mapping[str, str]) -> None:
        self._document = document
        self._problems = problems
        self._environ = environ
        self._base = os.path.dirname(os.path.abspath(path))
        self._references = Interpolator(environ, self._base)
        self._path = path

    def config(self) -> Config:
        listed = self._document.get("sources")
        tables = listed if isinstance(listed, list) and all(isinstance(entry, dict) for entry in listed) else []
        file = self._validate(FileTable, self._document, ()) or FileTable()
        made = {index: self._entry(index, table) for index, table in enumerate(tables)}
        sources = {index: source for index, source in made.items() if source is not None}
        self._refuse_conflicts(sources)
        return Config(
            sources=tuple(sources.values()),
            mount=self._mount(file.mount),
            cache_bytes=file.cache.memory,
            disk_bytes=file.cache.disk,
            index_bytes=file.cache.index,
            shared=self._shared_cache(file.cache),
            documents=DocumentBounds(**file.documents.model_dump()),
            embeddings=self._embeddings(file.embeddings),
            log_level=file.log_level,
            log_format=file.log_format,
            path=self._path,
            lines={
                "": self._problems.lines_below((EMBEDDINGS,)),
                **{source.id: self._problems.lines_below(("sources", index)) for index, source in sources.items()},
            },
        )

    def _mount(self, table: MountTable) -> MountOptions:
        options = MountOptions(**table.model_dump())
        if options.audit in (None, *NO_FILES):
            return options
        return replace(options, audit=as_path(options.audit, self._base, self._environ))

    def _problem(self, path: KeyPath, message: str) -> None:
        self._problems.add(written_path(self._document, path), message)

    def _validate(self, table: type[_T], value: object, path: KeyPath) -> _T | None:
        try:
            return table.model_validate(value)
        except ValidationError as error:
            explain(error, table, lambda inner, message: self._problem((*path, *inner), message))
            return None

    def _entry(self, index: int, raw: dict[str, Any]) -> DataSource | None:
        path: KeyPath = ("sources", index)
        table = self._validate(SourceTable, raw, path)
        if table is not None:
            return self._source(table, path) if table.enabled else None
        if raw.get("enabled") is not False:
            # Report unresolved references as well, so that one run shows all faults.
            mcp = raw.get("mcpConfig", raw.get("mcp_config"))
            strings = {key: mcp[key] for key in _MCP_STRINGS if key in mcp} if isinstance(mcp, dict) else {}
            for key, value in (("auth", raw.get("auth")), ("config", raw.get("config")), ("mcpConfig", strings)):
                self._references.resolve_all(value, (*path, key), self._problem)
        return None

    def _source(self, table: SourceTable, path: KeyPath) -> DataSource | None:
        before = len(self._problems)
        is_mcp = table.is_mcp
        access_method: AccessMethod = "mcp" if is_mcp else "bb"
        source_type = "server" if is_mcp and table.type in (None, "mcp") else table.type
        if source_type is None:
            self._problem((*path, "type"), "is required (for example 'filesystem') where there is no mcpConfig")
            return None
        self._check_form(table, path)
        config, auth, tree = (
            self._references.resolve_all(getattr(table, key), (*path, key), self._problem)
            for key in ("config", "auth", "map")
        )
        if not is_mcp and find(source_type) is None:
            self._problem((*path, "type"), f"unknown type {quote(source_type)}{_type_hint(source_type)}")
        prefix = self._uri_prefix(table, access_method, source_type, config, path)
        mcp = self._server(table.mcp_config, (*path, "mcpConfig")) if table.mcp_config else None
        mcp = self._with_options(mcp, table, path)
        if len(self._problems) > before:
            return None
        config.pop("scheme", None)  # the prefix has it now
        if source_type == "filesystem" and isinstance(config.get("root"), str):
            config["root"] = as_path(config["root"], self._base, self._environ)
        return DataSource(
            id=table.id or table.name,
            name=table.name,
            type=source_type,
            access_method=access_method,
            uri_prefix=prefix,
            capabilities=Capabilities(**table.capabilities.model_dump()),
            policy=policy(source_type, **table.policy()),
            config=MappingProxyType(config),
            auth=MappingProxyType(auth),
            mcp=mcp,
            base=None if is_mcp or source_type == "filesystem" else self._base,
            title=table.title,
            tools=tuple(table.tools) if isinstance(table.tools, list) else table.tools or "read-only",
            prompts=table.prompts is not False,
            apps=table.apps is True,
            map=tree,
            shared=table.shared,
            index=table.index,
            pin=table.pin is True,
            text=table.text or "by-name",
            **table.server_tools(),
        )

    def _check_form(self, table: SourceTable, path: KeyPath) -> None:
        """Note an id that is none, and `mcpConfig` where it is missing or does not belong."""
        if table.is_mcp != (table.mcp_config is not None):
            told = "is required for an MCP source" if table.is_mcp else "belongs to sources with accessMethod 'mcp'"
            self._problem((*path, "mcpConfig"), told)
        if table.id is not None and not VALID_NAME.fullmatch(table.id):
            self._problem((*path, "id"), "should be a letter or digit, then A-Z a-z 0-9 . _ -")

    def _with_options(self, mcp: McpServer | None, table: SourceTable, path: KeyPath) -> McpServer | None:
        """Return the server with its source's keys for the connection. No other source may have these keys."""
        if mcp is None:
            for key in MCP_KEYS if table.mcp_config is None else ():
                if getattr(table, key) is not None:
                    self._problem((*path, to_camel(key)), "belongs to MCP sources, which have an mcpConfig")
            return None
        given = table.connection()
        if "roots" in given:
            given["roots"] = tuple(as_path(root, self._base, self._environ) for root in given["roots"])
        return replace(mcp, **given)

    def _uri_prefix(
        self, table: SourceTable, access_method: str, source_type: str, config: Mapping[str, Any], path: KeyPath
    ) -> str:
        """Return the URI prefix of a source. config: with references resolved, as the scheme may come from one."""
        try:
            scheme = mcp_scheme(config, table.map) if access_method == "mcp" else fixed_scheme(source_type, config)
        except ConfigError as error:
            self._problem((*path, "type"), str(error))
            return ""
        if scheme is not None and not isinstance(scheme, str):
            self._problem((*path, "config", "scheme"), "should be a string")
            return ""
        key = "name"
        try:
            built = build_uri_prefix(access_method, source_type, table.name, scheme)
            if table.uri_prefix is None:
                return built
            key = "uriPrefix"
            parsed = parse_uri_prefix(table.uri_prefix)
        except InvalidUri as error:
            self._problem((*path, key), str(error))
            return ""
        if parsed.access_method != access_method:
            message = f"begins with {parsed.access_method!r}, but the source's accessMethod is {access_method!r}"
            self._problem((*path, "uriPrefix"), message)
        return build_uri_prefix(parsed.access_method, parsed.type, parsed.name, parsed.scheme)

    def _server(self, table: McpTable, path: KeyPath) -> McpServer | None:
        before = len(self._problems)
        parts = {
            key: self._references.resolve_all(getattr(table, key), (*path, key), self._problem) for key in _MCP_STRINGS
        }
        if len(self._problems) > before:
            return None
        if parts["cwd"] is not None:
            parts["cwd"] = as_path(parts["cwd"], self._base, self._environ)
        elif parts["command"] is not None:
            parts["cwd"] = self._base  # wherever bbfs starts, it is the same source
        if parts["command"] is not None and "/" in parts["command"]:
            # A name without a slash is looked up in PATH; a relative path would depend on the daemon's directory.
            parts["command"] = as_path(parts["command"], self._base, self._environ)
        wrong = looks_like_command_line(parts["command"] or "", parts["env"])
        if wrong is not None:
            self._problem((*path, "command"), wrong)
            return None
        return make_server(
            table.transport, **parts, problem=lambda inner, message: self._problem((*path, *inner), message)
        )

    def _shared_cache(self, table: CacheTable) -> SharedCache | None:
        before = len(self._problems)
        resolved = {
            "shared": self._references.resolve_all(table.shared, ("cache", "shared"), self._problem),
            "shared_password": self._references.resolve_all(
                table.shared_password, ("cache", "sharedPassword"), self._problem
            ),
            "shared_sentinel_password": self._references.resolve_all(
                table.shared_sentinel_password, ("cache", "sharedSentinelPassword"), self._problem
            ),
        }
        if len(self._problems) > before:
            return None
        return shared_cache(table, resolved, lambda inner, message: self._problem(("cache", *inner), message))

    def _embeddings(self, table: dict[str, Any] | None) -> Mapping[str, Any] | None:
        if table is None:
            return None
        given = self._references.resolve_all(table, (EMBEDDINGS,), self._problem)
        if isinstance(given.get("folder"), str):
            given["folder"] = as_path(given["folder"], self._base, self._environ)
        return MappingProxyType(given)

    def _refuse_conflicts(self, sources: dict[int, DataSource]) -> None:
        order = list(sources)
        for clash in conflicts(list(sources.values())):
            other: KeyPath = ("sources", order[clash.earlier])
            name = quote(sources[order[clash.earlier]].name)
            message = f"has {clash.what}, and so has {name} in line {self._problems.line(other)}; give one another name"
            self._problem(("sources", order[clash.later], "name"), message)
