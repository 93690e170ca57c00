"""An MCP server over stdio with tools and prompts: `python calls.py LOG`. Standard library only.

LOG gets a line for each call of a tool, `call NAME ARGUMENTS`, for each rendered prompt, `prompt NAME ARGUMENTS`, for
each page of tools, `tools`, and `cancelled`. The tool `wait` is never answered. Once there is a file of the name of LOG
with the ending `.add`, there is a tool more, which the server tells after its next answer. A file
with the ending `.error` has the text with which the tool `fail` fails.
"""

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

LOG = Path(sys.argv[1])
ADDED = LOG.with_suffix(".add")
ERROR = LOG.with_suffix(".error")
READ_ONLY = {"readOnlyHint": True}
PICTURE = b"\x89PNG\r\n\x1a\nno more than a beginning"
TEXT = {"type": "string"}
BOOLEAN = {"type": "boolean"}
FORMAT = {"anyOf": [{"enum": ["text/html", "text/plain"]}, {"type": "null"}]}


def tool(name: str, annotations: dict[str, Any] | None, needed: tuple[str, ...] = (), **properties: Any) -> Any:
    schema = {"type": "object", "properties": properties, "required": list(needed)}
    given = {"annotations": annotations} if annotations is not None else {}
    return {"name": name, "description": f"What {name} does.", "inputSchema": schema, **given}


TOOLS = [
    tool("echo", READ_ONLY, ("text",), text=TEXT, times={"type": "integer"}, tags={"type": "array", "items": TEXT}),
    tool("count", READ_ONLY),
    tool("convert", READ_ONLY, ("source", "time", "target"), source=TEXT, time=TEXT, target=TEXT, exact=BOOLEAN),
    tool("page", READ_ONLY, format=FORMAT), tool("picture", READ_ONLY), tool("record", READ_ONLY),
    tool("several", READ_ONLY), {"description": "has no name"}, tool("fail", READ_ONLY), tool("refuse", READ_ONLY),
    tool("keep", READ_ONLY), tool("crash", READ_ONLY), tool("wait", READ_ONLY),
    {**tool("odd/name %41", READ_ONLY), "inputSchema": {"type": "object", "properties": {"an argument.": TEXT}}},
    tool("write", {"readOnlyHint": False, "destructiveHint": True}, text=TEXT),
    tool("crash-writing", {"readOnlyHint": False}),
    tool("contradiction", {"readOnlyHint": True, "destructiveHint": True}), tool("silent", None),
]  # fmt: skip
PROMPTS = [
    {"name": "greet", "title": "Greet", "arguments": [{"name": "who", "required": True}, {"name": "how"}]},
    {"name": "plain"},
    {"name": "talk"},
]
RESOURCES = [
    {"uri": "doc://guide", "name": "guide", "mimeType": "text/plain"},
    {"uri": "tool://echo/input.schema.json", "name": "a resource of the server's own"},
]
calls = 0


def log(line: str) -> None:
    with LOG.open("a") as file:
        file.write(line + "\n")


def send(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def text(*lines: str) -> list[Any]:
    return [{"type": "text", "text": line} for line in lines]


def result(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    global calls
    calls += 1
    match name:
        case "echo":
            return {"content": text(arguments["text"] * arguments.get("times", 1))}
        case "count":
            return {"content": text(f"call {calls} " + "." * calls)}
        case "picture":
            return {"content": [{"type": "image", "data": base64.b64encode(PICTURE).decode(), "mimeType": "image/png"}]}
        case "convert" | "page":
            return {"content": text(json.dumps(arguments))}
        case "record":
            record = {"name": "Käthe", "calls": [1, 2]}
            return {"content": text(json.dumps(record)), "structuredContent": record}
        case "several":
            embedded = {"uri": "doc://embedded/notes.md", "mimeType": "text/markdown", "text": "# notes\n"}
            links = ["doc://guide", "doc://page/7", "https://example.org/elsewhere", "../../../../etc/passwd"]
            links.append("doc://unlisted/notes")
            return {
                "content": [
                    *text(f"number {calls}"),
                    {"type": "image", "data": base64.b64encode(PICTURE).decode(), "mimeType": "image/png"},
                    {"type": "resource", "resource": embedded},
                    *({"type": "resource_link", "uri": uri, "name": "a link"} for uri in links),
                ],
                "structuredContent": {"calls": calls},
            }
        case "fail":
            said = ERROR.read_text() if ERROR.exists() else "the disk is full"
            return {"content": text(said), "isError": True}
        case "keep":
            return {"content": text(f"kept {calls}"), "_meta": {"ttlMs": 60_000}}
        case "crash" | "crash-writing":
            os._exit(7)
    return {"content": text(f"{name} {calls}"), "structuredContent": {"result": f"{name} {calls}"}}


def rendered(name: str, arguments: dict[str, str]) -> list[Any]:
    if name == "greet":
        return [{"role": "user", "content": text(f"Greet {arguments['who']} {arguments.get('how', 'kindly')}.")[0]}]
    if name == "talk":
        return [{"role": role, "content": text(f"I am the {role}.")[0]} for role in ("user", "assistant")]
    return [{"role": "user", "content": text("Be brief.")[0]}]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            lists = {"listChanged": True}
            capabilities = {"resources": lists, "tools": lists, "prompts": lists, "completions": {}}
            info = {"name": "calls", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        case "resources/list":
            return {"resources": RESOURCES}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": "doc://page/{number}", "name": "page"}]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": f"content of {params['uri']}\n"}]}
        case "tools/list":
            log("tools")
            listed = TOOLS + [tool("added", READ_ONLY)] * ADDED.exists()
            start = int(params.get("cursor", 0))
            more = {"nextCursor": str(start + 6)} if start + 6 < len(listed) else {}
            return {"tools": listed[start : start + 6], **more}
        case "prompts/list":
            return {"prompts": PROMPTS}
        case "prompts/get":
            log(f"prompt {params['name']} {json.dumps(params.get('arguments', {}))}")
            return {"messages": rendered(params["name"], params.get("arguments", {}))}
        case "completion/complete":
            values = [each for each in ("Ada", "Alan", "Grace") if each.startswith(params["argument"]["value"])]
            return {"completion": {"values": values if params["ref"]["type"] == "ref/prompt" else []}}
        case "tools/call":
            log(f"call {params['name']} {json.dumps(params.get('arguments', {}), ensure_ascii=False)}")
            return None if params["name"] == "refuse" else result(params["name"], params.get("arguments", {}))
        case "ping":
            return {}
    return None


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if request["method"] == "notifications/cancelled":
            log("cancelled")
        if "id" not in request:
            continue
        if request["method"] == "tools/call" and request["params"]["name"] == "wait":
            log("call wait {}")
            continue
        token = (request.get("params") or {}).get("_meta", {}).get("progressToken")
        if request["method"] == "tools/call" and token is not None:
            made = {"progressToken": token, "progress": 1, "total": 2, "message": "half of it"}
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": made})
        given = answer(request["method"], request.get("params") or {})
        if given is not None:
            send({"jsonrpc": "2.0", "id": request["id"], "result": given})
        else:
            code = -32603 if request["method"] == "tools/call" else -32601
            send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": "refused, as told"}})
        if ADDED.exists() and not LOG.with_suffix(".told").exists():
            LOG.with_suffix(".told").touch()
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


if __name__ == "__main__":
    main()
