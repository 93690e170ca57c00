"""An MCP server over stdio that costs as little as can be, so that what is measured is its client.

    python server.py [--directories N] [--files N] [--size BYTES] [--seed TEXT] [--delay SECONDS] [--counters FILE]
                     [--template]

It serves the files of files.py as `bench://tree/…`, without sizes or times, any number of reads at once, each answered
after the delay. The counters file gets a line for each request: `list` or `read`. With `--template`, it has a template
for the files as well and completes its variables, with the first names of a directory. Standard library only.
"""

import argparse
import asyncio
import json
import os
import sys
from typing import Any

from files import Shape

PREFIX = "bench://tree/"
PAGE = 1000
TEMPLATE = PREFIX + "{directory}/{name}"
MOST_VALUES = 100
"""Values of one completion, as the specification has it."""


class Server:
    def __init__(self, shape: Shape, delay: float, counters: str | None, *, template: bool) -> None:
        self._template = template
        self._delay = delay
        self._counters = os.open(counters, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if counters else None
        self._names = shape.names()
        self._contents = {PREFIX + name: shape.content(name) for name in self._names}

    def result(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The answer, or None for a method that is not served."""
        match request["method"]:
            case "initialize":
                return {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"resources": {}, **({"completions": {}} if self._template else {})},
                    "serverInfo": {"name": "bench", "version": "1"},
                }
            case "ping":
                return {}
            case "resources/list":
                start = int(request.get("params", {}).get("cursor") or 0)
                page = self._names[start : start + PAGE]
                following = {"nextCursor": str(start + PAGE)} if start + PAGE < len(self._names) else {}
                return {"resources": [{"uri": PREFIX + name, "name": name} for name in page], **following}
            case "resources/templates/list" if self._template:
                return {"resourceTemplates": [{"uriTemplate": TEMPLATE, "name": "files"}]}
            case "completion/complete" if self._template:
                return {"completion": {"values": self._completed(request["params"])}}
            case "resources/read":
                uri = request["params"]["uri"]
                return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": self._contents[uri]}]}
        return None

    def _completed(self, asked: dict[str, Any]) -> list[str]:
        start, known = asked["argument"]["value"], asked.get("context", {}).get("arguments", {})
        if asked["argument"]["name"] == "directory":
            values = list(dict.fromkeys(name.partition("/")[0] for name in self._names))
        else:
            below = known.get("directory", "") + "/"
            values = [name.removeprefix(below) for name in self._names if name.startswith(below)]
        return [value for value in values if value.startswith(start)][:MOST_VALUES]

    def answer(self, request: dict[str, Any]) -> None:
        result = self.result(request)
        body = {"error": {"code": -32601, "message": "not served"}} if result is None else {"result": result}
        data = json.dumps({"jsonrpc": "2.0", "id": request["id"], **body}).encode() + b"\n"
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def count(self, word: str) -> None:
        if self._counters is not None:
            os.write(self._counters, word.encode() + b"\n")

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        lines = asyncio.StreamReader(limit=1 << 20)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while line := await lines.readline():
            request = json.loads(line)
            if "id" not in request:
                continue
            if request["method"] in ("resources/read", "resources/list"):
                self.count(request["method"].removeprefix("resources/"))
            if request["method"] == "resources/read" and self._delay:
                loop.call_later(self._delay, self.answer, request)
            else:
                self.answer(request)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directories", type=int, default=1)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--seed", default="")
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--counters")
    parser.add_argument("--template", action="store_true")
    options = parser.parse_args()
    shape = Shape(options.directories, options.files, options.size, options.seed)
    asyncio.run(Server(shape, options.delay, options.counters, template=options.template).serve())


if __name__ == "__main__":
    main()
