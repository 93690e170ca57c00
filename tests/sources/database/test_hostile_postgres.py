"""PostgreSQL servers of a stranger: what they send is bounded, ends with the request, and takes a process alone."""

import itertools
import os
from pathlib import Path

import pytest
import trio
from databases import handler, source_of, until
from hostile_postgres import ATTACKS, hostile_server

from bbfs.model.errors import BbfsError, ProtocolViolation, TooLarge
from bbfs.model.values import Policy
from bbfs.sources.database import backend

ENDS = {
    "a row of a gigabyte",
    "a copy of a gigabyte",
    "a notice of a gigabyte",
    "an error of a gigabyte",
    "noise",
    "noise at the start",
}
"""The attacks that end by themselves. The others end with the request."""


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.semantics("S15", "S22", "S23")
async def test_what_a_server_sends_is_bounded_and_ends_with_the_request(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "STOPPING", 0.5)
    url = hostile_server(tmp_path, name)
    before, others = resident(), children()
    errors: list[type[BbfsError]] = []
    # An attack without an end is waited for in vain, and a process of a loaded machine starts slowly.
    waits = (9.0,) * 2 if name in ENDS else (1.0, 1.0, 4.0, 16.0)
    async with handler(source_of(url, Policy(timeout=30), queries={"q": "SELECT 1"})) as made:
        asks = itertools.cycle((lambda: made.list_directory(()), lambda: made.load("postgres://query/q.csv")))
        for number, (patience, ask) in enumerate(zip(waits, asks, strict=False)):
            if number >= 2 and (tmp_path / "0.sent").exists():
                break
            with trio.move_on_after(patience):
                try:
                    await ask()
                except BbfsError as error:
                    errors.append(type(error))
    assert name not in ENDS or {TooLarge, ProtocolViolation} & set(errors)
    with trio.fail_after(60):
        await until(lambda: not children() - others)
    assert (tmp_path / "0.sent").exists()
    assert resident() - before < 100 << 20
