"""bbfs's own configuration file: what it means, and every way to get it wrong."""

import os
from pathlib import Path
from textwrap import dedent

import pytest

from bbfs.config import Config, MountOptions, default_config_path
from bbfs.config.toml import load_config
from bbfs.model import source_types
from bbfs.model.errors import ConfigError
from bbfs.model.quantities import parse_duration, parse_size, parse_umask
from bbfs.model.values import Capabilities, DataSource, McpServer, Policy, RemoveTool, WriteTool
from bbfs.resources.open import compose
from bbfs.sources.factory import Services, build

FULL = """
log_level = "debug"

[mount]
uid = 1000
gid = 100
umask = "027"
allow_other = true

[cache]
memory = "64MiB"

[[sources]]
name = "docs"
title = "Documentation"
capabilities = ["read", "list", "search"]
ttl = 5
timeout = "1m30s"
maxStale = "1d"
concurrency = 4
sizes = "lazy"
auth = { token = "${env:TOKEN}" }
[sources.mcpConfig]
command = "uvx"
args = ["some-server", "--flag"]
env = { API_KEY = "${file:key}" }
cwd = "work"

[[sources]]
id = "knowledge"
name = "kb"
accessMethod = "mcp"
type = "database"
ttl = { listing = "1m", content = 0 }
config = { scheme = "postgres", option = 1 }
mcp_config = { url = "http://127.0.0.1:8000/mcp", headers = { Authorization = "Bearer ${env:TOKEN}" } }

[[sources]]
name = "old"
access_method = "mcp"
uri_prefix = "mcp-wiki+other"
mcpConfig = { url = "http://h/events", transport = "sse" }

[[sources]]
name = "notes"
type = "filesystem"
capabilities = { write = true }
config.root = "~/notes"

[[sources]]
name = "here"
type = "filesystem"
config.root = "data"

[[sources]]
name = "off"
enabled = false
mcpConfig = { command = "${env:NOT_SET}" }
"""


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.toml"
    path.write_text(dedent(text))
    return str(path)


def load(tmp_path: Path, text: str, **environ: str) -> Config:
    return load_config(write(tmp_path, text), environ={"HOME": "/home/someone"} | environ)


def refusal(tmp_path: Path, text: str, **environ: str) -> list[str]:
    """The messages without the file's name."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, **environ)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{tmp_path}/config.toml") for line in lines)
    return [line.removeprefix(f"{tmp_path}/config.toml") for line in lines]


@pytest.mark.semantics("S1")
def test_a_full_file(tmp_path: Path):
    (tmp_path / "key").write_text("k3y\n")
    config = load(tmp_path, FULL, TOKEN="t0k")
    assert (config.log_level, config.cache_bytes, config.path) == ("debug", 64 * 2**20, f"{tmp_path}/config.toml")
    assert config.mount == MountOptions(uid=1000, gid=100, umask=0o027, allow_other=True)
    docs, kb, old, notes, here = config.sources
    assert (docs.id, docs.name, docs.type, docs.access_method) == ("docs", "docs", "server", "mcp")
    assert (docs.uri_prefix, docs.title) == ("mcp-server+docs", "Documentation")
    assert docs.capabilities == Capabilities(read=True, write=False, list=True, search=True)
    assert docs.policy == Policy(90.0, 5.0, 5.0, 86400.0, 4, "lazy")
    assert docs.auth == {"token": "t0k"}
    assert docs.mcp == McpServer(
        "stdio", "uvx", ("some-server", "--flag"), {"API_KEY": "k3y"}, f"{tmp_path}/work", headers={}
    )
    assert (kb.id, kb.uri_prefix, kb.config) == ("knowledge", "mcp-database+kb+postgres", {"option": 1})
    assert (kb.policy.listing_ttl, kb.policy.content_ttl) == (60.0, 0.0)
    assert kb.mcp == McpServer("http", url="http://127.0.0.1:8000/mcp", env={}, headers={"Authorization": "Bearer t0k"})
    assert old.uri_prefix == "mcp-wiki+other"
    assert old.mcp is not None
    assert old.mcp.transport == "sse"
    assert (notes.uri_prefix, notes.access_method) == ("bb-filesystem+notes+file", "bb")
    assert notes.capabilities == Capabilities(read=True, write=True, list=True, search=True)
    assert (notes.config["root"], here.config["root"]) == ("/home/someone/notes", f"{tmp_path}/data")
    assert notes.policy == source_types.policy("filesystem")


def test_type_mcp_is_another_word_for_server(tmp_path: Path):
    (source,) = load(tmp_path, '[[sources]]\nname = "a"\ntype = "mcp"\nmcpConfig.url = "http://h/sse"').sources
    assert (source.type, source.uri_prefix) == ("server", "mcp-server+a")
    assert source.mcp is not None
    assert source.mcp.transport == "sse"


def test_commands_with_a_slash_are_relative_to_the_file(tmp_path: Path):
    commands = {"./run": f"{tmp_path}/run", "~/run": "/home/someone/run", "run": "run", "/bin/run": "/bin/run"}
    text = "".join(
        f'[[sources]]\nname = "s{index}"\nmcpConfig.command = "{command}"\n' for index, command in enumerate(commands)
    )
    assert [source.mcp and source.mcp.command for source in load(tmp_path, text).sources] == list(commands.values())


def test_an_empty_file_and_no_file(tmp_path: Path):
    assert load(tmp_path, "") == Config(path=f"{tmp_path}/config.toml")
    assert load_config(None, environ={"HOME": str(tmp_path)}) == Config()
    with pytest.raises(ConfigError, match=r"none\.toml: No such file or directory"):
        load_config(str(tmp_path / "none.toml"), environ={})


def test_the_default_file(tmp_path: Path):
    assert default_config_path({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == "/x/bbfs/config.toml"
    for ignored in ({}, {"XDG_CONFIG_HOME": ""}, {"XDG_CONFIG_HOME": "relative"}):
        assert default_config_path({"HOME": "/h"} | ignored) == "/h/.config/bbfs/config.toml"
    (tmp_path / "bbfs").mkdir()
    (tmp_path / "bbfs/config.toml").write_text('log_level = "error"')
    config = load_config(None, environ={"XDG_CONFIG_HOME": str(tmp_path)})
    assert (config.log_level, config.path) == ("error", f"{tmp_path}/bbfs/config.toml")


def test_a_default_file_that_leads_nowhere_is_not_taken_for_none(tmp_path: Path):
    (tmp_path / "bbfs").mkdir()
    os.symlink("nowhere", tmp_path / "bbfs/config.toml")
    with pytest.raises(ConfigError, match="No such file or directory"):
        load_config(None, environ={"XDG_CONFIG_HOME": str(tmp_path)})


HEAD = '[[sources]]\nname = "a"\n'
MCP = HEAD + 'mcpConfig.command = "x"\n'
FOLDER = HEAD + 'type = "filesystem"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = ", ":1: Invalid value"),
        ("\n[a]\nb c = 1\n", ":3: Expected '=' after a key in a key/value pair"),
        ("a = " + "[" * 5000, ": nested too deeply"),
        ("\n\na = 1\na = 2\n\n", ":4: Cannot overwrite a value: the key 'a' is there already, in the same table"),
        ("[c]\na = 1\na = 2", ":3: Cannot overwrite a value: the key 'a' is there already"),
        (
            FOLDER + 'config = { root = "n" }\n[sources.config.more]\n',
            ":5: Cannot declare ('sources', 'config', 'more') twice; a table in braces, such as 'config = { … }', is",
        ),
        (
            'log_level = "warn"',
            ":1: log_level: should be 'debug', 'info', 'warning' or 'error'; did you mean 'warning'?",
        ),
        ("\nlogLevl = 1", ":2: logLevl: unknown key; did you mean 'logLevel'?"),
        ("zzz = 1", ":1: zzz: unknown key"),
        ("sources = 1", ":1: sources: should be an array"),
        ("sources = [1]", ":1: sources[0]: should be a table"),
        ("[sources]\nname = 1", ":1: sources: should be an array"),
        ("mount = 1", ":1: mount: should be a table"),
        ("[mount]\numask = 22", ':2: mount.umask: expected octal digits in quotes, such as "022" or "077"'),
        ('[mount]\nuid = "root"', ":2: mount.uid: should be an integer"),
        ("[mount]\nuid = -1", ":2: mount.uid: should be greater than or equal to 0"),
        ("[mount]\nuid = true", ":2: mount.uid: should be an integer"),
        ("[mount]\nallowOther = 1", ":2: mount.allowOther: should be a boolean"),
        ('[cache]\nmemory = "256M"', ":2: cache.memory: expected bytes as an integer, or a text like"),
        ("[cache]\nmemory = -1", ":2: cache.memory: a size is between 0 and 2^63 - 1 bytes"),
        ("[[sources]]\n", ":1: sources[0].name: is required"),
        ("[[sources]]\nname = 1", ":2: sources[0].name: should be a string"),
        (
            '[[sources]]\nname = "a b"\nmcpConfig.command = "x"',
            ":2: sources[0].name: URI prefix 'mcp-server+a b': whitespace",
        ),
        (HEAD, ":1: sources[0].type: is required (for example 'filesystem') where there is no mcpConfig"),
        (HEAD + 'type = "server"', ":1: sources[0].mcpConfig: is required for an MCP source"),
        (HEAD + 'type = "sqlite"', ":3: sources[0].type: unknown type 'sqlite'; did you mean 'database'?"),
        (HEAD + 'type = "S3"', ":3: sources[0].type: unknown type 'S3'; did you mean 'storage'?"),
        (HEAD + 'type = "zzz"', ":3: sources[0].type: unknown type 'zzz'; there are: api, database, filesystem, "),
        (HEAD + 'type = "filesystm"', ":3: sources[0].type: unknown type 'filesystm'; did you mean 'filesystem'?"),
        (HEAD + 'type = "git"', ":3: sources[0].type: unknown type 'git'; there are: "),
        (FOLDER + 'root = "~/notes"', ":4: sources[0].root: unknown key; did you mean 'config.root'?"),
        (
            '[sources.kb]\ntype = "filesystem"',
            ":1: sources: should be an array of tables: each source begins",
        ),
        (HEAD + 'mcpConfig.command = "prog --flag"', ":3: sources[0].mcpConfig.command: is the program alone, and no"),
        ('{"mcpServers": {}}', ":1: Invalid"),
        (HEAD + 'type = "File"', ":2: sources[0].name: URI prefix 'bb-File+a': illegal type 'File'"),
        (
            MCP + 'accessMethod = "bb"\ntype = "x"',
            ":3: sources[0].mcpConfig: belongs to sources with accessMethod 'mcp'",
        ),
        (MCP + 'accessMethod = "mpc"', ":4: sources[0].accessMethod: should be 'bb' or 'mcp'; did you mean 'mcp'?"),
        (MCP + 'access_metod = "mcp"', ":4: sources[0].access_metod: unknown key; did you mean 'accessMethod'?"),
        (MCP + "maxStale = 1\nmax_stale = 2", ":5: sources[0].max_stale: is there in camelCase and in snake_case"),
        (MCP + 'id = "a/b"', ":4: sources[0].id: should be a letter or digit, then"),
        (MCP + 'uriPrefix = "docs"', ":4: sources[0].uriPrefix: URI prefix 'docs': unknown access method 'docs'"),
        (
            MCP + 'uriPrefix = "bb-x+y"',
            ":4: sources[0].uriPrefix: begins with 'bb', but the source's accessMethod is 'mcp'",
        ),
        (
            MCP + 'capabilities = ["raed"]',
            ":4: sources[0].capabilities: unknown capability 'raed'; did you mean 'read'?",
        ),
        (
            MCP + "capabilities = [1]",
            ":4: sources[0].capabilities: should be a list of 'read', 'write', 'list', 'search'",
        ),
        (MCP + "capabilities.wirte = true", ":4: sources[0].capabilities.wirte: unknown key; did you mean 'write'?"),
        (MCP + 'ttl = "5 parsecs"', ":4: sources[0].ttl: expected seconds as a number, or a text like"),
        (MCP + "ttl = { contents = 1 }", ":4: sources[0].ttl.contents: unknown key; did you mean 'content'?"),
        (MCP + "ttl = { content = -1 }", ":4: sources[0].ttl.content: a duration is not negative"),
        (MCP + "timeout = 0", ":4: sources[0].timeout: should be greater than 0"),
        (MCP + "timeout = inf", ":4: sources[0].timeout: a duration is at most 100 years"),
        (MCP + "concurrency = 1000", ":4: sources[0].concurrency: should be less than or equal to 64"),
        (MCP + "concurrency = 1.5", ":4: sources[0].concurrency: should be an integer"),
        (MCP + 'sizes = "exakt"', ":4: sources[0].sizes: should be 'exact' or 'lazy'; did you mean 'exact'?"),
        (MCP + 'enabled = "no"', ":4: sources[0].enabled: should be a boolean"),
        (MCP + "auth = { token = 1 }", ":4: sources[0].auth.token: should be a string"),
        (MCP + "config.scheme = 1", ":4: sources[0].config.scheme: should be a string"),
        (MCP + 'config.scheme = "${env:X}"', ":2: sources[0].name: URI prefix 'mcp-server+a+${env:X}': illegal scheme"),
        (
            HEAD + 'mcpConfig = { comand = "x" }',
            ":3: sources[0].mcpConfig.comand: unknown key; did you mean 'command'?",
        ),
        (HEAD + "mcpConfig = {}", ":3: sources[0].mcpConfig: needs 'command' (a program to start) or 'url'"),
        (MCP + 'mcpConfig.url = "http://h"', ":3: sources[0].mcpConfig: has both 'command' and 'url'"),
        (MCP + 'mcpConfig.transport = "http"', ":3: sources[0].mcpConfig: transport 'http' needs 'url', not 'command'"),
        (MCP + 'mcpConfig.transport = "htp"', ":4: sources[0].mcpConfig.transport: should be 'stdio', 'http' or 'sse'"),
        (HEAD + 'mcp_config.url = "h:80/x"', ":3: sources[0].mcp_config.url: should be an http:// or https:// URL"),
        (MCP + 'mcpConfig.args = ["a", 1]', ":4: sources[0].mcpConfig.args[1]: should be a string"),
        (MCP + "mcpConfig.env.PORT = 1", ":4: sources[0].mcpConfig.env.PORT: should be a string"),
        (MCP + 'mcpConfig.env.T = "${env:T}"', ":4: sources[0].mcpConfig.env.T: environment variable T is not set"),
        (MCP + 'mcpConfig.cwd = "${keyring:x}"', ":4: sources[0].mcpConfig.cwd: ${keyring:x} does not name an entry"),
        (FOLDER + 'config.root = "${HOME}"', ":4: sources[0].config.root: unknown reference ${HOME}: "),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(tmp_path: Path, text: str, message: str):
    assert any(line.startswith(message) for line in refusal(tmp_path, text)), refusal(tmp_path, text)


def test_all_problems_together_in_the_order_of_the_file(tmp_path: Path):
    text = """\
    log_level = 1
    [[sources]]
    name = "a"
    auth.token = "${env:A}"
    mcpConfig = { comand = "x", env = { B = "${env:B}" } }
    [[sources]]
    name = "b"
    type = "filesystem"
    tile = "t"
    config.root = "${env:C}"
    [[sources]]
    name = "c"
    mcpConfig.url = "nowhere"
    """
    assert refusal(tmp_path, text) == [
        ":1: log_level: should be 'debug', 'info', 'warning' or 'error'",
        ":4: sources[0].auth.token: environment variable A is not set",
        ":5: sources[0].mcpConfig.comand: unknown key; did you mean 'command'?",
        ":5: sources[0].mcpConfig.env.B: environment variable B is not set",
        ":9: sources[1].tile: unknown key; did you mean 'title'?",
        ":10: sources[1].config.root: environment variable C is not set",
        ":13: sources[2].mcpConfig.url: should be an http:// or https:// URL with a host",
    ]


@pytest.mark.parametrize(
    ("second", "shared"),
    [
        ('name = "a"', "the URI prefix 'mcp-server+a'"),
        ('name = "b"\nid = "a"', "the id 'a'"),
        (
            'name = "b"\nuriPrefix = "mcp-server+a+file"',
            "the URIs of 'mcp-server+a'",
        ),
    ],
)
def test_sources_that_cannot_be_told_apart(tmp_path: Path, second: str, shared: str):
    text = f'{MCP}[[sources]]\n{second}\nmcpConfig.command = "y"\n'
    assert refusal(tmp_path, text) == [
        f":5: sources[1].name: has {shared}, and so has 'a' in line 1; give one another name"
    ]


def test_one_name_is_one_source_whatever_the_schemes(tmp_path: Path):
    text = "".join(
        f'[[sources]]\nname = "a"\nid = "{scheme}"\ntype = "storage"\nconfig.url = "{scheme}:///a"\n'
        for scheme in ("zip", "tar")
    )
    assert refusal(tmp_path, text) == [
        ":7: sources[1].name: has the URIs of 'bb-storage+a', and so has 'a' in line 1; give one another name"
    ]


def test_text_that_is_not_utf_8(tmp_path: Path):
    (tmp_path / "config.toml").write_bytes(b'a = "\xff"')
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load_config(str(tmp_path / "config.toml"), environ={})


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(0, 0), (1.5, 1.5), ("500ms", 0.5), ("30s", 30), ("5m", 300), ("1h", 3600), ("1h30m", 5400), ("2 d", 172800)],
)
def test_durations(value: object, seconds: float):
    assert parse_duration(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value", ["", "30", "s", "-1s", "1x", "1s2", -1, float("nan"), float("inf"), True, None, [], "1e9d"]
)
def test_what_is_no_duration(value: object):
    with pytest.raises(ValueError, match=r"duration|seconds"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (0, 0),
        (5, 5),
        ("5B", 5),
        ("1KiB", 1024),
        ("1kB", 1000),
        ("1.5 GiB", 3 * 2**29),
        ("9007199254740993B", 2**53 + 1),
    ],
)
def test_sizes(value: object, size: int):
    assert parse_size(value) == size


@pytest.mark.parametrize("value", ["", "5", "5M", "MiB", "-1B", 1.5, True, None, 2**63, "9000000TiB"])
def test_what_is_no_size(value: object):
    with pytest.raises(ValueError, match=r"size|bytes"):
        parse_size(value)


def test_umasks():
    assert [parse_umask(text) for text in ("022", "0o077", "0", "777")] == [0o22, 0o77, 0, 0o777]
    for value in ("", "8", "1777", "22 ", 22, None):
        with pytest.raises(ValueError, match="octal digits"):
            parse_umask(value)


def test_a_json_file_is_sent_to_the_option_for_it(tmp_path: Path):
    (line,) = refusal(tmp_path, '{"mcpServers": {}}')
    assert line.endswith("; the JSON file of an MCP host is given with --mcp-config")


def test_a_program_with_a_space_in_its_name_is_one(tmp_path: Path):
    program = tmp_path / "my prog"
    program.touch(mode=0o755)
    (source,) = load(tmp_path, HEAD + f"mcpConfig.command = '{program}'").sources
    assert source.mcp is not None
    assert source.mcp.command == str(program)


def test_the_types_that_are_suggested_are_those_that_have_a_handler():
    for name in source_types.names():
        found = source_types.find(name)
        assert found is not None
        assert found.handler_class().__name__.endswith("Handler")
    with pytest.raises(ConfigError) as caught:
        build(DataSource("a", "a", "unheard-of", "bb", "bb-unheard-of+a"), Services())
    assert str(caught.value).endswith(", ".join([*(f"bb-{name}" for name in source_types.names()), "mcp-*"]))


def test_what_an_mcp_source_says_of_its_connection_and_of_its_tools(tmp_path: Path) -> None:
    text = (
        MCP
        + 'start = "eager"\nidleTimeout = "2m"\nroots = ["~/src", "here"]\ntools = ["search", "get"]\nprompts = true\n'
        + 'write = { tool = "put", blob = "data", mimeType = "type" }\nremove = { tool = "drop", template = "a:{x}" }\n'
    )
    path = write(tmp_path, text)
    (source,) = load_config(path, environ={"HOME": "/home/ann"}).sources
    assert source.mcp is not None
    assert (source.mcp.start, source.mcp.idle_timeout) == ("eager", 120.0)
    assert source.mcp.roots == ("/home/ann/src", os.path.join(os.path.dirname(path), "here"))
    assert (source.tools, source.prompts) == (("search", "get"), True)
    assert source.write == WriteTool("put", blob="data", mime_type="type")
    assert source.remove == RemoveTool("drop", template="a:{x}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'tools = "readonly"',
            "tools: should be 'off', 'read-only', 'all' or an array of names of tools; did you mean",
        ),
        ("tools = [1]", "tools: should be 'off', 'read-only', 'all' or an array of names of tools"),
        ('start = "egaer"', "start: should be 'lazy' or 'eager'; did you mean 'eager'?"),
    ],
)
def test_what_cannot_be_said_of_them(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, MCP + line), environ={})
    assert message in str(caught.value)


def test_a_folder_has_no_connection(tmp_path: Path) -> None:
    text = (
        '[[sources]]\nname = "n"\ntype = "filesystem"\nconfig = { root = "." }\ntools = "read-only"\nidle_timeout = 1\n'
    )
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text), environ={})
    assert ":5: sources[0].tools: belongs to MCP sources" in str(caught.value)
    assert ":6: sources[0].idle_timeout: belongs to MCP sources" in str(caught.value)


def test_what_a_handler_refuses_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        '[[sources]]\nname = "a"\ntype = "memory"\n\n[[sources]]\nname = "shop"\ntype = "database"\n'
        '[sources.config]\nurl = "sqlite:///x.db"\nrowLimit = -1\nrot = 1\n'
    )
    with pytest.raises(ConfigError) as caught:
        compose(load_config(str(file), environ={}))
    lines = str(caught.value).splitlines()
    assert sorted(line.partition(": ")[0] for line in lines) == [f"{file}:10", f"{file}:11"]
    assert any("sources[shop].config.rot: unknown option" in line for line in lines)


UNREAD = r"sources\[a\]\.auth\.token: a source of type '\w+' takes no secrets"
SECRET = 'auth = { token = "x" }'


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('[embeddings]\nfolder = "m"\nbacth = 3', r":3: embeddings\.bacth: unknown option; did you mean 'batch'\?"),
        ("[embeddings]\n", ":1: embeddings: needs either url and model, or folder"),
        ('[embeddings]\nurl = "${env:NONE}"', r":2: embeddings\.url: .*NONE"),
        ('[embeddings]\nurl = "http://h/v1"\nmodel = 3', r":3: embeddings\.model: should be a text"),
        ('[[sources]]\nname = "n"\ntype = "notion"', r":1: sources\[n\]\.auth\.token: "),
        (f'[[sources]]\nname = "a"\ntype = "memory"\n{SECRET}', f":4: {UNREAD}"),
        (f'[[sources]]\nname = "a"\ntype = "filesystem"\nconfig = {{ root = "/srv" }}\n{SECRET}', f":5: {UNREAD}"),
    ],
)
def test_what_a_composition_refuses_is_told_with_its_line(tmp_path: Path, lines: str, message: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"{lines}\n")
    with pytest.raises(ConfigError, match=f"^{file}{message}"):
        compose(load_config(str(file), environ={}))
