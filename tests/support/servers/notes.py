"""An MCP server of a folder: `python notes.py FOLDER [list]`. Standard library only.

Any path is a note, of which it lists none or all. Its tools write and remove notes.
"""

import json
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

FOLDER = Path(sys.argv[1])
BEGINNING = "notes://"
ADDRESS = {"uri": {"type": "string"}}
CONTENT = {"content": {"type": "string"}, "blob": {"type": "string"}}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties, "required": [*ADDRESS]}}


def listed(file: Path) -> dict[str, str]:
    name = str(file.relative_to(FOLDER))
    return {"uri": BEGINNING + quote(name), "name": name}


def content(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"blob": b64encode(data).decode()}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            capabilities: dict[str, Any] = {"resources": {}, "tools": {}}
            info = {"name": "notes", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        case "resources/list":
            return {"resources": [listed(file) for file in FOLDER.rglob("*") if file.is_file()] if sys.argv[2:] else []}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": BEGINNING + "{+path}", "name": "note"}]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], **content(place(params["uri"]).read_bytes())}]}
        case "tools/list":
            return {"tools": [tool("save", **ADDRESS, **CONTENT), tool("drop", **ADDRESS)]}
        case "tools/call":
            given = params["arguments"]
            file = place(given["uri"])
            if params["name"] == "save":
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(given["content"].encode() if "content" in given else b64decode(given["blob"]))
            else:
                file.unlink()
            return {"content": []}
        case "ping":
            return {}
    raise ValueError(method)


def place(uri: str) -> Path:
    return FOLDER / unquote(uri.removeprefix(BEGINNING))


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            reply["result"] = answer(request["method"], request.get("params") or {})
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            reply["error"] = {"code": -32002, "message": "Resource not found"}
        except ValueError as error:
            reply["error"] = {"code": -32601, "message": str(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
