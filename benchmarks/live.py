"""How soon a change at an MCP server is on the next `cat`, on both eras of the protocol, and what the mount asks for.

Method: the knowledge base over stdio, with a recorder between it and the mount that notes when each message passes.
Another process puts a new text into a document; a reader opens and reads the file again and again, a millisecond
apart, until the new text is there. What counts is the time from the notification to the end of that read. Rounds of
the two eras are interleaved. Then nobody does anything for `--idle` seconds, and the requests of the mount are counted.

    python benchmarks/live.py [--changes 20] [--idle 20] [--rounds 2] [--json FILE]
"""

import argparse
import json
import os
import select
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bbfs.fuse import mountpoint

RECORDER = Path(__file__).with_name("recorder.py")
DOCUMENT = "mcp-server+kb/resource/knowledge/docker/document/ssl-setup"
URI = "resource://knowledge/docker/document/ssl-setup"
TOLD = ("notifications/resources/updated", "notifications/resources/list_changed")
"""The second announces the new size and time of the document in the listing; either may come first."""
BOUND = 30.0


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


@contextmanager
def mounted(home: Path, command: list[str]) -> Iterator[Path]:
    path, address = home / "mnt", f"bbfs-bench-{os.getpid()}"
    environ = os.environ | {f"XDG_{name}_HOME": str(home) for name in ("CACHE", "CONFIG", "STATE", "DATA")}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind("\0" + address)
        mount = [sys.executable, "-m", "bbfs", "mount", str(path), "--mcp", f"kb={shlex.join(command)}"]
        daemon = subprocess.Popen(mount, env=environ | {"NOTIFY_SOCKET": "@" + address})
        try:
            if not select.select([ready], [], [], BOUND)[0]:
                raise SystemExit("the mount did not begin to serve")
            yield path
        finally:
            daemon.terminate()
            daemon.wait(BOUND)
            mountpoint.unmount(str(path))


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
        knowledge("put", "--db", database, "docker", "ssl-setup", "-", text="version 0\n")
        serve = [sys.executable, "-m", "bbfs.knowledge", "serve", "--db", database, "--interval", "0.05"]
        serve += ["--ttl", "3600"]
        recorder = [sys.executable, str(RECORDER), str(log), *(["--handshake"] if handshake else []), "--"]
        with mounted(home, [*recorder, *serve]) as path:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--idle", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: dict[str, list[dict[str, Any]]] = {"2026-07-28": [], "2025-11-25": []}
    for _ in range(options.rounds):
        for name, found in rows.items():
            found.append(era(name != "2026-07-28", options.changes, options.idle))
    print(f"{options.changes} changes a round, {options.rounds} rounds: from the notification to the end of the `cat`")
    for name, found in rows.items():
        delays = sorted(delay for row in found for delay in row["delays"])
        print(
            f"{name}  median {statistics.median(delays) * 1000:5.1f} ms  longest {delays[-1] * 1000:5.1f} ms"
            f"  requests: {found[0]['changes']}, idle: {found[0]['idle'] or 'none'}"
        )
    if options.json:
        options.json.write_text(json.dumps({"changes": options.changes, "idle": options.idle, "eras": rows}))


if __name__ == "__main__":
    main()
