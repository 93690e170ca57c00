"""Requests to a database in worker threads: bounded in number, and stopped at the database when nobody waits."""

import logging
from collections.abc import Callable
from typing import TypeVar

import trio

from bbfs.model.errors import BbfsError
from bbfs.sources.database.backend import Backend, Job, Session

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Jobs:
    """Runs what is asked of one database, at most `concurrency` at once; a thread that is being stopped counts."""

    def __init__(self, backend: Backend, concurrency: int) -> None:
        self._backend = backend
        self._limiter = trio.CapacityLimiter(concurrency)

    async def run(self, work: Callable[[Session, Job], T]) -> T:
        """What `work` gives for a session of its own. Raises BbfsError. Cancelled, it ends the database's work too."""
        job = Job()
        try:
            return await trio.to_thread.run_sync(self._work, job, work, abandon_on_cancel=True, limiter=self._limiter)
        except trio.Cancelled:
            # Not in the limiter's threads: they may all be waiting for the database.
            trio.lowlevel.start_thread_soon(job.stop, lambda outcome: _report(outcome.unwrap))
            raise

    def _work(self, job: Job, work: Callable[[Session, Job], T]) -> T:
        try:
            with self._backend.session(job) as session:
                return work(session, job)
        except BbfsError:
            raise
        except Exception as error:
            fault = self._backend.fault(error)
            if fault is None:
                raise
            # What the driver says may name more than ours: nothing of it goes on.
            raise fault from None

    async def aclose(self) -> None:
        """Close what is open between requests."""
        await trio.to_thread.run_sync(self._backend.close, abandon_on_cancel=True)


def _report(unwrap: Callable[[], None]) -> None:
    try:
        unwrap()
    except Exception as error:  # noqa: BLE001 - a driver's; the request itself is over
        _log.info("a request to a database could not be stopped: %s", type(error).__name__)
