"""Programs save documents of a knowledge base, an MCP server that is written by its tools, on a real mount (S32, S33).

The server is one for all, over HTTP, and lets everything be kept for an hour. Another client is told of each change.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from forked_daemon import forked
from harness import Mount, Mounts, SourceTable, mcp
from mcp import Client
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated
from programs import Program, errno_of, printed_url, run, shell, wait_until, waits_in_fuse
from repository import SERVERS

from bbfs.knowledge.addresses import document_uri
from bbfs.knowledge.database.store import Store

pytestmark = pytest.mark.semantics("S32", "S33")

KNOWLEDGE = "mcp-server+kb/resource/knowledge"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "kb.sqlite") as store:
        store.put("docs", "note.md", b"one\n")
        yield store


@pytest.fixture
def url(store: Store) -> Iterator[str]:
    line = forked("-m", "bbfs.knowledge", "serve", "--db", store.path, "--writable")
    options = ["--http", "127.0.0.1:0", "--no-token", "--ttl", "3600"]
    with printed_url(*line, *options, ends=True) as url:
        yield url


def kb(url: str) -> SourceTable:
    tools = {"version": "version", "template": "resource://knowledge/{collectionId}/document/{docId}"}
    return {
        "name": "kb",
        "mcpConfig": {"url": url},
        "capabilities": ["read", "list", "write"],
        "write": {"tool": "put_document", "max_size": 2 << 20, **tools},
        "remove": {"tool": "remove_document", **tools},
    }


def stored(store: Store, document: str, collection: str = "docs") -> bytes:
    with store.snapshot() as snapshot:
        return snapshot.content(collection, document)


def documents(store: Store, collection: str = "docs") -> list[str]:
    with store.snapshot() as snapshot:
        return [each.id for each in snapshot.documents(collection)]


def programs_save(mount: Mount, store: Store) -> None:
    here = mount / f"{KNOWLEDGE}/docs/document"
    shell("echo two > new.txt; sed -i s/one/two/ note.md", directory=here)
    assert (stored(store, "new.txt"), stored(store, "note.md")) == (b"two\n", b"two\n")
    shell("rm new.txt; mkdir -p ../../new/document; echo x > ../../new/document/first", directory=here)
    assert documents(store) == ["note.md"]
    assert stored(store, "first", "new") == b"x\n"
    assert shell("stat -c %a note.md ../stats", directory=here).text.split() == ["644", "444"]


def what_cannot_be_written_says_so(mount: Mount) -> None:
    docs = mount / f"{KNOWLEDGE}/docs"
    assert errno_of("open(sys.argv[1], 'w')", docs / "stats") == "EOPNOTSUPP"
    assert errno_of("open(sys.argv[1], 'w')", docs / "other") == "EOPNOTSUPP"
    write = "exec(\"f = open(sys.argv[1], 'wb', 0); f.write({}); f.close()\")"
    assert errno_of(write.format("bytes([255])"), docs / "document/bytes") == "EOPNOTSUPP"
    assert errno_of(write.format("bytes(3 << 20)"), docs / "document/large") == "EFBIG"


# The SDK's HTTP client leaves generators to the garbage collector, which trio warns of.
@pytest.mark.filterwarnings("ignore:Async generator .* was garbage collected:ResourceWarning")
async def test_programs_save_documents_and_other_clients_are_told(mounted: Mounts, url: str, store: Store) -> None:
    in_thread = trio.to_thread.run_sync
    note, new = document_uri("docs", "note.md"), document_uri("docs", "new.txt")
    missing: set[Any] = {ResourceUpdated(note), ResourceUpdated(new), ResourcesListChanged()}
    mount = await in_thread(lambda: mounted(kb(url), expected=["not written"]))
    with trio.fail_after(100):
        async with (
            Client(url, mode="auto", cache=None) as client,
            client.listen(resources_list_changed=True, resource_subscriptions=[note, new]) as told,
        ):
            await in_thread(programs_save, mount, store)
            while missing:
                missing.discard(await anext(told))
        await in_thread(what_cannot_be_written_says_so, mount)


def test_a_server_that_is_killed_during_a_save_has_all_or_nothing_of_it(
    mounted: Mounts, programs: type[Program], store: Store
) -> None:
    command = [sys.executable, "-m", "bbfs.knowledge", "serve", "--db", store.path, "--writable", "--ttl", "3600"]
    options = {key: value for key, value in kb("").items() if key not in ("name", "mcpConfig")}
    mount = mounted(mcp("kb", command, **options), expected=["SIGKILL", "not written"])
    store.put("docs", "other.md", b"one\n")
    save = "import os, sys; f = os.open(sys.argv[1], os.O_RDWR | os.O_APPEND); os.write(f, b'more\\n'); os.fsync(f)"
    for name in ("note.md", "other.md"):
        note = mount / f"{KNOWLEDGE}/docs/document/{name}"
        taken = ("cp", "/dev/null", note.with_name("taken"))
        wait_until(lambda taken=taken: run(*taken, status=None).status == 0, "the server runs", 30)
        assert run("cat", note).text == "one\n"
        [server] = mount.children()
        os.kill(server, signal.SIGSTOP)
        program = programs(sys.executable, "-c", save, note)
        wait_until(lambda program=program: waits_in_fuse(program.pid), "the program saves", 30)
        os.kill(server, signal.SIGKILL)
        failed, found = program.wait(60).status != 0, stored(store, name)
        assert found == b"one\nmore\n" or (failed and found == b"one\n")
        assert any(name in each.read_text() for each in mount.state.pending()) == failed


@pytest.mark.semantics("S34.6")
def test_programs_make_files_where_a_template_has_paths(mounted: Mounts, tmp_path: Path) -> None:
    tools = {"write": {"tool": "save"}, "remove": {"tool": "drop"}, "capabilities": ["read", "list", "write"]}
    mount = mounted(mcp("n", [sys.executable, SERVERS / "notes.py", tmp_path], **tools))
    (tmp_path / "un/listed").mkdir(parents=True)
    (tmp_path / "un/listed/x.md").write_text("deep\n")
    here = mount / "mcp-server+n/notes"
    shell("echo one > new.md; echo two >> new.md; sed -i s/one/1/ new.md; echo x > sub/deep/a.txt", directory=here)
    assert (tmp_path / "new.md").read_text() == "1\ntwo\n"
    assert (tmp_path / "sub/deep/a.txt").read_text() == "x\n"
    run("env", "-C", here, "vim", "-es", "-N", "-u", "NONE", "-c", "normal Goadded", "-c", "wq", "new.md", timeout=30)
    assert (tmp_path / "new.md").read_text() == "1\ntwo\nadded\n"
    shell("cp new.md copy.md; mv copy.md moved.md; rm new.md; cat un/listed/x.md moved.md; test -d un", directory=here)
    assert (tmp_path / "moved.md").read_text() == "1\ntwo\nadded\n"
    assert not {"new.md", "copy.md"} & {each.name for each in tmp_path.iterdir()}
    assert errno_of("open(sys.argv[1])", here / "absent.md") == "ENOENT"
    shell(
        "echo all: > Makefile; mkdir made; test ! -e plain; echo x > un/known; git init -q; test -f .git/HEAD",
        directory=here,
    )
    assert (tmp_path / "Makefile").read_text() == "all:\n"
    assert (tmp_path / "un/known").read_text() == "x\n"
    assert errno_of("open(sys.argv[1], 'w')", here / "made") == "EISDIR"
