"""MCP hosts' own files, as their programs write them: `hosts/` has one of each."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import tomlkit

from bbfs.cli.options import read_yaml
from bbfs.config.hosts.files import host_servers, import_mcp_hosts, server_names
from bbfs.config.hosts.places import host_files
from bbfs.config.toml import parse_config
from bbfs.model.errors import ConfigError
from bbfs.model.values import DataSource

HOSTS = Path(__file__).parent / "hosts"
SECRET = "s3cr3t-value"


def load(path: Path, cwd: Path | str = "/", **environ: str) -> dict[str, DataSource]:
    environ = {"HOME": "/home/someone"} | environ
    sources = import_mcp_hosts(str(path), environ=environ, cwd=str(cwd), read_yaml=read_yaml)
    return {source.name: source for source in sources}


def write(tmp_path: Path, document: object, name: str = "mcp.json") -> Path:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def refusal(path: Path, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, **environ)
    assert SECRET not in str(caught.value) + repr(caught.value)
    return str(caught.value)


def reach(source: DataSource) -> tuple[object, ...]:
    assert source.mcp is not None
    server = source.mcp
    return server.transport, server.command or server.url, list(server.args), dict(server.env), dict(server.headers)


def stdio(command: str, *args: str, **environ: str) -> tuple[object, ...]:
    return "stdio", command, [*args], environ, {}


def http(url: str, transport: str = "http", **headers: str) -> tuple[object, ...]:
    return transport, url, [], {}, {name.replace("_", "-"): value for name, value in headers.items()}


EVERYTHING = ("npx", "-y", "@modelcontextprotocol/server-everything")
HUB = "https://mcp.context7.example/mcp"
KEYED = ("http", HUB, [], {}, {"CONTEXT7_API_KEY": "k7"})
TOKENS = {"Authorization": "Bearer t0k3n", "X-Other": "o"}
FIGMA = {"X_Figma_Region": "us-east-1", "X_Team": "7", "Authorization": f"Bearer {SECRET}"}
FILES: dict[str, tuple[dict[str, str], dict[str, tuple[object, ...]]]] = {
    "claude.json": (
        {"CONTEXT7_API_KEY": "k7"},
        {
            "context7": KEYED,
            "memory": stdio(
                *EVERYTHING[:2], "@modelcontextprotocol/server-memory", MEMORY_FILE_PATH="/home/someone/memory.json"
            ),
            "asana": http("https://mcp.asana.example/sse", "sse"),
        },
    ),
    "project/.cursor/mcp.json": (
        {"DOCS_KEY": "d"},
        {"docs": http("http://localhost:3000/mcp", X_Api_Key="d"), "figma": http("http://127.0.0.1:3845/sse", "sse")},
    ),
    "vscode-settings.json": ({}, {"time": stdio("uvx", "mcp-server-time", "--local-timezone=Europe/Berlin")}),
    "windsurf_mcp_config.json": (
        {},
        {
            "remote": ("http", "https://example.org/mcp", [], {}, {"API_KEY": "Bearer file-token"}),
            "gemini-style": http("https://example.org/stream"),
            "cline": http("https://example.org/c"),
        },
    ),
    "zed-settings.json": (
        {},
        {
            "postgres": stdio("/usr/bin/pg-mcp", "run", PGHOST="db"),
            "local": stdio("uv", "run", "main.py"),
            "web": http("https://api.example.org/mcp", Authorization="Bearer x"),
        },
    ),
    "continue.json": (
        {},
        {
            "sqlite": http("https://example.org/mcp", Authorization="Bearer y"),
            "server-1": stdio("uvx", "mcp-server-sqlite", "--db-path", "/tmp/x.db"),
            "Web-Search": http("http://localhost:8000/events", "sse"),
        },
    ),
    "codex.toml": (
        {"CONTEXT7_TOKEN": "k7", "REGION": "eu", "FIGMA_OAUTH_TOKEN": SECRET, "FIGMA_TEAM": "7"},
        {
            "context7": stdio(
                "npx", "-y", "@upstash/context7-mcp", LITERAL="${NOT_EXPANDED}", CONTEXT7_TOKEN="k7", REGION="eu"
            ),
            "figma": http("https://mcp.figma.example/mcp", **FIGMA),
            "playwright": stdio("npx", "@playwright/mcp@latest"),
        },
    ),
    "continue.yaml": (
        {"SEARCH_KEY": "s", "DOCS_TOKEN": "d"},
        {
            "Browser-search": stdio("npx", "@playwright/mcp@latest", LEVEL="3", API_KEY="s"),
            "docs": http("https://docs.example.com/mcp", Authorization="Bearer d"),
            "events": http("https://events.example.com/stream", "sse"),
            "keyed": http("https://keyed.example.com/mcp", Authorization="Bearer s"),
        },
    ),
    "goose.yaml": (
        {"FETCH_KEY": "f", "OTHER": "o"},
        {
            "fetch": stdio("uvx", "mcp-server-fetch", LANGUAGE="en", FETCH_KEY="f"),
            "remote": ("http", "https://remote.example.com/mcp", [], {"TOKEN": "t0k3n"}, TOKENS),
            "nested": stdio("npx", "-y", "@my/tool"),
            "events": http("http://localhost:8000/sse", "sse"),
        },
    ),
    "opencode.json": (
        {"VALUE": "v", "CONTEXT7_API_KEY": "k7"},
        {
            "everything": stdio(*EVERYTHING, MY_ENV_VAR="v", PLAIN="${kept}"),
            "context7": ("http", HUB, [], {}, {"CONTEXT7_API_KEY": "k7", "X-File": "file-token"}),
        },
    ),
    "opencode2.jsonc": (
        {"VALUE": "debug", "CONTEXT7_API_KEY": "k7"},
        {"everything": stdio(*EVERYTHING, LOG_LEVEL="debug"), "context7": KEYED},
    ),
    ".gemini/settings.json": (
        {"DB_CONNECTION_STRING": "db", "EXTERNAL_API_KEY": "k"},
        {
            "pythonTools": stdio("python", "-m", "my_mcp_server", "--port", "8080", DATABASE_URL="db", API_KEY="k"),
            "httpServer": http("http://localhost:3000/mcp", Authorization="Bearer $TOKEN"),
            "sseServer": http("http://localhost:8080/events", "sse"),
        },
    ),
    "gemini-extension.json": ({}, {"my-server": stdio("node", f"{HOSTS}/dist/server.js")}),
    "lmstudio/mcp.json": (
        {},
        {
            "hf-mcp-server": http("https://huggingface.example/mcp", Authorization="Bearer <YOUR_HF_TOKEN>"),
            "filesystem": stdio(*EVERYTHING[:2], "@modelcontextprotocol/server-filesystem", "/srv"),
        },
    ),
}
"""Of each file: the environment, and how its servers are reached."""


@pytest.mark.parametrize("file", FILES)
def test_the_servers_of_each_host(file: str):
    environ, expected = FILES[file]
    sources = load(HOSTS / file, **environ)
    assert {name: reach(source) for name, source in sources.items()} == expected
    for name, source in sources.items():
        found = source.uri_prefix, source.id, source.type, source.access_method
        assert found == (f"mcp-server+{name}", name, "server", "mcp")
    assert SECRET not in repr(sources)


@pytest.mark.parametrize(
    ("file", "name", "cwd"),
    [
        ("codex.toml", "playwright", "/srv/web"),
        ("opencode.json", "everything", str(HOSTS)),
        (".gemini/settings.json", "pythonTools", str(HOSTS / "mcp-servers/python")),
        ("gemini-extension.json", "my-server", str(HOSTS)),
    ],
)
def test_where_a_server_is_started(file: str, name: str, cwd: str):
    server = load(HOSTS / file, **FILES[file][0])[name].mcp
    assert server is not None
    assert server.cwd == cwd


@pytest.mark.parametrize(
    ("file", "key", "variable"),
    [
        ("codex.toml", "mcp_servers.figma.bearer_token_env_var", "FIGMA_OAUTH_TOKEN"),
        ("continue.yaml", "mcpServers[0].env.API_KEY", "SEARCH_KEY"),
        ("goose.yaml", "extensions.fetch.env_keys", "FETCH_KEY"),
    ],
)
def test_a_variable_that_is_not_set_is_named(file: str, key: str, variable: str):
    environ = {name: value for name, value in FILES[file][0].items() if name != variable}
    assert f"{HOSTS / file}: {key}: environment variable {variable} is not set" in refusal(HOSTS / file, **environ)


def test_the_secrets_of_a_server_are_known():
    figma = load(HOSTS / "codex.toml", **FILES["codex.toml"][0])["figma"].mcp
    assert figma is not None
    assert SECRET in figma.secrets


def test_claude_code_adds_the_project_of_the_current_directory():
    sources = load(HOSTS / "claude.json", "/srv/shop", CONTEXT7_API_KEY="k7")
    assert sorted(sources) == ["context7", "memory", "orders-db"]  # asana is disabled in this project
    assert reach(sources["memory"])[1] == "./tools/memory"
    assert sources["memory"].mcp
    assert sources["memory"].mcp.cwd == "/srv/shop"
    assert reach(sources["orders-db"])[2] == ["orders-mcp", "--dsn", "sqlite:///o.db"]
    assert sources["orders-db"].title == "orders db"


def test_claude_desktop_leaves_what_the_server_expands_itself():
    sources = load(HOSTS / "claude_desktop_config.json")
    assert list(sources) == ["filesystem", "Linear-remote"]
    assert sources["Linear-remote"].title == "Linear (remote)"
    assert reach(sources["Linear-remote"])[2][-1] == "Authorization:${AUTH_HEADER}"  # type: ignore[index]
    assert reach(sources["Linear-remote"])[3] == {"AUTH_HEADER": "Bearer lin_secret"}


def test_project_file_runs_in_its_folder():
    sources = load(HOSTS / "project/.mcp.json", SHOP_TOKEN="t", API_KEY="k", PWD="/x", CACHE_DIR="")
    assert reach(sources["shop"])[2:4] == (["--root", "/x"], {"SHOP_TOKEN": "t", "CACHE": "/var/cache/shop"})
    assert sources["shop"].mcp
    assert sources["shop"].mcp.cwd == str(HOSTS / "project")
    assert reach(sources["api"]) == ("http", "https://api.example.org/mcp", [], {}, {"Authorization": "Bearer k"})


def test_vscode_workspace(tmp_path: Path):
    project = tmp_path / "project"
    shutil.copytree(HOSTS / "project", project)
    (project / ".env").write_text("# local\nexport TOKEN='a b'\nPORT=1\nPLAIN=x # why\n\n")
    sources = load(project / ".vscode/mcp.json", BBFS_INPUT_PERPLEXITY_KEY="p")
    assert list(sources) == ["github", "perplexity", "local"]
    assert reach(sources["perplexity"])[3] == {"PERPLEXITY_API_KEY": "p"}
    assert reach(sources["local"])[2:4] == (
        [f"{project}/build/index.js", "--home=/home/someone", "--name", "project"],
        {"TOKEN": "a b", "PORT": "3000", "PLAIN": "x"},
    )
    assert sources["local"].mcp
    assert sources["local"].mcp.cwd == str(project)


def test_vscode_input_without_a_value_names_the_variable(tmp_path: Path):
    project = tmp_path / "project"
    shutil.copytree(HOSTS / "project", project)
    (project / ".env").write_text("")
    path = project / ".vscode/mcp.json"
    assert refusal(path) == (
        f"{path}: servers.perplexity.env.PERPLEXITY_API_KEY: ${{input:perplexity-key}} would be asked for "
        "interactively; set the environment variable BBFS_INPUT_PERPLEXITY_KEY instead"
    )


def test_servers_that_claude_code_has_rejected_are_off(tmp_path: Path):
    servers = {name: {"command": name} for name in "abcdef"}
    path = write(tmp_path, {"mcpServers": servers}, "project/.mcp.json")
    home = tmp_path / "home"
    projects = {
        str(path.parent): {"disabledMcpjsonServers": ["a"], "disabledMcpServers": ["b", 7]},
        str(tmp_path): {"disabledMcpjsonServers": ["f"]},
    }
    write(home, {"projects": projects, "mcpServers": {"f": {"command": "f"}}}, ".claude.json")
    write(home, {"disabledMcpjsonServers": ["c"]}, ".claude/settings.json")
    write(path.parent, {"enabledMcpjsonServers": ["f"], "disabledMcpjsonServers": ["d"]}, ".claude/settings.local.json")
    write(path.parent, {"disabledMcpjsonServers": "e"}, ".claude/settings.json")
    assert [*load(path, HOME=str(home))] == ["e", "f"]
    assert server_names(str(path), environ={"HOME": str(home)}) == ["e", "f"]
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere, {"disabledMcpjsonServers": ["e"]}, "settings.json")
    assert [*load(path, HOME=str(home), CLAUDE_CONFIG_DIR=str(elsewhere))] == ["a", "b", "c", "f"]
    write(path.parent, "{", ".claude/settings.local.json")
    assert "settings.local.json" in refusal(path, HOME=str(home))


def test_servers_that_gemini_cli_has_switched_off(tmp_path: Path):
    path = write(
        tmp_path, {"mcpServers": {name: {"command": name} for name in ("One", "two")}}, ".gemini/settings.json"
    )
    switches = {"one": {"enabled": False}, "two": {"enabled": True}, "three": 7}
    write(tmp_path, switches, ".gemini/mcp-server-enablement.json")
    assert [*load(path, HOME=str(tmp_path))] == ["two"]


def test_a_variable_for_a_server_that_codex_runs_elsewhere_is_not_given_to_this_one(tmp_path: Path):
    text = '[mcp_servers.a]\ncommand = "a"\nenv_vars = ["HERE", { name = "AWAY", source = "remote" }]\n'
    sources = load(write(tmp_path, text, "config.toml"), HERE="1", AWAY=SECRET)
    assert reach(sources["a"])[3] == {"HERE": "1"}


@pytest.mark.parametrize(
    ("variable", "folder", "file"),
    [
        ("", "home", ".claude.json"),
        ("CLAUDE_CONFIG_DIR", "claude", ".claude.json"),
        ("CODEX_HOME", "codex", "config.toml"),
        ("XDG_CONFIG_HOME", "xdg", "goose/config.yaml"),
        ("XDG_CONFIG_HOME", "xdg", "zed/settings.json"),
        ("", "home", ".config/opencode/opencode.jsonc"),
        ("", "home", ".cline/data/settings/cline_mcp_settings.json"),
        ("", "home", ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
        ("", "home", ".aws/amazonq/agents/default.json"),
        ("", "home", ".aws/amazonq/cli-agents/mine.json"),
        ("", "home", ".continue/mcpServers/one.yml"),
        ("", "home", ".codeium/mcp_config.json"),
        ("", "project", ".opencode/opencode.json"),
        ("", "project", ".amazonq/mcp.json"),
    ],
)
def test_host_files_are_found(tmp_path: Path, variable: str, folder: str, file: str):
    path = write(tmp_path / folder, {}, file)
    environ = {"HOME": str(tmp_path / "home")} | ({variable: str(tmp_path / folder)} if variable else {})
    found = host_files(environ, str(tmp_path / "project"))
    assert [(each.path, each.is_project) for each in found] == [(str(path), folder == "project")]


def test_yaml_is_bounded(tmp_path: Path):
    levels = "mcpServers: " + "[" * 200 + "]" * 200 + "\n"
    laughs = "a: &a [x, x, x, x, x, x, x, x]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True):
        laughs += f"{after}: &{after} [{', '.join([f'*{before}'] * 8)}]\n"
    for text in (levels, laughs, "mcpServers: [\n", "mcpServers: !!python/object:os.system x\n"):
        path = write(tmp_path, text, "config.yaml")
        assert str(path) in refusal(path)


ALL_SET = dict.fromkeys(
    (
        "CONTEXT7_TOKEN", "REGION", "FIGMA_OAUTH_TOKEN", "FIGMA_TEAM", "SEARCH_KEY", "DOCS_TOKEN", "FETCH_KEY", "OTHER",
        "VALUE", "CONTEXT7_API_KEY", "DB_CONNECTION_STRING", "EXTERNAL_API_KEY", "DOCS_KEY", "SHOP_TOKEN", "API_KEY",
        "PWD", "CACHE_DIR",
    ),
    SECRET,
)  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "codex.toml", "continue.yaml", "goose.yaml", "opencode.json", "opencode2.jsonc", ".gemini/settings.json",
        "gemini-extension.json",
        "claude.json", "claude_desktop_config.json", "windsurf_mcp_config.json", "zed-settings.json", "continue.json",
        "project/.mcp.json", "project/.cursor/mcp.json", "lmstudio/mcp.json",
    ],
)  # fmt: skip
def test_the_table_of_a_server_means_the_same_and_holds_no_value(name: str, tmp_path: Path):
    environ = {"HOME": "/home/someone"} | ALL_SET
    servers = host_servers(str(HOSTS / name), environ=environ, cwd="/", read_yaml=read_yaml)
    text = "".join(tomlkit.dumps({"sources": [each.table]}) for each in servers)
    assert SECRET not in text
    config = parse_config(str(tmp_path / "config.toml"), text, environ=environ)
    for ours, theirs in zip(config.sources, (each.source for each in servers), strict=True):
        assert ours.mcp is not None
        assert theirs.mcp is not None
        command = ours.mcp.command
        if command != theirs.mcp.command:
            assert command == os.path.normpath(f"{theirs.mcp.cwd}/{theirs.mcp.command}")
        start = theirs.mcp.cwd if theirs.mcp.command is None else theirs.mcp.cwd or str(tmp_path)
        assert replace(ours.mcp, command=None) == replace(theirs.mcp, command=None, cwd=start)
        assert (ours.id, ours.uri_prefix) == (theirs.id, theirs.uri_prefix)


def test_a_global_file_in_a_host_folder_has_no_project(tmp_path: Path):
    path = write(tmp_path, {"mcpServers": {"a": {"command": "a"}}}, ".cursor/mcp.json")
    assert load(path, HOME=str(tmp_path))["a"].mcp.cwd is None  # type: ignore[union-attr]
    assert load(path)["a"].mcp.cwd == str(tmp_path)  # type: ignore[union-attr]


def test_names_that_clash_are_numbered_and_a_legal_name_keeps_its_own(tmp_path: Path):
    names = ["a b", "a/b", "a-b", "Ünïcode", "+++", "日本", "." * 3]
    path = write(tmp_path, {"mcpServers": {name: {"command": "x"} for name in names}})
    sources = load(path)
    assert {source.title: name for name, source in sources.items()} == {
        "a b": "a-b-2",
        "a/b": "a-b-3",
        "a-b": "a-b",
        "Ünïcode": "Unicode",
        "+++": "source",
        "日本": "source-2",
        "...": "source-3",
    }


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "needs 'command' (a program to start) or 'url' (a server to connect to)"),
        ({"command": ""}, "command: is empty"),
        ({"command": "x", "args": "y"}, "args: should be a list of strings"),
        ({"command": "x", "args": [["y"]]}, "args[0]: should be a string"),
        ({"command": "x", "env": ["A=b"]}, "env: should be a table of strings"),
        ({"command": "x", "env": {"A=": SECRET}}, "env.A=: is not a legal name of an environment variable"),
        ({"command": "x", "env": {"A": f"{SECRET}\0"}}, "env.A: has a NUL character"),
        ({"command": "x", "args": ["${UNSET}"]}, "args[0]: environment variable UNSET is not set"),
        ({"command": "x", "env": {"T": "${env:UNSET}"}}, "env.T: environment variable UNSET is not set"),
        (
            {"command": "x", "args": ["${command:pick}"]},
            "args[0]: ${command:pick} cannot be resolved outside the program",
        ),
        ({"command": "x", "args": ["${{ inputs.X }}"]}, "args[0]: ${{ inputs.X }} cannot be resolved outside"),
        (
            {"command": "x", "envFile": "/nonexistent/.env"},
            "envFile: ${file:/nonexistent/.env}: No such file or directory",
        ),
        ({"url": f"ftp://{SECRET}"}, "url: should be an http:// or https:// URL with a host"),
        ({"url": f"http://u:{SECRET}@[::1"}, "url: should be an http:// or https:// URL with a host"),
        ({"url": "http://h/", "headers": {"A": f"{SECRET}\r\nB: c"}}, "headers.A: has a line break or NUL"),
        ({"url": "http://h/", "headers": {"A b": SECRET}}, "headers.A b: is not a legal name of an HTTP header"),
        ({"url": "http://h/", "type": "ws"}, "type: transport 'ws' is not supported; expected 'stdio', 'http', "),
        ({"url": "http://h/", "type": "stdio"}, "transport 'stdio' needs 'command', not 'url'"),
        ({"command": "x", "type": "sse"}, "transport 'sse' needs 'url', not 'command'"),
        ({"source": "extension", "settings": {}}, "is started by an extension of the editor"),
    ],
)
@pytest.mark.semantics("S30")
def test_an_entry_that_cannot_be_used_is_refused(tmp_path: Path, entry: dict[str, object], message: str):
    path = write(tmp_path, {"mcpServers": {"bad": entry}})
    assert f"{path}: mcpServers.bad" in refusal(path)
    assert message in refusal(path)


def test_all_refusals_together_or_one_by_one(tmp_path: Path):
    path = write(tmp_path, {"mcpServers": {"a": {}, "good": {"command": "x"}, "b": {"command": "${B}"}}})
    assert refusal(path).splitlines() == [
        f"{path}: mcpServers.a: needs 'command' (a program to start) or 'url' (a server to connect to)",
        f"{path}: mcpServers.b.command: environment variable B is not set",
    ]
    told: list[ConfigError] = []
    sources = import_mcp_hosts(str(path), environ={}, on_refused=told.append)
    assert [source.name for source in sources] == ["good"]
    assert "\n".join(map(str, told)) == refusal(path)


def test_shell_text_in_arguments_is_left_alone(tmp_path: Path):
    script = "for x in ${#list[@]} ${a%%b} $HOME $(date); do :; done"
    path = write(tmp_path, {"mcpServers": {"a": {"command": "sh", "args": ["-c", script]}}})
    assert reach(load(path)["a"])[2] == ["-c", script]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"mcpServers": {\n "a": {"command" "x"}}}', ":2: not JSON: Expecting ':' delimiter"),
        ('{"mcpServers": {} /* open', ":1: not JSON: "),
        ("", ":1: not JSON: Expecting value"),
        ('{"servrs": {}}', ": has no MCP servers; looked for the keys mcpServers, servers, mcp.servers, "),
        ('{"mcpServers": 3}', ": mcpServers: should be a table that describes a server"),
        ('{"mcpServers": {"a": "npx"}}', ": mcpServers.a: should be a table that describes a server"),
        ("[" * 100_000, ":1: not JSON: nested too deeply"),
    ],
)
def test_a_file_that_is_no_host_file_is_refused(tmp_path: Path, text: str, message: str):
    path = write(tmp_path, text)
    assert refusal(path).startswith(f"{path}{message}")


def test_files_that_cannot_be_read(tmp_path: Path):
    assert refusal(tmp_path / "none.json") == f"{tmp_path}/none.json: No such file or directory"
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe{")
    assert refusal(tmp_path / "binary.json") == f"{tmp_path}/binary.json: not UTF-8 text"
    with pytest.raises(ConfigError, match="files in YAML cannot be read here"):
        import_mcp_hosts(str(write(tmp_path, "a: b", "c.yaml")), environ={})


def test_no_server_at_all_is_fine_when_the_key_is_there(tmp_path: Path):
    assert load(write(tmp_path, {"mcpServers": {}})) == {}


@pytest.mark.semantics("S30")
def test_values_of_variables_stay_out_of_repr(tmp_path: Path):
    entry = {"command": "${T}", "args": ["${T}"], "env": {"A": "${T}"}, "cwd": "/x/${T}"}
    remote = {"url": "http://${T}/", "headers": {"A": "${T}"}}
    sources = load(write(tmp_path, {"mcpServers": {"a": entry, "b": remote}}), T=SECRET)
    assert sources["a"].mcp
    assert sources["a"].mcp.cwd == f"/x/{SECRET}"
    assert SECRET not in repr(sources)


def test_the_servers_of_other_projects_are_counted(tmp_path: Path):
    projects = {
        str(tmp_path): {"mcpServers": {"here": {"command": "x"}}},
        "/elsewhere": {"mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}}},
        "/none": {"mcpServers": {}},
    }
    told: list[object] = []
    path = write(tmp_path, {"projects": projects})
    sources = import_mcp_hosts(str(path), environ={}, cwd=str(tmp_path), on_elsewhere=told.append)
    assert [source.name for source in sources] == ["here"]
    assert told == [{"/elsewhere": 2}]


def test_a_whole_command_line_as_the_command_is_refused(tmp_path: Path):
    path = write(tmp_path, {"mcpServers": {"a": {"command": "npx -y some-server"}}})
    assert "mcpServers.a.command: is the program alone" in refusal(path)
    assert "'args'" in refusal(path)


def test_a_file_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large.json").write_text(" " * ((16 << 20) + 1))
    assert "more than 16777216 characters" in refusal(tmp_path / "large.json")


def test_a_file_that_is_no_regular_one_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".mcp.json")  # nothing will ever be written to it
    (tmp_path / "link.json").symlink_to(".mcp.json")
    for path in (tmp_path / ".mcp.json", tmp_path / "link.json", Path("/dev/zero")):
        assert refusal(path) == f"{path}: not a regular file"
