"""Sources from the command line, and putting several origins together."""

import os
import shlex
from pathlib import Path

import pytest

from bbfs.config import give_way, merge, source_from_dir_argument, source_from_mcp_argument
from bbfs.model.errors import ConfigError
from bbfs.model.values import DataSource, McpServer

SECRET = "s3cr3t-value"


def mcp(text: str, **environ: str) -> DataSource:
    return source_from_mcp_argument(text, environ={"HOME": "/home/someone"} | environ)


def folder(text: str) -> DataSource:
    return source_from_dir_argument(text, environ={"HOME": "/home/someone"})


def test_a_command_line():
    source = mcp("docs=uvx some-server --flag 'two words' --x=1")
    assert (source.id, source.name, source.type, source.uri_prefix) == ("docs", "docs", "server", "mcp-server+docs")
    assert source.mcp == McpServer("stdio", "uvx", ("some-server", "--flag", "two words", "--x=1"))


@pytest.mark.parametrize(
    ("text", "name", "transport", "url"),
    [
        ("kb=http://127.0.0.1:8000/mcp", "kb", "http", "http://127.0.0.1:8000/mcp"),
        ("kb=sse+http://h/x?a=b", "kb", "sse", "http://h/x?a=b"),
        ("kb=https://h/sse", "kb", "sse", "https://h/sse"),
        ("kb=http+https://h/sse", "kb", "http", "https://h/sse"),
        ("https://Docs.example.org/mcp?x=y", "docs.example.org", "http", "https://Docs.example.org/mcp?x=y"),
        ("http://u:p@localhost:8000/", "localhost-8000", "http", "http://u:p@localhost:8000/"),
        ("http://[::1]:80/", "1-80", "http", "http://[::1]:80/"),
    ],
)
def test_a_url(text: str, name: str, transport: str, url: str):
    source = mcp(text)
    assert source.mcp is not None
    assert (source.name, source.mcp.transport, source.mcp.url) == (name, transport, url)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("some-server --flag", "some-server"),
        ("/opt/tools/server.py --a=b", "server"),
        ("uvx awslabs.aws-serverless-mcp-server@latest", "awslabs.aws-serverless-mcp-server"),
        ("uvx --from git+https://example.org/x serve", "serve"),
        ("uvx some==1.2", "some"),
        ("npx -y @modelcontextprotocol/server-memory@1.2 x", "server-memory"),
        ("python3.11 -u -m bbfs.knowledge serve", "bbfs.knowledge"),
        ("python server.py", "server"),
        ("uv run --directory /srv/x server.py", "server"),
        ("uv tool run thing", "thing"),
        ("docker run -i --rm -e KEY=v mcp/fetch:1", "fetch"),
        ("env A=b server", "server"),
        ("npx", "npx"),
        ("'my server'", "my-server"),
    ],
)
def test_a_name_is_derived_from_the_command(command: str, name: str):
    assert mcp(command).name == name


def test_references_are_resolved_after_splitting():
    source = mcp("x=~/bin/run --token ${env:T}", T="a b 'c")
    assert source.mcp is not None
    assert source.mcp.command == "/home/someone/bin/run"
    assert source.mcp.args == ("--token", "a b 'c")
    assert mcp("x=http://h/?k=${env:T}", T="v").mcp == McpServer("http", url="http://h/?k=v")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--mcp: expected NAME=COMMAND or NAME=URL"),
        ("x=", "--mcp x: expected NAME=COMMAND or NAME=URL"),
        ("=y", "--mcp: illegal name '': expected at most 100 letters"),
        ("-x=y", "--mcp: illegal name '-x': expected at most 100 letters"),
        (f"x=run '{SECRET}", "--mcp x: no closing quotation"),
        (f"x=http://u:{SECRET}@", "--mcp x: url: should be an http:// or https:// URL with a host"),
        (f"x=http://h/{SECRET} y", "--mcp x: url: should be an http:// or https:// URL with a host"),
        (f"x=run {SECRET} ${{env:UNSET}}", "--mcp x: environment variable UNSET is not set"),
        (f"x=run '{SECRET}\0'", "--mcp x: args[0]: has a NUL character"),
        ("x=''", "--mcp x: command: is empty"),
    ],
)
@pytest.mark.semantics("S30")
def test_mcp_arguments_that_are_refused(text: str, message: str):
    with pytest.raises(ConfigError) as caught:
        mcp(text)
    assert str(caught.value).startswith(message)
    assert SECRET not in repr(caught.value) + repr(caught.value.__cause__)


@pytest.mark.semantics("S1")
def test_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    here = os.getcwd()
    cases = {
        "notes=~/notes": ("notes", "/home/someone/notes"),
        "/srv/data/": ("data", "/srv/data"),
        "/": ("root", "/"),
        "./a=b": ("a-b", f"{here}/a=b"),
        "x=a=b": ("x", f"{here}/a=b"),
        "/tmp/My Notes": ("My-Notes", "/tmp/My Notes"),
    }
    for text, (name, root) in cases.items():
        source = folder(text)
        assert (source.name, source.uri_prefix) == (name, f"bb-filesystem+{name}+file")
        assert (source.type, source.access_method, dict(source.config)) == ("filesystem", "bb", {"root": root})
    assert folder("/tmp/My Notes").title == "My Notes"


@pytest.mark.parametrize("text", ["", "x=", "x=a\0b", "=/tmp", "a+b=/tmp"])
def test_folders_that_are_refused(text: str):
    with pytest.raises(ConfigError, match=r"--dir.*expected"):
        folder(text)


def test_merge_keeps_the_order_and_refuses_doubles_naming_both_origins():
    sources = [mcp("a=x"), mcp("b=x"), folder("a=/x")]
    with pytest.raises(ConfigError) as caught:
        merge(("config.toml", sources[:2]), ("--dir", sources[2:]))
    assert str(caught.value) == (
        "--dir: source 'a' has the id 'a', and so has 'a' of config.toml; give one of them another name"
    )
    with pytest.raises(ConfigError) as caught:
        merge(("one.json", [mcp("a=x"), mcp("b=x")]), ("two.json", [mcp("b=y"), mcp("a=y")]))
    assert str(caught.value).splitlines() == [
        f"two.json: source '{name}' has the URI prefix 'mcp-server+{name}', and so has '{name}' of one.json; "
        "give one of them another name"
        for name in "ba"
    ]
    merged = merge(("1", [mcp("b=x")]), ("2", []), ("3", [mcp("a=x"), folder("c=/x")]))
    assert [source.name for source in merged] == ["b", "a", "c"]


@pytest.mark.parametrize("text", ["my notes=~/notes", "a/b=~/notes", "é=/x", "~notes=/x"])
def test_a_name_that_is_illegal_is_no_path(text: str):
    with pytest.raises(ConfigError, match=r"--dir: illegal name .* letters, digits.*'\./a=b'"):
        source_from_dir_argument(text, environ={"HOME": "/home/me"})


@pytest.mark.parametrize("text", ["./a=b", "../a=b", "/x/a=b", "~/a=b"])
def test_a_path_may_hold_an_equals_sign(text: str):
    assert source_from_dir_argument(text, environ={"HOME": "/home/me"}).config["root"].endswith("a=b")


@pytest.mark.parametrize("text", ["my docs=uvx x", "a/b=uvx x", "my docs=http://h/mcp"])
def test_a_name_that_is_illegal_is_no_program(text: str):
    with pytest.raises(ConfigError, match=r"--mcp: illegal name .* letters, digits"):
        source_from_mcp_argument(text, environ={"PATH": "/nowhere"})


@pytest.mark.parametrize("text", ["prog --key=v", "env K=v prog", "/x/prog k=v", "python3 s.py a=b", "'a b' k=v"])
def test_a_command_line_may_hold_an_equals_sign(text: str):
    source = source_from_mcp_argument(text, environ={"PATH": "/nowhere"})
    assert source.mcp is not None
    assert source.mcp.command == shlex.split(text)[0]


def test_an_installed_program_takes_an_equals_sign(tmp_path: Path):
    (tmp_path / "prog").touch(mode=0o755)
    source = source_from_mcp_argument("prog key=v", environ={"PATH": str(tmp_path)})
    assert source.mcp is not None
    assert (source.name, source.mcp.args) == ("prog", ("key=v",))


def test_servers_of_host_files_give_way():
    taken = [folder("a=/x"), mcp("b=x"), mcp("b-2=x")]
    free = give_way([mcp("a=y"), mcp("b=y"), mcp("c=y"), mcp("b-3=y")], taken)
    assert [source.name for source in free] == ["a-2", "b-4", "c", "b-3"]
    assert [source.uri_prefix for source in free][:2] == ["mcp-server+a-2", "mcp-server+b-4"]
    assert len(merge(("1", taken), ("2", free))) == 7
