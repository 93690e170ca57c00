"""Stands between an MCP client and a server on stdio and writes down what passes: `recorder.py LOG [--handshake] -- …`

Each line of LOG is a JSON array: seconds since the epoch, `client` or `server`, the method (or `answer`), and its
parameters without contents. `--handshake` answers `server/discover` as servers of before 2026-07-28 do, so that the
client speaks the older protocol.
"""

import json
import subprocess
import sys
import threading
import time
from typing import IO, Any, BinaryIO

LOCK = threading.Lock()


def note(log: BinaryIO, side: str, line: bytes) -> dict[str, Any]:
    message = json.loads(line)
    entry = [time.time(), side, message.get("method", "answer"), message.get("params", {})]
    with LOCK:
        log.write(json.dumps(entry).encode() + b"\n")
        log.flush()
    return message


def forward(source: IO[bytes], target: BinaryIO, log: BinaryIO, side: str, handshake: bool) -> None:
    for line in source:
        message = note(log, side, line)
        if handshake and message.get("method") == "server/discover":
            error = {"code": -32601, "message": "Method not found"}
            answer = {"jsonrpc": "2.0", "id": message["id"], "error": error}
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()
            continue
        target.write(line)
        target.flush()
    target.close()


def main() -> int:
    options, command = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    handshake = "--handshake" in options
    with open(options[0], "ab") as log:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert server.stdin is not None
        assert server.stdout is not None
        asking = (sys.stdin.buffer, server.stdin, log, "client", handshake)
        threading.Thread(target=forward, args=asking, daemon=True).start()
        forward(server.stdout, sys.stdout.buffer, log, "server", False)
        return server.wait()


if __name__ == "__main__":
    sys.exit(main())
