"""Resource templates as directories on a real mount."""

import json
from pathlib import Path

import pytest
from harness import Mounts
from programs import Program, errno_of, python, run, shell, wait_until
from scripted import ScriptedServer

D = "mcp-server+docs"
STAT = "os.stat(sys.argv[1]).st_size"
OPEN = "open(sys.argv[1], 'rb').read()"
LIST = "os.listdir(sys.argv[1])"


def xattr(path: Path, name: str) -> str:
    return python("import os, sys; print(os.getxattr(sys.argv[1], sys.argv[2]).decode(), end='')", path, name).text


@pytest.fixture
def server(server: ScriptedServer) -> ScriptedServer:
    """A server with documents of two projects, of which one document is listed."""
    server.template("kb://{project}/document/{slug}", description="one document", mimeType="text/markdown")
    server.template("files://tree/{+path}")
    server.template("kb://search{?q,limit}")
    server.add("kb://docker/document/listed", "listed\n")
    server.add_unlisted("kb://docker/document/ssl-setup", "ssl\n", mimeType="text/markdown")
    server.add_unlisted("kb://a%20b/document/x%2Fy", "slash\n")
    server.add_unlisted("kb://search?q=ssl&limit=5", "found\n")
    for path in ("README", "src/main.c", "src/lib/util.c"):
        server.add_unlisted(f"files://tree/{path}", f"{path}\n")
    server.options(completions={"project": ["docker", "a b"], "slug": ["ssl-setup", "listed"]})
    return server


@pytest.mark.semantics("S34")
def test_a_name_that_no_listing_has_is_opened_once(mounted: Mounts, server: ScriptedServer) -> None:
    mount = mounted(server.source("docs"))
    assert run("cat", mount / f"{D}/kb/docker/document/ssl-setup").text == "ssl\n"
    assert run("stat", "-c", "%s", mount / f"{D}/kb/docker/document/ssl-setup").text == "4\n"
    assert run("cat", mount / f"{D}/kb/a b/document/x%2Fy").text == "slash\n"
    assert server.reads("kb://docker/document/ssl-setup") == 1
    assert server.reads() == 2
    template = xattr(mount / f"{D}/kb/docker/document/ssl-setup", "user.bbfs.uri_template")
    variables = xattr(mount / f"{D}/kb/docker/document/ssl-setup", "user.bbfs.variables")
    assert (template, json.loads(variables)) == (
        "kb://{project}/document/{slug}",
        {"project": "docker", "slug": "ssl-setup"},
    )
    offered = json.loads(xattr(mount / f"{D}/kb", "user.bbfs.uri_templates"))
    assert [each["uriTemplate"] for each in offered] == ["kb://{project}/document/{slug}", "kb://search{?q,limit}"]


@pytest.mark.semantics("S34.4")
def test_completed_values_are_listed(mounted: Mounts, server: ScriptedServer) -> None:
    mount = mounted(server.source("docs"))
    assert run("ls", mount / f"{D}/kb").text.splitlines() == ["a b", "docker"]
    assert run("ls", mount / f"{D}/kb/docker/document").text.splitlines() == ["listed", "ssl-setup"]
    assert server.completions() == ["project '' {}", "slug '' " + json.dumps({"project": "docker"})]
    assert server.reads() == 0
    found = shell("grep -r ssl .", directory=mount / f"{D}/kb/docker").text
    assert found == "./document/ssl-setup:ssl\n"


@pytest.mark.semantics("S12", "S23", "S34.2")
def test_a_thousand_absent_names_cost_a_request_each_and_none_when_repeated(
    mounted: Mounts, server: ScriptedServer
) -> None:
    mount = mounted(server.source("docs"))
    directory = mount / f"{D}/kb/docker/document"
    look = """
import os, sys, time
def absent(name):
    try:
        os.stat(os.path.join(sys.argv[1], name))
    except FileNotFoundError:
        return True
    return False
started = time.monotonic()
print(sum(absent(f"absent-{n}") for n in range(int(sys.argv[2]), int(sys.argv[3]))), time.monotonic() - started)
"""
    assert python(look, directory, "0", "1000", timeout=60).text.split()[0] == "1000"
    assert server.reads() == 1000
    assert python(look, directory, "1000", "1100").text.split()[0] == "100"
    for _ in range(3):
        found, took = python(look, directory, "1000", "1100").text.split()
        assert found == "100"
        assert float(took) < 1.5, "too slow to tell: an absence holds for 5 s"
    assert server.reads() == 1100


@pytest.mark.semantics("S34.3")
def test_probes_never_reach_the_server(mounted: Mounts, server: ScriptedServer) -> None:
    mount = mounted(server.source("docs"))
    run("cat", mount / f"{D}/files/tree/src/main.c")
    for directory in (f"{D}/kb/docker/document", f"{D}/kb", f"{D}/files/tree", f"{D}/files/tree/src"):
        run("ls", mount / directory)
        before = server.reads()
        for name in (".git", ".hidden", ".Trash", ".Trash-0", "autorun.inf", ".gitignore", ".DS_Store"):
            assert errno_of(STAT, mount / directory / name) == "ENOENT"
        assert server.reads() == before
    shell("git -C . status || true", directory=mount / f"{D}/kb/docker/document")
    assert [line for line in server.log() if ".git" in line] == []


@pytest.mark.semantics("S34.5")
def test_values_with_slashes_are_directories(mounted: Mounts, server: ScriptedServer) -> None:
    mount = mounted(server.source("docs"))
    tree = mount / f"{D}/files/tree"
    assert run("cat", tree / "src/lib/util.c", tree / "README").text == "src/lib/util.c\nREADME\n"
    assert run("stat", "-c", "%F %s", tree / "src/main.c", tree / "src").text.splitlines() == [
        "regular file 11",
        "directory 0",
    ]
    assert errno_of(OPEN, tree / "nope") == "ENOENT"
    assert errno_of(OPEN, tree / "src/nope.c") == "ENOENT"
    assert errno_of(LIST, tree / "nope") == "ENOENT"
    assert run("cat", tree / "README").text == "README\n"
    assert server.reads("files://tree/README") == 1
    assert errno_of(LIST, tree / "src") == "OK []"


def test_a_query_is_the_last_component(mounted: Mounts, server: ScriptedServer) -> None:
    mount = mounted(server.source("docs"))
    assert run("cat", mount / f"{D}/kb/search?q=ssl&limit=5").text == "found\n"
    assert run("cat", mount / f"{D}/kb/search?limit=5&q=ssl").text == "found\n"
    assert server.reads() == 1
    assert errno_of(OPEN, mount / f"{D}/kb/search?q=nothing") == "ENOENT"
    assert xattr(mount / f"{D}/kb/search?q=ssl&limit=5", "user.bbfs.uri") == (
        "mcp-server+docs+kb://search?q=ssl&limit=5"
    )


@pytest.mark.semantics("S12", "S22")
def test_a_name_that_hangs_holds_up_no_other_in_its_directory(
    mounted: Mounts, server: ScriptedServer, programs: type[Program]
) -> None:
    mount = mounted(server.source("docs", timeout=60))
    directory = mount / f"{D}/kb/docker/document"
    run("cat", directory / "listed")
    server.hang("kb://docker/document/ssl-setup")
    hung = programs("cat", directory / "ssl-setup")
    wait_until(lambda: server.reads("kb://docker/document/ssl-setup"), "the read that hangs")
    assert run("cat", directory / "listed").text == "listed\n"
    assert errno_of(STAT, directory / "other") == "ENOENT"
    assert hung.running
    server.release("kb://docker/document/ssl-setup")
    assert hung.wait().text == "ssl\n"


@pytest.mark.semantics("S18")
def test_what_appears_and_goes_is_seen_after_its_notification(mounted: Mounts, server: ScriptedServer) -> None:
    mount = mounted(server.source("docs"))
    directory = mount / f"{D}/kb/docker/document"
    assert errno_of(STAT, directory / "new") == "ENOENT"
    server.add_unlisted("kb://docker/document/new", "new\n")
    server.say("notifications/resources/list_changed")
    wait_until(lambda: errno_of(STAT, directory / "new") != "ENOENT", "the new one", 3)
    assert run("cat", directory / "new").text == "new\n"
    server.remove("kb://docker/document/new")
    server.say("notifications/resources/updated", uri="kb://docker/document/new")
    wait_until(lambda: errno_of(STAT, directory / "new") == "ENOENT", "that it is gone", 3)


@pytest.mark.semantics("S34")
def test_a_server_may_have_no_word_for_what_is_not_there(mounted: Mounts, server: ScriptedServer) -> None:
    codes = {"a": -32002, "b": -32603, "c": -32602, "d": 0}
    for name, code in codes.items():
        for path in (name, f"{name}/lib"):
            server.add_unlisted(f"files://tree/{path}")
            server.fail(f"files://tree/{path}", code)
        for path in (f"{name}/main.c", f"{name}/lib/util.c"):
            server.add_unlisted(f"files://tree/{path}", path)
    tree = mounted(server.source("docs")) / f"{D}/files/tree"
    for name in codes:
        assert run("cat", tree / f"{name}/lib/util.c").text == f"{name}/lib/util.c"
        assert errno_of(OPEN, tree / name) in ("ENOENT", "EIO", "EISDIR")
        assert run("cat", tree / f"{name}/main.c").text == f"{name}/main.c"
