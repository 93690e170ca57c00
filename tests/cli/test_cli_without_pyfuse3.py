"""The command line where pyfuse3 cannot be imported: everything works but mounting, which says what to install."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bbfs.fuse import mounting

Run = Callable[..., subprocess.CompletedProcess[str]]
_MISSING = "sys.modules['pyfuse3'] = None"
_BROKEN = """
class Broken:
    def find_spec(name, path=None, target=None):
        if name == "pyfuse3":
            raise ImportError("libfuse3.so.3: cannot open shared object file")
sys.meta_path.insert(0, Broken)
"""
_MAIN = "import sys\n{}\nfrom bbfs.cli import main\nmain(sys.argv[1:], 'bbfs')"


@pytest.fixture
def notes(tmp_path: Path) -> str:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/certificate.md").write_text("renew the certificate\n")
    return f"notes={tmp_path}/notes"


@pytest.fixture
def bbfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("CONFIG", "CACHE", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))

    def run(*arguments: str, lack: str = _MISSING, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", _MAIN.format(lack), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["ls", "notes"], "certificate.md\n"),
        (["cat", "notes/certificate.md"], "renew the certificate\n"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands_without_a_mount_work(bbfs: Run, notes: str, arguments: list[str], expected: str) -> None:
    result = bbfs(arguments[0], "--dir", notes, *arguments[1:])
    assert (result.returncode, result.stderr) == (0, "")
    assert expected in result.stdout


def test_search_works(bbfs: Run, notes: str) -> None:
    assert bbfs("index", "--dir", notes, "-o", "notes.index=true").returncode == 0
    result = bbfs("search", "--dir", notes, "-o", "notes.index=true", "certificate")
    assert (result.returncode, result.stderr) == (0, "")
    assert "renew the certificate" in result.stdout


def test_serve_works(bbfs: Run, notes: str) -> None:
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    call = {"name": "grep_resources", "arguments": {"dataSourceId": "notes", "pattern": "renew"}}
    command = [sys.executable, "-c", _MAIN.format(_MISSING), "serve", "--dir", notes]
    answer = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for number, (method, params) in enumerate((("initialize", client), ("tools/call", call))):
            print(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}), file=server.stdin)
            answer = json.loads(server.stdout.readline())
            assert answer["id"] == number
        server.stdin.close()
        assert server.wait(30) == 0
    assert "renew the certificate" in answer["result"]["content"][0]["text"]


@pytest.mark.parametrize("command", [["mount", "--background"], ["mount", "--scratch", "scratch"], ["run"]])
def test_mounting_says_what_to_install(bbfs: Run, notes: str, tmp_path: Path, fuse: None, command: list[str]) -> None:
    place = ["--", "true"] if command == ["run"] else [str(tmp_path / "mnt")]
    result = bbfs(*command, "--dir", notes, *place)
    assert result.returncode == 32
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("bbfs: mounting needs the extra 'mount' (")
    assert "libfuse3-dev" in line
    assert not (tmp_path / "mnt").exists()


def test_a_library_that_is_gone_is_named(bbfs: Run, notes: str, tmp_path: Path, fuse: None) -> None:
    result = bbfs("mount", "--dir", notes, str(tmp_path / "mnt"), lack=_BROKEN)
    assert result.returncode == 32
    assert "pyfuse3 cannot be loaded (libfuse3.so.3: cannot open shared object file): install" in result.stderr


def test_doctor_warns_and_says_what_to_install(bbfs: Run, notes: str) -> None:
    (check,) = (
        each for each in json.loads(bbfs("doctor", "--json", "--dir", notes).stdout) if each["check"] == "pyfuse3"
    )
    assert check["level"] == "warn"
    assert "needs the extra 'mount'" in check["remedy"]


def test_a_broken_dependency_of_pyfuse3_is_not_taken_for_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_trio(name: str) -> None:
        raise ModuleNotFoundError("No module named 'trio'", name="trio")

    monkeypatch.setattr(mounting, "import_module", without_trio)
    with pytest.raises(ModuleNotFoundError):
        mounting.missing_binding()
