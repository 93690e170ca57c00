"""Database sources for tests: over files of SQLite and databases of a PostgreSQL server."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import trio
from postgres_server import PASSWORD, PostgresServer

from bbfs.model.values import DataSource, Policy
from bbfs.sources import Services
from bbfs.sources.database.handler import DatabaseHandler
from bbfs.sources.factory import build

BOUND = 40
"""Seconds for all that a test asks of a database, on a machine that is busy with others."""
POLICY = Policy()


def source_of(url: str, policy: Policy = POLICY, **config: Any) -> DataSource:
    auth = config.pop("auth", {})
    scheme = {"postgresql": "postgres"}.get(url.partition(":")[0], url.partition(":")[0])
    given = {"url": url, **config}
    return DataSource("db", "db", "database", "bb", f"bb-database+db+{scheme}", policy=policy, config=given, auth=auth)


@asynccontextmanager
async def handler(source: DataSource, services: Services | None = None) -> AsyncIterator[DatabaseHandler]:
    made = build(source, services or Services())
    assert isinstance(made, DatabaseHandler)
    try:
        with trio.fail_after(BOUND):
            yield made
    finally:
        await made.aclose()


async def text_of(made: DatabaseHandler, native_uri: str) -> str:
    content = (await made.load(native_uri)).parts[0].content
    return (content.read(0, content.size) or b"").decode()


def sqlite_file(path: Path, script: str) -> str:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return f"sqlite:///{path}"


async def until(condition: Callable[[], object]) -> None:
    while not await trio.to_thread.run_sync(condition):  # noqa: ASYNC110 - a server does not tell by itself
        await trio.sleep(0.02)


def over(server: PostgresServer, name: str, policy: Policy = POLICY, **config: Any) -> DataSource:
    return source_of(server.url(name), policy, auth={"password": PASSWORD}, **config)
