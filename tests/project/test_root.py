"""The root of the repository: a name in it is a decision."""

import subprocess

from repository import ROOT

NAMES = {
    ".ci", ".git-blame-ignore-revs", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile",
    "README.md", "SECURITY.md", "bbfs", "benchmarks", "docs", "fuzz", "locks", "packaging", "pyproject.toml",
    "scripts", "systemd", "tests",
}  # fmt: skip


def test_the_root_has_these_names_and_no_other() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, timeout=60, check=True).stdout
    assert {name.split("/")[0] for name in listed.decode().split("\0") if name} == NAMES
