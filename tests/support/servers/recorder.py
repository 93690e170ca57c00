"""An MCP server over stdio that is another one, overheard: `python recorder.py LOG COMMAND ARGUMENT…`.

LOG gets a line for each request: its method, and for a call the name of the tool.
"""

import json
import subprocess
import sys
from pathlib import Path

log = Path(sys.argv[1])
with subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE) as server:
    assert server.stdin is not None
    for line in sys.stdin.buffer:
        message = json.loads(line)
        with log.open("a") as file:
            print(message.get("method"), (message.get("params") or {}).get("name", ""), file=file)
        server.stdin.write(line)
        server.stdin.flush()
