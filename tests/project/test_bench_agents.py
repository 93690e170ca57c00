"""`benchmarks/agents/model.py` lets any program play: one that keeps to the protocol, and those that do not."""

import shlex
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
import trio
from agents.model import Game, Model
from repository import ROOT

BOUND = 60.0
STAND_IN = shlex.join([sys.executable, str(ROOT / "benchmarks" / "agents" / "standin.py")])


class Tool(NamedTuple):
    name: str
    description: str
    schema: Mapping[str, Any]


class Library:
    """Two tools, one of which fails at times."""

    opening = "a library"
    tools = (Tool("search_resources", "", {}), Tool("load_resources", "", {}))

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        if name == "search_resources":
            return f"1. x://a\n2. x://gone\nno 3. hit for {arguments['query']}"
        return {"x://a": "the harbour master is Ada"}[arguments["directUris"][0]]


async def played(program: str, *, calls: int = 20, within: float = BOUND) -> Game:
    command = program if program == STAND_IN else shlex.join(["sh", "-c", program])
    with trio.fail_after(2 * BOUND):
        return await Model(command, calls, within, longest_line=1000).play(Library(), "Who is the harbour master?")


async def test_the_stand_in_searches_reads_and_answers() -> None:
    game = await played(STAND_IN)
    assert (game.failure, len(game.read)) == ("", 3)
    assert game.read[0].endswith("hit for harbour master")
    assert game.answer == "\n".join(game.read)
    assert game.read[1] == "the harbour master is Ada"
    assert game.read[2] == "KeyError: 'x://gone'"


ENDLESS = 'while read line; do echo \'{"call": "load_resources"}\'; done'


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("true", "it ended before its answer"),
        ("read line; exit 3", "it ended before its answer"),
        ("read line; echo hello", "a line that is no JSON object: b'hello'"),
        ("read line; echo '[1]'", "a line that is no JSON object: b'[1]'"),
        ("read line; echo '{\"call\": 1}'; cat", "a line that is neither a call nor an answer"),
        ("read line; echo '{\"answer\": 1}'", "an answer that is no text"),
        (ENDLESS, "a call after the last of 2"),
        ("cat /dev/zero", "a line of over 1000 bytes"),
    ],
)
async def test_a_program_that_breaks_the_protocol_has_not_answered(program: str, failure: str) -> None:
    game = await played(program, calls=2)
    assert (game.answer, game.failure) == (None, failure)


async def test_a_program_that_hangs_or_is_not_there_holds_nothing_up() -> None:
    assert (await played("exec sleep 600", within=0.2)).failure == "no answer within 0.2 s"
    with pytest.raises(SystemExit, match="no-such-agent: No such file"):
        await Model("no-such-agent").play(Library(), "?")


async def test_an_answer_counts_though_the_program_ends_at_once() -> None:
    assert (await played('echo \'{"answer": "Ada"}\'')).answer == "Ada"
