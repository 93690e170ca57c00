"""The sources of a model of writing with faults: each with a journal of its states, a stranger and faults."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from fault_contents import CODECS, record
from fault_oracle import Asked, Seen, State
from fault_plans import Kind, Plan, Step
from journal_server import S3, Faults, Handler, JournalServer, JournalStore, Refused, WebDav
from object_stores import KEY, SECRET

TIMEOUT = 1.0
"""Seconds that a source has for a request."""


class FaultSource:
    """One source. codec: of its contents, by name. sees, checks_late: see `fault_oracle.History`."""

    kind: ClassVar[Kind] = Kind()
    codec: ClassVar[str] = "plain"
    sees: ClassVar[bool] = True
    checks_late: ClassVar[bool] = False
    directory: str
    """On the mount, from its root."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def table(self) -> dict[str, Any]:
        """Return the source as the configuration has it."""
        raise NotImplementedError

    def states(self) -> Sequence[State]:
        """Return all states that the source had."""
        raise NotImplementedError

    def seen(self) -> Sequence[Seen]:
        return ()

    def asked(self) -> Sequence[Asked]:
        return ()

    def changes(self) -> int:
        """Return how many requests have come that change something."""
        raise NotImplementedError

    def strange(self, number: int, step: Step) -> None:
        """Make a change as the stranger, in one step."""
        raise NotImplementedError

    def kill(self) -> None:
        """End the source."""

    def start(self) -> None:
        """Start the source again."""

    def quiet(self) -> None:
        """Meet no more faults."""

    def met(self) -> Sequence[str]:
        """Return the faults that requests have met."""
        return ()

    def close(self) -> None:
        """End the source for good."""

    def _options(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "capabilities": ["read", "list", "write"],
            "timeout": f"{TIMEOUT}s",
            "ttl": self.plan.ttl,
        }


def text_for(name: str, size: int) -> tuple[str, str]:
    """Return the name of the first record of a file, and its text."""
    first = f"s.{name.partition('.')[0]}"
    return first, record(first, size)


class HttpSource(FaultSource):
    """A server in threads of this process."""

    handler: ClassVar[type[Handler]]

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.store = JournalStore(CODECS[self.codec])
        self.faults = Faults(plan.change_faults, plan.look_faults, 1.5 * TIMEOUT)
        for name in plan.uses:
            self.store.put(name, self.store.codec.encode(name, text_for(name, 100)[1]), "stranger")
        self.server = JournalServer(self.handler, self.store, self.faults)

    def states(self) -> Sequence[State]:
        with self.store.lock:
            return list(self.store.states)

    def seen(self) -> Sequence[Seen]:
        return self.store.seen

    def asked(self) -> Sequence[Asked]:
        return self.store.asked

    def changes(self) -> int:
        return self.faults.changed

    def strange(self, number: int, step: Step) -> None:
        text = record(f"s.{number}", step.size)
        store = self.store
        strange: dict[str, Callable[[], object]] = {
            "append": lambda: store.edit(step.name, lambda old: old + text),
            "rewrite": lambda: store.edit(step.name, lambda old: old + text),
            "redirect": lambda: store.put(step.name, store.codec.encode(step.name, text), "stranger"),
            "replace": lambda: store.put(step.name, store.codec.encode(step.name, text), "stranger"),
            "remove": lambda: store.remove(step.name, "stranger"),
            "move": lambda: store.move(step.name, step.to, "stranger"),
        }
        with contextlib.suppress(Refused):
            strange[step.action]()

    def kill(self) -> None:
        self.server.down()

    def start(self) -> None:
        self.server.up()

    def quiet(self) -> None:
        self.faults.quiet = True

    def met(self) -> Sequence[str]:
        return [*self.faults.met, *self.store.notes]

    def close(self) -> None:
        self.server.down()


class WebDavSource(HttpSource):
    handler = WebDav

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.directory = f"bb-storage+far+webdav/127.0.0.1:{self.server.port}"

    def table(self) -> dict[str, Any]:
        url = f"webdav://127.0.0.1:{self.server.port}/"
        return {**self._options("far"), "type": "storage", "config": {"url": url}}


class S3Source(HttpSource):
    handler = S3
    directory = "bb-storage+store+s3/data"
    checks_late = True

    def table(self) -> dict[str, Any]:
        endpoint = f"http://127.0.0.1:{self.server.port}"
        config = {"url": "s3://data/", "options": {"endpoint": endpoint}}
        auth = {"accessKey": KEY, "secretKey": SECRET}
        return {**self._options("store"), "type": "storage", "config": config, "auth": auth}


KINDS: dict[str, Callable[[Plan], FaultSource]] = {"webdav": WebDavSource, "s3": S3Source}
"""The kinds of source, by name."""
PLANS: dict[str, Kind] = {"webdav": WebDavSource.kind, "s3": S3Source.kind}


def source_of(kind: str, plan: Plan, directory: Path) -> FaultSource:
    """Return a new source. directory: for its files."""
    return KINDS[kind](plan)
