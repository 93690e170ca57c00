"""Sources named on the command line: `--mcp NAME=COMMAND`, `--mcp NAME=URL`, `--dir NAME=PATH`."""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from urllib.parse import urlsplit

from bbfs.config.interpolation import Interpolator, UnresolvedReference, as_path, expand_user
from bbfs.config.naming import VALID_NAME, slug
from bbfs.config.problems import KeyPath, key_text, quote
from bbfs.config.server import make_server
from bbfs.model.errors import ConfigError
from bbfs.model.source_types import fixed_scheme, policy
from bbfs.model.uri import build_uri_prefix
from bbfs.model.values import DataSource, McpServer

_NAMED = re.compile(r"([^=]*)=(.*)", re.DOTALL)
_PATH = re.compile(r"(?:\.{0,2}|~[^/=]*)/")
"""Beginnings of a path, which is no name: `/a=b`, `./a=b`, `../a=b`, `~/a=b`."""
URL = re.compile(r"(?:(sse|http|https|stdio)\+)?(https?://.*)", re.DOTALL | re.IGNORECASE)
_RUNNERS = {
    "uvx": (),
    "npx": (),
    "bunx": (),
    "pipx": ("run",),
    "uv": ("run", "tool"),
    "npm": ("exec", "x"),
    "pnpm": ("dlx", "exec"),
    "docker": ("run", "container"),
    "podman": ("run", "container"),
    "node": (),
    "bun": ("run", "x"),
    "deno": ("run",),
    "env": (),
}
"""Programs that run another one, with their sub-commands. The other program names the server better."""
_WITH_VALUE = {"--from", "--with", "-p", "--package", "--python", "--directory", "-e", "--env", "-v", "--volume"}
_WITH_VALUE |= {"--name", "--mount", "--network", "--env-file", "-w", "--project", "--require", "-r", "-u"}
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=(?!=)")
_PYTHON = re.compile(r"python[0-9.]*|pypy[0-9.]*")


def source_from_mcp_argument(text: str, *, environ: Mapping[str, str] | None = None) -> DataSource:
    """Return the MCP source of `NAME=COMMAND LINE` (split as a shell does), `NAME=URL` or `NAME=sse+URL`.

    Without `NAME=`, derive the name from the command or the host. References (`${env:…}`) are resolved after splitting.
    Raise ConfigError, whose text names the argument by its name alone: the rest may hold a secret.
    """
    environ = os.environ if environ is None else environ
    name, rest = _split_name(text, "--mcp", lambda before: _begins_command(before, text, environ))
    problems: list[str] = []
    label = f"--mcp {name}" if name else "--mcp"

    def problem(path: KeyPath, message: str) -> None:
        problems.append(": ".join(filter(None, (label, key_text(path), message))))

    url = URL.fullmatch(rest)
    references = Interpolator(environ, os.getcwd())
    server: McpServer | None = None
    try:
        if url:
            name = name or host_name(url[2])
            transport = {"sse": "sse", None: None}.get(url[1] and url[1].lower(), "http")
            server = make_server(transport, url=references.resolve(url[2]), problem=problem)
        else:
            words = shlex.split(rest)
            if not words:
                raise ConfigError(f"{label}: expected NAME=COMMAND or NAME=URL")
            name = name or _command_name(words)
            command, *args = [references.resolve(word) for word in words]
            if command.startswith("~"):
                command = as_path(command, os.getcwd(), environ)
            server = make_server("stdio", command=command, args=args, problem=problem)
    except UnresolvedReference as error:
        problem((), str(error))
    except ConfigError:
        raise
    except ValueError as error:  # from shlex: a quotation without its end
        problem((), f"{str(error)[:1].lower()}{str(error)[1:]}")
    if server is None:
        raise ConfigError("\n".join(problems))
    return DataSource(name, name, "server", "mcp", uri_prefix=build_uri_prefix("mcp", "server", name), mcp=server)


def source_from_dir_argument(text: str, *, environ: Mapping[str, str] | None = None) -> DataSource:
    """Return the folder source of `NAME=PATH`, or of a plain path, whose last component is the name. Raise ConfigError.

    `./a=b` stands for a path with a `=`. The folder need not exist yet.
    """
    environ = os.environ if environ is None else environ
    name, path = _split_name(text, "--dir", lambda _: False)
    if not path or "\0" in path:
        raise ConfigError(f"--dir {quote(text)}: expected NAME=PATH or PATH")
    root = os.path.abspath(expand_user(path, environ))
    base = os.path.basename(root) or "root"
    name = name or slug(base)
    return DataSource(
        name,
        name,
        "filesystem",
        "bb",
        uri_prefix=build_uri_prefix("bb", "filesystem", name, fixed_scheme("filesystem", {})),
        policy=policy("filesystem"),
        config=MappingProxyType({"root": root}),
        title=base if base != name else None,
    )


def _split_name(text: str, option: str, nameless: Callable[[str], bool]) -> tuple[str, str]:
    """Return (`NAME` or nothing, the rest). The text before the first `=` is a name unless it begins a path.

    nameless: returns for an illegal name whether the argument is one without a name. Otherwise raise ConfigError: a
        misspelt name must not become a path or a program in silence.
    """
    text = text.strip()
    match = _NAMED.fullmatch(text)
    if match is None or _PATH.match(text):
        return "", text
    if VALID_NAME.fullmatch(match[1]) and len(match[1]) <= 100:
        return match[1], match[2].strip()
    if nameless(match[1]):
        return "", text
    hint = "; a path that has a '=' is written './a=b'" if option == "--dir" else ""
    raise ConfigError(
        f"{option}: illegal name {quote(match[1])}: expected at most 100 letters, digits, '.', '_' or '-', "
        f"beginning with a letter or digit{hint}"
    )


def _begins_command(before: str, text: str, environ: Mapping[str, str]) -> bool:
    """Return whether an argument whose first `=` comes after `before` is a URL or a possible command line.

    `prog --key=value` and `env KEY=value prog` are; `my docs=uvx prog` is not, as long as there is no program `my`.
    """
    words = before.split()
    if URL.fullmatch(text.strip()) or before[:1] in ("'", '"') or any(word.startswith("-") for word in words[1:]):
        return True
    if len(words) < 2:
        return False
    program = os.path.basename(words[0])
    if program in _RUNNERS or _PYTHON.fullmatch(program):
        return True
    return shutil.which(words[0], path=environ.get("PATH")) is not None


def host_name(url: str) -> str:
    """Return `example.com`, or `localhost-8000` with a port, but never the user name or password of a URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "source"  # the URL is refused a moment later
    return slug(f"{host}-{port}" if port else host)


def _command_name(words: Sequence[str]) -> str:
    """Return the program of a command line: `server-memory` for `npx -y @modelcontextprotocol/server-memory@1.2`."""
    program = os.path.basename(words[0])
    rest = list(words[1:])
    target = ""
    if _PYTHON.fullmatch(program) and "-m" in rest[:-1]:
        target = rest[rest.index("-m") + 1]
    elif program in _RUNNERS or _PYTHON.fullmatch(program):
        target = _first_operand(rest, _RUNNERS.get(program, ()))
    package = target.rsplit("/", 1)[-1]
    package = re.split(r"(?<=.)(?:@|==|:)", package, maxsplit=1)[0]
    return slug(re.sub(r"\.(?:py|js|mjs|cjs|ts|sh)\Z", "", package or program))


def _first_operand(words: Sequence[str], subcommands: Sequence[str]) -> str:
    skip = False
    for word in words:
        if skip or word.startswith("-") or word in subcommands or _ASSIGNMENT.match(word):
            skip = not skip and word in _WITH_VALUE
            continue
        return word
    return ""
