"""Every type of source in one mount: docs/tour.md, run as it is written; that none of them harms another.

And every type in `bbfs serve`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from every_type import Servers, every_type
from harness import Mount, Mounts
from played_page import play
from programs import errno_of, run, shell, wait_until
from repository import DOCS
from served import BOUND, serving


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with every_type(tmp_path_factory.mktemp("tour")) as running:
        yield running


def plain(text: str) -> str:
    """What a command prints, without what differs from run to run."""
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", "TIME", text)
    return re.sub(r"(user\.bbfs\.etag=).*", r'\1"…"', text)


@pytest.mark.semantics("S1", "S2", "S9", "S11", "S14")
def test_the_tour_is_as_it_is_written(servers: Servers, mounted: Mounts) -> None:
    mount = mounted(*servers.sources())
    port = servers.pets.url.rpartition(":")[2]

    def output(command: str) -> str:
        environ = {"TZ": "UTC", "LC_ALL": "C.UTF-8"}
        return plain(shell(command.replace("PORT", port), directory=mount.path, env=environ, timeout=30).text)

    play(DOCS / "tour.md", output)


@pytest.mark.semantics("S22", "S23")
def test_a_killed_database_a_stalled_store_and_a_failing_api_harm_no_other(servers: Servers, mounted: Mounts) -> None:
    expected = ["ledger", "measured", "pets", "postgres"]
    mount = mounted(*servers.sources(timeout=4, ttl=0, max_stale=0), expected=expected)
    postgres, store = mount / "bb-database+ledger+postgres/public/entry", mount / "bb-storage+measured+s3/lab/2026"
    api = mount / servers.pets.root() / "pets"
    opened = "open(sys.argv[1], 'rb').read()[:3]"
    for path in (postgres / "rows.csv", api / "3" / "index.json", store / "run-1.csv"):  # a first use may take over 4 s
        wait_until(lambda path=path: errno_of(opened, path).startswith("OK"), f"{path} is there")
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
        wait_until(lambda path=path: errno_of(opened, path).startswith("OK"), f"{path} is back")


def others_are_well(mount: Mount) -> None:
    for path, text in (
        ("bb-filesystem+notes+file/plan.md", "# Plan"),
        ("bb-memory+scratch+memory/todo/today.txt", "buy"),
        ("bb-database+shop+sqlite/main/customer/rows.csv", "id,name"),
        ("bb-storage+papers+zip/2026/brewing.txt", "On brewing"),
        ("mcp-server+kb/resource/knowledge/guides/document/brewing", "# Brewing"),
    ):
        assert run("cat", mount / path).text.startswith(text)
    assert shell("cat bb-url+site/http/*/guide/brewing.html.md", directory=mount.path).text.startswith("# Brewing")
    assert run("ls", mount / "bb-notion+work+x-notion").text


async def test_bbfs_serve_describes_lists_and_loads_every_type(
    servers: Servers, mounted: Mounts, tmp_path: Path
) -> None:
    site, api = servers.site.url, servers.pets.url
    expected = {
        "notes": ("bb-filesystem+notes+file:./plan.md", "# Plan\n"),
        "scratch": ("bb-memory+scratch+memory://todo/today.txt", "buy coffee\n"),
        "shop": ("bb-database+shop+sqlite://main/customer/rows.csv", "id,name,city\n"),
        "ledger": ("bb-database+ledger+postgres://public/entry/row/1.json", '{"id":1,\n'),
        "papers": ("bb-storage+papers+zip://2026/brewing.txt", "On brewing coffee.\n"),
        "measured": ("bb-storage+measured+s3://lab/2026/run-1.csv", "minute,coffee\n"),
        "site": (f"bb-url+site+{site}/guide/brewing.html.md", "# Brewing\n"),
        "pets": (f"bb-api+pets+{api}/pets/1", '{"id":1,"name":"pet 1","kind":"cat"}'),
        "work": ("bb-notion+work+x-notion://Handbook/Rules.md", "# Rules\n"),
        "kb": ("mcp-server+kb+resource://knowledge/guides/document/brewing", "# Brewing\n"),
    }
    with trio.fail_after(2 * BOUND):
        async with serving(mounted.state(), tmp_path, "auto", *servers.sources()) as client:
            for name in expected:
                arguments = {"dataSourceId": name, "depth": 3, "pageSize": 5, "format": "json"}
                described = await client.call_tool("load_datasource", arguments)
                said = described.structured_content
                assert not described.is_error, said
                assert said["dataSource"]["id"] == name
                assert said["dataSource"]["state"] in ("up", "idle"), said["dataSource"]
                assert said["resources"], name
                assert said["uriTemplates"] or name == "site", name
            uris = [uri for uri, _ in expected.values()]
            loaded = await client.call_tool("load_resources", {"format": "json", "directUris": uris})
            outcomes = loaded.structured_content["resources"]
            assert [outcome["uri"] for outcome in outcomes] == uris
            for outcome, (uri, begins) in zip(outcomes, expected.values(), strict=True):
                assert outcome["contents"][0]["text"].startswith(begins), (uri, outcome)
                assert outcome["metadata"]["mimeType"], outcome
            secret = json.dumps(loaded.structured_content)
            assert "s3cret" not in secret
