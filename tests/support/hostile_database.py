"""Databases of a stranger: files whose views, columns and pages take memory or time without end."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

_NUMBERS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
EXPENSIVE: Mapping[str, str] = {
    "a blob of a gigabyte": "SELECT zeroblob(900000000) AS x",
    "blobs in two thousand columns": "SELECT " + ", ".join(f"zeroblob(16000000) AS c{n}" for n in range(1999)),
    "random bytes": "SELECT randomblob(900000000) AS x",
    "a padded text": "SELECT printf('%900000000d', 1) AS x",
    "a text that grows": "SELECT replace(hex(zeroblob(10000)), '0', hex(zeroblob(30000))) AS x",
    "hex of hex": "SELECT hex(hex(hex(zeroblob(100000000)))) AS x",
    "rows without end": f"{_NUMBERS} SELECT x FROM n",
    "large rows without end": f"{_NUMBERS} SELECT x, zeroblob(1000000) AS y FROM n",
    "a count without end": f"{_NUMBERS} SELECT count(*) AS x FROM n",
    "a concatenation without end": f"{_NUMBERS} SELECT group_concat(x, hex(zeroblob(1000))) AS x FROM n",
    "an array without end": f"{_NUMBERS} SELECT json_group_array(x) AS x FROM n",
    "a sort without end": f"{_NUMBERS} SELECT x, hex(zeroblob(1000)) AS y FROM n ORDER BY x DESC",
    "a union without end": "WITH RECURSIVE n(x) AS (SELECT 1 UNION SELECT x + 1 FROM n) SELECT x FROM n WHERE x < 0",
    "a pattern": "SELECT hex(zeroblob(10000000)) LIKE '%" + "0%" * 400 + "1' AS x",
    "a search": "SELECT instr(zeroblob(30000000), zeroblob(15000000) || x'01') AS x",
    "deep JSON": "SELECT json_extract(replace(hex(zeroblob(1000)), '00', '['), '$') AS x",
    "a product of itself": f"{_NUMBERS} SELECT count(*) AS x FROM "
    + ", ".join(f"(SELECT x FROM n LIMIT 1000) AS {name}" for name in "abcdef"),
}
"""The definitions of views. None may harm anything when it is listed, and opening it must end."""


def view_file(path: Path, name: str) -> Path:
    """Make a file with the healthy table `good` and the view `bad`."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE good (x integer PRIMARY KEY); INSERT INTO good VALUES (7);"
            f"CREATE VIEW bad AS {EXPENSIVE[name]};"
        )
    return path


def column_file(path: Path) -> Path:
    """Make a file with the table `bad`, whose column is computed, and is a gigabyte."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE good (x integer PRIMARY KEY); INSERT INTO good VALUES (7);"
            "CREATE TABLE bad (x integer PRIMARY KEY, y AS (zeroblob(x))); INSERT INTO bad (x) VALUES (900000000)"
        )
    return path


def many_tables(path: Path, tables: int, columns: int) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        names = ", ".join(f"column_{number:0100}" for number in range(columns))
        connection.execute("BEGIN")
        for number in range(tables):
            connection.execute(f"CREATE TABLE t{number} ({names})")
    return path


def looped_page(path: Path) -> Path:
    """Make a file with a text whose chain of overflow pages leads back to itself."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE bad (x)")
        connection.execute("INSERT INTO bad VALUES (?)", ("y" * 100_000,))
    data = bytearray(path.read_bytes())
    page = 4096 * 3
    data[page : page + 4] = (4).to_bytes(4, "big")  # page 4 begins there
    path.write_bytes(data)
    return path
