"""An MCP server with resources alone on the SDK: `python tickets.py FILE`, with a ticket in each line of JSON."""

import json
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver.resources import TextResource


def main() -> None:
    server = MCPServer("tickets")
    for line in Path(sys.argv[1]).read_text().splitlines():
        ticket = json.loads(line)
        text = f"# {ticket['title']}\n\nTicket {ticket['number']}, {ticket['state']}.\n\n{ticket['text']}\n"
        server.add_resource(
            TextResource(
                uri=f"ticket://desk/{ticket['number']}",
                name=f"{ticket['number']}.md",
                title=ticket["title"],
                text=text,
                mime_type="text/markdown",
            )
        )
    server.run()


if __name__ == "__main__":
    main()
