"""Which sources are shared, and what makes two of them the same one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bbfs.config.command_line.arguments import source_from_dir_argument
from bbfs.config.command_line.urls import source_from_url_argument
from bbfs.config.interpolation import Interpolator
from bbfs.config.toml import load_config
from bbfs.model.values import DataSource, McpServer
from bbfs.resources.loading.shared_tier import may_be_shared
from bbfs.resources.source.fingerprint import fingerprint, place

PUBLIC = McpServer("http", url="https://mcp.example.org/mcp")
PROGRAM = McpServer("stdio", command="/usr/bin/server", args=("--all",))


def source(mcp: McpServer | None = PUBLIC, **fields: Any) -> DataSource:
    return DataSource("docs", "docs", "server", "mcp", "mcp-server+docs", mcp=mcp, **fields)


def folder(**fields: Any) -> DataSource:
    return DataSource("n", "n", "filesystem", "bb", "bb-filesystem+n+file", config={"root": "/srv/notes"}, **fields)


def test_a_server_that_tells_everybody_the_same_is_shared() -> None:
    assert may_be_shared(source())
    assert may_be_shared(source(replace(PUBLIC, transport="sse")))
    assert may_be_shared(source(McpServer("http", url="http://10.1.2.3:8000/mcp")))


@pytest.mark.parametrize(
    "personal",
    [
        source(replace(PUBLIC, headers={"Authorization": "Bearer x"})),
        source(replace(PUBLIC, headers={"X-Team": "blue"})),
        source(replace(PUBLIC, secrets=frozenset({"example"}))),
        source(replace(PUBLIC, url="https://user:word@mcp.example.org/mcp")),
        source(replace(PUBLIC, url="https://mcp.example.org/mcp?key=1")),
        source(replace(PUBLIC, roots=("/home/me",))),
        source(auth={"clientId": "x"}),
        source(tools="all"),
        source(tools=("search",)),
        source(PROGRAM),
        folder(),
        *(
            source(replace(PUBLIC, url=f"http://{host}:8000/mcp"))
            for host in ("localhost", "LOCALHOST.", "x.localhost", "127.0.0.1", "127.1.2.3", "[::1]", "0.0.0.0")
        ),
    ],
)
def test_everything_else_is_not_unless_the_user_says_so(personal: DataSource) -> None:
    assert not may_be_shared(personal)
    assert may_be_shared(replace(personal, shared=True)) == (personal.mcp is not None)


def test_what_the_user_keeps_out_is_not_shared() -> None:
    assert not may_be_shared(source(shared=False))


DIFFERENT = [
    source(),
    source(replace(PUBLIC, url="https://mcp.example.org/other")),
    source(replace(PUBLIC, url="https://user:one@mcp.example.org/mcp")),
    source(replace(PUBLIC, url="https://user:two@mcp.example.org/mcp")),
    source(replace(PUBLIC, transport="sse")),
    source(replace(PUBLIC, headers={"Authorization": "Bearer one"})),
    source(replace(PUBLIC, headers={"Authorization": "Bearer two"})),
    source(replace(PUBLIC, roots=("/home/me",))),
    source(auth={"clientId": "one"}),
    source(auth={"clientId": "two"}),
    source(tools="off"),
    source(PROGRAM),
    source(replace(PROGRAM, args=())),
    source(replace(PROGRAM, cwd="/srv")),
    source(replace(PROGRAM, env={"TOKEN": "one"})),
    source(replace(PROGRAM, env={"TOKEN": "two"})),
    replace(source(), uri_prefix="mcp-server+docs2"),
    folder(),
    replace(folder(), config={"root": "/srv/other"}),
]


def stored(url: str, **fields: Any) -> DataSource:
    return replace(folder(), **{"config": {"url": url, "options": {"endpoint": "http://127.0.0.1:9000"}}, **fields})


@pytest.mark.semantics("S32.10")
def test_the_place_of_a_source_is_not_its_user_or_its_bounds() -> None:
    here = stored("webdav://127.0.0.1/d")
    assert place(here) == place(stored("webdav://me:word@127.0.0.1/d/", auth={"password": "x"}, title="T"))
    assert place(here) == place(replace(here, config={**here.config, "max_memory": 1}))
    assert place(source()) == place(
        source(replace(PUBLIC, url=f"{PUBLIC.url}?key=1", headers={"X": "y"}), auth={"a": "b"})
    )
    elsewhere = [
        *(here, source(), source(PROGRAM), folder(), replace(folder(), config={"root": "/srv/other"})),
        *(stored("webdav://127.0.0.1/e"), stored("webdav://127.0.0.2/d"), replace(here, uri_prefix="bb-storage+m")),
        replace(here, config={"url": "webdav://127.0.0.1/d", "options": {"endpoint": "http://127.0.0.1:9001"}}),
        *(source(replace(PROGRAM, args=("--some",))), source(replace(PROGRAM, cwd="/srv"))),
        *(replace(folder(), config={"root": "notes"}), replace(folder(), config={"root": "notes"}, base="/srv")),
    ]
    assert len({place(each) for each in elsewhere}) == len(elsewhere)


def test_another_definition_is_another_source() -> None:
    assert len({fingerprint(each) for each in DIFFERENT}) == len(DIFFERENT)


def test_the_same_definition_is_the_same_source_whatever_beside_it_differs() -> None:
    base = replace(PUBLIC, headers={"Authorization": "Bearer one", "X-Team": "blue"})
    same = replace(base, headers={"x-team": "blue", "authorization": "Bearer one"}, start="eager", idle_timeout=1.0)
    assert fingerprint(source(base)) == fingerprint(replace(source(same), id="other", title="T", shared=True))


def test_a_source_is_the_same_wherever_and_however_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file and an option, in two directories. A relative path makes another source of it."""
    file = tmp_path / "config.toml"
    file.write_text(
        f'[[sources]]\nname = "shop"\ntype = "database"\nconfig.url = "sqlite:///{tmp_path}/shop.db"\n'
        f'[[sources]]\nname = "notes"\ntype = "filesystem"\nconfig.root = "{tmp_path}/notes"\n'
        '[[sources]]\nname = "docs"\nmcpConfig = { command = "docs-server", args = ["notes"] }\n'
    )
    found: list[list[tuple[str, str]]] = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        made = [
            *load_config(str(file), environ={}).sources,
            source_from_url_argument("../shop.db", environ={}),
            source_from_dir_argument("notes=../notes", environ={}),
        ]
        found.append([(fingerprint(each), place(each)) for each in made])
    assert found[0] == found[1]
    assert found[0][:2] == found[0][3:]
    here = [source_from_url_argument("shop=sqlite:///shop.db", environ={}), source(PROGRAM)]
    monkeypatch.chdir(tmp_path / "a")
    there = [(fingerprint(each), place(each)) for each in here]
    monkeypatch.chdir(tmp_path / "b")
    assert not {*there} & {(fingerprint(each), place(each)) for each in here}


@pytest.mark.parametrize("part", ["url", "headers", "env", "auth", "config"])
def test_what_a_reference_gives_counts_and_not_how_it_is_written(part: str) -> None:
    def made(value: str, text: str) -> str:
        resolved = Interpolator({"A": value, "B": value}, "/").resolve(text)
        match part:
            case "url":
                return fingerprint(source(replace(PUBLIC, url=resolved)))
            case "headers":
                return fingerprint(source(replace(PUBLIC, headers={"X": resolved})))
            case "env":
                return fingerprint(source(replace(PROGRAM, env={"X": resolved})))
            case "auth":
                return fingerprint(source(auth={"clientId": resolved}))
        return fingerprint(replace(folder(), config={"root": resolved}))

    assert made("one", "${env:A}") != made("two", "${env:A}")
    assert made("one", "${env:A}") == made("one", "${env:B}") == made("one", "one")
    assert "one" not in made("one", "${env:A}")


@pytest.mark.semantics("S20")
@pytest.mark.parametrize(
    ("made", "differs"),
    [
        (source(PROGRAM), True),
        (source(replace(PROGRAM, cwd="/srv")), False),
        (source(), False),
        (folder(), False),
        (replace(folder(), type="database", config={"url": "sqlite:////srv/notes.db"}), False),
        (replace(folder(), type="database", config={"url": "sqlite:///srv/notes.db"}), True),
        (replace(folder(), type="storage", config={"url": "zip:///srv/notes.zip"}), False),
        (replace(folder(), type="storage", config={"url": "zip://./notes.zip"}), True),
        (replace(folder(), type="storage", config={"url": "sftp://host/", "known_hosts": "hosts"}), True),
        (replace(folder(), type="storage", config={"keys": ["~/key", "key"]}), True),
        (replace(folder(), type="storage", config={"keys": ["key"]}, base="/etc/bbfs"), False),
    ],
)
def test_what_starts_at_the_current_directory_is_another_source_in_another_one(
    made: DataSource, differs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: set[str] = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        found.add(fingerprint(made))
    assert len(found) == (2 if differs else 1)


def test_a_current_directory_that_is_gone_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert fingerprint(source(PROGRAM))
