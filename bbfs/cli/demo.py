"""`bbfs demo`: a knowledge base over MCP, a database and a folder, all small, mounted, read and changed by plain tools.

A user could type each of its commands, as it is shown. They run in a shell with a bound. The demo fails with the first
command whose result is wrong.
"""

import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import click

from bbfs.cli import lazy
from bbfs.cli.commands.mount import lacks_to_unmount
from bbfs.cli.options import Verbosity, verbosity_options
from bbfs.fuse import mountpoint

_EXAMPLES = """\b
Examples:
  bbfs demo                 on a terminal, the mount stays until Ctrl-C
  bbfs demo </dev/null      shows the session, unmounts and exits
"""
COMMAND_TIMEOUT = 30.0
"""Seconds for one command."""
ENDS_WITHIN = 10.0
"""Seconds for the programs of the mount to end after it."""
_LOOK_EVERY = 0.5
"""Seconds between two looks at the mount, or at what is left."""

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
WRITES = "-o kb.capabilities=read,list,search,write -o kb.write.tool=put_document"
UPDATED = """# Brewing coffee

Changed a moment ago: sixty-five grams of coffee to a litre, at 92 °C.
"""


class StepFailed(Exception):
    """A failed command of the demo; the text names the command and its result."""


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
    lack = lazy.mounting.missing() or lacks_to_unmount()
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
        remove_busy(folder)


def remove_busy(folder: Path) -> None:
    """Remove a folder in which programs that are ending may still make and remove files. Raise OSError."""
    until = time.monotonic() + ENDS_WITHIN
    while True:
        try:
            return shutil.rmtree(folder)
        except OSError:
            if time.monotonic() > until:
                raise
        time.sleep(_LOOK_EVERY)


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
    shell = Shell(folder)
    _title("A knowledge base of two collections, a database, and a folder with notes")
    _write_files(folder)
    for collection in ("guides", "recipes"):
        shell.show(f"bbfs-knowledge import --db kb.sqlite --create --collection {collection} {collection}", within=".")
    kb = "--mcp 'kb=bbfs-knowledge serve --db kb.sqlite --writable'"
    try:
        shell.show(f"bbfs mount mnt {kb} {WRITES} --source shop.db --dir notes --background", within=".")
        _session(shell, folder)
        if sys.stdin.isatty() and sys.stdout.isatty():
            _stay(folder / "mnt")
    finally:
        shell.show("bbfs umount mnt", within=".")
    click.echo("Unmounted; nothing is left behind.")


def _write_files(folder: Path) -> None:
    for name, text in [*DOCUMENTS.items(), *((f"notes/{name}", text) for name, text in NOTES.items())]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    with closing(sqlite3.connect(folder / "shop.db")) as shop:
        shop.executescript(SHOP)


class Shell:
    """Commands of a shell, shown with their output. `bbfs` and `bbfs-knowledge` need not be on the PATH."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        own = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CACHE", "CONFIG", "STATE")}
        path = f"{folder / 'bin'}:{os.environ.get('PATH', os.defpath)}"
        self._environ = {**os.environ, **own, "LC_ALL": "C.UTF-8", "PATH": path}
        (folder / "bin").mkdir(exist_ok=True)
        for name, module in {"bbfs": "bbfs", "bbfs-knowledge": "bbfs.knowledge"}.items():
            program = folder / "bin" / name
            program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {module} "$@"\n')
            program.chmod(0o755)

    def show(self, command: str, *, within: str = "mnt", statuses: Collection[int] = (0,), expect: str = "") -> None:
        """Run a command and show it with the directory below the folder that the shell, not this process, enters.

        Raise StepFailed if it ends with another status, or its output lacks `expect`.
        """
        prompt = "$" if within == "." else f"{within} $"
        click.echo(f"{click.style(prompt, fg='green')} {click.style(command, bold=True)}")
        shell = subprocess.Popen(
            ["sh", "-c", f"cd {shlex.quote(within)} && {command}"],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the demo alone, and things end in order
            env=self._environ,
        )
        try:
            output = shell.communicate(timeout=COMMAND_TIMEOUT)[0].decode("utf-8", "replace")
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise StepFailed(f"{command}: not done within {COMMAND_TIMEOUT:g} s") from None
            raise
        click.echo(output)
        if shell.returncode not in statuses:
            raise StepFailed(f"{command}: ended with status {shell.returncode}")
        if expect not in output:
            raise StepFailed(f"{command}: {expect!r} is not in the output")


def _session(shell: Shell, folder: Path) -> None:
    shell.show("ls", expect=SOURCE)
    _title("Every resource is a file")
    shell.show("find . -type f | sort", expect="brewing")
    shell.show(f"cat {GUIDE}/brewing", expect="Sixty grams")
    shell.show("grep -rn coffee . | sort", expect="shopping.txt")
    _title("A table is a directory")
    shell.show(f"cat {TABLE}/rows.csv", expect="Sidamo")
    shell.show(f"ls {TABLE}/by/origin/Ethiopia", expect="3.json")
    _title("Metadata are extended attributes")
    if shutil.which("getfattr"):
        shell.show(f"getfattr -d {GUIDE}/brewing", expect="user.mime_type")
    else:
        shell.show(f"bbfs stat {GUIDE}/brewing")
    _title("The bytes are the source's own")
    for program in ("wc -c", "sha256sum", "cmp"):
        shell.show(f"{program} {GUIDE}/brewing ../guides/brewing.md")
    _title("A search asks the sources, and a tool is called by its name")
    shell.show("bbfs search --in kb sixteen hours", expect="cold-brew")
    shell.show("bbfs call kb search_knowledge query=citric", expect="cleaning")
    _title("An update shows up")
    (folder / "brewing-2.md").write_text(UPDATED, "utf-8")
    shell.show("bbfs-knowledge put --db kb.sqlite guides brewing brewing-2.md", within=".")
    started = time.monotonic()
    shell.show(f"until grep sixty-five {GUIDE}/brewing; do sleep 0.05; done")
    click.echo(f"The change was there after {time.monotonic() - started:.1f} s.\n")
    _title("An editor saves to the server")
    shell.show(f"sed -i s/sixty-five/seventy/ {GUIDE}/brewing")
    shell.show("bbfs-knowledge show --db kb.sqlite guides brewing", within=".", expect="seventy grams")
    _title("A program tries something, and no source is touched")
    attempt = shlex.quote(f"rm ~/bb/{GUIDE}/*; ls ~/bb/{GUIDE}")
    # 32: this machine gives the user no namespaces, which the command says.
    shell.show(f"bbfs run --on mnt --on-exit discard -- sh -c {attempt}", within=".", statuses=(0, 32))
    shell.show(f"ls {GUIDE}", expect="grinding")
    _title("What is not there is not there")
    shell.show(f"cat {GUIDE}/roasting", statuses=(1,), expect="No such file")


def _stay(mount_point: Path) -> None:
    """Wait for Ctrl-C, or until the mount is gone."""
    _title("It is yours now")
    click.echo(f"The mount stays at {mount_point} until Ctrl-C. From another terminal, try:")
    click.echo(f"  cd {mount_point} && ls -l {GUIDE}\n")
    with suppress(KeyboardInterrupt):
        while mountpoint.mount_at(str(mount_point)) is not None:
            time.sleep(_LOOK_EVERY)


def _title(text: str) -> None:
    click.secho(f"— {text} —", fg="cyan")
