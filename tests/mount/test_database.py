"""Databases on a real mount: what tools see of them, and what the server is asked."""

import json
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from harness import Mount, Mounts, SourceTable
from postgres_server import PASSWORD, PostgresServer
from programs import Program, errno_of, python, run, shell, wait_until

ODD = (
    "CREATE TYPE mood AS ENUM ('sad', 'so-so')",
    "CREATE TABLE odd (id integer PRIMARY KEY, t text, b bytea, a text[], j json, jb jsonb, n numeric, f float8,"
    " ts timestamptz, d date, iv interval, e mood, g integer GENERATED ALWAYS AS (id * 2) STORED)",
    "COMMENT ON TABLE odd IS 'One of each'",
    "COMMENT ON COLUMN odd.t IS 'Any text'",
    "INSERT INTO odd VALUES (1, E'a,\"b\"\\nc\\\\d', '\\x00ff0a', '{x,\"y z\",NULL}', E'{\"k\":\\n [1, 2]}',"
    " '{\"k\": null}',"
    " 12345678901234567890.50, 0.1, '2026-03-29 03:30+02', '2026-01-01', '1 day 2 s', 'so-so')",
    "INSERT INTO odd VALUES (2, '', '', '{}', 'null', '{}', 'NaN', 'infinity', 'infinity', '-infinity', NULL, NULL)",
    "INSERT INTO odd VALUES (3, '\\.', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '0044-03-15 BC', NULL, 'sad')",
    "CREATE VIEW odd_names AS SELECT id, t FROM odd WHERE id < 3",
    'CREATE SCHEMA "query"',
    "CREATE TABLE query.t (x integer)",
    'CREATE SCHEMA "We/ird .."',
    'CREATE TABLE "We/ird .."."a ""b"" ünï %2F" (k text COLLATE "C", k2 timestamptz, v text, PRIMARY KEY (k, k2))',
    'INSERT INTO "We/ird .."."a ""b"" ünï %2F" VALUES (\'..\', \'2026-01-01 00:00+00\', \'dots\'),'
    " ('', 'infinity', 'empty'), ('a/b,c~', '2026-01-01 12:00+01', 'slash'), (E'n\\nl', '-infinity', 'line')",
    'CREATE TABLE "UPPER" (x integer)',
    'CREATE TABLE "upper" (x integer, y integer)',
)
BASE = "bb-database+pg+postgres"


def database(name: str, url: str, **options: object) -> SourceTable:
    """A database as the configuration file has it."""
    config = {"url": url, **options.pop("config", {})}  # type: ignore[dict-item]
    return {"name": name, "type": "database", "config": config, **options}


def over(server: PostgresServer, name: str, **options: object) -> SourceTable:
    return database("pg", server.url(name), auth={"password": PASSWORD}, **options)


@pytest.fixture(scope="module")
def odd_mount(module_mounted: Mounts, postgres: PostgresServer) -> Mount:
    """A database with one of each."""
    source = over(
        postgres,
        postgres.create("odd", ODD),
        config={
            "queries": {
                "between": {
                    "sql": "SELECT id, t FROM odd WHERE id BETWEEN :low AND :high AND :t IN (t, 'any') ORDER BY id",
                    "parameters": {"low": "integer", "high": {"type": "integer", "default": 99}},
                },
                "since": "SELECT id FROM odd WHERE d >= :from ORDER BY id",
                "writes": "WITH gone AS (DELETE FROM odd RETURNING id) SELECT * FROM gone",
                "wrong": "SELECT nothing FROM odd",
            }
        },
    )
    return module_mounted(source)


@pytest.fixture
def odd(odd_mount: Mount) -> Path:
    return odd_mount / BASE


@pytest.mark.semantics("S9")
def test_rows_csv_is_what_copy_writes_of_every_type(odd: Path, postgres: PostgresServer) -> None:
    expected = postgres.psql("odd", "COPY (SELECT * FROM odd) TO STDOUT (FORMAT csv, HEADER)")
    assert run("cat", odd / "public/odd/rows.csv").out == expected
    assert run("stat", "-c", "%s", odd / "public/odd/rows.csv").text == f"{len(expected)}\n"
    expected = postgres.psql("odd", "COPY (SELECT * FROM odd_names) TO STDOUT (FORMAT csv, HEADER)")
    assert run("cat", odd / "public/odd_names/rows.csv").out == expected


def test_rows_are_json_with_all_their_digits(odd: Path) -> None:
    lines = run("cat", odd / "public/odd/rows.ndjson").text.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert '"n":12345678901234567890.50,' in lines[0]
    assert rows[0]["j"] == {"k": [1, 2]}
    assert rows[0]["a"] == ["x", "y z", None]
    assert (rows[0]["b"], rows[0]["g"], rows[0]["e"]) == ("\\x00ff0a", 2, "so-so")
    assert (rows[1]["ts"], rows[1]["d"], rows[1]["n"], rows[1]["t"]) == ("infinity", "-infinity", "NaN", "")
    for row in rows:
        assert json.loads(run("cat", odd / f"public/odd/row/{row['id']}.json").text) == row
    assert run("cat", odd / "public/odd/count").text == "3\n"


@pytest.mark.semantics("S11.2")
def test_definition_and_comments_can_be_read(odd: Path, postgres: PostgresServer) -> None:
    """What schema.sql says makes a table that says the same of itself."""
    sql = run("cat", odd / "public/odd/schema.sql").text
    postgres.create("copied", (ODD[0], *filter(None, sql.split(";\n"))))
    described = json.loads(run("cat", odd / "public/odd/columns.json").text)
    assert (described["comment"], described["primaryKey"]) == ("One of each", ["id"])
    assert described["columns"][1] == {"name": "t", "type": "text", "nullable": True, "comment": "Any text"}
    assert described["columns"][-1]["generated"] == "(id * 2)"
    for path in (odd / "public/odd", odd / "public/odd/rows.csv"):
        attributes = "".join(
            run("getfattr", "-n", f"user.bbfs.{name}", path).text for name in ("comment", "primary_key", "columns")
        )
        assert 'user.bbfs.comment="One of each"' in attributes
        assert 'user.bbfs.primary_key="id"' in attributes
        assert "timestamp with time zone" in attributes


def test_named_queries_take_their_values_from_the_file_name(odd: Path) -> None:
    query = odd / "query"
    names = {
        "between.sql", "since.sql", "wrong.csv", "wrong.ndjson", "wrong.sql", "writes.csv", "writes.ndjson",
        "writes.sql",
    }  # fmt: skip
    assert set(run("ls", query).text.split()) == names
    assert run("cat", query / "between?low=2&high=3&t=any.csv").text == 'id,t\n2,""\n3,\\.\n'
    assert run("cat", query / "between?t=&low=1.csv").text == 'id,t\n2,""\n'
    encoded = quote('a,"b"\nc\\d')
    assert json.loads(run("cat", query / f"between?low=0&t={encoded}.ndjson").text)["id"] == 1
    assert run("cat", query / "since?from=2026-01-01.csv").text == "id\n1\n"
    assert "-- :high integer, 99 unless given" in run("cat", query / "between.sql").text


@pytest.mark.semantics("S9.6", "S12")
def test_a_large_table_costs_nothing_until_it_is_opened(mounted: Mounts, postgres: PostgresServer) -> None:
    name = postgres.create(
        "large",
        (
            "CREATE TABLE large (id bigint PRIMARY KEY, kind text, v text)",
            "INSERT INTO large SELECT i, 'kind ' || i % 3, repeat('x', i % 50) FROM generate_series(1, 5000) AS i",
            "CREATE INDEX ON large (kind)",
            "CREATE TABLE small (id integer PRIMARY KEY)",
            "ANALYZE",
        ),
    )

    def scans() -> tuple[int, int]:
        """Of all tables so far: sequential ones, and rows that were read by any."""
        with postgres.connect(name) as connection:
            connection.execute("SELECT pg_stat_force_next_flush()")
            return connection.execute(
                "SELECT sum(seq_scan)::int, sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int"
                " FROM pg_stat_user_tables"
            ).fetchall()[0]

    before = scans()
    public = mounted(over(postgres, name, config={"row_limit": 1000, "listed_rows": 100})) / BASE / "public"
    listing = run("ls", "-l", public, public / "large").text
    shown = ("getfattr", "-n", "user.bbfs.estimated_rows", public / "large", public / "large/schema.sql")
    assert 'estimated_rows="5000"' in run(*shown).text
    assert {line.split()[-1]: line.split()[4] for line in listing.splitlines() if line.startswith("-")} == {
        "columns.json": run("stat", "-c", "%s", public / "large/columns.json").text.strip(),
        "schema.sql": run("stat", "-c", "%s", public / "large/schema.sql").text.strip(),
    }
    assert scans() == before
    expected = postgres.psql(name, "COPY large TO STDOUT (FORMAT csv, HEADER)")
    assert run("stat", "-c", "%s", public / "large/rows.csv").text == f"{len(expected)}\n"
    assert run("cat", public / "large/rows.csv").out == expected
    assert run("cat", public / "large/count").text == "5000\n"
    assert run("stat", "-c", "%s", public / "small/rows.csv").text == "3\n"
    # Names beyond those listed lead to rows all the same.
    assert len(run("ls", public / "large/row").text.splitlines()) == 100
    assert "only the first 100 rows" in run("getfattr", "-d", public.parent).text
    assert json.loads(run("cat", public / "large/row/4999.json").text)["id"] == 4999
    assert run("ls", public / "large/by/kind").text.splitlines() == ["kind 0", "kind 1", "kind 2"]
    assert json.loads(run("cat", public / "large/by/kind/kind 1/4999.json").text)["id"] == 4999
    assert errno_of("os.stat(sys.argv[1])", public / "large/by/kind/kind 2/4999.json") == "ENOENT"
    assert errno_of("os.stat(sys.argv[1])", public / "large/row/05.json") == "ENOENT"


@pytest.mark.semantics("S9", "S14")
def test_an_archive_of_a_large_table_has_all_rows_and_no_empty_file(
    mounted: Mounts, postgres: PostgresServer, tmp_path: Path
) -> None:
    name = postgres.create(
        "archived",
        (
            "CREATE TABLE large (id bigint PRIMARY KEY, v text)",
            "INSERT INTO large SELECT i, 'v' || i FROM generate_series(1, 2500) AS i",
            "CREATE TABLE keyless (v text)",
            "INSERT INTO keyless SELECT 'v' || i FROM generate_series(1, 2500) AS i",
            "ANALYZE",
        ),
    )
    queries = {"slow": {"sql": "SELECT 7 AS n", "lazy": True}}
    config = {"row_limit": 1000, "listed_rows": 20, "queries": queries}
    source = mounted(over(postgres, name, config=config)) / BASE
    for command in ("tar --sort=name -cf - . | tar -xf - -C", "cp -a ."):
        copy = tmp_path / command.split()[0]
        copy.mkdir()
        shell(f"{command} {copy}", directory=source, timeout=60)
        assert not [path for path in copy.rglob("*") if path.is_file() and not path.stat().st_size]
        parts = sorted((copy / "public/large/rows").iterdir())
        assert [part.name for part in parts] == [
            "0000001-0001000.csv",
            "0001001-0002000.csv",
            "0002001-0003000.csv",
        ]
        rows = [line for part in parts for line in part.read_text().splitlines()[1:]]
        assert rows == [f"{number},v{number}" for number in range(1, 2501)]
        assert {path.name for path in (copy / "public/keyless").iterdir()} == {"columns.json", "schema.sql"}
        assert {path.name for path in (copy / "query").iterdir()} == {"slow.sql"}
    assert run("cat", source / "query/slow.csv").text == "n\n7\n"
    assert run("stat", "-c", "%s", source / "query/slow.csv", source / "public/keyless/count").text == "4\n5\n"
    assert "`rows/` has all rows" in run("cat", source / ".about.md").text


def _memory(pid: int) -> int:
    """Bytes that a process holds, of its own."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(fields["VmRSS"].split()[0]) * 1024


@pytest.mark.semantics("S15.1")
def test_a_million_rows_are_what_copy_writes_in_little_memory(
    mounted: Mounts, postgres: PostgresServer, programs: type[Program], tmp_path: Path
) -> None:
    name = postgres.create(
        "million",
        (
            "CREATE TABLE million (id bigint PRIMARY KEY, t text, n numeric, at timestamptz)",
            "INSERT INTO million"
            " SELECT i, 'row \"' || i || '\"', i * 1.25, '2026-01-01'::timestamptz + i * interval '1 s'"
            " FROM generate_series(1, 1000000) AS i",
        ),
    )
    mount = mounted(over(postgres, name, timeout=60))
    table = mount / BASE / "public/million"
    run("ls", "-l", table)
    idle = most = _memory(mount.pid)
    reader = programs("sh", "-c", 'cat "$1" > "$2"', "sh", table / "rows.csv", tmp_path / "read")
    while reader.running:
        most = max(most, _memory(mount.pid))
        time.sleep(0.02)
    assert reader.wait(60).status == 0
    (tmp_path / "copied").write_bytes(postgres.psql(name, "COPY million TO STDOUT CSV HEADER"))
    run("cmp", tmp_path / "read", tmp_path / "copied")
    assert most - idle < 200e6


def _busy(server: PostgresServer, name: str) -> list[str]:
    """What the server is doing for the mount."""
    with server.connect(name) as connection:
        rows = connection.execute(
            "SELECT query FROM pg_stat_activity WHERE application_name = 'bbfs' AND state = 'active' AND datname = %s",
            (name,),
        ).fetchall()
    return [query for (query,) in rows]


SLOW = {"queries": {"slow": "SELECT pg_sleep(50)", "fine": "SELECT 1 AS one"}}


@pytest.mark.semantics("S22")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_reader_ends_its_statement_on_the_server(
    mounted: Mounts, programs: type[Program], postgres: PostgresServer, number: signal.Signals
) -> None:
    name = postgres.create(f"slow{int(number)}")
    query = mounted(over(postgres, name, config=SLOW, timeout=60)) / BASE / "query"
    reader = programs("cat", query / "slow.csv")
    wait_until(lambda: _busy(postgres, name), "the statement runs")
    reader.send(number)
    assert reader.wait(10).status == -number
    wait_until(lambda: not _busy(postgres, name), "the statement is cancelled")
    assert run("cat", query / "fine.csv").text == "one\n1\n"


@pytest.mark.semantics("S9", "S14")
def test_a_sqlite_file_is_a_tree_that_tools_can_copy(mounted: Mounts, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.executescript(
            "CREATE TABLE users (id integer PRIMARY KEY, name text, city text, photo blob);"
            "CREATE INDEX users_city ON users (city);"
            "INSERT INTO users VALUES (1, 'Ann', 'Berlin', x'00ff'), (2, NULL, NULL, NULL), (30, '', '', NULL);"
            "CREATE TABLE keys (k PRIMARY KEY, v);"
            "INSERT INTO keys VALUES (1, 'integer'), ('1', 'text'), (x'31', 'blob'), (NULL, 'null'), ('', 'empty');"
        )
    query = {"from": {"sql": "SELECT name FROM users WHERE id >= :id", "parameters": {"id": "integer"}}}
    mount = mounted(database("lite", f"sqlite:///{tmp_path}/a.db", config={"queries": query}))
    main = mount / "bb-database+lite+sqlite/main"
    assert run("ls", main / "keys/row").text.split() == ["1.json", "~empty.json", "~null.json", "~t1.json", "~x31.json"]
    assert run("ls", main / "users/by/city").text.split() == ["Berlin", "~empty", "~null"]
    assert json.loads(run("cat", main / "users/by/city/~null/2.json").text)["id"] == 2
    assert run("cat", mount / "bb-database+lite+sqlite/query/from?id=2.csv").text == 'name\n\n""\n'
    copy = tmp_path / "copy"
    run("cp", "-a", main, copy)
    assert shell("tar -C $1 -cf - . | tar -df - -C $2", main, copy, status=None).err == b""
    assert (copy / "users/rows.csv").read_text() == 'id,name,city,photo\n1,Ann,Berlin,\\x00ff\n2,,,\n30,"","",\n'
    assert (copy / "users/by/city/Berlin/1.json").read_text() == (copy / "users/row/1.json").read_text()
    assert shell("grep -rl Berlin . | sort", directory=main / "users").text.split() == [
        "./row/1.json",
        "./rows.csv",
        "./rows.ndjson",
    ]
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("INSERT INTO users VALUES (31, 'new', NULL, NULL)")
        connection.commit()
    assert json.loads(run("cat", main / "users/row/31.json").text)["name"] == "new"


@pytest.mark.semantics("S32", "S33")
def test_programs_write_rows(mounted: Mounts, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE users (id integer PRIMARY KEY, name text NOT NULL, city text)")
        connection.execute("INSERT INTO users VALUES (1, 'Ann', 'Oslo'), (3, 'Cid', NULL)")
        connection.commit()

        def users() -> list[tuple[object, ...]]:
            return connection.execute("SELECT id, name, city FROM users ORDER BY id").fetchall()

        source = database("shop", f"sqlite:///{path}", capabilities=["read", "list", "write"])
        mount = mounted(source, expected=["not written"])
        rows = mount.path / "bb-database+shop+sqlite/main/users/row"
        shell(f'cd {rows} && sed -i s/Oslo/Rome/ 1.json && echo \'{{"name": "Bob"}}\' > 2.json')
        assert users() == [(1, "Ann", "Rome"), (2, "Bob", None), (3, "Cid", None)]
        assert json.loads((rows / "2.json").read_text()) == {"id": 2, "name": "Bob", "city": None}
        assert sorted(each.name for each in rows.iterdir()) == ["1.json", "2.json", "3.json"]
        # A random name that is by chance a word: the source refuses it, and a program makes it all the same.
        for word in ("sednmlitl", ".4.json.sample"):
            shell(f'cd {rows} && echo \'{{"name": "Eve"}}\' > {word} && mv {word} 4.json && rm 4.json')
        for word in (".4.txt.sample", "sednmlitlx"):
            assert errno_of("open(sys.argv[1], 'w')", rows / word) == "EOPNOTSUPP"
        (rows / "1.json").unlink()
        assert users() == [(2, "Bob", None), (3, "Cid", None)]
        changed = (
            "((f := open(sys.argv[1], 'r+b', 0)), f.read(), (c := __import__('sqlite3').connect(sys.argv[2])),"
            "c.execute('UPDATE users SET city = 1 WHERE id = 3'), c.commit(), f.truncate(0), f.seek(0),"
            'f.write(b\'{"name": "Dan"}\'), os.fsync(f.fileno()))'
        )
        assert errno_of(changed, rows / "3.json", path) == "ESTALE"
        invalid = "((f := os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)), os.write(f, b'{\"name\": 1}x'), os.fsync(f))"
        assert errno_of(invalid, rows / "4.json") == "EINVAL"
        assert errno_of("open(sys.argv[1], 'w')", rows.parent / "rows.csv") == "EOPNOTSUPP"
        assert users() == [(2, "Bob", None), (3, "Cid", "1")]


SAVES = """
import json
path = sys.argv[1]
for number in range(3):
    open(path, "w").write(json.dumps({"name": f"N{number}"}))
    for city in "abc":
        with open(path, "r+") as file:
            row = json.load(file)
            assert row["name"] == f"N{number}", row
            for row["city"] in (city, city + city):
                file.seek(0), file.truncate(), json.dump(row, file), file.flush(), os.fsync(file.fileno())
    with open(path, "r+") as file:
        text = file.read()
        assert text == f'{{"id":1,\\n "name":"N{number}",\\n "city":"cc"}}\\n', text
        file.seek(0), file.write(text.replace("cc", "dd"))
    assert os.stat(path).st_size == len(open(path).read())
"""
"""Saves a row in all ways, each just after another one. The database formats it otherwise than the program does."""


@pytest.mark.semantics("S32")
def test_a_row_is_saved_again_just_after_it_was_saved(mounted: Mounts, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE users (id integer PRIMARY KEY, name text NOT NULL, city text)")
        connection.commit()
        mount = mounted(database("shop", f"sqlite:///{path}", capabilities=["read", "list", "write"]))
        row = mount.path / "bb-database+shop+sqlite/main/users/row/1.json"
        python(SAVES, row)
        assert connection.execute("SELECT * FROM users").fetchall() == [(1, "N2", "dd")]
        edit = ["vim", "-es", "-N", "-u", "NONE", "-c", "%s/N2/N3/", "-c", "w", "-c", "%s/N3/N4/", "-c", "wq"]
        run(*edit, row)
        assert connection.execute("SELECT * FROM users").fetchall() == [(1, "N4", "dd")]
