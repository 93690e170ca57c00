"""An MCP server over stdio that does what a file tells it: `python scripted_server.py DIRECTORY`.

Standard library only, so that it starts in a moment. `DIRECTORY/script.json` is looked at for every request; see
`ScriptedServer` in scripted.py for what it holds. `DIRECTORY/log` gets a line for every request: `list`, `read URI`,
`cancelled URI`, or the method. Every line of JSON that somebody writes to the FIFO `DIRECTORY/say` is sent to the
client; of several servers over the same directory, to the client of any one of them.
"""

import contextlib
import json
import os
import signal
import sys
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

HERE = Path(sys.argv[1])
SENDING = threading.Lock()
READING: dict[Any, str] = {}
PIPE_BYTES = 1 << 16
"""What a pipe holds at most (pipe(7))."""
LOGGED_WITH_MORE = ("resources/list", "resources/read", "notifications/cancelled", "completion/complete")


def script() -> dict[str, Any]:
    found = os.stat(HERE / "script.json")
    return parsed(found.st_ino, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=1)
def parsed(inode: int, modified: int, size: int) -> dict[str, Any]:
    """Return the script. Each change replaces its file, so that another one has another inode or time."""
    return json.loads((HERE / "script.json").read_text())


def log(text: str) -> None:
    with (HERE / "log").open("a") as file:
        file.write(text + "\n")


def send(message: Any) -> None:
    with SENDING:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def answer(request: dict[str, Any], result: Any) -> None:
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def refuse(request: dict[str, Any], code: int, message: str) -> None:
    send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}})


def pass_gate(gate: str | None) -> None:
    """Wait until somebody opens the gate, a FIFO, for writing. One that is gone stands open."""
    if gate is not None:
        with contextlib.suppress(FileNotFoundError), open(gate, "rb") as fifo:
            fifo.read()


def list_resources(request: dict[str, Any]) -> None:
    now = script()
    page = int(request.get("params", {}).get("cursor", "0"))
    if page >= now.get("listGatePage", 0):
        pass_gate(now.get("listGate"))
    pages = now.get("pages")
    listed = [entry for entry in now["resources"] if not entry.get("-unlisted")]
    entries = [{k: v for k, v in entry.items() if not k.startswith("-")} for entry in listed]
    if pages is None:
        answer(request, {"resources": entries})
        return
    result: dict[str, Any] = {"resources": entries[page * pages : (page + 1) * pages]}
    if now.get("endless") or (page + 1) * pages < len(entries):
        result["nextCursor"] = "0" if now.get("endless") else str(page + 1)
    answer(request, result)


def read(request: dict[str, Any]) -> None:
    uri = request["params"]["uri"]
    entry = next((entry for entry in script()["resources"] if entry["uri"] == uri), None)
    if entry is None:
        refuse(request, -32002, f"no such resource: {uri}")
        return
    if entry.get("-exit"):
        os._exit(7)
    pass_gate(entry.get("-gate"))
    entry = next((entry for entry in script()["resources"] if entry["uri"] == uri), entry)
    if "-error" in entry:
        refuse(request, entry["-error"], "as told")
    elif "-result" in entry:
        answer(request, entry["-result"])
    else:
        contents = [{"uri": uri, **content} for content in entry["-contents"]]
        answer(request, {"contents": contents})
    READING.pop(request["id"], None)


def complete(request: dict[str, Any]) -> None:
    argument, context = request["params"]["argument"], request["params"].get("context", {}).get("arguments", {})
    log(f"complete {argument['name']} {argument['value']!r} {json.dumps(context)}")
    values = script().get("completions", {}).get(argument["name"], [])
    found = [value for value in values if value.startswith(argument["value"])]
    answer(request, {"completion": {"values": found[:100], "hasMore": len(found) > 100}})


def handle(request: dict[str, Any]) -> None:
    if request.get("method") not in LOGGED_WITH_MORE:
        log(str(request.get("method")))
    match request.get("method"):
        case "initialize":
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"resources": {"subscribe": True, "listChanged": True}, "completions": {}},
                "serverInfo": {"name": "scripted", "version": "1"},
            }
            answer(request, result)
        case "resources/list":
            log("list")
            threading.Thread(target=list_resources, args=(request,), daemon=True).start()
        case "resources/read":
            log(f"read {request['params']['uri']}")
            READING[request["id"]] = request["params"]["uri"]
            threading.Thread(target=read, args=(request,), daemon=True).start()
        case "notifications/cancelled":
            log(f"cancelled {READING.get(request['params']['requestId'], '')}")
        case "resources/templates/list":
            answer(request, {"resourceTemplates": script().get("templates", [])})
        case "completion/complete":
            complete(request)
        case "ping" | "resources/subscribe" | "resources/unsubscribe":
            answer(request, {})
        case method if "id" in request:
            refuse(request, -32601, f"no such method: {method}")


def relay() -> None:
    # Opened for both directions, the FIFO never ends. It is taken as it was written (pipe(7): PIPE_BUF), in one read:
    # where several of these processes share the directory, each line goes to one of them, and none is torn apart.
    fifo = os.open(HERE / "say", os.O_RDWR)
    while lines := os.read(fifo, PIPE_BYTES):
        for line in lines.splitlines():
            send(json.loads(line))


def main() -> None:
    log("start")
    if script().get("dead"):
        sys.exit("as told")
    stubborn = script().get("stubborn")
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=relay, daemon=True).start()
    for line in sys.stdin:
        handle(json.loads(line))
    if stubborn:
        threading.Event().wait()


if __name__ == "__main__":
    main()
