"""Questions of an MCP server to the user of a call, on the terminal (elicitation).

Everything in a question is a stranger's text. The user sees which source asks, and answers, declines or cancels. A URL
is shown, and opened only after a yes.
"""

import os
import sys
import webbrowser
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import click

from bbfs.cli import lazy, output
from bbfs.cli.commands.login import has_browser
from bbfs.model.calls import UserTime
from bbfs.model.errors import InvalidUri, NotSupported
from bbfs.model.redaction import Cut

MOST_FIELDS = 50
"""Fields of a form. A larger one is refused."""
_LONGEST_TEXT, _LONGEST_LABEL = 4000, 200
"""Characters of a message and of a field's description."""
_TRIES = 5
"""Wrong values for one field, after which the question counts as cancelled."""
_LINE = 1 << 16
"""Bytes of one line that the user types."""
_TRUTH = {"y": "true", "yes": "true", "n": "false", "no": "false"}

Action = Literal["accept", "decline", "cancel"]


class _Cancelled(Exception):
    """The user has cancelled a question."""


class TerminalAudience:
    """The user at the terminal, as the server of one source sees one (`bbfs.sources.gateway.Audience`).

    time: stops while the user has a question. begin: called before a question, which must not be written over.
    """

    level: str | None = None
    capabilities: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}}

    def __init__(self, source: str, time: UserTime, *, begin: Callable[[], None]) -> None:
        self._source = source
        self._begin = begin
        self._time = time
        self._one = lazy.trio.Lock()

    def logged(self, params: Mapping[str, Any], cut: Cut) -> None:
        """Drop a log message: the terminal has the progress of the call."""

    def list_changed(self, kind: str) -> None:
        """Drop the news that a list has changed: this process makes one call."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the user one question at a time; return the answer. Raise NotSupported."""
        if method != "elicitation/create":
            raise NotSupported("bbfs has no language model")
        async with self._one:
            with self._time.stopped():
                self._begin()
                try:
                    return await (self._by_url(params) if params.get("mode") == "url" else self._by_form(params))
                except _Cancelled:
                    return {"action": "cancel"}

    async def _by_form(self, params: Mapping[str, Any]) -> dict[str, Any]:
        schema = params.get("requestedSchema")
        schema = schema if isinstance(schema, Mapping) else {}
        fields = lazy.tool_arguments.properties(schema)
        if len(fields) > MOST_FIELDS:
            raise NotSupported(f"a form of more than {MOST_FIELDS} fields")
        self._say(params)
        action = await _chosen("answer")
        if action != "accept":
            return {"action": action}
        content: dict[str, Any] = {}
        required = lazy.tool_arguments.required(schema)
        for name, field in fields.items():
            content |= await _field(name, field, schema, is_required=name in required)
        return {"action": "accept", "content": content}

    async def _by_url(self, params: Mapping[str, Any]) -> dict[str, Any]:
        url = str(params.get("url"))
        host = _host(url)
        if host is None:
            raise NotSupported("a question by a URL that is no web address")
        self._say(params)
        click.echo(f"  It wants you to visit {output.printable(host)}:\n  {output.printable(url)}", err=True)
        action = await _chosen("open it in a browser" if has_browser() else "say that you visit it")
        if action == "accept" and has_browser():
            await lazy.trio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)
        return {"action": action}

    def _say(self, params: Mapping[str, Any]) -> None:
        first, *others = str(params.get("message", ""))[:_LONGEST_TEXT].split("\n")
        output.message(f"{self._source} asks: {first}")
        for line in others:
            click.echo(f"  {output.printable(line)}", err=True)


def _host(url: str) -> str | None:
    """Return the host of a web address, or None for any other URL."""
    try:
        parts = urlsplit(url)
        return parts.hostname if parts.scheme in ("http", "https") else None
    except ValueError:
        return None


async def _chosen(accept: str) -> Action:
    """Return what the user does with a question. accept: the word for it, which begins with its letter."""
    answers: Mapping[str, Action] = {accept[0]: "accept", "d": "decline", "c": "cancel", "": "cancel"}
    for _ in range(_TRIES):
        line = (await _line(f"  {accept} ({accept[0]}), decline (d) or cancel (c)? [c] ")).lower()
        if line[:1] in answers and (len(line) < 2 or line in (accept, "decline", "cancel")):
            return answers[line[:1]]
    raise _Cancelled


async def _field(name: str, field: Mapping[str, Any], root: Mapping[str, Any], *, is_required: bool) -> dict[str, Any]:
    """Return the value of a field under its name, or nothing for one that the user leaves out. Raise _Cancelled."""
    kind = lazy.tool_arguments.type_text(field, root)
    said = [text for key in ("title", "description") if isinstance(text := field.get(key), str) and text != name]
    label = output.printable(", ".join((name, *said))[:_LONGEST_LABEL])
    default = field.get("default")
    hint = "" if is_required or default is not None else ", or nothing"
    offered = "" if default is None else f" [{output.printable(lazy.tool_arguments.as_text(default)[:_LONGEST_LABEL])}]"
    for _ in range(_TRIES):
        line = await _line(f"  {label} ({output.printable(kind)}{hint}){offered}: ")
        if not line and default is not None:
            return {name: default}
        if not line and not is_required:
            return {}
        try:
            return {name: lazy.tool_arguments.value(field, _TRUTH.get(line, line) if kind == "boolean" else line, root)}
        except InvalidUri as error:
            click.echo(f"  {output.printable(str(error))}", err=True)
    raise _Cancelled


async def _line(prompt: str) -> str:
    """Return the next line that the user types, without blanks around it. Raise _Cancelled at the end of the input."""
    click.echo(prompt, nl=False, err=True)
    await lazy.trio.lowlevel.wait_readable(sys.stdin.fileno())
    typed = os.read(sys.stdin.fileno(), _LINE)
    if not typed:
        raise _Cancelled
    return typed.decode(errors="replace").strip()
