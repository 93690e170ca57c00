"""`bbfs demo`: a knowledge base over MCP, a database and a folder, all small, mounted and read with plain tools.

A user could type each of its commands. They run in a shell with a bound. The demo fails with the first step whose
result is wrong.
"""

import hashlib
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import click

from bbfs.cli.options import Verbosity, verbosity_options
from bbfs.fuse import mountpoint
from bbfs.fuse.mountpoint import MountError

_EXAMPLES = """\b
Examples:
  bbfs demo                 on a terminal, the mount stays until Ctrl-C
  bbfs demo </dev/null      shows the session, unmounts and exits
"""
COMMAND_TIMEOUT = 20.0
MOUNT_TIMEOUT = 30.0
UPDATE_TIMEOUT = 20.0
STOP_TIMEOUT = 15.0
_POLL = 0.05

DOCUMENTS = {
    "guides/brewing.md": """# Brewing coffee

Sixty grams of coffee to a litre of water at 94 °C. Pour slowly, wait four minutes.

See also: grinding.
""",
    "guides/grinding.md": """# Grinding

Finer is stronger and slower. For a filter: like coarse sand.
""",
    "guides/cleaning.md": """# Cleaning

Rinse after every pot. Descale once a month with citric acid.
""",
    "recipes/cold-brew.md": """# Cold brew

Coarse coffee and cold water, one to eight, for sixteen hours in the fridge.
""",
    "recipes/affogato.md": """# Affogato

A scoop of vanilla ice cream, a hot espresso over it.
""",
    "recipes/mocha.md": """# Mocha

Espresso, hot chocolate, milk. Größe nach Belieben.
""",
}
NOTES = {
    "shopping.txt": "coffee beans\ncitric acid\nvanilla ice cream\n",
    "ideas/next.md": "# Next\n\n- try the coffee from the market\n",
}
SHOP = """
CREATE TABLE bean (id INTEGER PRIMARY KEY, name TEXT NOT NULL, origin TEXT, price REAL);
CREATE INDEX bean_origin ON bean (origin);
INSERT INTO bean VALUES (1, 'Sidamo', 'Ethiopia', 14.5), (2, 'Huila', 'Colombia', 12.0);
INSERT INTO bean VALUES (3, 'Yirgacheffe', 'Ethiopia', 16.0);
"""
SOURCE = "mcp-server+kb"
TABLE = "bb-database+shop+sqlite/main/bean"
GUIDE = f"{SOURCE}/resource/knowledge/guides/document"
UPDATED = """# Brewing coffee

Changed a moment ago: sixty-five grams of coffee to a litre, at 92 °C.
"""


class StepFailed(Exception):
    """A failed step of the demo; the text names the step and its result."""


@click.command(epilog=_EXAMPLES, short_help="Show a session on a small knowledge base.")
@click.option("--keep", is_flag=True, help="Keep the folder with the documents.")
@verbosity_options
def demo(_verbosity: Verbosity, keep: bool) -> None:
    """Mount a small knowledge base, a database and a folder, and show a session on them.

    Everything is made in a temporary folder, which is removed at the end.
    """
    click.get_current_context().exit(_run(keep=keep))


def _run(*, keep: bool) -> int:
    """Show the demo. On a terminal it stays mounted until Ctrl-C. Return the exit status."""
    lack = mountpoint.missing()
    if lack is not None:
        click.echo(f"bbfs: {lack}", err=True)
        return 1
    folder = Path(tempfile.mkdtemp(prefix="bbfs-demo-"))
    try:
        with _terminable():
            _show(folder)
    except StepFailed as error:
        click.echo(f"bbfs: demo: {error}", err=True)
        return 1
    except (KeyboardInterrupt, SystemExit):
        return 130
    finally:
        _remove(folder, keep)
    return 0


def _remove(folder: Path, keep: bool) -> None:
    if mountpoint.mount_at(str(folder / "mnt")) is not None:
        click.echo(f"bbfs: demo: {folder / 'mnt'} is still mounted, so {folder} is left as it is", err=True)
    elif keep:
        click.echo(f"The documents are kept in {folder}")
    else:
        shutil.rmtree(folder)


@contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM an ordinary end, which unmounts too."""

    def leave(_number: int, _frame: object) -> None:
        raise SystemExit

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(folder: Path) -> None:
    mount_point, database = folder / "mnt", folder / "kb.sqlite"
    _title("A knowledge base of two collections, a database, and a folder with notes")
    _prepare(folder, database)
    serve = shlex.join([sys.executable, "-m", "bbfs.knowledge", "serve", "--db", str(database)])
    command = [sys.executable, "-m", "bbfs", "mount", str(mount_point), "--config", str(folder / "config.toml")]
    others = ["--source", str(folder / "shop.db"), "--dir", f"notes={folder / 'notes'}"]
    command += ["--mcp", f"kb={serve}", *others]
    click.echo()
    _prompt(f"bbfs mount {mount_point} --mcp 'kb=bbfs-knowledge serve …' {shlex.join(others)} &")
    with _mounted(command, str(mount_point), folder) as daemon:
        _session(Terminal(str(mount_point)), folder, database)
        if sys.stdin.isatty() and sys.stdout.isatty():
            _stay(daemon, mount_point)
    if mountpoint.mount_at(str(mount_point)) is not None:
        raise StepFailed(f"unmounting: {mount_point} is still mounted")
    click.echo("Unmounted; nothing is left behind.")


def _prepare(folder: Path, database: Path) -> None:
    for name, text in [*DOCUMENTS.items(), *((f"notes/{name}", text) for name, text in NOTES.items())]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    with closing(sqlite3.connect(folder / "shop.db")) as shop:
        shop.executescript(SHOP)
    (folder / "config.toml").touch()
    (folder / "mnt").mkdir()
    for collection in ("guides", "recipes"):
        _knowledge(database, f"importing {collection}", "import", "--collection", collection, str(folder / collection))


def _knowledge(database: Path, step: str, command: str, *arguments: str) -> None:
    """Show and run a command of the knowledge base."""
    line = [sys.executable, "-m", "bbfs.knowledge", command, "--db", str(database), *arguments]
    _prompt(shlex.join(["bbfs-knowledge", *line[3:]]))
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise StepFailed(f"{step}: not done within {COMMAND_TIMEOUT:g} s") from None
    if done.returncode != 0:
        raise StepFailed(f"{step}: {done.stderr.strip()}")
    click.echo(done.stdout, nl=False)


@contextmanager
def _mounted(command: list[str], mount_point: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the daemon in a process of its own until the block ends. It has unmounted and exited afterwards."""
    log = folder / "mount.log"
    # A session of its own, so that Ctrl-C reaches the demo alone and things end in order.
    with log.open("wb") as stderr:
        daemon = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            start_new_session=True,
            env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
        )
    try:
        _until_mounted(daemon, mount_point, log)
        yield daemon
    finally:
        _stop(daemon, mount_point)
    if daemon.returncode != 0:
        raise StepFailed(f"unmounting: the daemon ended with status {daemon.returncode}: {_last_words(log)}")


def _until_mounted(daemon: subprocess.Popen[bytes], mount_point: str, log: Path) -> None:
    deadline = time.monotonic() + MOUNT_TIMEOUT
    while mountpoint.mount_at(mount_point) is None:
        if daemon.poll() is not None:
            raise StepFailed(f"mounting: {_last_words(log)}")
        if time.monotonic() > deadline:
            raise StepFailed(f"mounting: not mounted within {MOUNT_TIMEOUT:g} s: {_last_words(log)}")
        time.sleep(_POLL)


def _stop(daemon: subprocess.Popen[bytes], mount_point: str) -> None:
    """End the daemon, if need be by force. That frees programs that wait for its mount."""
    if daemon.poll() is None:
        daemon.terminate()
        try:
            daemon.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait(STOP_TIMEOUT)
    with suppress(MountError):  # the end reports a remaining mount
        mountpoint.unmount(mount_point)


def _last_words(log: Path) -> str:
    return log.read_text("utf-8", "replace").strip() or "it said nothing"


class Terminal:
    """Shell commands below a mount, shown with their output."""

    def __init__(self, mount_point: str) -> None:
        self._mount_point = mount_point
        click.echo()
        _prompt(f"cd {mount_point}")

    def show(self, step: str, command: str, *, status: int = 0, expect: str | None = None) -> str:
        """Run and show a command. Raise StepFailed if its status differs, or its output lacks `expect`."""
        _prompt(command)
        done = self.run(step, command)
        said = done.stdout.decode("utf-8", "replace")
        click.echo(said, nl=False)
        if done.returncode != status:
            raise StepFailed(f"{step}: {command}: ended with status {done.returncode}, not {status}")
        if expect is not None and expect not in said:
            raise StepFailed(f"{step}: {command}: {expect!r} is not in the output")
        click.echo()
        return said

    def run(self, step: str, command: str) -> subprocess.CompletedProcess[bytes]:
        """Run a command in the mount. The shell, not this process, enters it."""
        line = ["sh", "-c", f"cd {shlex.quote(self._mount_point)} && {command}"]
        environ = {**os.environ, "LC_ALL": "C.UTF-8"}
        shell = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environ,
        )
        try:
            said, _ = shell.communicate(timeout=COMMAND_TIMEOUT)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise StepFailed(f"{step}: {command}: not done within {COMMAND_TIMEOUT:g} s") from None
            raise
        return subprocess.CompletedProcess(line, shell.returncode, said)


def _session(session: Terminal, folder: Path, database: Path) -> None:
    bbfs = shlex.join([sys.executable, "-m", "bbfs"])
    session.show("the sources", "ls", expect=SOURCE)
    _title("Every resource is a file")
    session.show("the tree", "find . -type f | sort", expect="brewing")
    session.show("a document", f"cat {GUIDE}/brewing", expect="Sixty grams")
    session.show("a search", "grep -rn coffee . | sort", expect="shopping.txt")
    _title("A table is a directory")
    session.show("the rows", f"cat {TABLE}/rows.csv", expect="Sidamo")
    session.show("an index", f"ls {TABLE}/by/origin/Ethiopia", expect="3.json")
    _title("Metadata are extended attributes")
    if shutil.which("getfattr"):
        session.show("attributes", f"getfattr -d {GUIDE}/brewing", expect="user.mime_type")
    else:
        _prompt(f"bbfs stat {GUIDE}/brewing")
        click.echo(session.run("attributes", f"{bbfs} stat {GUIDE}/brewing").stdout.decode())
    _title("The bytes are the source's own")
    session.show("sizes", f"wc -c {GUIDE}/brewing {folder}/guides/brewing.md")
    session.show("sums", f"sha256sum {GUIDE}/brewing {folder}/guides/brewing.md")
    _compare(session, folder / "guides/brewing.md")
    _title("An update shows up")
    _update(session, folder, database)
    _title("What is not there is not there")
    session.show("an error", f"cat {GUIDE}/roasting", status=1, expect="No such file")


def _compare(session: Terminal, original: Path) -> None:
    expected = original.read_bytes()
    read = session.run("the bytes", f"cat {GUIDE}/brewing").stdout
    sums = [hashlib.sha256(data).hexdigest() for data in (read, expected)]
    if sums[0] != sums[1]:
        raise StepFailed(f"the bytes: {len(read)} bytes with SHA-256 {sums[0]}, the source has {sums[1]}")
    size = session.run("the size", f"stat -c %s {GUIDE}/brewing").stdout
    if int(size) != len(expected):
        raise StepFailed(f"the size: {size.decode().strip()}, the source has {len(expected)} bytes")


def _update(session: Terminal, folder: Path, database: Path) -> None:
    changed = folder / "brewing-2.md"
    changed.write_text(UPDATED, "utf-8")
    _knowledge(database, "the update", "put", "guides", "brewing", str(changed))
    started = time.monotonic()
    while session.run("the update", f"cat {GUIDE}/brewing").stdout != UPDATED.encode():
        if time.monotonic() - started > UPDATE_TIMEOUT:
            raise StepFailed(f"the update: not there within {UPDATE_TIMEOUT:g} s")
        time.sleep(_POLL)
    took = time.monotonic() - started
    session.show("the update", f"cat {GUIDE}/brewing", expect="sixty-five")
    click.echo(f"The change was there after {took:.1f} s.\n")


def _stay(daemon: subprocess.Popen[bytes], mount_point: Path) -> None:
    _title("It is yours now")
    click.echo(f"The mount stays at {mount_point} until Ctrl-C. From another terminal, try:")
    click.echo(f"  cd {mount_point} && ls -l {GUIDE}\n")
    with suppress(KeyboardInterrupt):
        daemon.wait()
    if daemon.returncode:
        raise StepFailed(f"staying mounted: the daemon ended with status {daemon.returncode}")


def _title(text: str) -> None:
    click.secho(f"— {text} —", fg="cyan")


def _prompt(command: str) -> None:
    click.echo(f"{click.style('$', fg='green')} {click.style(command, bold=True)}")
