"""The commands that write the configuration file, and those that find the files of MCP hosts."""

import json
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import Result

from bbfs.cli import main

Run = Callable[..., Result]
SECRET = "s3cr3t-value"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory of its own, without a configuration; the test is in a project below."""
    found = tmp_path / "home"
    (found / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(found))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(found / ".config"))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    monkeypatch.chdir(found / "project")
    return found


@pytest.fixture
def config(home: Path) -> Path:
    return home / ".config/bbfs/config.toml"


def test_add_and_remove(bbfs: Run, config: Path, folder: Path) -> None:
    assert bbfs("config", "path").stdout == f"{config}\n"
    added = bbfs("add", "notes", folder, "-o", "ttl.content=3s", "-o", "notes.hidden=false")
    assert (added.exit_code, added.stderr) == (0, f"bbfs: notes is in {config} now\n")
    config.write_text(config.read_text() + "\n# the end\n")
    assert bbfs("ls", "notes").stdout == "hello.txt\nsub dir/\n"
    assert bbfs("add", "git", "-q", "--", "uvx", "mcp-server-git", "--repository", "x").exit_code == 0
    options = ["--header", "Authorization: Bearer ${env:HOME}", "--tools", "read-only"]
    assert bbfs("add", "kb", "https://kb.example/mcp", *options).exit_code == 0
    text = config.read_text()
    assert '"Bearer ${env:HOME}"' in text
    assert 'tools = "read-only"' in text
    assert text.count("\n# the end\n") == 1
    assert bbfs("config", "check").stdout == f"{config}: 3 sources, no fault\n"
    for words in (("check", "--config", "/dev/null"), ("--config", "/dev/null", "check")):
        assert bbfs("config", *words).stdout == "/dev/null: 0 sources, no fault\n"
    assert bbfs("remove", "git").exit_code == 0
    assert bbfs("remove", "kb").exit_code == 0
    assert config.read_text().rstrip().endswith("# the end")


def test_add_contacts_a_source_that_is_to_be_checked(bbfs: Run, config: Path, folder: Path) -> None:
    added = bbfs("add", "notes", folder, "--check")
    assert (added.exit_code, added.stdout) == (0, "ok    source notes: up, 2 resources\n")
    added = bbfs("add", "gone", "--check", "-q", "--", "false")
    assert added.exit_code == 1
    assert added.stdout.startswith("FAIL  source gone: ")
    assert added.stderr == f"bbfs: gone stays in {config} all the same; 'bbfs remove gone' takes it out\n"
    assert config.read_text().count("[[sources]]") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["notes", "/none-such"], "the target is no folder"),
        (["notes", ".", "-o", "hiden=false"], "no option is called 'hiden'; did you mean 'hidden'"),
        (["notes", ".", "-o", "hidden=perhaps"], "should be a"),
        (["a b", "."], "name"),
        (["kb", "https://kb.example/mcp", "--header", "A: ${env:NOT_SET}"], "environment variable NOT_SET is not set"),
        (["logs", "s3://logs", "-o", f"secret_key={SECRET}"], "belong together"),
    ],
)  # fmt: skip
def test_what_cannot_be_added_changes_nothing(bbfs: Run, config: Path, arguments: list[str], message: str) -> None:
    result = bbfs("add", *arguments)
    assert (result.exit_code, config.exists()) == (1, False)
    assert message in result.stderr
    assert SECRET not in result.stderr


def test_a_described_server_is_added_and_is_off_until_all_is_set(
    bbfs: Run, config: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = {"name": "WEATHER_KEY", "description": "of the account", "isRequired": True, "isSecret": True}
    package = {"registryType": "npm", "identifier": "@x/weather", "version": "1.2", "environmentVariables": [key]}
    described = {"name": "io.example/weather", "packages": [package, {**package, "registryType": "pypi"}]}
    (home / "server.json").write_text(json.dumps(described))
    (home / "list.json").write_text(json.dumps({"servers": [{"server": described}, {"server": {"name": "x/other"}}]}))
    for words in (("--check",), ("--mount", home)):
        refused = bbfs("add", home / "server.json", *words)
        assert (refused.exit_code, config.exists()) == (1, False)
        assert "weather: WEATHER_KEY is not set: of the account" in refused.stderr
    added = bbfs("add", home / "server.json", "-o", "timeout=5s")
    assert added.exit_code == 0
    assert "weather starts npx -y @x/weather@1.2\n" in added.stderr
    assert "weather: other ways to it: --package pypi\n" in added.stderr
    assert "weather: WEATHER_KEY is not set: of the account\nbbfs: weather is off until then" in added.stderr
    assert bbfs("config", "check").stdout == f"{config}: 0 sources, no fault\n"
    assert 'WEATHER_KEY = "${env:WEATHER_KEY}"' in config.read_text()
    monkeypatch.setenv("WEATHER_KEY", SECRET)
    named = bbfs("add", "mine", "weather", "--registry", home / "list.json", "--package", "pypi")
    assert (named.exit_code, SECRET in named.stderr) == (0, False)
    assert bbfs("config", "check").stdout == f"{config}: 1 source, no fault\n"
    assert "a list of 2 servers" in bbfs("add", home / "list.json").stderr
    assert "expected NAME TARGET" in bbfs("add", home).stderr
    assert "--package: belongs to" in bbfs("add", "x", home, "--package", "npm").stderr


def test_a_name_before_an_equals_sign_and_several_removed_at_once(bbfs: Run, config: Path, home: Path) -> None:
    for target in (f"notes={home}", "db=sqlite:///x.db"):
        bbfs("add", target)
    found = bbfs("config", "check").stdout
    assert found == f"{config}: 2 sources, no fault\n", found
    assert bbfs("remove", "notes", "nowhere").exit_code == 1
    assert bbfs("config", "check").stdout == f"{config}: 2 sources, no fault\n"
    removed = bbfs("remove", "notes", "db")
    assert removed.stderr == f"bbfs: no longer in {config}: notes, db\n"
    assert bbfs("config", "check").stdout == f"{config}: 0 sources, no fault\n"


def test_a_host_without_a_server_changes_nothing(bbfs: Run, config: Path) -> None:
    none = bbfs("add", "http://127.0.0.1:1/")
    assert (none.exit_code, config.exists()) == (1, False)
    assert none.stderr.startswith("bbfs: http://127.0.0.1:1/: cannot be reached\n")
    doctor = bbfs("doctor", "--mcp", "kb=http://127.0.0.1:1/")
    assert "'bbfs add http://127.0.0.1:1/' asks that host where its server is" in doctor.stdout
    assert none.stderr.endswith(
        "'--as source' adds the page at this URL, and '--as mcp' a server there, without asking\n"
    )


def test_config_shows_no_secret_and_finds_faults(bbfs: Run, config: Path) -> None:
    assert bbfs("config").exit_code == 0
    config.parent.mkdir(parents=True)
    config.write_text(f'# mine\n[[sources]]\nname = "a"\ntype = "url"\nauth = {{ token = "{SECRET}" }}\n')
    for command in (["config"], ["config", "show"]):
        shown = bbfs(*command).stdout
        assert SECRET not in shown
        assert shown.startswith("# mine\n")
    faulty = bbfs("config", "check")
    assert (faulty.exit_code, f"{config}:2: " in faulty.stderr) == (1, True)
    assert "one of urls, llms_txt and sitemap" in faulty.stderr
    config.write_text("[[sources]\n")
    assert f"{config}:1: " in bbfs("config", "show").stderr


def test_an_edit_that_is_wrong_is_not_kept(bbfs: Run, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "sh -c 'echo log_level = 1 >> \"$0\"'")
    wrong = bbfs("config", "edit")
    assert (wrong.exit_code, config.exists()) == (1, False)
    copy = Path(wrong.stderr.split("your copy is ")[1].splitlines()[0])
    assert copy.read_text().endswith("log_level = 1\n")
    copy.unlink()
    monkeypatch.setenv("VISUAL", 'sh -c \'echo log_level = \\"debug\\" >> "$0"\'')
    assert bbfs("config", "edit").exit_code == 0
    assert config.read_text().endswith('log_level = "debug"\n')
    monkeypatch.setenv("VISUAL", "true")
    assert "is as it was" in bbfs("config", "edit").stderr


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files."""
    found = tmp_path / "temporary"
    found.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(found))
    return found


@pytest.mark.parametrize(
    ("editor", "says"),
    [
        ("no-such-editor-anywhere", "the editor 'no-such-editor-anywhere' (of $VISUAL) did not start: No such file"),
        ("sh -c 'exit 3'", "(of $VISUAL) ended with status 3"),
        ("sh -c 'kill $$'", "(of $VISUAL) was ended by SIGTERM"),
        ("vi '", "(of $VISUAL) did not start: No closing quotation"),
    ],
)
def test_an_editor_that_fails_is_named_and_leaves_no_copy(
    bbfs: Run, config: Path, copies: Path, monkeypatch: pytest.MonkeyPatch, editor: str, says: str
) -> None:
    monkeypatch.setenv("VISUAL", editor)
    failed = bbfs("config", "edit")
    assert (failed.exit_code, config.exists(), list(copies.iterdir())) == (1, False, [])
    assert says in failed.stderr


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("printf 'log_level = \"debug\"\\n' >> $0; exit 1", "of $EDITOR) ended with status 1"),
        ("printf 'log_level = \\n' >> $0", "config.toml:2"),
        ("printf 'log_level = \"\\377\"\\n' >> $0", "not UTF-8"),
        ("printf '# mine\\n' >> $0; mkdir -p {folder}; echo '# of another' > {config}", "has changed it meanwhile"),
    ],
)
def test_text_that_cannot_be_taken_stays_in_a_copy(
    bbfs: Run, config: Path, copies: Path, monkeypatch: pytest.MonkeyPatch, change: str, says: str
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"sh -c {shlex.quote(change.format(folder=config.parent, config=config))}")
    failed = bbfs("config", "edit")
    assert failed.exit_code == 1
    assert says in failed.stderr
    (copy,) = copies.iterdir()
    assert f"your copy is {copy}" in failed.stderr
    assert copy.read_bytes().splitlines()[-1][:5] in (b"log_l", b"# min")
    assert not config.exists() or config.read_text() == "# of another\n"


def test_a_taken_edit_leaves_no_copy(bbfs: Run, config: Path, copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for editor in ("true", "sh -c 'echo \"# mine\" >> $0'"):
        monkeypatch.setenv("VISUAL", editor)
        assert bbfs("config", "edit").exit_code == 0
        assert list(copies.iterdir()) == []
    assert config.read_text().endswith("# mine\n")


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def hosts(home: Path) -> None:
    memory = '"memory": {"command": "npx", "args": ["memory"]}'
    write(home / ".claude.json", f'{{"mcpServers": {{{memory}, "kb": {{"url": "https://{SECRET}.example/mcp"}}}}}}')
    write(home / ".cursor/mcp.json", f'{{"mcpServers": {{{memory}, "mine": {{"command": "other"}}}}}}')
    write(
        home / ".codex/config.toml",
        f'[mcp_servers.lost]\nurl = "https://x.example/{SECRET}"\nbearer_token_env_var = "NO"\n',
    )
    write(home / ".config/Code/User/settings.json", '{"editor.fontSize": 12}')
    write(home / ".gemini/settings.json", "{")
    write(home / "project/.mcp.json", '{"mcpServers": {"strange": {"command": "rm"}}}')


@pytest.mark.usefixtures("hosts")
def test_discover_says_names_and_no_values(bbfs: Run, home: Path) -> None:
    result = bbfs("discover")
    assert result.exit_code == 0
    assert SECRET not in result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["Codex", f"{home}/.codex/config.toml", "lost"] in rows
    assert "environment variable NO is not set" in result.stderr
    found = {each["path"]: each for each in json.loads(bbfs("discover", "--json").stdout)}
    assert found[f"{home}/.claude.json"] == {
        "host": "Claude Code",
        "path": f"{home}/.claude.json",
        "project": False,
        "servers": ["memory", "kb"],
    }
    assert found[f"{home}/project/.mcp.json"]["project"] is True
    assert "not JSON" in found[f"{home}/.gemini/settings.json"]["problems"][0]
    assert len(found) == 5


@pytest.mark.usefixtures("hosts")
def test_discovered_servers_are_mounted_once_and_none_of_a_project(bbfs: Run, home: Path) -> None:
    result = bbfs("ls", "--discover")
    assert result.exit_code == 0
    assert {line.removesuffix("/") for line in result.stdout.splitlines()} >= {
        "mcp-server+memory", "mcp-server+kb", "mcp-server+mine"
    }  # fmt: skip
    assert "memory-2" not in result.stdout
    assert "strange" not in result.stdout
    assert f"{home}/project/.mcp.json: the file of a project is used only if --mcp-config names it" in result.stderr
    assert "left out" in result.stderr


def test_nothing_of_a_project_is_resolved(bbfs: Run, home: Path) -> None:
    servers = {"a": {"command": "x", "args": ["${NOT_SET}", f"${{file:{home}/none}}"]}, "b": {"command": 1}}
    write(home / "project/.mcp.json", json.dumps({"mcpServers": servers}))
    [found] = json.loads(bbfs("discover", "--json").stdout)
    assert (found["servers"], "problems" in found) == (["a", "b"], False)


def test_nothing_to_discover(bbfs: Run, home: Path) -> None:
    assert bbfs("discover").stdout == ""
    assert bbfs("discover", "--json").stdout == "[]\n"


@pytest.mark.usefixtures("hosts")
def test_import(bbfs: Run, home: Path, config: Path) -> None:
    write(config, '# mine\n[[sources]]\nname = "mine"\nmcpConfig = { command = "another" }\n')
    result = bbfs("import", home / ".claude.json", home / ".cursor/mcp.json", home / ".codex/config.toml")
    assert result.exit_code == 0
    assert f"bbfs: memory, kb, mine-2: in {config} now" in result.stderr
    assert "left out: " in result.stderr
    assert config.read_text().startswith("# mine\n[[sources]]\n")
    again = bbfs("import", home / ".claude.json")
    assert again.stderr == f"bbfs: nothing new for {config}\n"


def completed(words: str, incomplete: str) -> list[str]:
    completion = ShellComplete(main, {}, "bbfs", "_BBFS_COMPLETE")
    return [item.value for item in completion.get_completions(words.split(), incomplete)]


def test_completion_of_names_and_options(config: Path) -> None:
    assert completed("ls -o", "ttl") == ["ttl="]
    write(config, '[[sources]]\nname = "logs"\ntype = "storage"\nconfig = { url = "s3://logs" }\n')
    assert completed("remove", "l") == ["logs"]
    assert completed("ls -o", "logs.reg") == ["logs.region="]
    write(config, "[[sources]\n")
    assert completed("remove", "l") == []
    assert completed("mount -o", "timeo") == ["timeout="]


def test_a_private_address_that_is_not_allowed_is_said_at_once(bbfs: Run) -> None:
    added = bbfs("add", "web", "http://127.0.0.1:8000/", "--as", "source")
    assert added.exit_code == 0
    assert "web: a private or local address" in added.stderr
    checked = bbfs("config", "check").stderr
    assert "-o web.allow_private=true, or config.allow_private = true in the configuration file" in checked
    other = bbfs("add", "other", "http://localhost:8000/", "--as", "source", "-o", "allow_private=true")
    assert "private or local" not in other.stderr
