"""Mounts servers with tools alone by the maps that `bbfs doctor` proposes: `python maps.py [NAME…]` (`make maps`).

For each server: the lines that doctor prints, the tree, a read and a write, compared with what the client of the MCP
SDK gets from the same tools. It prints a line for each, writes docs/benchmarks/maps.md if all were asked for, and exits
with 1 if anything differs.
"""

import ast
import json
import os
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

import anyio
from harness import Mounts, SourceTable, config_text, mcp
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from programs import shell

from bbfs.sources.mcp.client.tool_entries import tool_entry
from bbfs.sources.mcp.maps import proposals

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/benchmarks/maps.md"
INSTALLED = ROOT / "build/maps"
NPM = INSTALLED / "node_modules"
NODE = ROOT / ".venv/bin/node"
TIMEOUT = 120
"""Seconds for one server, from its start on."""
TEXT = "# Written\n\nby an editor: ü\n"
Call = tuple[str, Mapping[str, Any]]
Answer = Callable[[Any], str]


def text_of(result: Any) -> str:
    """Return the one text of a result."""
    (block,) = result.content
    return block.text


def at(*steps: str | int) -> Answer:
    """Return a function that takes a value out of the structured content of a result, as text or JSON."""

    def take(result: Any) -> str:
        value = result.structured_content
        for step in steps:
            value = value[step]
        return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False) + "\n"

    return take


def in_text(member: str) -> Answer:
    """Return a function that takes a member out of the JSON of the one text of a result."""
    return lambda result: json.loads(text_of(result))[member]


def rows(result: Any) -> str:
    """Return the JSON of the text of a Python value."""
    return json.dumps(ast.literal_eval(text_of(result)), indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True)
class Server:
    """One server. command, environ: how it is started, given a directory of its own that `prepare` has filled.

    proposed: what doctor proposes: the name of a map, `guess` or nothing. read: a path in the tree, the call that
    answers the same, and how its content is taken out of the answer. write: as `read`, for a path to write. edited:
    what a user has to write besides, where the guess says that it is not sure. before: calls that make what is read.
    """

    name: str
    package: str
    command: Callable[[Path], Sequence[str | Path]]
    prepare: Callable[[Path], None] = lambda _: None
    environ: Callable[[Path], dict[str, str]] = lambda _: {}
    proposed: str = ""
    values: Callable[[Path], dict[str, str]] = lambda _: {}
    read: tuple[str, Callable[[Path], Call], Answer] | None = None
    write: tuple[str, Callable[[Path], Call], Answer] | None = None
    keeps: bool = True
    edited: Mapping[str, Any] = field(default_factory=dict[str, Any])
    before: Sequence[Call] = ()


@dataclass(slots=True)
class Outcome:
    """What was seen of one server. problems: what is not as it should be."""

    tools: int = 0
    declared: int = 0
    tree: list[str] = field(default_factory=list[str])
    guessed: str = ""
    """The tools of the map that doctor would guess if bbfs had none for this server."""
    read: str = "–"
    written: str = "–"
    problems: list[str] = field(default_factory=list[str])


def notes(directory: Path) -> None:
    (directory / "recipes").mkdir(parents=True)
    (directory / "recipes/bread.md").write_text("# Bread\n\n500 g flour, 7 g yeast\n")


def office(directory: Path) -> None:
    """Make a workbook and a document with the libraries that the servers have."""
    code = (
        "import docx, openpyxl; book = openpyxl.Workbook(); sheet = book.active; sheet.title = 'Year 1'\n"
        "for n in range(3000): sheet.append([n, f'row {n}'])\n"
        "book.save('sums.xlsx'); letter = docx.Document(); letter.add_paragraph('Dear reader')\n"
        "letter.save('letter.docx')"
    )
    subprocess.run([INSTALLED / "py/bin/python", "-c", code], cwd=directory, check=True)


def database(directory: Path) -> None:
    with sqlite3.connect(directory / "shop.db") as shop:
        shop.execute("create table customer (id integer, name text)")
        shop.executemany("insert into customer values (?, ?)", [(1, "Grace's"), (2, 'Ada "A" ü')])


def repository(directory: Path) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    (directory / "a.txt").write_text("x\n")
    for words in (["init", "-q"], ["add", "a.txt"], [*who, "commit", "-q", "-m", "the first"]):
        subprocess.run(["git", "-C", directory, *words], check=True)


def graph(directory: Path) -> None:
    entity = {"type": "entity", "name": "a/b", "entityType": "t", "observations": ["größer"]}
    (directory / "memory.jsonl").write_text(json.dumps(entity))


def bank(directory: Path) -> None:
    (directory / "garden").mkdir()
    (directory / "garden/seeds.md").write_text("# Seeds\n")


def head(directory: Path) -> str:
    return subprocess.check_output(["git", "-C", directory, "rev-parse", "HEAD"], text=True).strip()


def python(name: str, *arguments: str, env: str = "py") -> Callable[[Path], Sequence[str | Path]]:
    return lambda directory: [INSTALLED / env / "bin" / name, *(each.format(directory) for each in arguments)]


def npm(script: str, *arguments: str) -> Callable[[Path], Sequence[str | Path]]:
    return lambda directory: [NODE, NPM / script, *(each.format(directory) for each in arguments)]


def same(path: str) -> Callable[[Path], Call]:
    return lambda directory: ("read_text_file", {"path": str(directory / path)})


def banked(name: str) -> Callable[[Path], Call]:
    return lambda _: ("memory_bank_read", {"projectName": "garden", "fileName": name})


def through(tool: str, path: str) -> Callable[[Path], Call]:
    return lambda directory: (tool, {"path": str(directory / path)})


def sheet(directory: Path) -> Call:
    return "read_range", {"path": f"{directory}/sums.xlsx", "sheet": "Year 1", "max_cells": 9999}


def basic(directory: Path) -> dict[str, str]:
    notes(directory / "notes") if not (directory / "notes").exists() else None
    home = {"HOME": str(directory), "BASIC_MEMORY_HOME": str(directory / "notes")}
    return {**home, "BASIC_MEMORY_SEMANTIC_SEARCH_ENABLED": "false"}


SERVERS = (
    Server(
        "filesystem",
        "npm `@modelcontextprotocol/server-filesystem`",
        npm("@modelcontextprotocol/server-filesystem/dist/index.js", "{}"),
        notes,
        proposed="server-filesystem",
        read=("recipes/bread.md", same("recipes/bread.md"), text_of),
        write=("recipes/new.md", same("recipes/new.md"), text_of),
    ),
    Server(
        "memory",
        "npm `@modelcontextprotocol/server-memory`",
        npm("@modelcontextprotocol/server-memory/dist/index.js"),
        graph,
        lambda directory: {"MEMORY_FILE_PATH": str(directory / "memory.jsonl")},
        "server-memory",
        read=("entity/a%2Fb.json", lambda _: ("open_nodes", {"names": ["a/b"]}), at("entities", 0)),
    ),
    Server(
        "bank",
        "npm `@allpepper/memory-bank-mcp`",
        npm("@allpepper/memory-bank-mcp/dist/main/index.js"),
        bank,
        lambda directory: {"MEMORY_BANK_ROOT": str(directory)},
        "memory-bank-mcp",
        read=("garden/seeds.md", banked("seeds.md"), text_of),
        write=("garden/new.md", banked("new.md"), text_of),
    ),
    Server(
        "obsidian",
        "npm `mcp-obsidian`",
        npm("mcp-obsidian/dist/index.js", "{}"),
        notes,
    ),
    Server(
        "sqlite",
        "PyPI `mcp-server-sqlite`",
        python("mcp-server-sqlite", "--db-path", "{}/shop.db", env="sqlite"),
        database,
        read=("customer/rows.json", lambda _: ("read_query", {"query": "select * from customer"}), rows),
        proposed="mcp-server-sqlite",
    ),
    Server(
        "git",
        "PyPI `mcp-server-git`",
        python("mcp-server-git", "--repository", "{}"),
        repository,
        proposed="mcp-server-git",
        read=("commit/HEAD.txt", lambda d: ("git_show", {"repo_path": str(d), "revision": "HEAD"}), text_of),
    ),
    Server(
        "excel",
        "PyPI `excel-mcp-server`",
        python("excel-mcp-server", "stdio"),
        office,
        lambda directory: {"EXCEL_FILES_PATH": str(directory)},
        "excel-mcp-server",
        lambda directory: {"directory": str(directory)},
        ("sums.xlsx/Year 1.json", sheet, at("values")),
    ),
    Server(
        "word",
        "PyPI `office-word-mcp-server`",
        python("word_mcp_server"),
        office,
        proposed="office-word-mcp-server",
        values=lambda directory: {"directory": str(directory)},
        read=("letter.docx.txt", lambda d: ("get_document_text", {"filename": f"{d}/letter.docx"}), text_of),
    ),
    Server(
        "basic",
        "PyPI `basic-memory`",
        python("basic-memory", "mcp", env="basic"),
        lambda directory: None,
        basic,
        "basic-memory",
        read=("recipes/bread.md", lambda _: ("read_content", {"path": "recipes/bread.md"}), at("text")),
        write=("recipes/new.md", lambda _: ("read_content", {"path": "recipes/new.md"}), at("text")),
        keeps=False,
    ),
    Server(
        "agent-infra",
        "npm `@agent-infra/mcp-server-filesystem`",
        npm("@agent-infra/mcp-server-filesystem/dist/index.cjs", "--allowed-directories", "{}"),
        notes,
        proposed="guess",
        read=("recipes/bread.md", through("read_file", "recipes/bread.md"), text_of),
        write=("recipes/new.md", through("read_file", "recipes/new.md"), text_of),
    ),
    Server(
        "fast",
        "npm `fast-filesystem-mcp`",
        npm("fast-filesystem-mcp/dist/index.js", "{}"),
        notes,
        lambda directory: {"HOME": str(directory)},
        "guess",
        read=("recipes/bread.md", through("fast_read_file", "recipes/bread.md"), in_text("content")),
        write=("recipes/new.md", through("fast_read_file", "recipes/new.md"), in_text("content")),
        edited={
            "list": {"items": {"/items": "{name}"}, "directories": {"type": "directory"}},
            "read": {"result": "/content"},
        },
    ),
    Server(
        "graph",
        "npm `@itseasy21/mcp-knowledge-graph`",
        npm("@itseasy21/mcp-knowledge-graph/dist/index.js", "--memory-path", "{}/memory.jsonl"),
        graph,
    ),
    Server(
        "tasks",
        "npm `@kazuph/mcp-taskmanager`",
        npm("@kazuph/mcp-taskmanager/dist/index.js"),
        environ=lambda directory: {"TASK_MANAGER_FILE_PATH": str(directory / "tasks.json")},
    ),
    Server(
        "local",
        "PyPI `filesystem-mcp`",
        python("filesystem-mcp", "{}", env="files"),
        notes,
        proposed="guess",
        read=("recipes/bread.md", through("read_file", "recipes/bread.md"), at("content")),
        write=("recipes/new.md", through("read_file", "recipes/new.md"), at("content")),
    ),
    Server(
        "todo",
        "PyPI `mcp-todo`",
        python("mcp-todo", env="todo"),
        environ=lambda directory: {"HOME": str(directory)},
        proposed="guess",
        read=("1", lambda _: ("task_get", {"id": 1}), text_of),
        before=[("task_create", {"name": "water the seeds"})],
    ),
    Server("time", "PyPI `mcp-server-time`", python("mcp-server-time", "--local-timezone", "UTC")),
    Server("fetch", "PyPI `mcp-server-fetch`", python("mcp-server-fetch")),
)  # fmt: skip


def asked(server: Server, directory: Path, calls: Sequence[Call]) -> tuple[list[Any], list[Any]]:
    """Return the tools of a server, and the results of calls of them, from the client of the SDK."""
    with open(os.devnull, "w") as devnull:
        return anyio.run(_asked, server, directory, calls, devnull)


async def _asked(server: Server, directory: Path, calls: Sequence[Call], errlog: TextIO) -> tuple[list[Any], list[Any]]:
    """Return the tools of a server, and the results of calls of them, from the client of the SDK."""
    command, *args = map(str, server.command(directory))
    environ = {**os.environ, **server.environ(directory)}
    parameters = StdioServerParameters(command=command, args=args, env=environ, cwd=str(directory))
    with anyio.fail_after(TIMEOUT):
        async with Client(stdio_client(parameters, errlog=errlog)) as client:
            tools = (await client.list_tools()).tools
            return tools, [await client.call_tool(name, dict(arguments)) for name, arguments in calls]


def table(server: Server, directory: Path, **options: Any) -> SourceTable:
    source = mcp(server.name, server.command(directory), env=server.environ(directory), **options)
    source["mcpConfig"]["cwd"] = str(directory)
    return {**source, "timeout": 60}


def guess(tools: Sequence[Any]) -> str:
    """Return the tools of the map that is guessed from tools, when no map of bbfs is for their server."""
    entries = (tool_entry(tool.model_dump(by_alias=True, exclude_none=True)) for tool in tools)
    made = tomllib.loads("\n".join(proposals.proposal([each for each in entries if each is not None], None, None)))
    tables = (table for each in made.get("map", {}).values() for table in (each if isinstance(each, list) else [each]))
    return ", ".join(dict.fromkeys(f"`{table['tool']}`" for table in tables if "tool" in table))


def proposal(server: Server, directory: Path) -> list[str]:
    """Return the lines that doctor has for a server."""
    config = directory.parent / "config.toml"
    config.write_text(config_text([table(server, directory)], {}))
    words = [sys.executable, "-m", "bbfs", "doctor", "--json", "--timeout", "60", "--config", str(config)]
    told = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT, check=False).stdout)
    found = [each["remedy"] for each in told if "a map can show" in each["finding"]]
    return found[0].splitlines()[1:] if found else []


def play(server: Server) -> Outcome:
    """Mount one server by what doctor proposes, and compare."""
    outcome = Outcome()
    with TemporaryDirectory(prefix="bbfs-maps-") as home:
        directory = Path(home) / "data"
        directory.mkdir()
        server.prepare(directory)
        tools, _ = asked(server, directory, server.before)
        outcome.tools = len(tools)
        outcome.guessed = guess(tools)
        outcome.declared = sum(tool.annotations is not None for tool in tools)
        lines = proposal(server, directory)
        made = tomllib.loads("\n".join(lines)).get("map")
        name = made if isinstance(made, str) else (made or {}).get("use", "guess" if made else "")
        if name != server.proposed:
            outcome.problems.append(f"doctor proposes {name!r}: {lines}")
        if made is not None and not outcome.problems:
            _mounted(server, directory, made, outcome)
    return outcome


def _mounted(server: Server, directory: Path, made: Any, outcome: Outcome) -> None:
    tree: dict[str, Any] = {"use": made} if isinstance(made, str) else dict(made)
    for key, more in server.edited.items():
        tree[key] = {**tree[key], **more}
    if values := server.values(directory):
        tree["values"] = {**tree.get("values", {}), **values}
    granted = {"capabilities": ["read", "list", "search", *(["write"] if server.write else [])]}
    mounts = Mounts()
    try:
        root = mounts(table(server, directory, map=tree, **granted)) / f"mcp-server+{server.name}+tree"
        found = shell('cd "$1"; find . -not -path ./.about.md -not -name . | sort', root, timeout=TIMEOUT).text
        outcome.tree = [line.removeprefix("./") for line in found.splitlines()]
        if server.read is not None:
            path, call, take = server.read
            path = path.replace("HEAD", head(directory)) if "HEAD" in path else path
            _compare(server, directory, root / path, call, take, outcome)
            outcome.read = f"`{path[:20]}{'…' if len(path) > 20 else ''}`"
        if server.write is not None:
            path, call, take = server.write
            shell('printf %s "$2" > "$1"', root / path, TEXT, timeout=TIMEOUT)
            outcome.written = f"`{path}`" + ("" if server.keeps else ", with front matter")
            _, (result,) = asked(server, directory, [call(directory)])
            if TEXT not in take(result) if not server.keeps else take(result) != TEXT:
                outcome.problems.append(f"after a write, the server has {take(result)!r}")
    finally:
        mounts.close()


def _compare(
    server: Server, directory: Path, path: Path, call: Callable[[Path], Call], take: Answer, outcome: Outcome
) -> None:
    _, (result,) = asked(server, directory, [call(directory)])
    read = shell('cat "$1"', path, timeout=TIMEOUT).text
    if read != take(result):
        outcome.problems.append(f"{path.name} is {read[:300]!r}, and the client gets {take(result)[:300]!r}")


def page(outcomes: Mapping[str, Outcome], named: Mapping[str, Server]) -> str:
    """Return the table of all servers."""
    lines = [
        "# Servers with tools alone, as trees",
        "",
        "`make maps` writes this page. It mounts each server by the lines that `bbfs doctor` proposes for it ([maps]"
        "(../sources/maps.md)), reads and writes a file, and compares with what the client of the MCP SDK gets.",
        "",
        "A guess is taken as it is, but for lines that it says it is not sure of: *edited* names those. *Guessed "
        "without it* has the tools of the map that doctor would guess for a server that bbfs has a map for.",
        "",
        "| server | tools | with annotations | proposed | guessed without it | entries | read as the client "
        "| written as the client reads |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, each in outcomes.items():
        server = named[name]
        proposed = f"`{server.proposed}`" if server.proposed else "nothing: no tool lists what another one reads"
        without = (each.guessed or "nothing") if server.proposed else "–"
        if server.proposed == "guess":
            edited = ", ".join(f"`{key}`" for key in server.edited)
            proposed, without = f"a guess: {each.guessed}" + (f"; edited: {edited}" if edited else ""), "–"
        entries = str(len(each.tree)) if server.proposed else "–"
        cells = (server.package, each.tools, each.declared, proposed, without, entries, each.read, each.written)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def main(names: Sequence[str]) -> int:
    named = {server.name: server for server in SERVERS}
    outcomes: dict[str, Outcome] = {}
    for name in names or named:
        server = named[name]
        if not Path(str(server.command(Path("/"))[0])).exists():
            print(f"{name}: not installed (basic-memory needs Python 3.12)", flush=True)
            continue
        outcome = outcomes[name] = play(server)
        print(
            f"{name}: {'; '.join(outcome.problems) or 'ok'}; {len(outcome.tree)} entries: {outcome.tree[:5]}",
            flush=True,
        )
    if not names:
        PAGE.write_text(page(outcomes, named))
    return 1 if any(each.problems for each in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
