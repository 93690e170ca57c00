"""Three writers of one resource, two on mounts and one at the source: one wins, the others keep their bytes (S32)."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from file_servers import SCHEMES
from forked_daemon import forked
from harness import Mounts
from killable import NAME, KilledKnowledge, KilledServer, KilledStore
from notion_server import TOKEN, NotionServer, id_of, notion_server
from pets_server import PetsServer
from programs import conflicts_of, run, wait_until

CAPABILITIES = ["read", "list", "write"]
ROW = '{{"id": 1, "name": "{}"}}'
NOTE = '{{"id": "a", "text": "{}", "owner": {{"name": "Ann", "email": "ann@example.com"}}}}'


@dataclass(frozen=True)
class Kind:
    """A kind of source. file: from the mount's root. text: that a program saves for a word.

    put: has somebody else write a word at the source, as a statement. get: returns the word that the source has.
    """

    table: dict[str, Any]
    file: str
    text: str
    put: str
    get: Callable[[], str]


def knowledge(home: Path, stack: ExitStack) -> Kind:
    server = stack.enter_context(closing(KilledKnowledge("streams", home)))
    server.put(b"one")
    line = forked("-m", "bbfs.knowledge", "put", "--db", home / "kb.sqlite", "docs", NAME, "-")
    put = f"subprocess.run({line}, input=b'theirs', check=True, capture_output=True)"
    return Kind(server.table(), f"{server.directory}/{NAME}", "{}", put, lambda: (server.get() or b"").decode())


def served(scheme: str, home: Path, stack: ExitStack) -> Kind:
    server = stack.enter_context(closing(KilledServer(scheme, home)))
    server.put(b"one")
    put = f"open({str(home / 'root' / NAME)!r}, 'w').write('theirs')"
    return Kind(server.table(), f"{server.directory}/{NAME}", "{}", put, lambda: (server.get() or b"").decode())


def stored(home: Path, stack: ExitStack) -> Kind:
    store = stack.enter_context(closing(KilledStore()))
    store.put(b"one")
    url, headers = f"{store.server.url}/data/{NAME}", {"authorization": store.server.client.headers["authorization"]}
    put = f"import httpx2; httpx2.put({url!r}, content=b'theirs', headers={headers}).raise_for_status()"
    return Kind(store.table(), f"{store.directory}/{NAME}", "{}", put, lambda: (store.get() or b"").decode())


def row(home: Path, stack: ExitStack) -> Kind:
    database = stack.enter_context(closing(sqlite3.connect(home.with_suffix(".db"))))
    database.execute("CREATE TABLE users (id integer PRIMARY KEY, name text)")
    database.execute("INSERT INTO users VALUES (1, 'one')")
    database.commit()
    path = str(home.with_suffix(".db"))
    table = {"name": "shop", "type": "database", "capabilities": CAPABILITIES, "config": {"url": f"sqlite:///{path}"}}
    put = f"import sqlite3; c = sqlite3.connect({path!r}); c.execute(\"UPDATE users SET name = 'theirs'\"); c.commit()"
    found = lambda: database.execute("SELECT name FROM users").fetchone()[0]  # noqa: E731
    return Kind(table, "bb-database+shop+sqlite/main/users/row/1.json", ROW, put, found)


def note(home: Path, stack: ExitStack) -> Kind:
    server = PetsServer(home, "notes_api.py")
    stack.callback(server.stop)
    config = {"write": ["putNote", "PUT /plain/{name}"]}
    table = server.source("notes", capabilities=CAPABILITIES, config=config)
    theirs = json.loads(NOTE.format("theirs"))
    put = f"import httpx2; httpx2.put('{server.url}/notes/a', json={theirs}).raise_for_status()"
    get = lambda: httpx2.get(f"{server.url}/notes/a").json()["text"]  # noqa: E731
    return Kind(table, f"{server.root('notes')}/notes/a", NOTE, put, get)


def page(home: Path, stack: ExitStack) -> Kind:
    server: NotionServer = stack.enter_context(notion_server(100))
    table = {"name": "work", "type": "notion", "config": server.config(), "auth": {"token": TOKEN}}
    rewrite = {"rewrite": server.blocks(id_of("rules"))[0]["id"], "with": "theirs"}
    put = f"import httpx2; httpx2.post('{server.url}/control', json={rewrite}).raise_for_status()"

    def get() -> str:
        return "".join(piece["plain_text"] for piece in server.blocks(id_of("rules"))[0]["paragraph"]["rich_text"])

    file = "bb-notion+work+x-notion/Handbook/Rules.md"
    return Kind({**table, "capabilities": CAPABILITIES}, file, "# Rules\n\n{}\n", put, get)


@pytest.fixture
def kinds(tmp_path: Path) -> Iterator[list[Kind]]:
    with ExitStack() as stack:
        made = [make(tmp_path / make.__name__, stack) for make in (knowledge, stored, row, note, page)]
        yield [*made, *(served(scheme, tmp_path / scheme, stack) for scheme in SCHEMES)]


@pytest.mark.semantics("S32.19")
def test_one_wins_and_the_others_keep_their_bytes(mounted: Mounts, kinds: list[Kind]) -> None:
    expected = ["somebody else has"]
    mounts = [mounted(*(kind.table for kind in kinds), expected=expected) for _ in range(2)]
    for kind in kinds:
        files = [mount / kind.file for mount in mounts]
        for file in files:
            run("cat", file)
        mine = [(files[0], kind.text.format("first")), (files[1], kind.text.format("second"))]
        assert conflicts_of(*mine) == [False, True], kind.file
        assert kind.get() == "first"
        wait_until(lambda files=files: b"first" in run("cat", files[1]).out, "the other mount shows it")
        assert conflicts_of(*mine, then=kind.put) == [True, True], kind.file
        assert kind.get() == "theirs"
    texts = [[kind.text.format(word).encode() for kind in kinds] for word in ("first", "second")]
    assert [mount.state.kept() for mount in mounts] == [sorted(texts[0]), sorted(2 * texts[1])]
