"""An MCP server over stdio that takes a given time for each read and next to no CPU, for measurements.

    python slow.py [--count N] [--delay SECONDS] [--size BYTES] [--directories N] [--counters FILE]

It lists `test://items/0000.txt` and so on, spread over `--directories` (`test://items/d000/0000.txt`) where there are
any. It answers as many reads at once as are asked for. The counters file gets a line `read URI` for each, as it comes.
Standard library only: the SDK's own server takes about 1 ms of CPU a read, which would be what is measured.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

SERVER_INFO = {"name": "slow", "version": "1"}
CAPABILITIES = {"resources": {}}


class Server:
    """The answers, and the reads under way."""

    def __init__(self, options: argparse.Namespace, loop: asyncio.AbstractEventLoop) -> None:
        self.delay: float = options.delay
        self.loop = loop
        self.counters = os.open(options.counters, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if options.counters else None
        uris = [self.uri(number, options) for number in range(options.count)]
        self.listing = [{"uri": uri, "name": uri.rpartition("/")[2], "mimeType": "text/plain"} for uri in uris]
        self.texts = {uri: f"{uri}\n".ljust(options.size, "x")[: options.size] for uri in uris}

    @staticmethod
    def uri(number: int, options: argparse.Namespace) -> str:
        directory = f"d{number * options.directories // options.count:03}/" if options.directories else ""
        return f"test://items/{directory}{number:04}.txt"

    def take(self, line: bytes) -> None:
        request = json.loads(line)
        method, number = request.get("method"), request.get("id")
        if number is None or method is None:
            return
        if method == "resources/read":
            uri = request["params"]["uri"]
            if self.counters is not None:
                os.write(self.counters, f"read {uri}\n".encode())
            self.loop.call_later(self.delay, self.read, number, uri)
            return
        result = self.result(method, request.get("params") or {})
        if result is None:
            self.send({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "Method not found"}})
        else:
            self.answer(number, result)

    def result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        match method:
            case "initialize":
                version = params.get("protocolVersion", "2025-06-18")
                return {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": SERVER_INFO}
            case "resources/list":
                return {"resources": self.listing}
            case "ping":
                return {}
        return None

    def read(self, number: int, uri: str) -> None:
        text = self.texts.get(uri)
        if text is None:
            self.send({"jsonrpc": "2.0", "id": number, "error": {"code": -32002, "message": "no such resource"}})
        else:
            self.answer(number, {"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]})

    def answer(self, number: int, result: dict[str, Any]) -> None:
        self.send({"jsonrpc": "2.0", "id": number, "result": result})

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]


async def serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    server = Server(options, loop)
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    while line := await reader.readline():
        server.take(line)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=0.02)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--directories", type=int, default=0)
    parser.add_argument("--counters", type=Path)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
