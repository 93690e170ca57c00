"""Every type of source in one mount: docs/tour.md, run as it is written; and that none of them harms another.

`BBFS_WRITE_TOUR=1 pytest tests/mount/test_tour.py` writes the page anew with what the commands print now.
"""

import os
import re
import sqlite3
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import Mount, Mounts, SourceTable, folder, mcp
from notion_server import TOKEN, notion_server
from object_stores import KEY, SECRET, Relay, S3Server, closing
from pets_server import AUTH, PetsServer
from postgres_server import PASSWORD, PostgresServer, postgres_server
from programs import errno_of, run, shell, wait_until
from web_site import WebSite

PAGE = Path(__file__).parents[2] / "docs" / "tour.md"
_BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
_LEDGER = (
    "CREATE TABLE entry (id bigint PRIMARY KEY, booked date NOT NULL, amount numeric(10,2), tags text[], what text)",
    "COMMENT ON TABLE entry IS 'What was bought'",
    "COMMENT ON COLUMN entry.amount IS 'in euros'",
    "INSERT INTO entry VALUES (1, '2026-01-05', 12.50, '{kitchen}', 'coffee beans'),"
    " (2, '2026-01-06', NULL, NULL, 'a \"gift\"')",
    "ANALYZE entry",
)
_SHOP = """
    CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT);
    CREATE INDEX customer_city ON customer (city);
    CREATE TABLE purchase (id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customer, what TEXT);
    INSERT INTO customer VALUES (1, 'Grace Hopper', 'New York'), (2, 'Ada Lovelace', 'London');
    INSERT INTO purchase VALUES (1, 2, 'coffee'), (2, 2, 'cups'), (3, 1, 'filters');
"""
_HTML = (
    "<html><head><title>Brewing</title></head><body><h1>Brewing</h1><p>Sixty grams of <b>coffee</b>.</p></body></html>"
)
_BIG = 20 << 20


@dataclass
class Servers:
    """Everything that is mounted. relay: what stands before the object store."""

    directory: Path
    postgres: PostgresServer
    store: S3Server
    relay: Relay
    site: WebSite
    pets: PetsServer
    notion: Any

    def sources(self, **options: Any) -> list[SourceTable]:
        """All sources. options: of each but the local ones."""
        shop = "SELECT what FROM purchase JOIN customer ON customer.id = customer WHERE city = :city ORDER BY what"
        serve = [sys.executable, "-m", "bbfs.knowledge", "serve", "--db", self.directory / "kb.sqlite"]
        endpoint = {"endpoint": self.relay.url}
        resources = {
            "todo/today.txt": "buy coffee\n",
            "todo/later.txt": {"text": "clean cups\n", "description": "no hurry"},
        }
        pages = {"urls": [f"{self.site.url}/guide/brewing.html"], "markdown": True, "allow_private": True}
        queries = {"orders_of": {"sql": shop, "parameters": {"city": {}}}}
        return [
            folder("notes", self.directory / "notes"),
            {"name": "scratch", "type": "memory", "config": {"resources": resources}},
            {
                "name": "shop",
                "type": "database",
                "config": {"url": f"sqlite:///{self.directory}/shop.db", "queries": queries},
            },
            {
                "name": "ledger",
                "type": "database",
                "config": {"url": self.postgres.url("ledger")},
                "auth": {"password": PASSWORD},
                **options,
            },
            {"name": "papers", "type": "storage", "config": {"url": f"zip://{self.directory}/papers.zip"}},
            {
                "name": "measured",
                "type": "storage",
                "config": {"url": "s3://lab/2026/", "options": endpoint},
                "auth": {"accessKey": KEY, "secretKey": SECRET},
                **options,
            },
            {"name": "site", "type": "url", "config": pages, **options},
            self.pets.source(auth=AUTH, config={"include": ["/pets", "/pets/**"]}, **options),
            {"name": "work", "type": "notion", "config": self.notion.config(), "auth": {"token": TOKEN}, **options},
            mcp("kb", serve),
        ]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    directory = tmp_path_factory.mktemp("tour")
    (directory / "notes").mkdir()
    (directory / "notes" / "plan.md").write_text("# Plan\n\nBuy coffee, then write.\n")
    with sqlite3.connect(directory / "shop.db") as shop:
        shop.executescript(_SHOP)
    shop.close()
    with zipfile.ZipFile(directory / "papers.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("2026/brewing.txt", (2026, 3, 4, 5, 6, 8)), "On brewing coffee.\n")
        archive.writestr(zipfile.ZipInfo("../escape.txt", (2026, 3, 4, 5, 6, 8)), "stays inside\n")
    (directory / "guides").mkdir()
    (directory / "guides" / "brewing.md").write_text("# Brewing\n\nSixty grams of coffee to a litre.\n")
    knowledge = [sys.executable, "-m", "bbfs.knowledge", "import", "--db", directory / "kb.sqlite"]
    run(*knowledge, "--collection", "guides", directory / "guides", timeout=30)
    with ExitStack() as stack:
        postgres = stack.enter_context(postgres_server())
        postgres.create("ledger", _LEDGER)
        store = S3Server()
        relay = Relay(store.port)
        stack.enter_context(closing(store))
        stack.enter_context(closing(relay))
        store.make_bucket("lab")
        store.put("lab", "2026/run-1.csv", b"minute,coffee\n1,60\n", {"x-amz-meta-room": "7"})
        store.put("lab", "2026/large.bin", bytes(_BIG))
        site = WebSite(directory)
        stack.callback(site.stop)
        site.write("guide/brewing.html", _HTML, content_type="text/html; charset=utf-8")
        pets = PetsServer(directory / "pets")
        stack.callback(pets.stop)
        notion = stack.enter_context(notion_server())
        yield Servers(directory, postgres, store, relay, site, pets, notion)


def plain(text: str) -> str:
    """What a command prints, without what differs from run to run."""
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", "TIME", text)
    text = re.sub(r"(user\.bbfs\.etag=).*", r'\1"…"', text)
    return "\n".join(line.rstrip() for line in text.splitlines())


@pytest.mark.timeout(120)
@pytest.mark.semantics("S1", "S2", "S9", "S11", "S14")
def test_the_tour_is_as_it_is_written(servers: Servers, mounted: Mounts) -> None:
    mount = mounted(*servers.sources())
    written = PAGE.read_text()

    def played(block: re.Match[str]) -> str:
        shown: list[str] = []
        for command in re.findall(r"^\$ (.*)$", block[0], re.MULTILINE):
            port = servers.pets.url.rpartition(":")[2]
            done = shell(
                command.replace("PORT", port), directory=mount.path, env={"TZ": "UTC", "LC_ALL": "C.UTF-8"}, timeout=30
            )
            shown += [f"$ {command}", *([text] if (text := plain(done.text)) else [])]
        return "\n".join(shown) + "\n"

    now = _BLOCK.sub(played, written)
    if os.environ.get("BBFS_WRITE_TOUR"):
        PAGE.write_text(now)
    assert now == written


@pytest.mark.timeout(120)
@pytest.mark.semantics("S22", "S23")
def test_a_killed_database_a_stalled_store_and_a_failing_api_harm_no_other(servers: Servers, mounted: Mounts) -> None:
    expected = ["ledger", "measured", "pets", "postgres"]
    mount = mounted(*servers.sources(timeout=4, ttl=0, max_stale=0), expected=expected)
    postgres, store = mount / "bb-database+ledger+postgres/public/entry", mount / "bb-storage+measured+s3/lab/2026"
    api = mount / servers.pets.root() / "pets"
    opened = "open(sys.argv[1], 'rb').read()[:3]"
    assert errno_of(opened, postgres / "rows.csv") == "OK b'id,'"
    assert errno_of(opened, api / "3" / "index.json").startswith("OK")
    run("ls", store)
    servers.relay.stall()
    servers.pets.answer_all("500")
    servers.postgres.kill()
    try:
        assert errno_of(opened, postgres / "rows.ndjson") == "EHOSTDOWN"
        assert errno_of(opened, api / "4" / "index.json") == "EHOSTDOWN"
        others_are_well(mount)
        assert errno_of(opened, store / "large.bin", timeout=20) in ("ETIMEDOUT", "EHOSTDOWN")
        others_are_well(mount)
    finally:
        servers.relay.flow()
        servers.pets.answer_all("")
        servers.postgres.start()
    for path in (postgres / "rows.ndjson", api / "4" / "index.json", store / "large.bin"):
        wait_until(lambda path=path: errno_of(opened, path).startswith("OK"), f"{path} is back", timeout=20)


def others_are_well(mount: Mount) -> None:
    for path, text in (
        ("bb-filesystem+notes+file/plan.md", "# Plan"),
        ("bb-memory+scratch+memory/todo/today.txt", "buy"),
        ("bb-database+shop+sqlite/main/customer/rows.csv", "id,name"),
        ("bb-storage+papers+zip/2026/brewing.txt", "On brewing"),
        ("mcp-server+kb/resource/knowledge/guides/document/brewing", "# Brewing"),
    ):
        assert run("cat", mount / path, timeout=5).text.startswith(text)
    assert shell("cat bb-url+site/http/*/guide/brewing.html.md", directory=mount.path, timeout=5).text.startswith(
        "# Brewing"
    )
    assert run("ls", mount / "bb-notion+work+x-notion", timeout=5).text
