"""The sources of a model of writing with faults: each with a journal of its states, a stranger and faults."""

import atexit
import contextlib
import fcntl
import functools
import itertools
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from fault_contents import CODECS, names_of, record
from fault_oracle import Asked, Event, Seen, State
from fault_plans import Kind, Plan, Step
from journal_server import S3, Faults, Handler, JournalServer, JournalStore, Mcp, Refused, WebDav
from journal_sftp import JournalSftp
from object_stores import WRITE, Relay, stored_at
from postgres_server import PASSWORD as PG_PASSWORD
from postgres_server import PostgresServer, postgres_server
from psycopg import OperationalError
from psycopg.sql import SQL, Identifier
from sftp_server import PASSWORD, USER

TIMEOUT = 1.0
"""Seconds that a source has for a request."""


class FaultSource:
    """One source. codec: of its contents, by name. sees, late: see `fault_oracle.History`."""

    kind: ClassVar[Kind] = Kind()
    codec: ClassVar[str] = "plain"
    sees: ClassVar[bool] = True
    late: ClassVar[frozenset[str]] = frozenset()
    is_journal: ClassVar[bool] = True
    directory: str
    """On the mount, from its root."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        """directory: for its files."""
        self.plan = plan
        self.appended: list[tuple[str, str]] = []
        """Names and records of what a stranger has appended, where no journal has it."""
        self.events: list[Event] = []
        """What a stranger has written in place."""

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
            "capabilities": WRITE,
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

    @staticmethod
    def clock() -> float:
        """Return the time of a new file."""
        return time.time()

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
    late = frozenset({"MOVE"})

    def __init__(self, plan: Plan, directory: Path) -> None:
        super().__init__(plan, directory)
        self.directory = f"bb-storage+far+webdav/127.0.0.1:{self.server.port}"

    def table(self) -> dict[str, Any]:
        url = f"webdav://127.0.0.1:{self.server.port}/"
        return {**self._options("far"), "type": "storage", "config": {"url": url}}


class S3Source(HttpSource):
    handler = S3
    directory = "bb-storage+store+s3/data"
    late = frozenset({"COPY", "DELETE"})

    def table(self) -> dict[str, Any]:
        return stored_at(f"http://127.0.0.1:{self.server.port}", **self._options("store"))


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

    late = frozenset({"rename", "remove"})

    @staticmethod
    def clock() -> float:
        return 1_600_000_000 + next(_NUMBERS)

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
    """A table of SQLite, whose triggers keep the journal.

    Another program locks the file for a while, ends within a transaction, or takes the name of SQLite's own journal.
    """

    kind = Kind(appends=False, moves=False, suffix=".json", ends=False)
    codec = "rows"
    sees = False
    directory = "bb-database+shop+sqlite/main/things/row"

    def __init__(self, plan: Plan, directory: Path) -> None:
        super().__init__(plan, directory)
        self._path = str(directory / "shop.db")
        self._whole = threading.RLock()
        with self._opened() as connection:
            connection.executescript(_SQLITE)
            for name in plan.uses:
                connection.execute("INSERT INTO things VALUES (?, ?)", (_key(name), text_for(name, 100)[1]))
        self._met: list[str] = []
        self._quiet = threading.Event()
        self._other = threading.Thread(target=self._disturb)
        self._other.start()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file. It is not broken meanwhile."""
        with (
            self._whole,
            contextlib.closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as connection,
        ):
            yield connection

    def _disturb(self) -> None:
        """Do what other programs do to the file, again and again."""
        for fault in self.plan.change_faults.values():
            if self._quiet.wait(0.1):
                return
            self._met.append(f"{time.monotonic():.3f} {fault}")
            match fault.partition(" ")[0]:
                case "drop":
                    line = [sys.executable, "-S", "-E", "-c", _DYING, self._path]
                    subprocess.run(line, stdin=subprocess.DEVNULL, timeout=60, check=False)
                case "refuse" | "fail":
                    self._hold(0.1, is_broken=True)
                case "stall":
                    self._hold(1.2 * TIMEOUT)
                case _:
                    self._hold(0.1)

    def _hold(self, seconds: float, *, is_broken: bool = False) -> None:
        """Lock the file. is_broken: in place of that, let SQLite not open the journal that it needs."""
        with self._opened() as connection:
            connection.execute("BEGIN EXCLUSIVE")
            if not is_broken:
                self._quiet.wait(seconds)
                connection.execute("ROLLBACK")
                return
            journal = Path(f"{self._path}-journal")
            journal.unlink(missing_ok=True)  # a killed program may leave an empty one, which SQLite passes over
            journal.mkdir()
            connection.execute("ROLLBACK")
            self._quiet.wait(seconds)
            journal.rmdir()

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
        self._other.join()

    def met(self) -> Sequence[str]:
        return self._met

    def close(self) -> None:
        self.quiet()


_DYING = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE things SET what = what || hex(zeroblob(100000))")
os.kill(os.getpid(), 9)
"""
"""A program that ends within a transaction, when a part of it is in the file."""
_SQLITE = """
PRAGMA journal_mode = DELETE;
CREATE TABLE things (id integer PRIMARY KEY, what text);
CREATE TABLE journal (seq integer PRIMARY KEY AUTOINCREMENT, at real, id integer, what text);
""" + "".join(
    f"CREATE TRIGGER noted_{when} AFTER {when} ON things BEGIN INSERT INTO journal (at, id, what) "
    f"VALUES ((julianday('now') - 2440587.5) * 86400.0, {row}.id, {what}); END;\n"
    for when, row, what in (("INSERT", "NEW", "NEW.what"), ("UPDATE", "NEW", "NEW.what"), ("DELETE", "OLD", "NULL"))
)


class CuttingRelay(Relay):
    """A relay that cuts connections. meet: tells from what a client has sent when: `before` the server gets it, or
    `after` the server has answered, which the client does not get. Nothing: never."""

    def __init__(self, port: int, meet: Callable[[bytes], str]) -> None:
        self._meet = meet
        super().__init__(port)

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self._target) as server:
            back = threading.Thread(target=self._back, args=(server, client), daemon=True)
            back.start()
            while data := client.recv(1 << 16):
                when = self._meet(data)
                if when == "after":
                    client.shutdown(socket.SHUT_RDWR)
                if when != "before":
                    server.sendall(data)
                if when:
                    back.join(TIMEOUT if when == "after" else 0)
                    break
            server.shutdown(socket.SHUT_RDWR)
        self._open.discard(client)


class PostgresSource(FaultSource):
    """A table of PostgreSQL, whose triggers keep the journal, behind a relay that fails messages."""

    kind = Kind(appends=False, moves=False, suffix=".json")
    codec = "rows"
    sees = False
    directory = "bb-database+pg+postgres/public/things/row"

    def __init__(self, plan: Plan, directory: Path) -> None:
        super().__init__(plan, directory)
        self._server = shared_postgres()
        self._name = self._server.create(f"faults_{next(_NUMBERS)}", _POSTGRES)
        with self._server.connect(self._name) as connection:  # what is committed outlasts the server
            connection.execute(SQL("ALTER DATABASE {} SET synchronous_commit = on").format(Identifier(self._name)))
        self._connection = self._server.connect(self._name)
        self._lock = threading.Lock()
        for name in plan.uses:
            self._connection.execute("INSERT INTO things VALUES (%s, %s)", (_key(name), text_for(name, 100)[1]))
        self._faults = Faults(plan.change_faults, plan.look_faults, 1.5 * TIMEOUT)
        self._relay = CuttingRelay(self._server.port, self._meet)

    def _meet(self, data: bytes) -> str:
        """Return when the connection is to be cut on which a client has sent some data: before or after the server."""
        if data[:1] not in (b"P", b"Q"):
            return ""  # it logs in, or goes on with a statement
        is_change = b"COMMIT" in data
        fault = self._faults.next("COMMIT" if is_change else "message", is_change=is_change)
        match fault.partition(" ")[0]:
            case "delay":
                time.sleep(0.05)
            case "stall":
                time.sleep(self._faults.stall)
            case "refuse":
                self._end_sessions()
            case "drop" | "fail" | "accept":
                return "after" if fault.endswith(("after", "late")) else "before"
            case _:
                pass
        return ""

    def _end_sessions(self) -> None:
        """End the processes of the server that serve others than this connection, as an administrator does."""
        with self._lock, contextlib.suppress(OperationalError):
            self._connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
                (self._name,),
            )

    def table(self) -> dict[str, Any]:
        url = self._server.url(self._name).replace(f":{self._server.port}/", f":{self._relay.port}/")
        return {**self._options("pg"), "type": "database", "config": {"url": url}, "auth": {"password": PG_PASSWORD}}

    def states(self) -> Sequence[State]:
        with self._lock:
            return _row_states(self._connection.execute("SELECT at, id, what FROM journal ORDER BY seq").fetchall())

    def changes(self) -> int:
        with self._lock:
            (found,) = self._connection.execute("SELECT count(*) FROM journal").fetchall()
        return int(found[0]) - len(self.plan.uses)

    def strange(self, number: int, step: Step) -> None:
        with (
            contextlib.suppress(OperationalError),  # the server is away: then the journal says if it was changed
            self._server.connect(self._name) as connection,
            connection.transaction(),
        ):
            for statement, *values in _statements(number, step):
                connection.execute(statement, values)

    def kill(self) -> None:
        self._lock.acquire()
        self._server.kill()

    def start(self) -> None:
        self._server.start()
        self._connection.close()
        self._connection = self._server.connect(self._name)
        self._lock.release()

    def quiet(self) -> None:
        self._faults.quiet = True

    def met(self) -> Sequence[str]:
        return self._faults.met

    def close(self) -> None:
        self._relay.close()
        self._connection.close()


_NUMBERS = itertools.count()
_POSTGRES = [
    "CREATE TABLE things (id bigint PRIMARY KEY, what text)",
    "CREATE TABLE journal (seq bigserial PRIMARY KEY, at double precision, id bigint, what text)",
    "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN "
    "INSERT INTO public.journal (at, id, what) VALUES (extract(epoch from clock_timestamp()), "
    "CASE TG_OP WHEN 'DELETE' THEN OLD.id ELSE NEW.id END, CASE TG_OP WHEN 'DELETE' THEN NULL ELSE NEW.what END); "
    "RETURN NULL; END $$",
    "CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON things FOR EACH ROW EXECUTE FUNCTION noted()",
]


@functools.cache
def shared_postgres() -> PostgresServer:
    """Return a server that lasts as long as this process."""
    server = postgres_server()
    atexit.register(server.__exit__, None, None, None)
    return server.__enter__()


class FolderSource(FaultSource):
    """A folder that is passed through. It keeps no journal: what is in it at the end has to be right.

    The stranger appends as programs do, replaces files, and rewrites some in place. It takes the locks of the programs
    then, as the last writer wins here.
    """

    kind = Kind(fails=False, ends=False)
    sees = False
    is_journal = False
    directory = "bb-filesystem+work+file"

    def __init__(self, plan: Plan, directory: Path) -> None:
        super().__init__(plan, directory)
        self._root = directory / "root"
        self._root.mkdir()
        self._states = [self._put(name, *text_for(name, 100)) for name in plan.uses]

    def _put(self, name: str, first: str, text: str) -> State:
        beside = self._root.parent / "new"
        beside.write_text(text)
        beside.rename(self._root / name)
        return State(time.monotonic(), name, (first,), "stranger")

    def table(self) -> dict[str, Any]:
        return {**self._options("work"), "type": "filesystem", "config": {"root": str(self._root)}}

    def states(self) -> Sequence[State]:
        found: list[State] = []
        for name in self.plan.uses:
            records = None
            with contextlib.suppress(FileNotFoundError):
                records = names_of((self._root / name).read_text())
            found.append(State(time.monotonic(), name, records, "mount"))
        return [*self._states, *found]

    def changes(self) -> int:
        changed = len(self.appended)
        for each in self._root.iterdir():
            with contextlib.suppress(FileNotFoundError):
                changed += each.stat().st_size > 200
        return changed

    def strange(self, number: int, step: Step) -> None:
        name, text = f"s.{number}", record(f"s.{number}", step.size)
        path = self._root / step.name
        match step.action:
            case "append":
                with path.open("a") as file:
                    file.write(text)
                self.appended.append((step.name, name))
            case "rewrite" | "redirect":
                self._rewrite(number, step.name, text, keeps=step.action == "rewrite")
            case "replace":
                self._states.append(self._put(step.name, name, text))
            case "remove":
                path.unlink(missing_ok=True)
            case "move":
                with contextlib.suppress(FileNotFoundError):
                    path.rename(self._root / step.to)
            case _:
                pass

    def _rewrite(self, number: int, name: str, text: str, *, keeps: bool) -> None:
        """Write a file again in place. keeps: what was in it, and the new record."""
        path = self._root / name
        with (self._root.parent / "locks" / name).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            began = time.monotonic()
            with path.open("r+" if keeps else "w") as file:
                text = (file.read() if keeps else "") + text
                file.seek(0)
                file.truncate()
                file.write(text)
            event = Event("s", number, "rewrite", name, began, time.monotonic(), wrote=names_of(text))
        self.events.append(event)
        self._states.append(State(event.ended, name, event.wrote, "stranger"))


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
    "postgres": PostgresSource,
    "folder": FolderSource,
}
"""The kinds of source, by name."""
PLANS: dict[str, Kind] = {name: kind.kind for name, kind in KINDS.items()} | {"scratch": Kind()}
