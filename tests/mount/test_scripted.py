"""The scripted server itself, where several of its processes share a directory."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from programs import wait_until
from scripted import PROGRAM, ScriptedServer

SAID = [f"test://d/{number}" for number in range(200)]


def test_what_is_said_comes_whole_from_one_of_the_servers(server: ScriptedServer, tmp_path: Path) -> None:
    outputs = [tmp_path / name for name in ("one", "two")]
    command = [sys.executable, "-I", "-S", str(PROGRAM), str(server.directory)]
    said: list[str] = []
    with ExitStack() as stack:
        fifo = os.open(server.directory / "say", os.O_RDWR)  # it can be written to before a server has opened it
        stack.callback(os.close, fifo)
        for output in outputs:
            file = stack.enter_context(output.open("wb"))
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file)
            stack.callback(process.communicate, timeout=10)
        wait_until(lambda: server.starts() == len(outputs), "they run")
        for uri in SAID:
            server.say("notifications/resources/updated", uri=uri)
        wait_until(lambda: sum(output.read_bytes().count(b"\n") for output in outputs) == len(SAID), "all is sent")
    for output in outputs:
        said += [json.loads(line)["params"]["uri"] for line in output.read_text().splitlines()]
    assert sorted(said) == sorted(SAID)
