"""An agent without a model, to try the protocol of `model.py` by: `--agent "python benchmarks/agents/standin.py"`.

It looks for the question's words by the first tool that searches, reads what that names, and answers with all that it
was given. A program with a model has its place: it reads the same lines, and writes the same lines.
"""

import json
import re
import shlex
import sys
from collections.abc import Mapping
from typing import Any

READ = 3
"""Things of a search that are read."""
URI = re.compile(r"^\d+\. (\S+)", re.MULTILINE)
FILE = re.compile(r"^(?:\./|(?=/))([^:\n]+)(?:\n    .*?\bline (\d+):)?", re.MULTILINE)
"""A path of a search or of grep, and the line that a hit names."""
AROUND = 10
"""Lines before and behind that line that are read."""


def asked(message: Mapping[str, Any]) -> dict[str, Any]:
    """Write a line, and return the next."""
    print(json.dumps(message), flush=True)
    return json.loads(sys.stdin.readline())


def given(answer: Mapping[str, Any]) -> str:
    """Return what a call has given: an error is something to read as well."""
    return str(answer.get("result", answer.get("error")))


def call(name: str, **arguments: Any) -> str:
    return given(asked({"call": name, "arguments": arguments}))


def part(line: str) -> str:
    """Return the command that reads around a line, or the beginning where no line is named."""
    return f"sed -n {max(1, int(line) - AROUND)},{int(line) + AROUND}p" if line else "head -c 8000"


def read(question: str, tools: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what the tools have given."""
    words = [word for word in re.findall(r"[\w-]+", question) if len(word) > 3]
    if "search_resources" in tools:
        found = call("search_resources", query=" ".join(words))
        return [found, *(call("load_resources", directUris=[uri]) for uri in URI.findall(found)[:READ])]
    if "shell" in tools:
        pattern = "|".join(map(re.escape, words))
        found = call("shell", command=f"bbfs search {shlex.join(words)} || grep -rliE {shlex.quote(pattern)} . | head")
        hits = FILE.findall(found)[:READ]
        return [found, *(call("shell", command=f"{part(line)} {shlex.quote(path)}") for path, line in hits)]
    first = next((name for name, schema in tools.items() if "query" in schema.get("properties", {})), None)
    return [] if first is None else [call(first, query=" ".join(words))]


def main() -> None:
    message = json.loads(sys.stdin.readline())
    tools = {tool["name"]: tool["schema"] for tool in message["tools"]}
    print(json.dumps({"answer": "\n".join(read(message["question"], tools))}), flush=True)


if __name__ == "__main__":
    main()
