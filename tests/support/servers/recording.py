"""Stands between a client and an MCP server over stdio: `python recording.py LOG [--handshake-only] -- COMMAND…`.

LOG gets a line for each request of the client: its method, and the URI or name that it is about. With
`--handshake-only` the server is one of the time before protocol 2026-07-28: `server/discover` is refused. Standard
library only.
"""

import json
import os
import subprocess
import sys


def main() -> int:
    options, command = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    # The server writes to our standard output by itself.
    server = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert server.stdin is not None
    with open(options[0], "a", buffering=1) as log:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "method" in message and "id" in message:
                params = message.get("params") or {}
                log.write(f"{message['method']} {params.get('uri') or params.get('name', '')}".rstrip() + "\n")
            if message.get("method") == "server/discover" and "--handshake-only" in options:
                refused = {"code": -32601, "message": "Method not found"}
                answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": refused})
                os.write(1, answer.encode() + b"\n")
                continue
            server.stdin.write(line)
            server.stdin.flush()
    server.stdin.close()
    return server.wait()


if __name__ == "__main__":
    sys.exit(main())
