"""The scripts that make packages: a shell reads them, and they fill in what the templates leave open."""

import re
import subprocess
from pathlib import Path

import pytest
from repository import ROOT

DEBIAN = ROOT / "packaging/debian"
SHELL = sorted(
    path
    for directory in (ROOT / "scripts", DEBIAN)
    for path in directory.iterdir()
    if path.is_file() and path.read_bytes().startswith(b"#!/bin/sh")
)


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_a_shell_reads_the_script(script: Path) -> None:
    done = subprocess.run(["sh", "-n", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_scripts_of_the_package_are_among_them() -> None:
    assert {"deb", "check-deb", "image", "postinst", "prerm", "postrm"} <= {path.name for path in SHELL}


def test_every_field_of_the_control_file_is_filled_in() -> None:
    fields = re.findall(r"@[A-Z]+@", (DEBIAN / "control").read_text())
    assert "@VERSION@" in fields
    assert set(fields) == set(re.findall(r"@[A-Z]+@", (ROOT / "scripts/deb").read_text()))
