"""Fixtures of the attacks. `--hostile` runs all of them, alone on the machine; otherwise only the quick ones run."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Mounts
from hostile import Case, attack, record
from hostile_sources import end_servers

TIMEOUT = 150
"""Seconds for one attack, its own set-up included."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    chosen: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        case = getattr(item, "callspec", None) and item.callspec.params.get("case")  # pyright: ignore
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT))
        is_long = item.get_closest_marker("thorough") or (isinstance(case, Case) and not case.quick)
        (left if is_long and not config.getoption("--hostile") else chosen).append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=left)


@pytest.fixture
def holds(fuse: None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[Case], None]]:
    """Run a case, record its verdict and assert that every limit held."""
    mounts = Mounts()

    def check(case: Case) -> None:
        verdict = attack(case, mounts, tmp_path)
        record(verdict, request.path.stem.removeprefix("test_hostile_"))
        assert verdict.broken(alone=bool(request.config.getoption("--hostile"))) == []

    try:
        yield check
    finally:
        mounts.close()


@pytest.fixture(autouse=True)
def ended_servers() -> Iterator[None]:
    """End the servers of a test, whether it mounts them or not."""
    yield
    end_servers()
