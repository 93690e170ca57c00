"""Fixtures of the tests on real mounts."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from harness import Mounts
from programs import Program
from saves import QUICK, table
from scripted import ScriptedServer


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left: list[pytest.Item] = []
    for item in items:
        given: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
        if {"place", "pattern"} <= given.keys() and (given["place"], given["pattern"]) not in QUICK:
            left.append(item)
    if left and not config.getoption("--saves"):
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=left)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the matrix of saves, as far as it was run."""
    if config.getoption("--saves"):
        reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
        run = [(dict(report.user_properties), report.passed) for report in reports]
        held = {(each["place"], each["pattern"]): passed for each, passed in run if "place" in each}
        terminalreporter.write_line(table(dict.fromkeys(str(place) for place, _ in held), held))


def _mounts() -> Iterator[Mounts]:
    with closing(Mounts()) as mounts:
        yield mounts


@pytest.fixture
def mounted(fuse: None) -> Iterator[Mounts]:
    """Makes mounts; at the end of the test they must end cleanly and leave nothing behind."""
    yield from _mounts()


@pytest.fixture(scope="module")
def module_mounted(fuse: None) -> Iterator[Mounts]:
    """As `mounted`, for mounts that the tests of a module share."""
    yield from _mounts()


@pytest.fixture
def programs() -> Iterator[type[Program]]:
    """`Program`, whose instances are ended with the test. To be asked for after `mounted`, so that they end first."""
    started: list[Program] = []

    class Started(Program):
        def __init__(self, *command: str | Path, env: dict[str, str] | None = None) -> None:
            super().__init__(*command, env=env)
            started.append(self)

    yield Started
    for program in started:
        program.kill()


@pytest.fixture
def server(tmp_path: Path) -> ScriptedServer:
    """An MCP server that answers what the test tells it to."""
    return ScriptedServer(tmp_path / "server")
