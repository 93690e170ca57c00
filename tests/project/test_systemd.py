"""The systemd units: systemd accepts them, and nothing in them hides or breaks a FUSE mount."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import units
from repository import ROOT

SYSTEMD = ROOT / "systemd"
USER, SYSTEM = "bbfs@.service", "bbfs-system@.service"

# systemd.exec(5) and systemd.resource-control(5): what gives a service a mount namespace of its own, what keeps a
# setuid program from its rights, what takes /dev/fuse away.
FORBIDDEN = {
    "PrivateTmp", "PrivateDevices", "PrivateMounts", "PrivateIPC", "ProtectSystem", "ProtectHome", "ProtectProc",
    "ProcSubset", "ProtectControlGroups", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs",
    "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths", "ExecPaths", "NoExecPaths", "TemporaryFileSystem",
    "BindPaths", "BindReadOnlyPaths", "MountFlags", "MountAPIVFS", "MountImages", "ExtensionImages", "RootDirectory",
    "RootImage", "DynamicUser", "LogNamespace", "NoNewPrivileges", "SystemCallFilter", "SystemCallArchitectures",
    "SystemCallLog", "RestrictSUIDSGID", "RestrictNamespaces", "RestrictRealtime", "RestrictAddressFamilies",
    "LockPersonality", "MemoryDenyWriteExecute", "ProtectHostname", "CapabilityBoundingSet", "PrivateUsers",
    "DevicePolicy", "DeviceAllow", "ProtectClock",
}  # fmt: skip

each_unit = pytest.mark.parametrize("unit", [USER, SYSTEM])


def directives(unit: str) -> list[tuple[str, str]]:
    lines = (SYSTEMD / unit).read_text().splitlines()
    return [(key, value) for key, equals, value in (line.partition("=") for line in lines if line[:1] != "#") if equals]


def analyzer() -> str:
    """Return the program systemd-analyze. It starts nothing, and needs no running service manager."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        if os.environ.get("CI"):
            pytest.fail("systemd-analyze is missing (Debian: package systemd)")
        pytest.skip("systemd-analyze is not installed")
    return analyze


def verify(path: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run `systemd-analyze verify`."""
    analyze = analyzer()
    scope = "--system" if path.name.startswith("bbfs-system@") else "--user"
    return subprocess.run(
        [analyze, scope, "--man=no", "--recursive-errors=no", "verify", str(path)],
        env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@each_unit
def test_a_template_is_what_the_command_writes(unit: str):
    assert (SYSTEMD / unit).read_text() == units.text(unit), "run make docs"


@each_unit
def test_each_directive_that_systemd_misses_is_named_with_the_reason(unit: str, tmp_path: Path):
    instance = tmp_path / unit.replace("@.", "@docs.")
    shutil.copy(SYSTEMD / unit, instance)
    words = [analyzer(), "security", "--offline=true", "--json=short", str(instance)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    rows = json.loads(done.stdout)
    missed = {re.split(r"[=:]", row["name"] or row["json_field"])[0] for row in rows if row["set"] is False}
    if unit == USER:
        missed.remove("User")  # the manager of a user runs nothing as anybody else
    assert len(missed) > 20
    assert missed - set(re.findall(r"\w+", (SYSTEMD / unit).read_text())) == set()


@each_unit
def test_systemd_accepts_the_unit(unit: str, tmp_path: Path):
    instance = tmp_path / unit.replace("@.", "@docs.")
    shutil.copy(SYSTEMD / unit, instance)
    result = verify(instance, tmp_path)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_the_check_sees_a_mistake(tmp_path: Path):
    broken = tmp_path / "bbfs@docs.service"
    broken.write_text((SYSTEMD / USER).read_text().replace("KillMode=", "KilMode="))
    result = verify(broken, tmp_path)
    assert result.returncode != 0
    assert "KilMode" in result.stderr


@each_unit
def test_nothing_hides_or_breaks_the_mount(unit: str):
    assert {key for key, _ in directives(unit)} & FORBIDDEN == set()


@each_unit
def test_what_is_left_out_is_named_with_the_reason(unit: str):
    comments = " ".join(line for line in (SYSTEMD / unit).read_text().splitlines() if line.startswith("#"))
    assert FORBIDDEN - set(re.findall(r"\w+", comments)) == set()


@each_unit
@pytest.mark.semantics("S26")
def test_the_same_mount_point_is_cleared_made_mounted_and_cleared(unit: str):
    mount_point = {USER: "%h/bbfs/%i", SYSTEM: "/mnt/bbfs/%i"}[unit]
    found = directives(unit)
    before = [value for key, value in found if key == "ExecStartPre"]
    assert re.fullmatch(rf"-\+?fusermount3 -quz {mount_point}", before[0])  # "-": there is usually nothing to clear
    assert before[1].endswith(f" {mount_point}")
    start = dict(found)["ExecStart"]
    assert re.fullmatch(
        rf"/usr/bin/env bbfs mount --restartable (--allow-other )?--config %E/bbfs/%i\.toml {mount_point}", start
    )
    assert ("--allow-other" in start) is (unit == SYSTEM)
    assert dict(found)["ExecStopPost"] == before[0]


@each_unit
def test_the_service_manager_watches_the_daemon(unit: str):
    found = dict(directives(unit))
    expected = {"Type": "notify", "NotifyAccess": "main", "Restart": "on-failure", "KillMode": "mixed"}
    assert found.items() >= expected.items()
    assert found.keys() >= {"WatchdogSec", "RestartSec", "TimeoutStartSec", "TimeoutStopSec"}
    assert found["WantedBy"] == {USER: "default.target", SYSTEM: "multi-user.target"}[unit]
