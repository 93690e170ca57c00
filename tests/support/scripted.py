"""The test's end of scripted_server.py: what the server holds, what it was asked, and when it answers."""

import base64
import json
import os
import select
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness import SourceTable, mcp

PROGRAM = Path(__file__).with_name("scripted_server.py")


class ScriptedServer:
    """An MCP server whose resources a test sets and changes. It runs when the daemon starts it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self._resources: dict[str, dict[str, Any]] = {}
        self._options: dict[str, Any] = {}
        os.mkfifo(directory / "say")
        self._write()

    def source(self, name: str, **options: Any) -> SourceTable:
        """The server as a source of a configuration."""
        return mcp(name, [sys.executable, "-I", "-S", PROGRAM, self.directory], **options)

    def add(self, uri: str, content: str | bytes = "", **fields: Any) -> None:
        """Serve a resource, or a newer one. fields: of its entry in the listing."""
        self.add_contents(uri, _content(content, fields.get("mimeType")), **fields)

    def add_tree(self, base: str, root: Path, files: Mapping[str, bytes]) -> None:
        """Serve the files below `root` under the URI `base`, with their times; every third one as a blob."""
        for number, (name, content) in enumerate(files.items()):
            modified = datetime.fromtimestamp((root / name).stat().st_mtime, UTC).isoformat()
            textual = number % 3 and b"\0" not in content and _is_text(content)
            self._resources[f"{base}/{quote(name)}"] = {
                "uri": f"{base}/{quote(name)}",
                "name": name,
                "annotations": {"lastModified": modified},
                "-contents": [_content(content.decode() if textual else content, None)],
            }
        self._write()

    def add_contents(self, uri: str, *contents: dict[str, Any], **fields: Any) -> None:
        """Serve a resource with these contents, each as `resources/read` answers it."""
        kept = {key: value for key, value in self._resources.get(uri, {}).items() if key == "-gate"}
        self._resources[uri] = {"uri": uri, "name": uri, "-contents": contents, **kept, **fields}
        self._write()

    def add_unlisted(self, uri: str, content: str | bytes = "", **fields: Any) -> None:
        """Serve a resource that no listing holds."""
        self.add(uri, content, **{"-unlisted": True, **fields})

    def template(self, uri_template: str, **fields: Any) -> None:
        """Have one more template. Variables are completed from the option `completions`: values by variable."""
        templates = [*self._options.get("templates", []), {"uriTemplate": uri_template, "name": uri_template, **fields}]
        self.options(templates=templates)

    def remove(self, uri: str) -> None:
        del self._resources[uri]
        self._write()

    def options(self, **options: Any) -> None:
        """Set what the server does as a whole.

        pages: entries of one page. endless: the next page is always the first one. dead: exit at the start.
        stubborn: end by SIGKILL only. completions: values by variable.
        """
        self._options.update(options)
        self._write()

    def fail(self, uri: str, code: int) -> None:
        """Answer reads of a resource with a JSON-RPC error."""
        self._set(uri, **{"-error": code})

    def answer(self, uri: str, result: Any) -> None:
        """Answer reads of a resource with this result, whatever it is."""
        self._set(uri, **{"-result": result})

    def crash(self, uri: str, crashing: bool = True) -> None:
        """Exit without an answer when a resource is read."""
        self._set(uri, **{"-exit": crashing})

    def hang(self, uri: str) -> None:
        """Do not answer reads of a resource until `release`."""
        gate = self.directory / f"gate-{len(os.listdir(self.directory))}"
        os.mkfifo(gate)
        self._set(uri, **{"-gate": str(gate)})

    def hang_listing(self, after: int = 0) -> None:
        """Do not answer listings until `release_listing`. after: their pages that are answered."""
        os.mkfifo(self.directory / "list-gate")
        self.options(listGate=str(self.directory / "list-gate"), listGatePage=after)

    def release_listing(self) -> None:
        """Answer the listing that waits, and all that follow."""
        gate = self._options["listGate"]
        self.options(listGate=None)
        _open_for_good(gate)

    def release(self, uri: str) -> None:
        """Answer the reads of a resource that wait, and all that follow."""
        gate = self._resources[uri].pop("-gate")
        self._write()
        _open_for_good(gate)

    def reads(self, uri: str | None = None) -> int:
        """How many reads were asked for, of one resource or of all."""
        return sum(line == f"read {uri}" if uri else line.startswith("read ") for line in self.log())

    def completions(self) -> list[str]:
        """What was completed: variable, value, context."""
        return [line.removeprefix("complete ") for line in self.log() if line.startswith("complete ")]

    def lists(self) -> int:
        return self.log().count("list")

    def starts(self) -> int:
        return self.log().count("start")

    def log(self) -> list[str]:
        try:
            return (self.directory / "log").read_text().splitlines()
        except FileNotFoundError:
            return []

    def say(self, method: str, **params: Any) -> None:
        """Send a notification to the client; where several run the server, to any one of them."""
        message = json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n"
        assert len(message) <= select.PIPE_BUF, "it could be torn apart"
        fifo = os.open(self.directory / "say", os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(fifo, message)
        finally:
            os.close(fifo)

    def _set(self, uri: str, **fields: Any) -> None:
        self._resources[uri].update(fields)
        self._write()

    def _write(self) -> None:
        path = self.directory / "script.json"
        new = path.with_suffix(".new")
        new.write_text(json.dumps({"resources": list(self._resources.values()), **self._options}))
        new.replace(path)


def _content(content: str | bytes, mime_type: str | None) -> dict[str, Any]:
    body = {"text": content} if isinstance(content, str) else {"blob": base64.b64encode(content).decode()}
    return body if mime_type is None else {**body, "mimeType": mime_type}


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _open_for_good(gate: str) -> None:
    """Let everybody through who waits at a FIFO, or comes to it later because of an older script."""
    # Open for both, this never waits and lets all waiting readers go on; they see the end when it is closed.
    fifo = os.open(gate, os.O_RDWR)
    os.unlink(gate)
    os.close(fifo)
