"""The options of a command that serves MCP, over HTTP or on standard input and output."""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from bbfs.server_parts.http import Listener


def parse_address(value: object) -> tuple[str, int]:
    """Return host and port of a text such as "127.0.0.1:9464"; without a host, this machine. Raise ValueError."""
    host, colon, port = str(value).rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ValueError("expected HOST:PORT")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


class Address(click.ParamType):
    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        try:
            return parse_address(value)
        except ValueError:
            self.fail(f"{value!r} is not HOST:PORT", param, ctx)


@dataclass(frozen=True, slots=True)
class HttpChoice:
    """An address to serve at, and the options of the token and of host names."""

    host: str
    port: int
    token_file: str | None
    no_token: bool
    names: tuple[str, ...]

    @contextmanager
    def listening(self, say: Callable[[str], None], *, open_at_home: bool = False) -> "Iterator[Listener]":
        """Listen. The URL is printed once connections are taken, and a new token through `say`.

        open_at_home: without options, programs of this machine need no token at a loopback address.
        """
        from bbfs.server_parts import http  # noqa: PLC0415 - the MCP SDK costs a second

        def ready(url: str) -> None:
            click.echo(url)
            sys.stdout.flush()
            if fresh:
                say(f"clients show this token, which is new each time: {token}")

        fresh = not self.token_file and not self.no_token and not (open_at_home and http.is_loopback(self.host))
        try:
            token = http.token_of_file(os.path.expanduser(self.token_file)) if self.token_file else None
            token = http.new_token() if fresh else token
            listener = http.Listener(self.host, self.port, token, self.names, ready)
        except http.ListenError as error:
            raise click.ClickException(str(error)) from None
        with closing(listener):
            yield listener


def http_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of HTTP; the command gets `http`, an `HttpChoice`, or None for standard input and output."""

    @click.option(
        "--http", type=Address(), help="Serve Streamable HTTP at http://HOST:PORT/mcp; port 0 takes a free one."
    )
    @click.option(
        "--token-file",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="The token that clients show over HTTP; made if missing. By default a new one is printed if needed.",
    )
    @click.option("--no-token", is_flag=True, help="Over HTTP, serve any program of this machine.")
    @click.option(
        "--host-name", "names", multiple=True, metavar="NAME", help="A name that clients reach this machine by."
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        http: tuple[str, int] | None,
        token_file: str | None,
        no_token: bool,
        names: tuple[str, ...],
        **rest: Any,
    ) -> Any:
        if http is None and (token_file or no_token or names):
            raise click.UsageError("--token-file, --no-token and --host-name are for --http")
        if token_file and no_token:
            raise click.UsageError("give either --token-file or --no-token")
        choice = HttpChoice(*http, token_file, no_token, names) if http is not None else None
        return command(*args, http=choice, **rest)

    return wrapped
