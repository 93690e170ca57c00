"""The source type that docs/sources/own.md shows: built, installed in a new environment, checked and mounted."""

import re
import site
import subprocess
import sys
from pathlib import Path

import pytest
from harness import Mounts
from programs import errno_of, run
from repository import DOCS, ROOT

pytestmark = pytest.mark.timeout(150)  # it builds and installs, and runs a suite of its own

DOCUMENT = DOCS / "sources/own.md"
_FILE = re.compile(r"^`([\w.]+)`: (?:.+\n)+\n```\w+\n((?:(?!```).*\n)*)```$", re.MULTILINE)
"""A paragraph that begins with the name of a file, and the block after it."""


def shown_files() -> dict[str, str]:
    """The files of the page, by name."""
    return dict(_FILE.findall(DOCUMENT.read_text()))


def done(*command: str | Path, cwd: Path) -> str:
    ended = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with the package in it; what bbfs itself needs it has from this one."""
    project = tmp_path_factory.mktemp("bbfs-ini")
    files = shown_files()
    assert set(files) == {"pyproject.toml", "bbfs_ini.py", "test_bbfs_ini.py"}
    for name, text in files.items():
        (project / name).write_text(text)
    uv = Path(sys.executable).with_name("uv")
    done(uv, "build", "--wheel", "--offline", "--no-build-isolation", "--python", sys.executable, cwd=project)
    fresh = project / "environment"
    done(uv, "venv", "--offline", "--python", sys.executable, fresh, cwd=project)
    (packages,) = fresh.glob("lib/python*/site-packages")
    (packages / "beside.pth").write_text("\n".join([*site.getsitepackages(), str(ROOT)]))
    (wheel,) = (project / "dist").glob("*.whl")
    done(uv, "pip", "install", "--offline", "--no-deps", "--python", fresh, wheel, cwd=project)
    return fresh / "bin" / "python"


def test_the_type_conforms(environment: Path) -> None:
    tests = environment.parents[2]
    command = (environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "trio_mode=true", "test_bbfs_ini.py")
    assert " passed" in done(*command, cwd=tests)


@pytest.mark.semantics("S1", "S11")
def test_the_type_is_mounted(environment: Path, mounted: Mounts, tmp_path: Path) -> None:
    file = tmp_path / "app.ini"
    file.write_text("[database]\nhost = db.example\nport = 5432\n[a/b]\nx=y\n")
    source = {"name": "app", "type": "ini", "config": {"file": str(file)}, "ttl": 0}
    mount = mounted(source, python=environment)
    root = mount / "bb-ini+app+ini"
    assert run("ls", root).text.split() == ["a%2Fb", "database"]
    assert run("cat", root / "database" / "port").text == "5432\n"
    assert run("stat", "-c", "%s", root / "database" / "host").text == "11\n"
    assert run("getfattr", "--only-values", "-n", "user.bbfs.ini_file", root / "a%2Fb" / "x").text == str(file)
    assert (
        run("getfattr", "--only-values", "-n", "user.bbfs.uri", root / "a%2Fb" / "x").text == "bb-ini+app+ini://a%2Fb/x"
    )
    assert errno_of("open(sys.argv[1]).read()", root / "database" / "none") == "ENOENT"
    file.write_text("nonsense")
    assert errno_of("open(sys.argv[1]).read()", root / "database" / "user") == "EPROTO"
    file.unlink()
    assert errno_of("open(sys.argv[1]).read()", root / "database" / "user") == "EHOSTDOWN"


def refused(environment: Path, directory: Path, source: str) -> str:
    """Return what `bbfs ls` says of a source that it refuses."""
    config = directory / "config.toml"
    config.write_text(f"[[sources]]\n{source}\n")
    words = [environment, "-m", "bbfs", "ls", "--config", config]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    return ended.stderr


def test_an_unknown_option_is_refused(environment: Path, tmp_path: Path) -> None:
    said = refused(environment, tmp_path, 'name = "app"\ntype = "ini"\nconfig = { fiel = "app.ini" }')
    assert "unknown option; did you mean 'file'?" in said


def test_a_type_that_cannot_be_imported_says_why(environment: Path, tmp_path: Path) -> None:
    (packages,) = environment.parents[1].glob("lib/python*/site-packages")
    broken = packages / "broken-1.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (broken / "entry_points.txt").write_text("[bbfs.sources]\nbroken = no_such_module:Handler\n")
    said = refused(environment, tmp_path, 'name = "b"\ntype = "broken"')
    assert "type 'broken': no_such_module:Handler cannot be imported: ModuleNotFoundError" in said
