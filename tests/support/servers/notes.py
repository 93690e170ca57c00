"""An MCP server of a folder: `python notes.py FOLDER`. Standard library only.

Any path is a note, of which it lists none. Its tools write and remove notes.
"""

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
BEGINNING = "notes://"
ADDRESS = {"uri": {"type": "string"}}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties, "required": [*properties]}}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            capabilities: dict[str, Any] = {"resources": {}, "tools": {}}
            info = {"name": "notes", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        case "resources/list":
            return {"resources": []}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": BEGINNING + "{+path}", "name": "note"}]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": place(params["uri"]).read_text()}]}
        case "tools/list":
            return {"tools": [tool("save", **ADDRESS, content={"type": "string"}), tool("drop", **ADDRESS)]}
        case "tools/call":
            given = params["arguments"]
            file = place(given["uri"])
            if params["name"] == "save":
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(given["content"])
            else:
                file.unlink()
            return {"content": []}
        case "ping":
            return {}
    raise ValueError(method)


def place(uri: str) -> Path:
    return FOLDER / uri.removeprefix(BEGINNING)


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            reply["result"] = answer(request["method"], request.get("params") or {})
        except (FileNotFoundError, IsADirectoryError):
            reply["error"] = {"code": -32002, "message": "Resource not found"}
        except ValueError as error:
            reply["error"] = {"code": -32601, "message": str(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
