"""A program that plays in the script's place: `play.py --agent COMMAND`. It is started once a question.

Each message is a line of JSON. The program reads first

    {"question": TEXT, "opening": TEXT, "tools": [{"name", "description", "schema"}, …], "calls": NUMBER}

where `calls` says how many it has. For each call it writes one line and reads one:

    {"call": NAME, "arguments": {…}}        {"result": TEXT, "calls": LEFT}, or {"error": TEXT, "calls": LEFT}

It ends with `{"answer": TEXT}`. A question counts as answered if that text has the answer in it. Its standard error is
that of `play.py`. `standin.py` is such a program, without a model.
"""

import json
import shlex
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import trio

CALLS = 20
WITHIN = 600.0
"""Seconds for one question."""
LONGEST_LINE = 1 << 20
"""Bytes of a line of the program."""


class Tool(Protocol):
    def _asdict(self) -> dict[str, Any]: ...


class Reach(Protocol):
    """What a program needs of a way to the sources."""

    @property
    def opening(self) -> str: ...
    @property
    def tools(self) -> Sequence[Tool]: ...
    async def call(self, name: str, arguments: Mapping[str, Any]) -> str: ...


@dataclass(slots=True)
class Game:
    """How a program has played one question. read: what each call has given it. failure: why there is no answer."""

    read: list[str] = field(default_factory=list)
    answer: str | None = None
    failure: str = ""


class Broken(Exception):
    """A program that does not keep to the protocol. The text says how."""


class Model:
    """A program that plays."""

    def __init__(
        self, command: str, calls: int = CALLS, within: float = WITHIN, longest_line: int = LONGEST_LINE
    ) -> None:
        self._command = shlex.split(command)
        self._calls = calls
        self._within = within
        self._longest_line = longest_line

    async def play(self, way: Reach, question: str) -> Game:
        """Let the program look for the answer. Raise SystemExit if it cannot be started."""
        game = Game()
        tools = [tool._asdict() for tool in way.tools]
        first = {"question": question, "opening": way.opening, "tools": tools, "calls": self._calls}
        with trio.move_on_after(self._within) as bound:
            async with self._started() as process:
                try:
                    await self._played(_Lines(process, self._longest_line), way, first, game)
                except Broken as error:
                    game.failure = str(error)
        if bound.cancelled_caught:
            game.failure = f"no answer within {self._within:g} s"
        return game

    @asynccontextmanager
    async def _started(self) -> AsyncGenerator[trio.Process]:
        """Run the program for as long as the context lasts."""
        try:
            process = await trio.lowlevel.open_process(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise SystemExit(f"{self._command[0]}: {error.strerror}") from None
        try:
            yield process
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()
                for stream in (process.stdin, process.stdout):
                    if stream is not None:
                        await stream.aclose()

    async def _played(self, lines: "_Lines", way: Reach, first: Mapping[str, Any], game: Game) -> None:
        """Answer the calls of the program until its answer. Raise Broken."""
        said = await lines.exchange(first)
        while "answer" not in said:
            if len(game.read) >= self._calls:
                raise Broken(f"a call after the last of {self._calls}")
            result = await _called(way, said)
            game.read.append(next(iter(result.values())))
            said = await lines.exchange({**result, "calls": self._calls - len(game.read)})
        if not isinstance(said["answer"], str):
            raise Broken("an answer that is no text")
        game.answer = said["answer"]


async def _called(way: Reach, said: Mapping[str, Any]) -> dict[str, str]:
    """Return the result of a call, or its error, which the program may mend. Raise Broken."""
    name, arguments = said.get("call"), said.get("arguments") or {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise Broken("a line that is neither a call nor an answer")
    try:
        return {"result": await way.call(name, arguments)}
    except Exception as error:  # noqa: BLE001 - whatever a tool of a stranger's server raises: a host tells its model
        return {"error": f"{type(error).__name__}: {error}"}


class _Lines:
    """The lines of JSON to a program and back. longest: bytes of a line of it."""

    def __init__(self, process: trio.Process, longest: int) -> None:
        self._longest = longest
        self._process = process
        self._unread = b""

    async def exchange(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Write a line and return the next one. Raise Broken."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            await self._process.stdin.send_all(json.dumps(message).encode() + b"\n")
        except trio.BrokenResourceError:
            pass  # it may have said its answer, and have ended
        while b"\n" not in self._unread:
            piece = await self._process.stdout.receive_some()
            self._unread += piece
            if not piece or len(self._unread) > self._longest:
                raise Broken("it ended before its answer" if not piece else f"a line of over {self._longest} bytes")
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise Broken(f"a line that is no JSON object: {line[:80]!r}")
        return said
