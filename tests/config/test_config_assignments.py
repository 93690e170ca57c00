"""Options of sources that are set on the command line."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from bbfs.config import source_from_dir_argument, source_from_mcp_argument, source_from_url_argument
from bbfs.config.command_line.assignments import assignment, header, tools, with_options
from bbfs.model.errors import ConfigError
from bbfs.model.values import DataSource, RemoveTool, SearchTool, WriteTool

SECRET = "s3cr3t-value"
ENVIRON = {"HOME": "/home/someone", "TOKEN": SECRET}


def notes() -> DataSource:
    return source_from_dir_argument("notes=/srv/notes", environ=ENVIRON)


def kb(name: str = "kb") -> DataSource:
    return source_from_mcp_argument(f"{name}=https://{name}.example/mcp", environ=ENVIRON)


def git() -> DataSource:
    return source_from_mcp_argument("git=uvx mcp-server-git", environ=ENVIRON)


def store(url: str = "s3=s3://bucket/x") -> DataSource:
    return source_from_url_argument(url, environ=ENVIRON)


def given(*texts: str, sources: tuple[DataSource, ...] = ()) -> dict[str, DataSource]:
    api = source_from_url_argument("api=https://api.example/openapi.json", environ=ENVIRON)
    there = sources or (notes(), kb(), git(), store(), api)
    found = with_options(there, [assignment(text) for text in texts], environ=ENVIRON)
    return {source.name: source for source in found}


def refused(*texts: str, sources: tuple[DataSource, ...] = ()) -> str:
    with pytest.raises(ConfigError) as caught:
        given(*texts, sources=sources)
    assert SECRET not in str(caught.value)
    return str(caught.value)


def test_keys_of_every_source_are_typed_by_their_table():
    policy = given("notes.ttl.content=30s", "notes.timeout=2.5", "notes.concurrency=3", "notes.sizes=lazy")[
        "notes"
    ].policy
    assert (policy.content_ttl, policy.listing_ttl, policy.timeout, policy.concurrency, policy.sizes) == (
        30.0,
        1.0,
        2.5,
        3,
        "lazy",
    )
    both = given("notes.ttl=1m")["notes"].policy
    assert (both.content_ttl, both.listing_ttl) == (60.0, 60.0)
    assert given("notes.title=2026")["notes"].title == "2026"
    assert given("notes.capabilities.list=false")["notes"].capabilities.list is False
    assert given("notes.capabilities.list=false")["notes"].capabilities.read is True


@pytest.mark.parametrize("key", ["max_memory", "maxMemory", "config.max_memory", "config.maxMemory"])
def test_an_option_of_a_type_needs_no_table_and_has_either_spelling(key: str):
    source = given(f"notes.{key}=64KiB", "notes.hidden=false")["notes"]
    assert {name.replace("M", "_m"): value for name, value in source.config.items()} == {
        "root": "/srv/notes",
        "max_memory": "64KiB",
        "hidden": False,
    }


def test_the_spelling_that_is_there_stays():
    source = notes()
    source = replace(source, config={"maxMemory": 1})
    assert given("notes.max_memory=2", sources=(source,))["notes"].config == {"maxMemory": 2}


def test_options_and_secrets_of_a_scheme():
    source = given("s3.endpoint=http://127.0.0.1:9000", "s3.path_style=true", "s3.access_key=${env:TOKEN}")["s3"]
    assert source.config["options"] == {"endpoint": "http://127.0.0.1:9000", "path_style": True}
    assert source.auth["access_key"] == SECRET
    assert given("s3.config.options.region=eu-1")["s3"].config["options"] == {"region": "eu-1"}


def test_a_connection_of_a_server():
    source = given(
        "git.env.GIT_DIR=/srv/x.git",
        "git.args=mcp-server-git,--repository,/srv",
        "git.tools=read-only",
        "git.prompts=true",
        "git.start=eager",
        "git.idle_timeout=1m",
        "git.roots=work,/srv",
        "git.cwd=/srv",
    )["git"]
    assert source.mcp is not None
    assert (source.mcp.command, source.mcp.args) == ("uvx", ("mcp-server-git", "--repository", "/srv"))
    assert (dict(source.mcp.env), source.mcp.cwd) == ({"GIT_DIR": "/srv/x.git"}, "/srv")
    assert (source.tools, source.prompts) == ("read-only", True)
    assert (source.mcp.start, source.mcp.idle_timeout) == ("eager", 60.0)
    assert source.mcp.roots[1] == "/srv"
    assert source.mcp.roots[0].endswith("/work")


def test_a_header_has_a_reference_and_replaces_one_in_other_letters():
    source = given("kb.headers.X-One=1", "kb.headers.x-one=2", "kb.headers.Authorization=Bearer ${env:TOKEN}")["kb"]
    assert source.mcp is not None
    assert dict(source.mcp.headers) == {"x-one": "2", "Authorization": f"Bearer {SECRET}"}
    assert source.mcp.secrets == {SECRET}
    assert SECRET not in repr(source)


def test_a_name_may_have_dots_and_a_key_quotes():
    source = source_from_mcp_argument("kb.example.org=https://kb.example/mcp", environ=ENVIRON)
    found = given("kb.example.org.timeout=3s", 'kb.example.org.headers."X.Y"=a=b', sources=(source,))
    changed = found["kb.example.org"]
    assert changed.mcp is not None
    assert (changed.policy.timeout, dict(changed.mcp.headers)) == (3.0, {"X.Y": "a=b"})


def test_without_a_name_a_common_key_is_for_all_that_have_it():
    found = given("timeout=3s", "tools=all")
    assert {source.policy.timeout for source in found.values()} == {3.0}
    assert [name for name, source in found.items() if source.tools == "all"] == ["kb", "git"]
    assert "bucket" not in given("enabled=false", sources=(store("bucket=s3://b"),))


def test_without_a_name_what_belongs_to_a_server_is_for_one_alone():
    assert given("region=eu-1")["s3"].config["options"] == {"region": "eu-1"}
    two = (kb("a"), kb("b"))
    assert refused("headers.Authorization=x", sources=two) == (
        "-o headers.Authorization: several sources have this option: a, b; write NAME before it"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s3.endpont=x", "-o s3.endpont: unknown option; did you mean 'endpoint'?"),
        ("nots.hidden=1", "-o nots.hidden: no source and no option is called 'nots'; did you mean 'notes'?"),
        ("hiddn=1", "-o hiddn: no source and no option is called 'hiddn'; did you mean 'hidden'?"),
        ("notes.ttl.contnt=1", "-o notes.ttl.contnt: unknown key; did you mean 'content'?"),
        ("notes.config=1", "-o notes.config: is a table; name the key in it"),
        ("notes.name=x", "-o notes.name: says which source it is, so it is no option"),
        ("notes.tools=off", "-o notes.tools: belongs to MCP sources"),
        ("notes.concurrency=99", "-o notes.concurrency: should be less than or equal to 64"),
        ("notes.sizes=lasy", "-o notes.sizes: should be 'exact' or 'lazy'; did you mean 'lazy'?"),
        ("git.tools=read-onyl", "did you mean 'read-only'?"),
        ("api.write=GET /a,b", "-o api.write: should be operationIds, or PUT, PATCH, POST or DELETE and a path"),
        ("s3.endpoint=${env:NONE}", "-o s3.endpoint: environment variable NONE is not set"),
        ("git.url=http://x", "-o git.url: has both 'command' and 'url'; a server is either started or connected to"),
        ("kb.headers.A B=1", "-o kb.headers.A B: is not a legal name of an HTTP header"),
        ("allow_other", "-o allow_other: sets options of sources; for the mount there is --allow-other"),
        ("uid=1000", "-o uid: sets options of sources; for the mount there is --uid"),
        ("notes", "-o 'notes': expected [NAME.]KEY=VALUE, such as notes.ttl=30s"),
        ("=x", "-o '': expected [NAME.]KEY=VALUE, such as notes.ttl=30s"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_refused_with_a_remedy(text: str, message: str):
    told = refused(text)
    assert told.endswith(message) if message.startswith("did you") else told == message


@pytest.mark.parametrize("key", ["hidden", "max_memory", "s3.region", "s3.endpoint", "timeout", "notes.root"])
def test_a_refusal_never_holds_the_value(key: str):
    assert key in refused(f"{key}=\n{SECRET}\0" + "x" * 10) or key == "notes.root"


def test_a_new_url_gives_the_prefix_its_scheme():
    source = source_from_url_argument("shop=sqlite:////srv/shop.db", environ=ENVIRON)
    found = given("shop.url=postgresql://reader@db.example/shop", sources=(source,))
    assert found["shop"].uri_prefix == "bb-database+shop+postgres"


def test_a_type_from_a_package_checks_its_options_itself():
    source = DataSource("x", "x", "elsewhere", "bb", uri_prefix="bb-elsewhere+x", config=MappingProxyType({"a": 1}))
    assert given("x.depth=3", "x.word=three", sources=(source,))["x"].config == {"a": 1, "depth": 3, "word": "three"}


def test_short_forms():
    found = with_options(
        (kb(), git()),
        [header("kb=Authorization: Bearer ${env:TOKEN}"), header("X-Y:z"), tools("git=a,b"), tools("kb=off")],
        environ=ENVIRON,
    )
    assert found[0].mcp is not None
    assert dict(found[0].mcp.headers) == {"Authorization": f"Bearer {SECRET}", "X-Y": "z"}
    assert (found[0].tools, found[1].tools) == ("off", ("a", "b"))
    with pytest.raises(ConfigError, match="no source 'dosc'; did you mean 'docs'"):
        with_options((kb("docs"),), [header("dosc=A: b")], environ=ENVIRON)
    with pytest.raises(ConfigError, match=r"expected \[NAME=\]HEADER: VALUE") as caught:
        header(f"{SECRET}")
    assert SECRET not in str(caught.value)


def test_the_tools_of_a_server_are_set_key_by_key():
    one = given("kb.write.tool=put", "kb.write.content=text", "kb.write.maxSize=1MiB", "kb.write.arguments.space=HR")
    assert one["kb"].write == WriteTool("put", content="text", max_size=1 << 20, arguments={"space": "HR"})
    assert one["kb"].remove is None
    other = given("kb.remove={ tool = 'drop', version = 'etag' }", "kb.search.tool=find", "kb.search.query=q")
    assert (other["kb"].remove, other["kb"].search) == (RemoveTool("drop", version="etag"), SearchTool("find", "q"))
    assert refused("kb.write.content=text") == "-o kb.write.content: write.tool is required"
    assert "did you mean 'content'?" in refused("kb.write.tool=put", "kb.write.contnt=text")
    assert "malformed template" in refused("kb.write.tool=put", "kb.write.template=a:{")
    assert "belongs to MCP sources" in refused("notes.write.tool=put")
