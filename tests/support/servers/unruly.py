"""More odd servers over stdio, as they are met in the wild: `python unruly.py ODDITY [ARGUMENT] [--log FILE]`.

They are made of the parts of `odd.py` and run as that does: `odd://a`, `odd://b` and `odd://c`, each with its URI as
content, and one oddity.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import odd
from odd import Request, Server, oddity


def framed(name: str, frame: Callable[[bytes], bytes]) -> None:
    """Register a server that sends every message as `frame` makes it of the plain line."""

    def handle(server: Server, request: Request) -> bool:
        plain = server.send_raw
        server.send_raw = lambda data: plain(frame(data))
        try:
            server.plain(request)
        finally:
            del server.send_raw
        return True

    odd.oddities[name] = handle


def changed(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    """A frame that changes the message itself."""
    return lambda data: json.dumps(change(json.loads(data))).encode() + b"\n"


_BANNER = b"""
> @example/server@1.0.0 start
> node dist/index.js

\x1b[32mInfo\x1b[0m listening on stdio \xff
{"level": 30, "time": 1700000000000, "pid": 7, "id": 2, "msg": "a log line in JSON that has an id"}
{"id": true, "result": {}}
{"jsonrpc": "2.0", "id": [1], "result": {}}
{"jsonrpc": "2.0", "method": 5}
{"jsonrpc": "2.0", "id": 999999, "result": {"contents": []}}
{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "Parse error"}}
{"jsonrpc": "2.0", "method": "notifications/unheard-of", "params": [1]}
{"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": 7}}
{"jsonrpc": "2.0", "method": "notifications/resources/list_changed", "params": "none"}
[]
null
"text"
7
"""

framed("crlf", lambda data: data.replace(b"\n", b"\r\n"))
framed("byte-order-mark", lambda data: b"\xef\xbb\xbf" + data)
framed("batch", lambda data: b"[" + data.strip() + b"]\n")
framed("banner", lambda data: _BANNER + data)
framed("blank-lines", lambda data: b"\n\n \n" + data + b"\t\n")
framed("control-characters", lambda data: data.replace(b"content of", b"content\tof").replace(b"\\n", b"\x0b\\n"))
framed("id-as-text", changed(lambda message: {**message, "id": str(message["id"])}))
framed("id-as-float", lambda data: data.replace(b', "result"', b'.0, "result"').replace(b', "error"', b'.0, "error"'))
framed("null-error", changed(lambda message: {"method": None, "error": None, "result": None, **message}))
framed("no-version", changed(lambda message: {key: message[key] for key in message if key != "jsonrpc"}))
framed("bare-errors", changed(lambda m: {**m, "error": {"code": m["error"]["code"]}} if "error" in m else m))
framed("more-fields", changed(lambda message: {**message, "took": 0.1, "trace": {"id": 7}}))


@oddity("piecemeal")
def piecemeal(server: Server, request: Request) -> bool:
    """Flushes in the middle of lines, and sends a line together with the beginning of the next one."""
    plain = server.send_raw
    note = b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}\n'

    def send_raw(data: bytes) -> None:
        data = note + data + note
        for start in range(0, len(data), 37):
            plain(data[start : start + 37])

    server.send_raw = send_raw
    server.plain(request)
    del server.send_raw
    return True


@oddity("undecodable")
def undecodable(server: Server, request: Request) -> bool:
    """Reads are answered with lines that are no JSON: cut, too deep, with a number of too many digits."""
    if request["method"] != "resources/read":
        return False
    bodies = {
        "odd://a": b'{"contents": [{"text": "cut off',
        "odd://b": b'{"contents": [{"uri": "odd://b", "text": "x", "_meta": ' + b"[" * 5000 + b"]" * 5000 + b"}]}}",
        "odd://c": b'{"contents": [{"uri": "odd://c", "text": "x", "_meta": ' + b"7" * 5000 + b"}]}}",
    }
    server.send_raw(b'{"jsonrpc": "2.0", "id": %d, "result": %b\n' % (request["id"], bodies[request["params"]["uri"]]))
    return True


@oddity("wrong-id")
def wrong_id(server: Server, request: Request) -> bool:
    """Answers reads of `odd://a` under another id, and others twice."""
    if request["method"] != "resources/read":
        return False
    if request["params"]["uri"] == "odd://a":
        server.plain({**request, "id": request["id"] + 1000})
        return True
    server.plain(request)
    return False


@oddity("late")
def late(server: Server, request: Request) -> bool:
    """Answers reads of `odd://a` when it is asked the next thing, and in the middle of that answer."""
    if request["method"] == "resources/read" and request["params"]["uri"] == "odd://a" and not server.reads:
        server.reads = request["id"]
        return True
    if "id" in request and server.reads:
        server.answer_text({**request, "id": server.reads, "params": {"uri": "odd://a"}}, "too late")
        server.reads = -1
    return False


@oddity("answers")
def answers(server: Server, request: Request) -> bool:
    """Answers as the argument says: JSON, from methods to `{"result": …}`, `{"error": …}`, or null for no answer."""
    script = json.loads(server.argument or "{}")
    method = request["method"] if request["method"] in script else "*"
    if "id" not in request or method not in script or (method == "*" and request["method"] == "initialize"):
        return False
    if script[method] is not None:
        server.send({"jsonrpc": "2.0", "id": request["id"], **script[method]})
    return True


@oddity("exits-when-greeted")
def exits_when_greeted(server: Server, request: Request) -> bool:
    if request["method"] == "notifications/initialized":
        sys.exit("that was all")
    return False


@oddity("closes-output")
def closes_output(server: Server, request: Request) -> bool:
    """Closes its stdout in place of answering a read of `odd://a`, and lives on."""
    if request["method"] != "resources/read" or request["params"]["uri"] != "odd://a":
        return False
    os.close(1)
    threading.Event().wait()
    return True


@oddity("closes-input")
def closes_input(server: Server, request: Request) -> bool:
    """Closes its stdin when it is asked to read `odd://a`, and lives on with its stdout open."""
    if request["method"] != "resources/read" or request["params"]["uri"] != "odd://a":
        return False
    server.plain(request)
    os.close(0)
    threading.Event().wait()
    return True


@oddity("twice")
def twice(server: Server, request: Request) -> bool:
    """Lists each resource on two pages, and twice on each; where they differ, the first counts."""
    if request["method"] != "resources/list":
        return False
    later = "cursor" in (request.get("params") or {})
    more: dict[str, Any] = {} if later else {"nextCursor": "2"}
    title = "later" if later else "first"
    entries = [{"uri": uri, "name": uri, "title": title} for uri in odd.URIS]
    server.answer_list(request, [*entries, *({**entry, "title": "again"} for entry in entries)], **more)
    return True


@oddity("new-cursors")
def new_cursors(server: Server, request: Request) -> bool:
    """Pages without an end; where the argument is `same`, each with what was on the first."""
    if request["method"] != "resources/list":
        return False
    page = int((request.get("params") or {}).get("cursor", "0"))
    uris = odd.URIS if server.argument == "same" else (f"odd://page/{page}",)
    if server.argument == "slow":
        time.sleep(0.01)
    server.answer_list(request, [{"uri": uri, "name": "x"} for uri in uris], nextCursor=str(page + 1))
    return True


@oddity("flood")
def flood(server: Server, request: Request) -> bool:
    """A read of `odd://a` starts 5 000 notifications; what is at `odd://c` and in the list changes until their end."""
    match request["method"]:
        case "resources/read" if request["params"]["uri"] == "odd://a":
            server.plain(request)
            threading.Thread(target=_flood, args=(server,), daemon=True).start()
        case "resources/read" if request["params"]["uri"] == "odd://c":
            server.answer_text(request, str(server.reads))
        case "resources/list":
            uris = (*odd.URIS, f"odd://after-{server.reads}")
            server.answer_list(request, [{"uri": uri, "name": uri} for uri in uris])
        case _:
            return False
    return True


def _flood(server: Server) -> None:
    changed = b'{"jsonrpc": "2.0", "method": "notifications/resources/list_changed"}\n'
    for number in count(1):
        server.reads = number * 100
        updated = (
            b'{"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "odd://%b"}}\n' % name
            for name in (b"c", b"c", b"b", b"nobody-asked-%d" % number)
        )
        server.send_raw((b"".join(updated) + changed) * 20)
        if number == 50:
            break
    server.log("flooded")


if __name__ == "__main__":
    odd.main()
