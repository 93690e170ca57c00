"""Sources named by their URL on the command line."""

import os
from pathlib import Path

import pytest

from bbfs.config import local_file, source_from_url_argument
from bbfs.model.errors import ConfigError
from bbfs.model.values import DataSource

ENVIRON = {"HOME": "/home/me", "PASSWORD": "s3cret", "DSN": "postgresql://me:s3cret@db.example:5432/shop"}


def source(text: str) -> DataSource:
    return source_from_url_argument(text, environ=ENVIRON)


@pytest.mark.semantics("S1")
@pytest.mark.parametrize(
    ("text", "prefix", "config"),
    [
        ("app=sqlite:////srv/app.db", "bb-database+app+sqlite", {"url": "sqlite:////srv/app.db"}),
        ("postgres://me@db.example/shop", "bb-database+shop+postgres", {"url": "postgres://me@db.example/shop"}),
        ("postgresql+psycopg://h/shop", "bb-database+shop+postgres", {"url": "postgresql+psycopg://h/shop"}),
        ("db=${env:DSN}", "bb-database+db+postgres", {"url": ENVIRON["DSN"]}),
        ("s3://logs/2026", "bb-storage+logs+s3", {"url": "s3://logs/2026"}),
        ("~/app.db", "bb-database+app+sqlite", {"url": "sqlite:////home/me/app.db"}),
        ("~/app.duckdb", "bb-database+app+duckdb", {"url": "duckdb:////home/me/app.duckdb"}),
        ("d=duckdb:////srv/data", "bb-database+d+duckdb", {"url": "duckdb:////srv/data"}),
        ("old=~/backup.tar.gz", "bb-storage+old+tar", {"url": "tar:///home/me/backup.tar.gz"}),
        ("~/backup.tar.gz", "bb-storage+backup+tar", {"url": "tar:///home/me/backup.tar.gz"}),
        ("~/a.b.zip", "bb-storage+a.b+zip", {"url": "zip:///home/me/a.b.zip"}),
        ("zip:///srv/a b.zip", "bb-storage+a-b+zip", {"url": "zip:///srv/a b.zip"}),
        ("https://example.com/a/b", "bb-url+example.com", {"urls": ["https://example.com/a/b"]}),
        ("docs=https://example.com/llms.txt", "bb-url+docs", {"llms_txt": "https://example.com/llms.txt"}),
        ("https://example.com/sitemap.xml.gz", "bb-url+example.com", {"sitemap": "https://example.com/sitemap.xml.gz"}),
        ("pets=https://h.example/v3/openapi.json", "bb-api+pets", {"document": "https://h.example/v3/openapi.json"}),
    ],
)
def test_the_url_says_what_it_is(text: str, prefix: str, config: dict[str, object]) -> None:
    made = source(text)
    assert made.uri_prefix == prefix
    assert dict(made.config) == config
    assert made.id == made.name == prefix.split("+")[1]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////srv/app.db?mode=ro", "/srv/app.db"),
        ("sqlite:///app.db", "app.db"),
        ("sqlite:///:memory:", None),
        ("sqlite://", None),
        ("zip:///srv/a?b.zip", "/srv/a?b.zip"),
        ("tar://other", None),
        ("s3://bucket/a.zip", None),
        (None, None),
    ],
)
def test_the_file_of_a_url_is_told(url: str | None, path: str | None) -> None:
    assert local_file(url) == path


def test_a_relative_file_starts_where_bbfs_was_started() -> None:
    assert source("x=data.zip").config["url"] == f"zip://{os.getcwd()}/data.zip"


@pytest.mark.parametrize("text", ["", "x", "x=", "x=notes", "gopher://h/x", "x=/etc/passwd", "x=http:"])
def test_what_it_cannot_be_told_of_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--source"):
        source(text)


@pytest.mark.parametrize("named", ["", "x="])
def test_a_folder_is_mounted_another_way(tmp_path: Path, named: str) -> None:
    with pytest.raises(ConfigError, match=r"^--source.*: this is a folder, which --dir .*duckdb:///"):
        source(f"{named}{tmp_path}")


@pytest.mark.semantics("S30")
def test_no_message_holds_what_may_be_secret() -> None:
    with pytest.raises(ConfigError, match="NOT_SET") as caught:
        source("db=postgres://me:s3cret@h/${env:NOT_SET}")
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        source("db=odd://me:s3cret@h/x")
    assert "s3cret" not in str(caught.value)
