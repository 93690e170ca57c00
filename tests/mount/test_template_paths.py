"""Resource templates as directories on a real mount."""

import pytest
from harness import Mounts
from programs import Program, errno_of, run, wait_until
from scripted import ScriptedServer

D = "mcp-server+docs"
STAT = "os.stat(sys.argv[1]).st_size"


@pytest.fixture
def server(server: ScriptedServer) -> ScriptedServer:
    """A server with documents of two projects, of which one document is listed."""
    server.template("kb://{project}/document/{slug}", description="one document", mimeType="text/markdown")
    server.template("kb://search{?q,limit}")
    server.add("kb://docker/document/listed", "listed\n")
    server.add_unlisted("kb://docker/document/ssl-setup", "ssl\n", mimeType="text/markdown")
    server.add_unlisted("kb://a%20b/document/x%2Fy", "slash\n")
    return server


@pytest.mark.semantics("S34")
@pytest.mark.parametrize("capabilities", [["read", "list"], ["read", "list", "write"]])
def test_a_program_that_wants_a_new_name_is_told_at_once_that_it_gets_none(
    mounted: Mounts, server: ScriptedServer, capabilities: list[str]
) -> None:
    server.add_unlisted("kb://docker/document/kept.tmp", "of the server\n")
    mount = mounted(server.source("docs", capabilities=capabilities))
    directory = mount / f"{D}/kb/docker/document"
    done = run("sed", "-i", "s/ssl/tls/", directory / "ssl-setup", status=None)
    assert (done.status, "Read-only file system" in done.err.decode()) == (4, True), done.err
    assert errno_of("__import__('tempfile').mkstemp(dir=sys.argv[1])", directory) == "EROFS"
    assert run("cat", directory / "kept.tmp").text == "of the server\n"
    assert server.reads("kb://docker/document/kept.tmp") == 1
    made_up = [line for line in server.log() if "/sed" in line or "/tmp" in line]
    assert len(made_up) <= 3, made_up


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
