"""An MCP server over stdio whose resources are a tree that it reads a directory at a time: trees.py [--lies KIND] …

`tree://root` has WIDTH directories, each has WIDTH, and so on, DEPTH levels in all; the last level are files. The list
of resources has all of them, after the directory `tree://root`. Standard library only, so that it starts in a moment;
protocol 2026-07-28. `--log FILE` gets a line for each request: its method, its URI, its cursor. A line of JSON in the
FIFO `--say` goes to the client. `--more` is a directory whose names are files of `tree://root`, too.

`--skills` is a directory of skills: `skill://NAME/SKILL.md` and so on. Their manifests are made at the start, and
again for each `skills/get` with `--current`.
"""

import argparse
import hashlib
import json
import sys
import threading
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=3)
parser.add_argument("--depth", type=int, default=3)
parser.add_argument("--page", type=int, default=1000)
parser.add_argument("--log", type=Path)
parser.add_argument("--say", type=Path)
parser.add_argument("--more", type=Path, help="a directory: its names are files of the root, too")
parser.add_argument("--skills", type=Path)
parser.add_argument("--dynamic", action="store_true", help="the skills have no manifests")
parser.add_argument("--current", action="store_true", help="skills/get makes manifests of what is there now")
parser.add_argument("--frontmatter", default="{}", help="JSON: what the entries of skills say else")
parser.add_argument("--unnamed", action="store_true", help="the list does not name the directory tree://root")
parser.add_argument("--lies", choices=("itself", "outside", "slashes", "many", "endless", "repeats", "fails", "array"))
given = parser.parse_args()

ROOT = "tree://root"
WHOLE = given.width**given.depth
SENDING = threading.Lock()


def send(message: Any) -> None:
    with SENDING:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def log(*words: Any) -> None:
    if given.log is not None:
        with given.log.open("a") as file:
            print(*words, file=file)


def name_of(number: int) -> str:
    """Return the path of a file below the root, by its number."""
    names: list[str] = []
    for _ in range(given.depth):
        number, place = divmod(number, given.width)
        names.append(f"{place:02}")
    return "/".join(reversed(names))


def entry(uri: str, *, is_directory: bool) -> dict[str, Any]:
    mime_type = "inode/directory" if is_directory else "text/plain"
    return {"uri": uri, "name": uri.rpartition("/")[2], "mimeType": mime_type}


def listed(start: int) -> dict[str, Any]:
    first = [] if start or given.unnamed else [entry(ROOT, is_directory=True), {"uri": "other://x", "name": "x"}]
    end = min(start + given.page, WHOLE)
    files = [entry(f"{ROOT}/{name_of(number)}", is_directory=False) for number in range(start, end)]
    return {"resources": [*first, *files], **({"nextCursor": str(end)} if end < WHOLE else {})}


def children(uri: str) -> list[dict[str, Any]] | None:
    if uri.startswith("skill://") and given.skills is not None:
        return skill_directory(uri)
    names = uri.removeprefix(ROOT).split("/")[1:]
    if not uri.startswith(ROOT) or len(names) >= given.depth or not all(name.isdecimal() for name in names):
        return None
    is_directory = len(names) + 1 < given.depth
    found = [entry(f"{uri}/{place:02}", is_directory=is_directory) for place in range(given.width)]
    if uri == ROOT and given.more is not None:
        found += [entry(f"{ROOT}/{each.name}", is_directory=False) for each in given.more.iterdir()]
    return found


def directory(uri: str, cursor: str | None) -> dict[str, Any] | None:
    found = children(uri)
    if found is None:
        return None
    match given.lies:
        case "itself":
            found += [entry(uri, is_directory=True), entry(f"{uri}/.", is_directory=True)]
        case "outside":
            found += [entry(text, is_directory=True) for text in ("tree://other/x", "tree:", f"{uri}/a/b", "../x", "")]
        case "slashes":
            found += [{"uri": f"{uri}/z%2Fy", "name": "../../etc/passwd"}, {"uri": f"{uri}/..", "name": "up"}]
        case "many":
            return {"resources": [entry(f"{uri}/{number}", is_directory=False) for number in range(250_000)]}
        case "endless" | "repeats":
            start = int(cursor or 0)
            new = start if given.lies == "endless" else 0
            found = [entry(f"{uri}/{new + number}", is_directory=False) for number in range(1000)]
            return {"resources": found, "nextCursor": str(start + 1000)}
        case "array":
            return {"resources": {"not": "a list"}}
        case _:
            pass
    start = int(cursor or 0)
    page = {"resources": found[start : start + given.page]}
    return {**page, "nextCursor": str(start + given.page)} if start + given.page < len(found) else page


def files_of(skill: Path) -> list[Path]:
    return sorted(path for path in skill.rglob("*") if path.is_file())


def manifest(skill: Path) -> dict[str, Any]:
    """Return the entry of a skill; its frontmatter is one `KEY: TEXT` a line."""
    lines = (skill / "SKILL.md").read_text().split("---\n")[1].splitlines()
    frontmatter = {**dict(line.split(": ", 1) for line in lines), **json.loads(given.frontmatter)}
    files: Any = []
    for path in files_of(skill):
        content = path.read_bytes()
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        files.append({"uri": skill_uri(path), "digest": digest, "size": len(content)})
    return {
        "uri": skill_uri(skill / "SKILL.md"),
        "frontmatter": frontmatter,
        "resources": "dynamic" if given.dynamic else files,
    }


def skill_uri(path: Path) -> str:
    return f"skill://{path.relative_to(given.skills)}"


def skill_directory(uri: str) -> list[dict[str, Any]] | None:
    found = given.skills / uri.removeprefix("skill://")
    return [entry(skill_uri(each), is_directory=each.is_dir()) for each in found.iterdir()] if found.is_dir() else None


def skill(uri: str) -> dict[str, Any] | None:
    if not given.current:
        return next(({"skill": each} for each in SKILLS if each["uri"] == uri), None)
    found = given.skills / uri.removeprefix("skill://")
    return {"skill": manifest(found.parent)} if found.is_file() else None


SKILLS = [manifest(each) for each in sorted(given.skills.iterdir())] if given.skills is not None else []


def read(uri: str) -> dict[str, Any] | None:
    if uri.startswith("skill://") and given.skills is not None:
        found = given.skills / uri.removeprefix("skill://")
        return {"contents": [{"uri": uri, "text": found.read_text()}]} if found.is_file() else None
    return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": f"content of {uri}\n"}]}


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "server/discover":
            capabilities = {
                "resources": {"listChanged": True},
                "extensions": {"io.modelcontextprotocol/skills": {"directoryRead": True}},
            }
            return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
        case "resources/list":
            return listed(int(params.get("cursor") or 0))
        case "resources/directory/read":
            return None if given.lies == "fails" else directory(params["uri"], params.get("cursor"))
        case "resources/read":
            return read(params["uri"])
        case "skills/list":
            return {"skills": SKILLS, "ttlMs": 0, "cacheScope": "private"}
        case "skills/get":
            return skill(params["uri"])
        case _:
            return {}


def listen(request: dict[str, Any]) -> None:
    told = {"subscriptionId": request["id"]}
    meta = {"io.modelcontextprotocol/subscriptionId": request["id"]}
    params = {"notifications": request["params"]["notifications"], "_meta": meta, **told}
    send({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})


def say() -> None:
    while True:
        with given.say.open() as lines:
            for line in lines:
                send(json.loads(line))


if given.say is not None:
    threading.Thread(target=say, daemon=True).start()
for line in sys.stdin:
    request = json.loads(line)
    method, params = request.get("method", ""), request.get("params") or {}
    log(method, params.get("uri", "-"), params.get("cursor", "-"))
    if "id" not in request:
        continue
    if method == "subscriptions/listen":
        listen(request)
        continue
    answer = result(method, params)
    if answer is None:
        code = -32603 if given.lies == "fails" else -32602
        send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": "no such directory"}})
    else:
        send({"jsonrpc": "2.0", "id": request["id"], "result": {"resultType": "complete", **answer}})
