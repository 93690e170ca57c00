"""The sources of a model of writing with faults: each with a journal of its states, a stranger and faults."""

import contextlib
import itertools
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from fault_contents import CODECS, names_of, record
from fault_oracle import Asked, Seen, State
from fault_plans import Kind, Plan, Step
from journal_server import S3, Faults, Handler, JournalServer, JournalStore, Mcp, Refused, WebDav
from journal_sftp import JournalSftp
from object_stores import KEY, SECRET
from sftp_server import PASSWORD, USER

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

    def __init__(self, plan: Plan, directory: Path) -> None:
        """directory: for its files."""
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
    clock: ClassVar[Callable[[], float]] = staticmethod(time.time)

    def __init__(self, plan: Plan, directory: Path) -> None:
        super().__init__(plan, directory)
        self.store = JournalStore(CODECS[self.codec], self.clock)
        self.faults = Faults(plan.change_faults, plan.look_faults, 1.5 * TIMEOUT)
        for name in plan.uses:
            self.store.put(name, self.store.codec.encode(name, text_for(name, 100)[1]), "stranger")
        self.server = self._served(directory)

    def _served(self, directory: Path) -> JournalServer | JournalSftp:
        return JournalServer(self.handler, self.store, self.faults)

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

    def __init__(self, plan: Plan, directory: Path) -> None:
        super().__init__(plan, directory)
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


class McpSource(HttpSource):
    handler = Mcp
    directory = "mcp-server+box/mem/box"

    def table(self) -> dict[str, Any]:
        tools = {"version": "version", "template": "mem://box/{name}"}
        return {
            **self._options("box"),
            "mcpConfig": {"url": f"http://127.0.0.1:{self.server.port}/mcp"},
            "write": {"tool": "put", **tools},
            "remove": {"tool": "drop", **tools},
        }


class SftpSource(HttpSource):
    """A server of SFTP. Its times are whole seconds and its only versions, so no two states have the same."""

    checks_late = True
    clock = staticmethod(itertools.count(1_600_000_000).__next__)

    def __init__(self, plan: Plan, directory: Path) -> None:
        super().__init__(plan, directory)
        self.directory = f"bb-storage+far+sftp/127.0.0.1:{self.server.port}"

    def _served(self, directory: Path) -> JournalServer | JournalSftp:
        return JournalSftp(self.store, self.faults, directory)

    def table(self) -> dict[str, Any]:
        assert isinstance(self.server, JournalSftp)
        options = {"known_hosts": str(self.server.known_hosts)}
        config = {"url": f"sftp://127.0.0.1:{self.server.port}/", "options": options}
        auth = {"username": USER, "password": PASSWORD}
        return {**self._options("far"), "type": "storage", "config": config, "auth": auth}


class SqliteSource(FaultSource):
    """A table of SQLite, whose triggers keep the journal. Another process locks the file for a while."""

    kind = Kind(appends=False, moves=False, suffix=".json", fails=False, ends=False)
    codec = "rows"
    sees = False
    directory = "bb-database+shop+sqlite/main/things/row"

    def __init__(self, plan: Plan, directory: Path) -> None:
        super().__init__(plan, directory)
        self._path = str(directory / "shop.db")
        with self._opened() as connection:
            connection.executescript(_SQLITE)
            for name in plan.uses:
                connection.execute("INSERT INTO things VALUES (?, ?)", (_key(name), text_for(name, 100)[1]))
        self._quiet = threading.Event()
        self._locker = threading.Thread(target=self._lock)
        self._locker.start()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as connection:
            yield connection

    def _lock(self) -> None:
        """Hold the file as a program does that writes for long."""
        for number, fault in sorted(self.plan.change_faults.items()):
            if number > 60 or self._quiet.wait(0.05):
                return
            with self._opened() as connection:
                connection.execute("BEGIN EXCLUSIVE")
                self._quiet.wait(1.2 * TIMEOUT if fault.startswith("stall") else 0.1)
                connection.execute("ROLLBACK")

    def table(self) -> dict[str, Any]:
        return {**self._options("shop"), "type": "database", "config": {"url": f"sqlite:///{self._path}"}}

    def states(self) -> Sequence[State]:
        with self._opened() as connection:
            return _row_states(connection.execute("SELECT at, id, what FROM journal ORDER BY seq").fetchall())

    def changes(self) -> int:
        with self._opened() as connection:
            return connection.execute("SELECT count(*) FROM journal").fetchone()[0] - len(self.plan.uses)

    def strange(self, number: int, step: Step) -> None:
        with self._opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement, *values in _statements(number, step):
                connection.execute(statement.replace("%s", "?"), values)
            connection.execute("COMMIT")

    def quiet(self) -> None:
        self._quiet.set()
        self._locker.join()

    def close(self) -> None:
        self.quiet()


_SQLITE = """
PRAGMA journal_mode = DELETE;
CREATE TABLE things (id integer PRIMARY KEY, what text);
CREATE TABLE journal (seq integer PRIMARY KEY AUTOINCREMENT, at real, id integer, what text);
""" + "".join(
    f"CREATE TRIGGER noted_{when} AFTER {when} ON things BEGIN INSERT INTO journal (at, id, what) "
    f"VALUES ((julianday('now') - 2440587.5) * 86400.0, {row}.id, {what}); END;\n"
    for when, row, what in (("INSERT", "NEW", "NEW.what"), ("UPDATE", "NEW", "NEW.what"), ("DELETE", "OLD", "NULL"))
)


def _key(name: str) -> int:
    return int(name.partition(".")[0])


def _row_states(rows: Sequence[tuple[float, int, str | None]]) -> list[State]:
    """Return the states of rows of the journal. Its times are seconds since the epoch."""
    since = time.time() - time.monotonic()
    found: list[State] = []
    for at, key, what in rows:
        records = None if what is None else names_of(what)
        by = "stranger" if records and records[-1].startswith("s.") else "mount"
        found.append(State(at - since, f"{key}.json", records, by))
    return found


def _statements(number: int, step: Step) -> list[tuple[Any, ...]]:
    """Return the statements of a stranger's change, each with its values."""
    key, text = _key(step.name), record(f"s.{number}", step.size)
    match step.action:
        case "rewrite":
            return [("UPDATE things SET what = what || %s WHERE id = %s", text, key)]
        case "remove":
            return [("DELETE FROM things WHERE id = %s", key)]
        case _:
            return [("DELETE FROM things WHERE id = %s", key), ("INSERT INTO things VALUES (%s, %s)", key, text)]


KINDS: dict[str, type[FaultSource]] = {
    "webdav": WebDavSource,
    "s3": S3Source,
    "mcp": McpSource,
    "sftp": SftpSource,
    "sqlite": SqliteSource,
}
"""The kinds of source, by name."""
PLANS: dict[str, Kind] = {name: kind.kind for name, kind in KINDS.items()}
