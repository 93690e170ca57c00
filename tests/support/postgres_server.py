"""A real PostgreSQL server for tests: on a port and a Unix socket of its own, with data that are gone with it."""

import atexit
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from programs import free_port, wait_until

PASSWORD = "s3cret/&:pass"
SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=40", "timezone=UTC")


def binaries() -> Path | None:
    """The directory of initdb and postgres, of the newest version that is installed; Debian has them in no PATH."""
    found = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    if found:
        return max(found, key=lambda path: int(path.parent.name))
    initdb = shutil.which("initdb")
    return None if initdb is None else Path(initdb).parent


@cache
def _cluster(programs: Path, by: tuple[str, ...]) -> Path:
    """Return the directory of a new cluster, to be copied: to make one takes seconds. It ends with this process."""
    directory = Path(tempfile.mkdtemp(prefix="bbfs-pg-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    (directory / "password").write_text(PASSWORD)
    directory.chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(directory, "postgres")
    options = ["-U", "owner", f"--pwfile={directory}/password", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8"]
    done = subprocess.run(
        [*by, programs / "initdb", "-D", directory / "data", "--no-sync", *options],
        capture_output=True, text=True, timeout=60, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return directory / "data"


class PostgresServer:
    """A cluster and its server. It refuses to run as root: then it belongs to the user `postgres`."""

    def __init__(self, directory: Path, programs: Path | None = None) -> None:
        """directory: empty, with a path short enough for a Unix socket. programs: of another PostgreSQL."""
        self.directory = directory
        self._bin = programs or binaries()
        assert self._bin is not None, "PostgreSQL is not installed"
        self._as: tuple[str, ...] = ()
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(directory, user.pw_uid, user.pw_gid)
            self._as = ("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
        subprocess.run(["cp", "-a", _cluster(self._bin, self._as), directory / "data"], timeout=60, check=True)
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        settings = [f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self.directory}"]
        words = [word for setting in (*SETTINGS, *settings) for word in ("-c", setting)]
        with (self.directory / "log").open("ab") as log:
            assert self._bin is not None
            self.process = subprocess.Popen(
                [*self._as, self._bin / "postgres", "-D", self.directory / "data", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        wait_until(self._answers, "PostgreSQL answers", 30)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "log").read_text()
        with contextlib.suppress(psycopg.OperationalError):
            with self.connect("postgres"):
                return True
        return False

    def kill(self) -> None:
        """End the server at once, as a crash does: it takes its own processes along."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)  # "immediate shutdown" (server-shutdown)
            self.process.wait(20)
            self.process = None

    def connect(self, database: str) -> "psycopg.Connection[Any]":
        """A connection of the tests' own, that commits each statement."""
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="owner", password=PASSWORD, dbname=database,
            autocommit=True, connect_timeout=5,
        )  # fmt: skip

    def create(self, database: str, statements: Sequence[str] = ()) -> str:
        """Make a database, and give its name."""
        with self.connect("postgres") as connection:
            connection.execute(f'CREATE DATABASE "{database}"'.encode())
        with self.connect(database) as connection:
            for statement in statements:
                connection.execute(statement.encode())
        return database

    def url(self, database: str, password: str | None = None, user: str = "owner") -> str:
        """As a configuration names it. password: percent-encoded; None leaves it out."""
        secret = "" if password is None else f":{password}"
        return f"postgresql://{user}{secret}@127.0.0.1:{self.port}/{database}"

    def psql(self, database: str, sql: str) -> bytes:
        """What psql writes for a statement."""
        assert self._bin is not None
        done = subprocess.run(
            [self._bin / "psql", *f"-X -q -h 127.0.0.1 -p {self.port} -U owner -c".split(), sql, database],
            env={"PATH": os.environ["PATH"], "PGPASSWORD": PASSWORD, "PGCLIENTENCODING": "UTF8"},
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextlib.contextmanager
def postgres_server(programs: Path | None = None) -> Iterator[PostgresServer]:
    """A server for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="bbfs-pg-") as directory:
        server = PostgresServer(Path(directory), programs)
        try:
            yield server
        finally:
            server.kill()
