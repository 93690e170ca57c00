"""An MCP server over stdio that answers as a plan says: `python hostile_stdio.py PLAN`.

PLAN is a file in JSON: methods to replies, as `hostile_sources.Reply` writes them. It answers other methods as a plain
server does that has the resources `hostile://a` and `hostile://b`.
"""

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

URIS = ("hostile://a", "hostile://b")


def plain(request: Any) -> bytes:
    """Return the answer of a plain server, without a line break; nothing for a notification."""
    if not isinstance(request, dict) or "id" not in request or "method" not in request:
        return b""
    match request["method"]:
        case "initialize":
            answer = {
                "protocolVersion": "2025-06-18",
                "capabilities": {
                    "resources": {"subscribe": True, "listChanged": True},
                    "completions": {},
                    "tools": {},
                    "prompts": {},
                },
                "serverInfo": {"name": "hostile", "version": "1"},
            }
        case "resources/list":
            answer = {"resources": [{"uri": uri, "name": uri[-1]} for uri in URIS]}
        case "resources/read":
            answer = {"contents": [{"uri": request["params"]["uri"], "text": "plain\n"}]}
        case "ping" | "resources/subscribe" | "resources/unsubscribe":
            answer = {}
        case method:
            error = {"code": -32601, "message": f"Method not found: {method}"}
            return json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode()
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer}).encode()


def pieces(reply: dict[str, Any], identity: bytes = b"null") -> Iterator[bytes]:
    """Yield the bytes of a reply: its beginning, and its body once or for ever.

    `@ID@` stands for the id of the request, and `@N@` for a number that no other piece has.
    """
    Path(reply["sent"]).touch()
    yield Path(reply["begins"]).read_bytes().replace(b"@ID@", identity)
    body = Path(reply["body"]).read_bytes().replace(b"@ID@", identity)
    numbered = b"@N@" in body
    while True:
        yield body.replace(b"@N@", b"%d" % number()) if numbered else body
        if not reply["endless"]:
            return


_numbers = iter(range(1, 1_000_000_000))
_counting = threading.Lock()
_sending = threading.Lock()


def number() -> int:
    """Return a number that was not returned before."""
    with _counting:
        return next(_numbers)


def send(data: bytes) -> None:
    with _sending:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def give(reply: dict[str, Any], identity: bytes) -> None:
    """Send a reply as far as the client takes it."""
    try:
        for piece in pieces(reply, identity):
            send(piece)
    except BrokenPipeError:
        pass


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    for line in sys.stdin.buffer:
        request = json.loads(line)
        reply = plan.get(request.get("method"))
        identity = json.dumps(request.get("id")).encode()
        if reply is not None and reply["aside"]:
            threading.Thread(target=give, args=(reply, identity), daemon=True).start()
        elif reply is not None:
            give(reply, identity)
        if (reply is None or reply["aside"]) and (answer := plain(request)):
            send(answer + b"\n")


if __name__ == "__main__":
    main()
