"""`bbfs skill`: what agents read, where it is installed, and the tools of a server as functions."""

import ast
import inspect
import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType, SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from repository import SERVERS

from bbfs.cli import COMMANDS
from bbfs.cli.commands.agents import stubs
from bbfs.cli.commands.agents.skill import SKILL, install
from bbfs.model.calls import Tool, ToolArgument

Process = Callable[..., CompletedProcess[bytes]]
TYPES = st.sampled_from(("string", "array of string", "one of a, b", "integer or null", "anything", ""))
ARGUMENTS = st.builds(
    ToolArgument, st.text(), TYPES, st.booleans(), st.text() | st.none(), st.lists(st.text(), max_size=3).map(tuple)
)
TOOLS = st.builds(
    Tool,
    st.text(),
    st.text() | st.none(),
    st.text() | st.none(),
    st.lists(ARGUMENTS, max_size=4).map(tuple),
    st.booleans(),
)
HOSTILE = (
    '"""',
    "\\",
    '\\"""',
    "\n",
    "x\x00",
    "\u202e",
    "\ud800",
    "class",
    "json",
    "1",
    "_call",
    "a-b",
    "a_b",
    "é",
    "",
)


def test_it_names_commands_that_there_are(process: Process) -> None:
    printed = process("skill").stdout.decode()
    assert printed.startswith("---\nname: bbfs\ndescription: ")
    assert printed.endswith(SKILL)
    assert process("skill", "--agents").stdout.decode() == SKILL
    named = set(re.findall(r"`bbfs ([a-z]+)", SKILL))
    assert {"search", "grep", "tools", "call", "run", "apply"} <= named <= set(COMMANDS)
    assert len(SKILL) < 2500


def test_a_file_of_somebody_else_stays(process: Process, tmp_path: Path) -> None:
    place = tmp_path / "skills/bbfs/SKILL.md"
    into = ("skill", "--install", "--into", tmp_path / "skills")
    for _ in range(2):
        assert process(*into).returncode == 0
    assert place.read_text().startswith("---\nname: bbfs\n")
    assert place.stat().st_mode & 0o777 == 0o644
    for text in (place.read_text().replace("Cite URIs", "Do not cite"), "theirs", ""):
        place.write_text(text)
        refused = process(*into)
        assert refused.returncode == 2
        assert b"not from 'bbfs skill'" in refused.stderr
        assert place.read_text() == text
    assert process(*into, "--yes").returncode == 0
    assert SKILL in place.read_text()
    elsewhere = tmp_path / "dotfiles.md"
    os.replace(place, elsewhere)
    place.symlink_to(elsewhere)
    install(place, replace=False)
    assert place.is_symlink()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["dotfiles.md", "skills"]
    assert [entry.name for entry in place.parent.iterdir()] == ["SKILL.md"]


def loaded(source: str) -> tuple[ModuleType, list[tuple[Any, ...]]]:
    """A module of stubs, and the calls that it makes, instead of making them."""
    calls: list[tuple[Any, ...]] = []
    module = ModuleType("stubs")
    exec(compile(source, "stubs", "exec"), module.__dict__)
    module.__dict__["_call"] = lambda *given: calls.append(given)
    return module, calls


def functions(source: str) -> list[ast.FunctionDef]:
    """The functions of a module of stubs, which has nothing else after its beginning."""
    beginning, *others = ast.parse(source).body[4:]
    assert isinstance(beginning, ast.FunctionDef)
    assert beginning.name == "_call"
    found = [each for each in others if isinstance(each, ast.FunctionDef)]
    assert len(found) == len(others)
    for each in found:
        docstring, only = each.body
        assert isinstance(docstring, ast.Expr)
        assert isinstance(docstring.value, ast.Constant)
        assert isinstance(only, ast.Return)
        assert isinstance(only.value, ast.Call)
        assert ast.unparse(only.value.func) == "_call"
        tool, arguments, confirmed = only.value.args
        assert isinstance(tool, ast.Constant)
        assert isinstance(arguments, ast.Dict)
        assert all(isinstance(value, ast.Name) for value in arguments.values)
        assert ast.unparse(confirmed) in ("False", "confirmed")
    return found


@given(st.text(), st.lists(TOOLS, max_size=4))
def test_whatever_a_server_says_only_its_calls_are_made(source: str, tools: list[Tool]) -> None:
    found = functions(stubs.module(source, tools))
    assert len({each.name for each in found}) == len(found) == len(tools)
    assert [each.body[1].value.args[0].value for each in found] == [tool.name for tool in tools]  # type: ignore[attr-defined]


def test_hostile_names_are_names() -> None:
    arguments = tuple(ToolArgument(name, "string", False, name * 3, HOSTILE) for name in (*HOSTILE, "confirmed"))
    tools = [Tool(name, name, name * 1000, arguments) for name in HOSTILE]
    source = stubs.module("mcp", tools)
    assert all(line.isprintable() for line in source.split("\n"))
    module, calls = loaded(source)
    for tool, each in zip(tools, functions(source), strict=True):
        function = getattr(module, each.name)
        names = [name for name in inspect.signature(function).parameters if name != "confirmed"]
        function(**{name: str(number) for number, name in enumerate(names)}, confirmed=True)
        assert calls.pop() == (tool.name, {a.name: str(n) for n, a in enumerate(arguments)}, True)
    assert len(stubs.module("s", [Tool("t", None, "x\n" * 100_000)] * 1000)) < stubs.MOST_TOOLS * 5000


def test_stubs_call_the_tools_of_a_server(process: Process, tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-I", str(SERVERS / "calls.py"), str(tmp_path / "calls.log")])
    options = ("--mcp", f"t={command}", "-q")
    source = process("skill", "--stubs", "t", *options).stdout.decode()
    module = ModuleType("stubs")
    exec(compile(source, "stubs", "exec"), module.__dict__)
    signature = inspect.signature(module.echo)
    assert str(signature) == "(*, text: str, times: int | None = None, tags: list[typing.Any] | None = None) -> str"
    assert "confirmed" in inspect.signature(module.write).parameters

    def run(line: list[str], input: str, **_: Any) -> SimpleNamespace:
        assert line[:2] == ["bbfs", "call"]
        assert json.loads(input) == {"text": "a", "times": 2}
        done = process("call", *options, *(input if word == "-" else word for word in line[2:]))
        return SimpleNamespace(returncode=done.returncode, stdout=done.stdout.decode(), stderr="")

    module.__dict__["subprocess"] = SimpleNamespace(run=run)
    assert "a" in module.echo(text="a", times=2)
    none = process("skill", "--stubs", "d", "--dir", f"d={tmp_path}")
    assert (none.returncode, b"has no tools" in none.stderr) == (1, True)
