"""`bbfs service`: the units that it writes, what it leaves alone, and what `bbfs doctor` says of them."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from bbfs.cli.commands.service import systemd, units
from bbfs.cli.commands.service.units import escaped

Run = Callable[..., Result]
Told = Callable[[], list[str]]
SYSTEMCTL = """#!/bin/sh
echo "$*" >> "$SYSTEMCTL_LOG"
case "$*" in
    *show*) printf 'UnitFileState=%s\\nActiveState=%s\\n' ${SYSTEMCTL_STATE:-enabled active} ;;
esac
exit ${SYSTEMCTL_STATUS:-0}
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A stand-in for systemctl. Returns what it was told."""
    log, programs = tmp_path / "systemctl.log", tmp_path / "programs"
    programs.mkdir()
    (programs / "systemctl").write_text(SYSTEMCTL)
    (programs / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("SYSTEMCTL_LOG", str(log))
    return lambda: [line for line in log.read_text().splitlines() if " show " not in line] if log.exists() else []


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config/bbfs/docs.toml"
    path.parent.mkdir(parents=True)
    path.write_text("")
    return path


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    return tmp_path / "config/systemd/user/bbfs-docs.service"


def lines(path: Path, key: str) -> list[str]:
    return [line.partition("=")[2] for line in path.read_text().splitlines() if line.startswith(f"{key}=")]


def test_a_unit_is_written_once_and_systemd_reads_it(
    bbfs: Run, told: Told, config: Path, unit: Path, tmp_path: Path
) -> None:
    point = tmp_path / "mnt"
    first = bbfs("service", "install", "--user", "docs", point)
    assert (first.exit_code, told()) == (0, ["--user --no-ask-password daemon-reload"])
    assert lines(unit, "ExecStart") == [
        f"{Path(sys.executable).parent}/bbfs mount --restartable --config {config} {point}"
    ]
    assert unit.stat().st_mode & 0o777 == 0o644
    written = unit.read_text()
    second = bbfs("service", "install", "--user", "docs", point)
    assert "as it was" in second.stderr
    assert (second.exit_code, unit.read_text(), len(told())) == (0, written, 1)
    assert [each.name for each in unit.parent.iterdir()] == [unit.name]


def test_other_arguments_change_the_unit(bbfs: Run, told: Told, config: Path, unit: Path) -> None:
    bbfs("service", "install", "--user", "docs")
    assert bbfs("service", "install", "--user", "docs", "/somewhere/else").exit_code == 0
    assert lines(unit, "ExecStart")[0].endswith(" /somewhere/else")
    assert len(told()) == 2


def test_a_dry_run_prints_the_unit_and_does_nothing(bbfs: Run, told: Told, unit: Path) -> None:
    shown = bbfs("service", "install", "--system", "docs", "--dry-run", "--credential", "kb=/etc/bbfs/kb.token")
    assert shown.exit_code == 0
    assert shown.stderr == ("bbfs: /etc/bbfs/docs.toml does not exist: make it, or name another file with --config\n")
    assert "\nLoadCredential=kb:/etc/bbfs/kb.token\n" in shown.stdout
    assert "\nUser=bbfs\n" in shown.stdout
    assert "mount --restartable --allow-other --config /etc/bbfs/docs.toml /mnt/bbfs/docs\n" in shown.stdout
    assert bbfs("service", "uninstall", "--user", "docs", "--dry-run").exit_code == 0
    assert (told(), unit.exists()) == ([], False)


def test_with_now_the_unit_is_enabled_and_started(bbfs: Run, told: Told, config: Path) -> None:
    assert bbfs("service", "install", "--user", "docs", "--now").exit_code == 0
    assert told()[1:] == ["--user --no-ask-password enable --now bbfs-docs.service"]


def test_where_no_systemd_answers_the_unit_is_written_all_the_same(
    bbfs: Run, told: Told, config: Path, unit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYSTEMCTL_STATUS", "1")
    done = bbfs("service", "install", "--user", "docs")
    assert (done.exit_code, unit.exists()) == (0, True)
    assert "systemd has not read it yet" in done.stderr
    assert bbfs("service", "install", "--user", "docs", "--now").exit_code == 1


@pytest.mark.parametrize("content", ["[Service]\nExecStart=/bin/true\n", "", "# bbfs-service: {}\n\n"])
def test_what_somebody_else_wrote_is_left_alone(bbfs: Run, told: Told, config: Path, unit: Path, content: str) -> None:
    unit.parent.mkdir(parents=True)
    unit.write_text(content)
    for words in (("install", "--user", "docs"), ("uninstall", "--user", "docs")):
        done = bbfs("service", *words)
        assert done.exit_code == 1
        assert "left alone" in done.stderr
    assert (unit.read_text(), told()) == (content, [])


def test_what_somebody_changed_is_left_alone_and_doctor_says_so(
    bbfs: Run, told: Told, config: Path, unit: Path
) -> None:
    bbfs("service", "install", "--user", "docs")
    changed = unit.read_text().replace("RestartSec=2s", "RestartSec=9s")
    unit.write_text(changed)
    for words in (("install", "--user", "docs"), ("uninstall", "--user", "docs")):
        assert "changed by somebody" in bbfs("service", *words).stderr
    assert unit.read_text() == changed
    assert "somebody has changed the file" in bbfs("doctor", "--config", config).stdout


def test_a_link_is_not_followed(bbfs: Run, told: Told, config: Path, unit: Path) -> None:
    unit.parent.mkdir(parents=True)
    unit.symlink_to("/dev/null")  # as `systemctl mask` does
    assert bbfs("service", "install", "--user", "docs").exit_code == 1
    assert os.readlink(unit) == "/dev/null"


def test_a_restart_is_a_signal_to_a_daemon(bbfs: Run, told: Told, config: Path, unit: Path) -> None:
    assert bbfs("service", "restart", "--user", "docs").exit_code == 1
    bbfs("service", "install", "--user", "docs")
    assert bbfs("service", "restart", "--user", "docs").exit_code == 0
    assert told()[1:] == ["--user --no-ask-password kill --kill-who=main --signal=USR2 bbfs-docs.service"]


def test_a_unit_is_removed_once(bbfs: Run, told: Told, config: Path, unit: Path) -> None:
    bbfs("service", "install", "--user", "docs")
    assert bbfs("service", "uninstall", "--user", "docs").exit_code == 0
    assert [line.split(None, 2)[2] for line in told()[1:]] == ["disable --now bbfs-docs.service", "daemon-reload"]
    assert not unit.exists()
    again = bbfs("service", "uninstall", "--user", "docs")
    assert (again.exit_code, "no such unit" in again.stderr) == (0, True)


def test_a_unit_needs_its_configuration(bbfs: Run, told: Told, unit: Path) -> None:
    done = bbfs("service", "install", "--user", "docs")
    assert (done.exit_code, unit.exists()) == (1, False)
    assert "--config" in done.stderr


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a@b", "..\n"])
def test_a_name_is_one_of_a_unit(bbfs: Run, name: str) -> None:
    assert "no name of a unit" in bbfs("service", "install", name, "--dry-run").stderr


@pytest.mark.parametrize("text", ["kb", "=x", "kb=", "k/b=x"])
def test_a_credential_has_a_name_and_a_file(bbfs: Run, text: str) -> None:
    assert bbfs("service", "install", "docs", "--dry-run", "--credential", text).exit_code == 2


def test_the_list_has_what_was_written(bbfs: Run, told: Told, config: Path, unit: Path) -> None:
    assert bbfs("service", "list").stdout == ""
    bbfs("service", "install", "--user", "docs", "/somewhere")
    (listed,) = json.loads(bbfs("service", "list", "--json").stdout)
    assert listed == {
        "name": "docs",
        "scope": "user",
        "unit": "bbfs-docs.service",
        "file": str(unit),
        "config": str(config),
        "mountPoint": "/somewhere",
        "enabled": "enabled",
        "active": "active",
    }
    assert bbfs("service", "list").stdout.splitlines()[1].split() == [
        "docs", "user", "enabled", "active", str(config), "/somewhere",
    ]  # fmt: skip


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize(
    ("fault", "level", "text"),
    [
        (None, "ok", "enabled, active; "),
        ("config", "FAIL", "docs.toml does not exist"),
        ("program", "FAIL", "is no program any more"),
        ("directive", "FAIL", "KilMode"),
        ("state", "FAIL", "disabled, failed; "),
        ("systemd", "warn", "no systemd of the user answers"),
    ],
)
def test_doctor_says_what_is_wrong_with_a_unit(
    bbfs: Run,
    told: Told,
    config: Path,
    unit: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str | None,
    level: str,
    text: str,
) -> None:
    if fault == "program":
        script = tmp_path / "bin/bbfs"
        monkeypatch.setattr(systemd, "program", lambda: [str(script)])
    (other := tmp_path / "other.toml").write_text("")
    bbfs("service", "install", "--user", "docs")
    match fault:
        case "config":
            config.unlink()
        case "directive":
            unit.write_text(unit.read_text().replace("KillMode=", "KilMode="))
        case "state":
            monkeypatch.setenv("SYSTEMCTL_STATE", "disabled failed")
        case "systemd":
            monkeypatch.setenv("SYSTEMCTL_STATUS", "1")
        case _:
            pass
    checks = json.loads(bbfs("doctor", "--json", "--config", other).stdout)
    found = [(each["level"], each["finding"]) for each in checks if each["check"] == "service bbfs-docs.service"]
    assert [each for each, finding in found if text in finding] == [level]


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("/srv/docs", "/srv/docs"),
        ("/srv/two words", '"/srv/two words"'),
        ('/srv/"a"\\b', '"/srv/\\"a\\"\\\\b"'),
        ("/srv/50%", "/srv/50%%"),
        ("/srv/$HOME", '"/srv/$$HOME"'),
        ("/srv/ä;b", '"/srv/ä;b"'),
    ],
)
def test_a_path_is_one_word_of_a_unit(word: str, written: str) -> None:
    assert escaped(word) == written


def test_a_unit_reads_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "bbfs-docs.service"
    unit = units.Written(path, "user", "docs", ["/opt/b b/bbfs"], '/a"b.toml', "/mnt/50%", "", {"kb": "/etc/kb"})
    path.write_text(unit.text())
    assert units.read(path, "user") == unit
