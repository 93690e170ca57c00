"""An MCP server over stdio with any number of resources, for measuring: standard library only, answers made as asked.

    python many.py --count N [--page-size 1000] [--per-directory 1000] [--large BYTES]

It lists `many://shelves/0000/document-0000000.txt` and so on in order, and `many://large.txt` if that has a size. Every
text holds line feeds and letters beyond ASCII.
--gate: a FIFO; the page that begins with resource `--gate-at` waits for somebody to open that for writing.
"""

import argparse
import json
import sys
from typing import Any

parser = argparse.ArgumentParser()
parser.add_argument("--count", type=int, default=1000)
parser.add_argument("--page-size", type=int, default=1000)
parser.add_argument("--per-directory", type=int, default=1000)
parser.add_argument("--large", type=int, default=0, help="bytes of many://large.txt; 0 leaves it out")
parser.add_argument("--gate")
parser.add_argument("--gate-at", type=int, default=0)
OPTIONS = parser.parse_args()
LINE = "Zeile für Zeile, 63 Bytes lang, wie sie ein Dokument hat, naja.\n"


def entry(number: int) -> str:
    name = f"document-{number:07}.txt"
    uri = f"many://shelves/{number // OPTIONS.per_directory:04}/{name}"
    return f'{{"uri":"{uri}","name":"{name}","mimeType":"text/plain"}}'


def list_resources(params: dict[str, Any]) -> str:
    start = int(params.get("cursor") or 0)
    if OPTIONS.gate and start == OPTIONS.gate_at:
        with open(OPTIONS.gate, "rb") as gate:
            gate.read()
    end = min(start + OPTIONS.page_size, OPTIONS.count)
    entries = list(map(entry, range(start, end)))
    if not start and OPTIONS.large:
        entries.append('{"uri":"many://large.txt","name":"large.txt","mimeType":"text/plain"}')
    following = f',"nextCursor":"{end}"' if end < OPTIONS.count else ""
    return f'{{"resources":[{",".join(entries)}]{following}}}'


def read_resource(params: dict[str, Any]) -> str:
    uri = params["uri"]
    size = len(LINE.encode())
    text = LINE * (OPTIONS.large // size if uri == "many://large.txt" else 64)
    return json.dumps({"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]}, ensure_ascii=False)


def initialize(params: dict[str, Any]) -> str:
    return json.dumps(
        {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"resources": {}},
            "serverInfo": {"name": "many", "version": "1"},
        }
    )


METHODS = {"initialize": initialize, "resources/list": list_resources, "resources/read": read_resource}


def main() -> None:
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "id" not in request:
            continue
        method = METHODS.get(request["method"])
        if method is not None:
            answer = f'"result":{method(request.get("params") or {})}'
        elif request["method"] == "ping":
            answer = '"result":{}'
        else:
            answer = '"error":{"code":-32601,"message":"no such method"}'
        sys.stdout.buffer.write(f'{{"jsonrpc":"2.0","id":{json.dumps(request["id"])},{answer}}}\n'.encode())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
