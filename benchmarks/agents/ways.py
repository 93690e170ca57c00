"""Four ways in which an agent reaches the company's sources, each with the fixed policy of the scripted agent.

A policy knows the words of the question and what it has been given to read, and nothing else. It never sees the answer:
the player ends it when the answer is in a text that it was given.
"""

import json
import os
import re
import shlex
import subprocess
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import trio
from company import Company
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

OUTPUT = 30_000
"""Characters of a command's output that a host shows its model; it cuts the rest, as Claude Code does."""
COMMAND_WITHIN = 120.0
READ, READ_HERE = 3, 2
"""Hits of one search that the agent reads: of all sources, and of one."""
WORDS = 3
AROUND = 10
"""Lines before and behind the line that a hit names, where an agent reads on."""
PREFIX = r"\b(?:mcp-[a-z]+\+[\w-]+|bb-[a-z]+\+[\w-]+\+\w+)"
"""The URI prefix of a source."""
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a above after again an and are as at be before by can choose der die das did do does down fast for from had
        has have how in into is it its last may much must number of on one only or our over so that the their them
        then this to under until up us was we were what when where which who whose why wer will with ueber über""",
    )
)


class Tool(NamedTuple):
    """A tool as a model is told of it."""

    name: str
    description: str
    schema: Mapping[str, Any]


def words_of(question: str) -> list[str]:
    """The words of a question that say what it is about, in their order."""
    return [word for word in re.findall(r"[\w-]+", question) if word.casefold() not in STOP_WORDS]


def stem(word: str) -> str:
    """The beginning that a word shares with its inflections, as people shorten it for grep."""
    return word if len(word) < 6 or not word.isalpha() else word[: max(5, len(word) - 2)]


def stems_of(words: Sequence[str]) -> list[str]:
    """The stems, those first that are likely to be rare: names and numbers, then long words."""
    ranked = sorted(dict.fromkeys(words), key=lambda word: (word.islower(), -len(word)))
    return [stem(word) for word in ranked]


def overlap(words: Sequence[str], text: str) -> int:
    """How many of the words are in a text, by their stems."""
    folded = text.casefold()
    return sum(stem(word).casefold() in folded for word in words)


def best(words: Sequence[str], candidates: Sequence[str], number: int = READ) -> list[str]:
    """The candidates that share most words with the question, none that shares nothing."""
    ranked = sorted(candidates, key=lambda candidate: -overlap(words, candidate))
    return [candidate for candidate in ranked[:number] if overlap(words, candidate)]


class Way(ABC):
    """A way to the sources. `opening` is what an agent reads before its first question."""

    name: str

    def __init__(self) -> None:
        self.tools: list[Tool] = []
        self.opening = ""

    @abstractmethod
    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool, and return the text that the model is given."""

    @abstractmethod
    def policy(self, words: Sequence[str]) -> AsyncGenerator[str]:
        """Yield what each call of the scripted agent has given it to read."""


class Shell(Way):
    """A shell with the usual programs, in the directory of the mount."""

    name = "a shell on the mount"

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        super().__init__()
        self._directory = directory
        self._environ = {**os.environ, **environ}
        schema = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
        self.tools = [Tool("shell", f"Run a command of the shell, in {directory}.", schema)]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        with trio.move_on_after(COMMAND_WITHIN):
            done = await trio.run_process(
                ["sh", "-c", arguments["command"]],
                cwd=self._directory,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
            return (done.stdout + done.stderr).decode(errors="replace")[:OUTPUT]
        return "the command did not end in time"

    async def run(self, command: str) -> str:
        return await self.call("shell", {"command": command})

    async def policy(self, words: Sequence[str]) -> AsyncGenerator[str]:
        """Look for lines with two of the rarest words, then for files with one; read around the words in the best."""
        rare = [shlex.quote(word) for word in stems_of(words)[:WORDS]]
        seen: set[str] = set()
        for first, second in [(0, 1), (0, 2), (1, 2)]:
            if second < len(rare):
                found = await self.run(
                    f"grep -rniI {rare[first]} . | grep -i {rare[second]} | cut -c -300 | head -n 20"
                )
                yield found
                async for text in self._read(found, words, rare[first], seen):
                    yield text
        for word in rare:
            found = await self.run(f"grep -rliI {word} . | head -n 40")
            yield found
            async for text in self._read(found, words, word, seen):
                yield text

    async def _read(self, found: str, words: Sequence[str], word: str, seen: set[str]) -> AsyncGenerator[str]:
        """Read around a word in the files of those lines that have most of the words."""
        for line in best(words, found.splitlines(), 2):
            path = line.partition(":")[0]
            if path not in seen:
                seen.add(path)
                yield await self.run(f"grep -iC {AROUND} {word} {shlex.quote(path)} | head -c 8000")


class Commands(Shell):
    """The commands of bbfs, beside a mount."""

    name = "the commands of bbfs"

    async def policy(self, words: Sequence[str]) -> AsyncGenerator[str]:
        """Search, read the first hits, and look for the rarest words one by one."""
        found = await self.run("bbfs search -n 10 " + shlex.join(words))
        yield found
        for path, line in re.findall(r"^(\S.*)\n(?:    .*line (\d+):)?", found, re.MULTILINE)[:READ]:
            part = f"sed -n {max(1, int(line) - AROUND)},{int(line) + AROUND}p" if line else "head -c 8000"
            yield await self.run(f"bbfs cat {shlex.quote(path)} | {part}")
        for word in stems_of(words)[:WORDS]:
            yield await self.run(f"bbfs grep -i {shlex.quote(word)} | cut -c -300 | head -n 20")


def read_by_model(result: Any) -> str:
    """What a host gives its model of the result of a tool: its texts, or else its structured content.

    Some hosts give both. That would double what most servers cost.
    """
    if not result.content:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(
        getattr(block, "text", None) or block.model_dump_json(exclude_none=True) for block in result.content
    )


async def connected(ending: AsyncExitStack, command: Sequence[str], environ: Mapping[str, str], errors: Path) -> Client:
    errlog = ending.enter_context(errors.open("w"))
    program, *arguments = command
    parameters = StdioServerParameters(command=program, args=arguments, env={**os.environ, **environ})
    return await ending.enter_async_context(Client(stdio_client(parameters, errlog=errlog), cache=None))


async def tools_of(client: Client) -> list[Tool]:
    listed = (await client.list_tools()).tools
    return [Tool(tool.name, tool.description or "", tool.input_schema) for tool in listed]


def shown(tools: Sequence[Tool]) -> str:
    """The tools as a model is told of them."""
    return "\n".join(json.dumps(tool._asdict(), ensure_ascii=False) for tool in tools)


class Served(Way):
    """`bbfs serve`."""

    name = "bbfs serve"

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client

    async def open(self) -> None:
        self.tools = await tools_of(self._client)
        self.opening = f"{self._client.instructions or ''}\n{shown(self.tools)}"

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        return read_by_model(await self._client.call_tool(name, dict(arguments)))

    async def policy(self, words: Sequence[str]) -> AsyncGenerator[str]:
        """As with the commands."""
        found = await self.call("search_resources", {"query": " ".join(words)})
        yield found
        for uri, line in re.findall(rf"^\d+\. ({PREFIX}\S+)(?:.*\(line (\d+)\))?", found, re.MULTILINE)[:READ]:
            part = {"offset": max(1, int(line) - AROUND), "limit": 2 * AROUND} if line else {}
            yield await self.call("load_resources", {"directUris": [uri], **part})
        prefixes = list(dict.fromkeys(re.findall(PREFIX, self.opening + found)))
        for word in stems_of(words)[:WORDS]:
            for prefix in best(words, prefixes) or prefixes[:READ]:
                yield await self.call("grep_resources", {"pattern": word, "dataSourceId": prefix, "ignoreCase": True})


class Servers(Way):
    """What a host has without bbfs: an MCP server for each source."""

    name = "a server for each source"

    def __init__(self, company: Company, clients: Mapping[str, Client]) -> None:
        super().__init__()
        self._company = company
        self._clients = clients
        self._looks: dict[str, list[str]] = {}
        self._roots = {name: command[-1] for name, command in company.hosts.items()}

    async def open(self) -> None:
        for name, client in self._clients.items():
            tools = await tools_of(client) if client.server_capabilities.tools else []
            self.tools += [tool._replace(name=f"{name}__{tool.name}") for tool in tools]
            self._looks[name] = (await self._look(name)).splitlines()
        self.opening = "\n".join([shown(self.tools), *("\n".join(lines) for lines in self._looks.values())])

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        server, _, tool = name.partition("__")
        return read_by_model(await self._clients[server].call_tool(tool, dict(arguments)))

    async def _look(self, name: str) -> str:
        """What a first look at a source shows: names of files, tables, objects, or collections; titles of resources."""
        match name:
            case "handbook" | "papers":
                return await self.call(f"{name}__search_files", {"path": self._roots[name], "pattern": "**/*.*"})
            case "orders" | "plant":
                tables = await self.call(f"{name}__all_table_names", {})
                return await self.call(f"{name}__schema_definitions", {"table_names": re.findall(r"\w+", tables)})
            case "tickets":
                listed = (await self._clients[name].list_resources()).resources
                return "\n".join(f"{each.uri} {each.title or each.name}" for each in listed)
            case "archive" | "fleet":
                text = await self._fetch(name, self._company.entrances[name])
                return re.sub(r"(?=<Key>)|(?=\"/)", "\n", text)
            case _:
                return ""

    async def policy(self, words: Sequence[str]) -> AsyncGenerator[str]:
        """Go to the source first of whose names one shares most words with the question, then to the others."""
        ways = {"archive": self._fetched, "fleet": self._fetched, "tickets": self._tickets, "people": self._people}
        ways |= dict.fromkeys(("handbook", "papers"), self._files) | dict.fromkeys(("orders", "plant"), self._rows)

        def likely(name: str) -> int:
            return overlap(words, name) + max((overlap(words, line) for line in self._looks[name]), default=1)

        for name in sorted(self._clients, key=likely, reverse=True):
            async for text in ways[name](name, words):
                yield text

    async def _files(self, name: str, words: Sequence[str]) -> AsyncGenerator[str]:
        """The server finds files by their names only."""
        for path in best(words, self._looks[name], READ_HERE):
            yield await self.call(f"{name}__read_text_file", {"path": path, "head": 100})

    async def _rows(self, name: str, words: Sequence[str]) -> AsyncGenerator[str]:
        """Ask each table for rows with the rarest words in any of its texts."""
        stems = [word.replace("'", "''").casefold() for word in stems_of(words)[:WORDS]]
        for table, columns in re.findall(r"^(\w+):\n((?:\s+.+\n?)+)", "\n".join(self._looks[name]), re.MULTILINE):
            texts = re.findall(r"^\s+(\w+):.*(?:TEXT|VARCHAR)", columns, re.MULTILINE)
            if texts:
                text = "LOWER(" + " || ' ' || ".join(f"COALESCE({column}, '')" for column in texts) + ")"
                rank = " + ".join(f"CASE WHEN {text} LIKE '%{word}%' THEN 1 ELSE 0 END" for word in stems)
                query = f"SELECT * FROM {table} WHERE {rank} > 0 ORDER BY {rank} DESC LIMIT 5"
                yield await self.call(f"{name}__execute_query", {"query": query})

    async def _fetched(self, name: str, words: Sequence[str]) -> AsyncGenerator[str]:
        """Fetch objects of a bucket by their names, or collections of an API and what they list."""
        base = self._company.entrances[name].partition("?")[0].removesuffix("/openapi.json")
        look = "\n".join(self._looks[name])
        links = re.findall(r"<Key>([^<]+)</Key>", look) or re.findall(r'"/(\w+)":', look)
        for link in best(words, links, READ_HERE) or (links if len(links) < 5 else []):
            text = await self._fetch(name, f"{base}/{link}")
            yield text
            items = re.findall(r'"id":(\d+),"name":"([^"]*)"', text)
            for item in best(words, [f"{number} {title}" for number, title in items], 1):
                yield await self._fetch(name, f"{base}/{link}/{item.split()[0]}")

    async def _fetch(self, name: str, url: str) -> str:
        return await self.call(f"{name}__fetch", {"url": url, "max_length": 50_000, "raw": True})

    async def _tickets(self, name: str, words: Sequence[str]) -> AsyncGenerator[str]:
        for line in best(words, self._looks[name], READ_HERE):
            result = await self._clients[name].read_resource(line.split()[0])
            yield "\n".join(getattr(content, "text", "") for content in result.contents)

    async def _people(self, name: str, words: Sequence[str]) -> AsyncGenerator[str]:
        for word in stems_of(words)[:WORDS]:
            yield await self.call(f"{name}__search_nodes", {"query": word})
