"""One redirection of a shell is one write to a source (S32)."""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from harness import Mounts
from programs import run

CODE = """
import os, subprocess, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
subprocess.run([sys.executable, "-m", "bbfs", "refresh", sys.argv[2]], check=True)  # the kernel drops the name
os.close(os.dup(file))  # as a shell does
os.write(file, sys.argv[3].encode())
os.close(file)
"""


@pytest.mark.semantics("S32")
def test_a_row_whose_name_the_kernel_has_dropped_is_written_once(mounted: Mounts, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.executescript("CREATE TABLE t (id integer PRIMARY KEY, a text); INSERT INTO t VALUES (7, 'seven')")
    config = {"url": f"sqlite:///{tmp_path}/a.db"}
    mount = mounted({"name": "db", "type": "database", "config": config, "capabilities": ["read", "list", "write"]})
    row = mount / "bb-database+db+sqlite/main/t/row/7.json"
    new = json.dumps({"id": 7, "a": "new"})
    run(sys.executable, "-c", CODE, row, mount / "bb-database+db+sqlite", new, env=mount.environ(), timeout=30)
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        assert connection.execute("SELECT a FROM t").fetchall() == [("new",)]
    assert "not written" not in mount.log()
