"""The tools of server-everything as paths (S31): looking around runs none, each open runs one."""

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import Mounts, mcp
from programs import run, shell
from repository import SERVERS
from thirdparty_servers import EVERYTHING, NODE

RECORDING = SERVERS / "recording.py"


@dataclass(frozen=True, slots=True)
class Everything:
    root: Path
    log: Path

    def calls(self) -> list[str]:
        """The tools that were run, in order."""
        lines = self.log.read_text().splitlines()
        return [line.split()[1] for line in lines if line.startswith("tools/call ")]


@pytest.fixture
def everything(thirdparty: None, tmp_path: Path) -> Iterator[Everything]:
    log = tmp_path / "requests"
    command = [sys.executable, "-I", RECORDING, log, "--", NODE, EVERYTHING, "stdio"]
    with closing(Mounts()) as mounts:
        mount = mounts(mcp("everything", command, tools="read-only", prompts=True))
        yield Everything(mount / "mcp-server+everything", log)


@pytest.mark.semantics("S31")
def test_each_open_runs_one(everything: Everything) -> None:
    tool = everything.root / "tool"
    assert run("cat", tool / "echo?message=hello there").text == "Echo: hello there"
    assert run("cat", tool / "get-sum?a=2&b=3").text == "The sum of 2 and 3 is 5."
    weather = run("cat", tool / "get-structured-content?location=New York").text
    assert set(json.loads(weather)) == {"temperature", "conditions", "humidity"}
    assert everything.calls() == ["echo", "get-sum", "get-structured-content"]
    links = tool / "get-resource-links?count=3"
    assert run("cat", links, status=1).err.endswith(b"Is a directory\n")
    assert shell('cd "$1"; for link in $(find . -type l); do cat "$link" | head -c 10; done', links).text
    image = tool / "get-tiny-image?"
    run("cat", image, status=1)
    assert run("head", "-c", "4", image / "2.png").out == b"\x89PNG"
    assert everything.calls() == ["echo", "get-sum", "get-structured-content", "get-resource-links", "get-tiny-image"]


def test_prompts_are_rendered(everything: Everything) -> None:
    prompt = everything.root / "prompt"
    assert run("cat", prompt / "args-prompt?city=Köln&state=NRW").text == "What's weather in Köln, NRW?"
    assert everything.calls() == []
