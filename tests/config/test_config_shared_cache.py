"""The cache that machines share, as a configuration file has it."""

from pathlib import Path
from typing import Any

import pytest

from bbfs.config.toml import load_config
from bbfs.model.errors import ConfigError
from bbfs.model.values import SharedCache

ENVIRON = {"HOME": "/home/me", "WORD": "p@ss/w:rd#1?%41", "URL": "redis://h:1/2"}


def load(tmp_path: Path, text: str) -> SharedCache | None:
    (tmp_path / "bbfs.toml").write_text(text)
    return load_config(str(tmp_path / "bbfs.toml"), environ=ENVIRON).shared


def given(**fields: Any) -> SharedCache:
    return SharedCache(**fields)


@pytest.mark.parametrize(
    ("url", "expected", "shown"),
    [
        ("redis://cache.example", given(host="cache.example"), "redis://cache.example:6379/0"),
        ("redis://cache:6380/3", given(host="cache", port=6380, database=3), "redis://cache:6380/3"),
        ("redis://cache?db=4", given(host="cache", database=4), "redis://cache:6379/4"),
        ("rediss://u:p%40ss@cache", given(host="cache", tls=True, username="u", password="p@ss"), "rediss://cache:6379/0"),
        ("redis://:word@[::1]:1", given(host="::1", port=1, password="word"), "redis://[::1]:1/0"),
        ("unix:///run/valkey.sock", given(socket="/run/valkey.sock"), "unix:///run/valkey.sock?db=0"),
        ("unix://u:p@/run/v%20s?db=2", given(socket="/run/v s", database=2, username="u", password="p"), None),
        ("${env:URL}", given(host="h", port=1, database=2), "redis://h:1/2"),
    ],
)  # fmt: skip
def test_where_it_is(tmp_path: Path, url: str, expected: SharedCache, shown: str | None) -> None:
    found = load(tmp_path, f'[cache]\nshared = "{url}"\n')
    assert found == expected
    assert shown is None or str(found) == shown


def test_everything_beside_it(tmp_path: Path) -> None:
    text = """[cache]
    shared = "redis://u@h"
    sharedPassword = "${env:WORD}"
    shared_prefix = "team-a:docs"
    sharedMaxContent = "4MiB"
    shared_ttl = "2h"
    sharedTimeout = "250ms"
    """
    found = load(tmp_path, text)
    expected = given(host="h", username="u", password=ENVIRON["WORD"], prefix="team-a:docs")
    assert found is not None
    assert (found.max_content, found.longest, found.timeout) == (4 << 20, 7200, 0.25)
    assert (found.username, found.password, found.prefix) == (expected.username, expected.password, expected.prefix)
    assert ENVIRON["WORD"] not in repr(found) + str(found)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('shared = "http://h"', "cache.shared: expected redis://HOST"),
        ('shared = "redis://"', "cache.shared: has no host"),
        ('shared = "redis://h:x1"', "cache.shared: has no usable port"),
        ('shared = "redis://h/name"', "cache.shared: should name the database by its number"),
        ('shared = "redis://h?noreply=1"', "cache.shared: has parameters that are not known here"),
        ('shared = "unix://run/valkey.sock"', "cache.shared: should have an absolute path"),
        ('shared = "redis://:a@h"\nshared_password = "b"', "cache.shared_password: is also in the URL"),
        ('shared = "redis://${env:NO}"', "cache.shared: environment variable NO is not set"),
        ('shared = "redis://h"\nshared_password = "${env:NO}"', "cache.shared_password: environment variable NO"),
        ('shared_prefix = "x"', "cache.shared_prefix: belongs to a shared cache"),
        ('shared = "redis://h"\nshared_prefix = "a b"', "cache.shared_prefix: "),
        ('shared = "redis://h"\nshared_max_content = "1GiB"', "cache.shared_max_content: "),
        ('shared = "redis://h"\nshared_ttl = 0', "cache.shared_ttl: "),
        ('shared = "redis+cluster://"', "cache.shared: has no host"),
        ('shared = "redis+cluster://a,,b"', "cache.shared: has no host"),
        ('shared = "redis+cluster://a:x"', "cache.shared: has no usable port"),
        ('shared = "redis+cluster://a/1"', "cache.shared: names a database"),
        ('shared = "redis+cluster://a?x=1"', "cache.shared: has parameters"),
        ('shared = "http+cluster://a"', "cache.shared: expected redis://HOST"),
        ('shared = "redis+sentinel://a"', "cache.shared: should name the primary"),
        ('shared = "redis+sentinel://a/kept/x"', "cache.shared: should name the database"),
        ('shared = "redis://a"\nshared_nodes = ["b"]', "cache.shared_nodes: belongs to redis+cluster"),
        ('shared = "redis+cluster://a"\nshared_nodes = ["10.1.0.1/16"]', "cache.shared_nodes: expected host names"),
        ('shared = "redis+cluster://a"\nshared_nodes = ["a*"]', "cache.shared_nodes: expected host names"),
        ('shared = "redis://a"\nshared_sentinel_password = "x"', "cache.shared_sentinel_password: belongs to"),
    ],
)
def test_what_is_wrong_is_told_without_values(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"[cache]\n{lines}\n")
    assert message in str(caught.value)
    assert ":2: " in str(caught.value) or ":3: " in str(caught.value)


def test_a_source_says_whether_it_is_shared(tmp_path: Path) -> None:
    def source(text: str) -> bool | None:
        (tmp_path / "bbfs.toml").write_text(f'[[sources]]\nname = "docs"\n{text}')
        return load_config(str(tmp_path / "bbfs.toml"), environ=ENVIRON).sources[0].shared

    server = 'mcpConfig = { url = "https://h/mcp" }\n'
    assert source(server) is None
    assert source("shared = true\n" + server) is True
    assert source("shared = false\n" + server) is False
    with pytest.raises(ConfigError, match="belongs to MCP sources"):
        source('shared = true\ntype = "filesystem"\nconfig = { root = "/srv" }\n')


@pytest.mark.parametrize(
    ("url", "expected", "shown"),
    [
        (
            "redis+cluster://a,b:7001,[::1]:7002",
            given(form="cluster", nodes=(("a", 6379), ("b", 7001), ("::1", 7002))),
            "redis+cluster://a:6379,b:7001,[::1]:7002",
        ),
        (
            "rediss+cluster://u:p%2Cw@a",
            given(form="cluster", nodes=(("a", 6379),), tls=True, username="u", password="p,w"),
            "rediss+cluster://a:6379",
        ),
        (
            "redis+sentinel://u@a,b:1/kept/3",
            given(form="sentinel", nodes=(("a", 26379), ("b", 1)), service="kept", database=3, username="u"),
            "redis+sentinel://a:26379,b:1/kept/3",
        ),
    ],
)
def test_several_servers(tmp_path: Path, url: str, expected: SharedCache, shown: str) -> None:
    found = load(tmp_path, f'[cache]\nshared = "{url}"\n')
    assert found == expected
    assert str(found) == shown


def test_what_belongs_to_several_servers(tmp_path: Path) -> None:
    text = """[cache]
    shared = "redis+sentinel://a/kept"
    shared_nodes = ["10.1.0.0/16", "*.cache.example", "192.0.2.7", "db-1.example"]
    shared_sentinel_user = "watcher"
    shared_sentinel_password = "${env:WORD}"
    """
    found = load(tmp_path, text)
    assert found is not None
    assert found.announced == ("10.1.0.0/16", "*.cache.example", "192.0.2.7", "db-1.example")
    assert (found.sentinel_username, found.sentinel_password) == ("watcher", ENVIRON["WORD"])
    assert ENVIRON["WORD"] not in repr(found) + str(found)
