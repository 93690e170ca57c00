"""A real MariaDB server for tests: on a port and a socket of its own, with data that are gone with it."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pymysql
from programs import free_port, wait_until

PASSWORD = "s3cret/&:pass"
_PATH = f"{os.environ['PATH']}:/usr/sbin"
_SCRIPTS = Path("/usr/share/mysql")
_SYSTEM = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
"""Scripts that `mariadb-install-db` runs. The package of the server alone does not have all of its needs."""


def is_installed() -> bool:
    return shutil.which("mariadbd", path=_PATH) is not None and (_SCRIPTS / _SYSTEM[0]).exists()


class MariadbServer:
    """A server, running."""

    def __init__(self, directory: Path) -> None:
        """directory: empty, with a path short enough for a Unix socket."""
        self._directory = directory
        as_user = ["--user=root"] if os.geteuid() == 0 else []
        command = ["mariadbd", "--no-defaults", *as_user, f"--datadir={directory}/data"]
        (directory / "data").mkdir()
        begins = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n"
        script = begins + "".join((_SCRIPTS / name).read_text() for name in _SYSTEM)
        made = subprocess.run(
            [*command, "--bootstrap"],
            input=script,
            env={"PATH": _PATH},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        self.port = free_port()
        settings = [f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={directory}/socket"]
        settings += [
            f"--pid-file={directory}/pid",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-buffer-pool-size=8M",
        ]
        with (directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *settings],
                env={"PATH": _PATH},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._answers, "MariaDB answers", 30)
        self.run("mysql", [f"CREATE USER reader@127.0.0.1 IDENTIFIED BY '{PASSWORD}'"])

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._directory / "log").read_text()
        return (self._directory / "socket").exists()

    def end(self) -> None:
        self._process.kill()
        self._process.wait(20)

    def run(self, database: str, statements: Sequence[str]) -> list[tuple[Any, ...]]:
        """Run statements as root. Return the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with contextlib.closing(
            pymysql.connect(
                unix_socket=f"{self._directory}/socket",
                user="root",
                database=database,
                charset="utf8mb4",
                autocommit=True,
                sql_mode="ANSI_QUOTES",
            )
        ) as connection:
            for statement in statements:
                with connection.cursor() as cursor:
                    cursor.execute(statement)
                    rows = list(cursor.fetchall())
        return rows

    def create(self, database: str, statements: Sequence[str] = (), rights: str = "SELECT") -> str:
        """Make a database on which `reader` has rights. Return its URL, without the password."""
        grant = f'GRANT {rights} ON "{database}".* TO reader@127.0.0.1'
        self.run("mysql", [f'CREATE DATABASE "{database}" CHARACTER SET utf8mb4', grant])
        self.run(database, statements)
        return f"mysql://reader@127.0.0.1:{self.port}/{database}"


@contextlib.contextmanager
def mariadb_server() -> Iterator[MariadbServer]:
    """Run a server for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="bbfs-maria-") as directory:
        server = MariadbServer(Path(directory))
        try:
            yield server
        finally:
            server.end()
