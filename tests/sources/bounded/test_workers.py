"""Worker processes: what they may not do, and how they end."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from programs import children_of

from bbfs.model.errors import BbfsError, ProtocolViolation, TooLarge
from bbfs.sources.bounded import workers
from bbfs.sources.bounded.workers import WorkerPool

ENDLESS = b'<a b="' * 200_000


def children() -> set[int]:
    """Return the processes that this one has started and that have not been reaped."""
    return set(children_of("self"))


def waits(seconds: float) -> Iterator[None]:
    """Pause shortly each time, until the time is over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield
        time.sleep(0.01)


async def markdown(pool: WorkerPool, page: bytes, **bounds: Any) -> bytes:
    return await pool.run("html_markdown", page, {"charset": "utf-8"}, owner="pages", what="page", **bounds)


async def test_a_worker_is_started_once_and_ends_with_the_loop() -> None:
    before = children()
    pool = WorkerPool()
    assert await markdown(pool, b"<h1>a</h1>") == b"# a\n"
    first = children() - before
    assert len(first) == 1
    assert await markdown(pool, b"<h1>b</h1>") == b"# b\n"
    assert children() - before == first


def test_no_worker_outlives_the_loop() -> None:
    before = children()

    async def main() -> set[int]:
        await markdown(WorkerPool(), b"x")
        return children() - before

    assert trio.run(main)
    assert not children() - before


async def test_an_idle_worker_ends() -> None:
    before = children()
    await markdown(WorkerPool(rest=0.01), b"x")
    ended = await trio.to_thread.run_sync(lambda: any(not children() - before for _ in waits(10)))
    assert ended


async def test_a_worker_may_do_nothing_but_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    before = children()
    monkeypatch.setenv("BBFS_TEST_SECRET", "secret")
    inheritable = os.open(__file__, os.O_RDONLY)
    os.set_inheritable(inheritable, True)
    await markdown(WorkerPool(), b"x")
    os.close(inheritable)
    [worker] = children() - before
    process = Path(f"/proc/{worker}")
    limits = {line[:26].strip(): line[26:47].strip() for line in (process / "limits").read_text().splitlines()}
    assert limits["Max address space"] == str(workers.MEMORY)
    assert (limits["Max file size"], limits["Max core file size"], limits["Max processes"]) == ("0", "0", "0")
    assert int(limits["Max cpu time"]) <= workers.SECONDS + 2
    environment = dict(line.split("=") for line in process.joinpath("environ").read_text().split("\0") if line)
    assert environment.pop("TOKENIZERS_PARALLELISM") == "false"
    assert {name.rpartition("_")[2] for name in environment} == {"THREADS"}
    assert {*environment.values()} == {"1"}
    assert os.readlink(process / "cwd") == "/"
    assert {os.readlink(each).partition(":")[0] for each in (process / "fd").iterdir()} <= {"pipe", "/dev/null"}
    assert "NoNewPrivs:\t1" in (process / "status").read_text()


@pytest.mark.parametrize("page", [ENDLESS, b"<p>a" * 1_000_000], ids=["CPU time", "memory"])
async def test_a_job_over_a_limit_is_too_large_and_harms_no_other(page: bytes) -> None:
    pool = WorkerPool(size=1, memory=64 << 20)
    with pytest.raises(TooLarge, match=r"^page: takes (more than 0.2 s of CPU time|too much memory) to read"):
        await markdown(pool, page, seconds=0.2 if page is ENDLESS else 100)
    assert await markdown(pool, b"x") == b"x\n"


async def test_a_worker_that_crashes_makes_its_document_too_large() -> None:
    pool, before = WorkerPool(size=1), children()
    await markdown(pool, b"x")

    async def crash() -> None:
        await trio.testing.wait_all_tasks_blocked()  # the job is at the worker
        for worker in children() - before:
            os.kill(worker, signal.SIGSEGV)

    with pytest.RaisesGroup(pytest.RaisesExc(TooLarge, match="page: its reader was ended by SIGSEGV")):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(crash)
            await markdown(pool, ENDLESS)
    assert await markdown(pool, b"x") == b"x\n"


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("os._exit(3)", BbfsError, "page: its reader ended with status 3: the last line"),
        ("raise KeyboardInterrupt", BbfsError, "page: its reader ended with SIGINT: KeyboardInterrupt"),
        ("os.abort()", TooLarge, "page: its reader was ended by SIGABRT, .* fails at: the last line"),
    ],
)
async def test_a_worker_that_ends_says_how_and_not_that_a_limit_was_hit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, error: type[BbfsError], words: str
) -> None:
    """As a library does that may start no thread."""
    (tmp_path / "markdownify.py").write_text(
        f"import os, sys\nprint('x' * 100_000, file=sys.stderr)\nprint('the last line', file=sys.stderr)\n{line}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BbfsError, match=words) as caught:
        await markdown(WorkerPool(), b"<p>x")
    assert type(caught.value) is error


async def test_a_result_and_a_refusal() -> None:
    pool = WorkerPool()
    with pytest.raises(TooLarge, match="page: becomes more than 10 bytes"):
        await markdown(pool, b"<p>" + b"x" * 100, max_result=10)
    with pytest.raises((ProtocolViolation, TooLarge), match="page: "):
        await markdown(pool, b"<div>" * 20_000)


async def test_cancelling_ends_the_worker_and_lets_the_next_job_in() -> None:
    pool = WorkerPool(size=1)
    before = children()
    with trio.move_on_after(0.3) as scope:
        await markdown(pool, ENDLESS)
    assert scope.cancelled_caught
    assert not children() - before
    with trio.fail_after(20):
        assert await markdown(pool, b"x") == b"x\n"


async def test_one_source_leaves_room_for_others() -> None:
    pool = WorkerPool(size=2)
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(markdown, pool, ENDLESS)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(20):
            assert await pool.run("html_markdown", b"x", owner="other", what="page") == b"x\n"
        nursery.cancel_scope.cancel()


def test_the_program_of_a_worker_needs_little() -> None:
    """Its start is part of the first load, and its memory is there as long as it is idle."""
    done = os.popen(
        f"{sys.executable} -I -c \"import sys; sys.path.insert(0, '.'); import runpy; "
        f"runpy.run_path('bbfs/sources/bounded/worker_process.py'); print('trio' in sys.modules)\""
    )
    with done:
        assert done.read() == "False\n"


def test_a_process_that_reads_sqlite_imports_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command without a mount starts one."""
    (tmp_path / "imported.py").write_text(
        "import sys\n"
        "import bbfs.sources.database.process, bbfs.sources.database.sqlite.database\n"
        "def serve(requests, answers):\n"
        "    answers.write(' '.join(sys.modules).encode())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    process = workers.start_worker(workers.MEMORY, "imports", serve="imported")
    imported = set(process.communicate(timeout=20)[0].decode().split())
    assert "bbfs.sources.database.sqlite.session" in imported
    assert not imported & {"site", "trio", "pydantic", "logging", "_hashlib", "bbfs.sources.database.writing.rows"}


@pytest.mark.skipif(os.geteuid() != 0, reason="this user is an ordinary one: the tests themselves show it")
@pytest.mark.timeout(300)
def test_an_ordinary_user_has_every_worker_that_root_has() -> None:
    """The kernel excepts root from the limit of processes, and so of threads, that a worker has."""
    root = Path(__file__).parents[3]
    tests = (
        "documents/test_documents.py::test_each_kind_becomes_markdown",
        "embeddings/test_embeddings.py::test_a_static_model_makes_the_vectors_of_its_words",
        "database/test_duckdb.py::test_rows_are_parquet_too_and_a_large_table_has_parts",
        "bounded/test_workers.py::test_a_worker_is_started_once_and_ends_with_the_loop",
    )
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-m", "pytest"]
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o777)
        done = subprocess.run(
            [*command, "-n0", "-q", "-pno:cacheprovider", *(f"tests/sources/{test}" for test in tests)],
            cwd=root,
            env={"HOME": home, "TMPDIR": home, "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
