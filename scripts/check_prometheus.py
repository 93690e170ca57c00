"""Let a Prometheus scrape a mount, and hold the examples of docs/operations.md against it: `make check-prometheus`.

promtool checks the metrics, the scrape configuration and the alert rules of the document. Then a mount with a folder, a
server and a source that is down runs under that configuration, with shorter intervals: its series must be all that the
exposition has, no more of them may come with new names, programs and searches, and the rules must be evaluated. Each
step prints a line; the exit status is 1 if one fails. The programs come from the PATH, or from .prometheus/.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from harness import Mount, folder, mcp  # noqa: E402

PATIENCE = 60.0
"""Seconds for a scrape, an evaluation, a start."""
NAMES, PROGRAMS, SEARCHES = 300, 30, 20
"""Names, programs and searches that come, each of which would be a label of a bad metric."""


def program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:{ROOT}/.prometheus/usr/bin")
    if found is None:
        raise SystemExit(f"check-prometheus: there is no {name}: install the package prometheus, or run this by make")
    return found


def promtool(*words: str | Path, text: bytes = b"") -> str:
    done = subprocess.run([program("promtool"), *words], input=text, capture_output=True, timeout=PATIENCE)
    said = (done.stdout + done.stderr).decode().strip()
    if done.returncode:
        raise SystemExit(f"FAILED: promtool {words[0]} {words[1]}: {said}")
    return said


def examples() -> tuple[str, str]:
    """Return the scrape configuration and the alert rules of the document."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "operations.md").read_text(), re.DOTALL | re.MULTILINE)
    found = {block.partition(":")[0]: block for block in blocks}
    return found["scrape_configs"], found["groups"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def until(what: str, condition: Callable[[], Any]) -> Any:
    """Return what a condition returns once that is true. Raise SystemExit after `PATIENCE`."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise SystemExit(f"FAILED: not within {PATIENCE:g} s: {what}")
        time.sleep(0.2)
    return found


def said(what: str, outcome: object) -> None:
    print(f"ok    {what}: {outcome}", flush=True)


class Prometheus:
    """A server of its own, which scrapes one target each second."""

    def __init__(self, directory: Path, target: int) -> None:
        scrape, rules = examples()
        self._directory, self._url = directory, f"http://127.0.0.1:{free_port()}"
        (directory / "bbfs.rules.yml").write_text(rules)
        self._config = directory / "prometheus.yml"
        short = "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\n"
        self._config.write_text(short + scrape.replace("9464", str(target)))

    @contextmanager
    def running(self) -> Iterator[None]:
        options = [f"--config.file={self._config}", f"--storage.tsdb.path={self._directory}/data"]
        options += [f"--web.listen-address={self._url.removeprefix('http://')}", "--log.level=warn"]
        with (self._directory / "log").open("wb") as log:
            process = subprocess.Popen([program("prometheus"), *options], stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE)

    def ask(self, path: str, **query: str) -> Any:
        """Return the data of an answer of the API; None if the server does not answer yet."""
        try:
            with urllib.request.urlopen(
                f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10
            ) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def values(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and values of an expression now."""
        found = self.ask("query", query=expression)
        return [] if found is None else [(each["metric"], float(each["value"][1])) for each in found["result"]]

    def value(self, expression: str) -> float | None:
        """Return the one value of an expression now, if it has one."""
        found = self.values(expression)
        return found[0][1] if len(found) == 1 else None


def check_examples(directory: Path) -> None:
    scrape, rules = examples()
    (directory / "bbfs.rules.yml").write_text(rules)
    (directory / "prometheus.yml").write_text(scrape)
    said("promtool check config", promtool("check", "config", directory / "prometheus.yml").splitlines()[-1].strip())
    said("promtool check rules", promtool("check", "rules", directory / "bbfs.rules.yml").splitlines()[-1].strip())


def exposed(mount: Mount) -> str:
    return (mount.path / ".bbfs" / "metrics").read_text()


def check_exposition(mount: Mount) -> None:
    text = exposed(mount)
    problems = promtool("check", "metrics", text=text.encode())
    if problems:
        raise SystemExit(f"FAILED: promtool check metrics: {problems}")
    said("promtool check metrics", f"nothing to say of {len(series(text))} series")
    unknown = set(re.findall(r"\b(?:bbfs|process)_\w+", examples()[1])) - {
        name.partition("{")[0] for name in series(text)
    }
    if unknown:
        raise SystemExit(f"FAILED: the rules name metrics that no mount has: {unknown}")


def series(text: str) -> set[str]:
    """Return the series of an exposition, without their values."""
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


def use(mount: Mount, notes: Path) -> None:
    """Read new names, by many programs, and search for words that nobody has searched for."""
    for number in range(NAMES):
        (notes / f"name-{number}").write_text(f"{number}\n")
    shown = mount.path / "bb-filesystem+notes+file"
    until("the new names", lambda: len(os.listdir(shown)) >= NAMES)
    for number in range(NAMES):
        assert (shown / f"name-{number}").read_text() == f"{number}\n"
    for number in range(PROGRAMS):
        assert not (mount.path / "mcp-server+docs" / f"absent-{number}").exists()
        mount.bbfs("cat", mount.path / "mcp-server+docs/odd/a")
    for number in range(SEARCHES):
        os.listdir(mount.path / ".search" / f"word{number}")


def check_scrapes(mount: Mount, server: Prometheus, notes: Path) -> None:
    until("a scrape", lambda: server.value('up{job="bbfs"}') == 1)
    count = 'count({job="bbfs", __name__=~"(bbfs|process)_.*"})'
    wanted = len(series(exposed(mount)))
    until(f"{wanted} series, all of the exposition", lambda: server.value(count) == wanted)
    said("all series are scraped", f"{wanted}, of {len(server.values('bbfs_source_resources'))} sources")
    before = server.value('bbfs_source_requests_total{source="docs"}') or 0
    use(mount, notes)
    until("the requests are counted", lambda: (server.value('bbfs_source_requests_total{source="docs"}') or 0) > before)
    until("the names are counted", lambda: (server.value('bbfs_source_resources{source="notes"}') or 0) >= NAMES)
    after = server.value(f"max_over_time({count}[5m:1s])")
    if after != wanted:
        raise SystemExit(f"FAILED: {wanted} series became {after:g}")
    said("no series comes with use", f"{after:g} after {NAMES} names, {PROGRAMS} programs and {SEARCHES} searches")


def check_rules(mount: Mount, server: Prometheus) -> None:
    try:
        os.listdir(mount.path / "mcp-server+gone")
    except OSError as error:
        down = error.strerror
    else:
        raise SystemExit("FAILED: a source without a server is listed")
    until("the state", lambda: server.value('bbfs_source_state{source="gone",state="down"}') == 1)

    def alerts() -> dict[str, Any]:
        groups = (server.ask("rules") or {"groups": []})["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    until("each rule is evaluated", lambda: (found := alerts()) and all(r["health"] == "ok" for r in found.values()))
    until("the alert", lambda: alerts()["BbfsSourceDown"]["state"] in ("pending", "firing"))
    calm = [name for name, rule in alerts().items() if rule["state"] == "inactive"]
    said(
        f"a source that is down ({down})", f"BbfsSourceDown is {alerts()['BbfsSourceDown']['state']}; inactive: {calm}"
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bbfs-prometheus-") as name:
        directory = Path(name)
        check_examples(directory)
        notes, port = directory / "notes", free_port()
        notes.mkdir()
        server = mcp("docs", [sys.executable, ROOT / "tests/support/servers/odd.py", "none"])
        gone = {"name": "gone", "mcpConfig": {"url": f"http://127.0.0.1:{free_port()}/mcp"}}
        metrics = {"mount": {"metrics": f"127.0.0.1:{port}"}}
        mount = Mount([folder("notes", notes), server, gone], tables=metrics, python=sys.executable, expected=[""])
        try:
            check_exposition(mount)
            prometheus = Prometheus(directory, port)
            with prometheus.running():
                check_scrapes(mount, prometheus, notes)
                check_rules(mount, prometheus)
        finally:
            mount.stop()


if __name__ == "__main__":
    main()
