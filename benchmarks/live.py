"""How soon a change at an MCP server is on the next `cat`, on both eras of the protocol, and what the mount asks for.

Method: the knowledge base over stdio, with a recorder between it and the mount that notes when each message passes.
Another process puts a new text into a document. A reader opens and reads the file once a millisecond until the new
text is there. The time from the notification to the end of that read is measured. Then all programs rest for `--idle`
seconds, and the requests of the mount are counted.

    python benchmarks/live.py [--changes 20] [--idle 20] [--json FILE]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import places
from figures import Sheet
from rounds import Bench, Sizes, ask

RECORDER = Path(__file__).with_name("recorder.py")
DOCUMENT = "mcp-server+kb/resource/knowledge/docker/document/ssl-setup"
URI = "resource://knowledge/docker/document/ssl-setup"
TOLD = ("notifications/resources/updated", "notifications/resources/list_changed")
"""The second announces the new size and time of the document in the listing; either may come first."""
BOUND = 30.0
GROUP = "live"
SEEN, LONGEST, IDLE = "a change seen, median", "a change seen, longest", "requests while idle"
ERAS = {"protocol 2026-07-28": False, "protocol 2025-11-25": True}
"""True if the recorder makes the client speak the earlier protocol."""


def knowledge(*arguments: str, text: str | None = None) -> None:
    command = [sys.executable, "-m", "bbfs.knowledge", *arguments]
    subprocess.run(command, input=None if text is None else text.encode(), stdout=subprocess.DEVNULL, check=True)


def entries(log: Path) -> list[list[Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def asked(log: Path, since: float) -> Counter[str]:
    """The requests of the mount since then, by method."""
    return Counter(method for at, side, method, _ in entries(log) if side == "client" and at >= since)


def wait_for(what: str, condition: Any) -> Any:
    deadline = time.monotonic() + BOUND
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {BOUND:g} s: {what}")
        time.sleep(0.001)
    return found


def watched(log: Path) -> bool:
    """Whether the mount has asked to be told of the document."""
    return any(
        params.get("uri") == URI or URI in json.dumps(params)
        for _, side, method, params in entries(log)
        if side == "client" and method in ("resources/subscribe", "subscriptions/listen")
    )


def told_since(log: Path, before: float) -> list[float]:
    """When the server has announced a change since `before`. (Times are seconds since the epoch.)"""
    return [at for at, _, method, _ in entries(log) if method in TOLD and at >= before]


def era(handshake: bool, changes: int, idle: float) -> dict[str, Any]:
    """The delays in seconds, and what was asked: for the changes, and while nothing happened."""
    with tempfile.TemporaryDirectory() as directory:
        home, database, log = Path(directory), str(Path(directory, "kb.sqlite")), Path(directory, "log")
        knowledge("put", "--create", "--db", database, "docker", "ssl-setup", "-", text="version 0\n")
        serve = [sys.executable, "-m", "bbfs.knowledge", "serve", "--db", database, "--interval", "0.05"]
        serve += ["--ttl", "3600"]
        recorder = [sys.executable, str(RECORDER), str(log), *(["--handshake"] if handshake else []), "--"]
        command, path = places.bbfs(home, [places.served("kb", [*recorder, *serve])]), home / "mnt"
        with places.mounted(command(path), path, home):
            document = path / DOCUMENT
            if document.read_text() != "version 0\n":
                raise SystemExit("the document is not what was put in")
            wait_for("a subscription", lambda: watched(log))
            time.sleep(0.5)
            began, delays = time.time(), []
            for number in range(1, changes + 1):
                before, text = time.time(), f"version {number}\n" + "x" * number
                knowledge("put", "--db", database, "docker", "ssl-setup", "-", text=text)
                wait_for("the new text", lambda text=text: document.read_text() == text)
                seen = time.time()
                wait_for("the recorder's note of the notification", lambda before=before: told_since(log, before))
                delays.append(max(0.0, seen - told_since(log, before)[0]))
            time.sleep(1.0)
            for_changes, quiet = asked(log, began), time.time()
            time.sleep(idle)
            return {"delays": delays, "changes": dict(for_changes), "idle": dict(asked(log, quiet))}


def plan(sheet: Sheet, _sizes: Sizes) -> None:
    sheet.plan(GROUP, [SEEN, LONGEST], list(ERAS), unit="ms")
    sheet.plan(GROUP, [IDLE], list(ERAS), unit="")


def measure(bench: Bench) -> None:
    """Measure in a process of its own, so that no read of a file has to end by itself."""
    options = ["--changes", str(bench.sizes.changes), "--idle", str(bench.sizes.idle)]
    for name, found in ask("live.py", *options, scratch=bench.memory, bound=120).items():
        delays = sorted(delay * 1000 for delay in found["delays"])
        bench.sheet.add(0, GROUP, SEEN, name, delays[len(delays) // 2])
        bench.sheet.add(0, GROUP, LONGEST, name, delays[-1])
        bench.sheet.add(0, GROUP, IDLE, name, sum(found["idle"].values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--idle", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {name: era(handshake, options.changes, options.idle) for name, handshake in ERAS.items()}
    for name, of in found.items():
        median = statistics.median(of["delays"]) * 1000
        print(f"{name}: median {median:.1f} ms, changes: {of['changes']}, idle: {of['idle'] or 'none'}")
    if options.json:
        options.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
