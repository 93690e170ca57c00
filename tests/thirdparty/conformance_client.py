#!/usr/bin/env python3
"""bbfs as the client that the conformance suite of the protocol tests: conformance_client.py URL.

It runs the commands that a person would run against the server at URL, in a home directory of its own. The suite names
the scenario in MCP_CONFORMANCE_SCENARIO, and passes data for some in MCP_CONFORMANCE_CONTEXT. Where bbfs says which
`bbfs login` is needed, this program runs that command, as a person would, with itself as a browser that says yes to
everything (`--browse URL`).
"""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

BBFS = Path(sys.executable).parent / "bbfs"
SOURCE = "t"
MOST_LOGINS = 2
"""Logins that one command may ask for: a server whose demands never end must not keep a person logging in."""
_LOGIN = re.compile(r"run `bbfs (login [^`]+)`")
_CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"
"""A client metadata document that the suite accepts without loading it (`auth/basic-cimd`)."""
_PTY_READ = 1 << 16


class Failed(Exception):
    """A command failed, and bbfs named no login that would help."""


class Shell:
    """Runs bbfs with one source, the server at this URL. options: of the source, as in a configuration."""

    def __init__(self, home: Path, url: str, options: dict[str, Any]) -> None:
        config = home / ".config/bbfs/config.toml"
        config.parent.mkdir(parents=True)
        source = {"name": SOURCE, "mcpConfig": {"url": url}, "timeout": "60s", **options}
        config.write_text(f"sources = [{_toml(source)}]\n")
        self._home = home
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(home),
            "LANG": "C.UTF-8",
            "BBFS_TOKEN_STORE": "file",
            "BBFS_CLIENT_METADATA": _CLIENT_METADATA,
            "BROWSER": f"{shlex.quote(sys.executable)} {shlex.quote(__file__)} --browse %s",
        }

    def bbfs(self, *arguments: str, answers: str | None = None) -> str:
        """Return what a command prints. Log in where bbfs says so. answers: typed on a terminal. Raises Failed."""
        status = 0
        for left in range(MOST_LOGINS, -1, -1):
            status, out, err = self._run(arguments) if answers is None else self._on_terminal(arguments, answers)
            print(f"$ bbfs {shlex.join(arguments)}\n{out}{err}", flush=True)
            if status == 0:
                return out
            wanted = _LOGIN.search(" ".join((out + err).split()))
            if wanted is None or not left:
                break
            login = shlex.split(wanted[1])
            status, out, err = self._run(login)
            print(f"$ bbfs {shlex.join(login)}\n{out}{err}", flush=True)
            if status != 0:
                break
        raise Failed(f"bbfs {shlex.join(arguments)}: status {status}")

    def _run(self, arguments: Iterable[str]) -> tuple[int, str, str]:
        done = subprocess.run(
            [BBFS, *arguments], env=self._env, cwd=self._home, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        return done.returncode, done.stdout, done.stderr

    def _on_terminal(self, arguments: Iterable[str], answers: str) -> tuple[int, str, str]:
        """Run a command on a terminal, and type the answers."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [BBFS, *arguments], env=self._env, cwd=self._home, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        os.write(ours, answers.encode())
        shown = b""
        while True:
            try:
                piece = os.read(ours, _PTY_READ)
            except OSError:  # EIO: the terminal has no program any more
                break
            shown += piece
        os.close(ours)
        return process.wait(), shown.decode(errors="replace"), ""


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)


def _call_test_tool(shell: Shell, _: dict[str, Any]) -> None:
    shell.bbfs("call", SOURCE, "test-tool", "--yes")


def _list_tools(shell: Shell, _: dict[str, Any]) -> None:
    shell.bbfs("tools", SOURCE)


def _add_numbers(shell: Shell, _: dict[str, Any]) -> None:
    shell.bbfs("call", SOURCE, "add_numbers", "a=2", "b=3", "--yes")


def _reconnect(shell: Shell, _: dict[str, Any]) -> None:
    shell.bbfs("call", SOURCE, "test_reconnection", "--yes")


def _accept_defaults(shell: Shell, _: dict[str, Any]) -> None:
    shell.bbfs("call", SOURCE, "test_client_elicitation_defaults", "--yes", answers="a\n" + "\n" * 5)


def _answer_in_rounds(shell: Shell, _: dict[str, Any]) -> None:
    for tool in ("echo_state", "no_state"):
        shell.bbfs("call", SOURCE, f"test_mrtr_{tool}", "--yes", answers="a\ny\n")
        shell.bbfs("call", SOURCE, "test_mrtr_unrelated", "--yes")
    shell.bbfs("call", SOURCE, "test_mrtr_no_result_type", "--yes")


def _call_as_told(shell: Shell, context: dict[str, Any]) -> None:
    for call in context["toolCalls"]:
        shell.bbfs("call", SOURCE, call["name"], "--yes", "--json", json.dumps(call["arguments"]))


def _call_all(shell: Shell, _: dict[str, Any]) -> None:
    for tool in json.loads(shell.bbfs("tools", SOURCE, "--json")):
        texts = {each["name"]: "text" for each in tool["arguments"]}
        shell.bbfs("call", SOURCE, tool["name"], "--yes", "--json", json.dumps(texts))


def _use_everything(shell: Shell, _: dict[str, Any]) -> None:
    for entry in json.loads(shell.bbfs("ls", "-R", "--json", SOURCE)):
        if entry["kind"] == "file" and "uri" in entry:
            with suppress(Failed):  # the resources and the prompt of the suite have no contents
                shell.bbfs("cat", entry["path"])
    shell.bbfs("call", SOURCE, "my-hyphenated-tool", "--yes")


def _list_skills(shell: Shell, _: dict[str, Any]) -> None:
    shell.bbfs("ls", "-R", SOURCE)


def _read_skill(shell: Shell, _: dict[str, Any]) -> None:
    """Read a file that a skill names after the skill, as a person would who could read the skill."""
    shell.bbfs("cat", f"{SOURCE}/skill/pdf-processing/SKILL.md")
    shell.bbfs("cat", f"{SOURCE}/skill/pdf-processing/references/FORMS.md")


def _echo_schema(shell: Shell, _: dict[str, Any]) -> None:
    schema = shell.bbfs("cat", f"{SOURCE}/tool/json_schema_2020_12_tool/input.schema.json")
    shell.bbfs("call", SOURCE, "json_schema_echo", "--yes", "--json", json.dumps({"schema": json.loads(schema)}))


SCENARIOS: dict[str, Callable[[Shell, dict[str, Any]], None]] = {
    "tools_call": _add_numbers,
    "initialize": _list_tools,
    "request-metadata": _list_tools,
    "json-schema-ref-no-deref": _list_tools,
    "sse-retry": _reconnect,
    "elicitation-sep1034-client-defaults": _accept_defaults,
    "sep-2322-client-request-state": _answer_in_rounds,
    "http-standard-headers": _use_everything,
    "http-custom-headers": _call_as_told,
    "http-invalid-tool-headers": _call_all,
    "json-schema-2020-12-preservation": _echo_schema,
    "sep-2640-client-no-prefetch": _list_skills,
    "sep-2640-client-verify-digest": _read_skill,
    "sep-2640-client-verify-size": _read_skill,
    "sep-2640-client-verify-frontmatter": _read_skill,
}
"""What to do, by the name of the scenario. All others are about logins."""


def _options(context: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the source in a scenario."""
    if "client_secret" in context:
        return {"auth": {"clientId": context["client_id"], "clientSecret": context["client_secret"]}}
    return {}


def main(argument: str) -> int:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    with tempfile.TemporaryDirectory() as home:
        shell = Shell(Path(home), argument, _options(context))
        try:
            SCENARIOS.get(scenario, _call_test_tool)(shell, context)
        except Failed as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--browse":
        with urllib.request.urlopen(sys.argv[2]) as page:
            page.read()
        sys.exit()
    sys.exit(main(sys.argv[1]))
