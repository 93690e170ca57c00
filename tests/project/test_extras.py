"""The extras: each that a message names exists, and the message has the command for the way bbfs was installed."""

import json
import re
import shutil
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from repository import ROOT

from bbfs.runtime import extras

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.fixture
def installed_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend that bbfs runs in an environment, brought there by a program; a pip is on the PATH in `path`."""

    def pretend(prefix: Path, installer: str | None = "pip\n", path: Path | None = None) -> None:
        prefix.mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(sys, "prefix", str(prefix))
        monkeypatch.setattr(sys, "executable", str(prefix / "bin/python3"))
        monkeypatch.setattr(shutil, "which", lambda name: None if path is None else str(path / name))
        found = SimpleNamespace(read_text=lambda name: installer if name == "INSTALLER" else None)
        monkeypatch.setattr(metadata, "distribution", lambda _name: found)

    return pretend


def test_pip_of_the_same_environment_is_named_short(installed_in: Callable[..., None], tmp_path: Path) -> None:
    installed_in(tmp_path / "venv", path=tmp_path / "venv/bin")
    assert extras.needs("web") == "needs the extra 'web' (pip install 'bbfs[web]')"


@pytest.mark.parametrize("other", ["other/bin", None])
def test_pip_of_another_environment_is_not_meant(
    installed_in: Callable[..., None], tmp_path: Path, other: str | None
) -> None:
    installed_in(tmp_path / "venv", installer=None, path=None if other is None else tmp_path / other)
    assert extras.install_command("web") == f"{tmp_path}/venv/bin/python3 -m pip install 'bbfs[web]'"


def test_pipx_injects_into_its_environment(installed_in: Callable[..., None], tmp_path: Path) -> None:
    installed_in(tmp_path / "pipx/venvs/bbfs-next")  # installed with --suffix
    (tmp_path / "pipx/venvs/bbfs-next/pipx_metadata.json").write_text(json.dumps({"main_package": {}}))
    assert extras.install_command("mount") == "pipx inject bbfs-next 'bbfs[mount]'"


@pytest.mark.parametrize(
    ("receipt", "command"),
    [
        ('[{ name = "bbfs" }]', "uv tool install 'bbfs[mount]'"),
        ('[{ name = "bbfs", extras = ["web", "mount"] }]', "uv tool install 'bbfs[mount,web]'"),
        ('[{ name = "bbfs", path = "/d/bbfs-1-py3-none-any.whl" }]',
         "uv tool install 'bbfs[mount] @ file:///d/bbfs-1-py3-none-any.whl'"),
        ('[{ name = "bbfs", editable = "/my src/bbfs" }]', "uv tool install 'bbfs[mount] @ file:///my%20src/bbfs'"),
        ('[{ name = "bbfs", git = "https://h.example/b?rev=v1" }]',
         "uv tool install 'bbfs[mount] @ git+https://h.example/b?rev=v1'"),
        ('[{ name = "bbfs" }, { name = "bbfs-ini", specifier = ">=2" }]',
         "uv tool install 'bbfs[mount]' --with 'bbfs-ini>=2'"),
        ('[{ name = "bbfs" }]\npython = "3.12"\n[tool.options]\nfind-links = ["file:///wheels"]\nno-index = true',
         "uv tool install 'bbfs[mount]' --python 3.12 --find-links file:///wheels"),
    ],
)  # fmt: skip
def test_uv_tool_keeps_what_its_receipt_names(
    installed_in: Callable[..., None], tmp_path: Path, receipt: str, command: str
) -> None:
    installed_in(tmp_path / "bbfs", installer="uv")
    (tmp_path / "bbfs/uv-receipt.toml").write_text(f"[tool]\nrequirements = {receipt}\n")
    assert extras.install_command("mount") == command


@pytest.mark.parametrize(
    "receipt",
    [
        *("", "[tool", "tool = 1", "[tool]\nrequirements = []", '[tool]\nrequirements = ["bbfs"]', "\udcff"),
        '[tool]\nrequirements = [{ name = "other" }, { name = "bbfs" }]',
        '[tool]\nrequirements = [{ name = "bbfs" }, "other"]',
        '[tool]\nrequirements = [{ name = "bbfs", extras = 1 }]',
        '[tool]\noptions = 1\nrequirements = [{ name = "bbfs" }]',
    ],
)
def test_a_receipt_of_another_tool_or_that_nobody_can_read_is_none(
    installed_in: Callable[..., None], tmp_path: Path, receipt: str
) -> None:
    installed_in(tmp_path / "tools/other", installer="uv")
    (tmp_path / "tools/other/uv-receipt.toml").write_text(receipt, errors="surrogateescape")
    assert extras.install_command("web") == f"uv pip install --python {tmp_path}/tools/other 'bbfs[web]'"


def test_uvx_has_an_environment_that_nobody_changes(installed_in: Callable[..., None], tmp_path: Path) -> None:
    installed_in(tmp_path / "uv/archive-v0/xyz", installer="uv")
    (tmp_path / "uv/CACHEDIR.TAG").touch()
    assert extras.install_command("web") == "uvx --from 'bbfs[web]' bbfs"


def test_uv_pip_is_named_for_an_environment_without_pip(installed_in: Callable[..., None], tmp_path: Path) -> None:
    installed_in(tmp_path / "my venv", installer="uv")
    assert extras.install_command("web") == f"uv pip install --python '{tmp_path}/my venv' 'bbfs[web]'"


def test_a_checkout_has_make(installed_in: Callable[..., None]) -> None:
    installed_in(ROOT / ".venv", installer="uv")
    assert extras.install_command("web") == f"make -C {ROOT} install"


def test_every_extra_that_a_message_names_is_there_and_all_has_them() -> None:
    text = "\n".join(path.read_text("utf-8") for path in (ROOT / "bbfs").rglob("*.py"))
    named = set(re.findall(r"""(?:needs|install_command)\(["'](\w+)["']\)""", text))
    assert named == EXTRAS.keys() - {"all", "database"}  # which is named by a variable
    (everything,) = EXTRAS["all"]
    assert everything == f"bbfs[{','.join(name for name in EXTRAS if name != 'all')}]"


def test_no_other_module_says_how_something_is_installed_with_pip() -> None:
    with_pip = {path.name for path in (ROOT / "bbfs").rglob("*.py") if "pip install" in path.read_text("utf-8")}
    assert with_pip == {"extras.py"}
