"""A source of every type, with real servers behind them."""

import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forked_daemon import forked
from harness import SourceTable, folder, mcp
from notion_server import TOKEN, notion_server
from object_stores import KEY, SECRET, Relay, S3Server
from pets_server import AUTH, PetsServer
from postgres_server import PASSWORD, PostgresServer, postgres_server
from programs import run
from web_site import WebSite

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
        serve = forked("-m", "bbfs.knowledge", "serve", "--db", self.directory / "kb.sqlite")
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


@contextmanager
def every_type(directory: Path) -> Iterator[Servers]:
    """Everything that is to be mounted, in a directory, and the servers of it, running."""
    (directory / "notes").mkdir()
    (directory / "notes" / "plan.md").write_text("# Plan\n\nBuy coffee, then write.\n")
    with closing(sqlite3.connect(directory / "shop.db")) as shop:
        shop.executescript(_SHOP)
    with zipfile.ZipFile(directory / "papers.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("2026/brewing.txt", (2026, 3, 4, 5, 6, 8)), "On brewing coffee.\n")
        archive.writestr(zipfile.ZipInfo("../escape.txt", (2026, 3, 4, 5, 6, 8)), "stays inside\n")
    (directory / "guides").mkdir()
    (directory / "guides" / "brewing.md").write_text("# Brewing\n\nSixty grams of coffee to a litre.\n")
    knowledge = forked("-m", "bbfs.knowledge", "import", "--create", "--db", directory / "kb.sqlite")
    run(*knowledge, "--collection", "guides", directory / "guides", timeout=60)
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
