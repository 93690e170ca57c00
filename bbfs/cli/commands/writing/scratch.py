"""`bbfs changes`, `bbfs apply` and `bbfs discard`: what a scratch has, and what becomes of it."""

import difflib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import click

from bbfs.cli import output
from bbfs.cli.commands.mount import DIRECTORY
from bbfs.cli.options import Verbosity, verbosity_options
from bbfs.fuse import mountpoint
from bbfs.fuse.mountpoint import MountError
from bbfs.fuse.scratch import copying, settling
from bbfs.fuse.scratch.changes import Change, digest, recorded
from bbfs.fuse.scratch.changes import changes as changes_of
from bbfs.fuse.scratch.directory import Scratch
from bbfs.fuse.scratch.entries import open_file
from bbfs.runtime.files import closed_after

_DIGEST = re.compile(r"[0-9a-f]{8,32}")
LETTERS = {"added": "A", "changed": "M", "removed": "D", "renamed": "R", "attributes": "T", "written": "W"}
_LARGEST_DIFF = 1 << 20
"""Bytes of a file whose lines are compared; of a larger one only the name is shown."""
_SHOWN = 40
"""Changes that a question shows."""
_SHORT = 16
"""Characters of a digest that are printed."""
_USUAL = {False: 0o644, True: 0o755}
"""The permission bits that the list leaves out, of a file and of a directory."""

_CHANGES_EXAMPLES = """\b
Examples:
  bbfs changes ~/bb
  bbfs changes ~/bb --diff
  bbfs changes ~/bb ~/bb/bb-filesystem+notes+file/plans --json

\b
  A  made     M  changed     D  removed     R  renamed     T  only times or permissions
  W  made or changed: the sources are not mounted, so nothing tells which
"""


def _operands(command: Callable[..., Any]) -> Callable[..., Any]:
    scratch = click.argument("operand", metavar="MNT|DIR", type=DIRECTORY)
    return scratch(click.argument("paths", metavar="[PATH…]", nargs=-1, type=click.Path())(command))


@click.command(epilog=_CHANGES_EXAMPLES, short_help="List what was changed in a scratch.")
@_operands
@click.option("--diff", is_flag=True, help="Show the lines that differ.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("-z", "with_nul", is_flag=True, help="Print letters and names with a NUL behind each, as git does.")
@click.option("--digest", "with_digest", is_flag=True, help="Print a digest of the changes, for 'bbfs apply --as'.")
@verbosity_options
def changes(
    _verbosity: Verbosity,
    operand: str,
    paths: tuple[str, ...],
    diff: bool,
    as_json: bool,
    with_nul: bool,
    with_digest: bool,
) -> None:
    """List what programs have made, changed, removed and renamed at MNT, which has a scratch. No source has it yet.

    Instead of the mount point, the directory of the scratch can be named. PATH: only what is at and below it.
    """
    if with_nul and (diff or as_json or with_digest):
        raise click.UsageError("-z is for the list alone")
    scratch = _compared(operand) if diff else _readable(operand)
    found = _chosen(scratch, operand, paths)
    if as_json:
        documents = [document(change) for change in found]
        output.as_json({"digest": digest(found)[:_SHORT], "changes": documents} if with_digest else documents)
    elif diff:
        for line in differences(scratch, found):
            output.line(line)
    elif with_nul:
        output.names(name for change in found for name in _names(change))
    else:
        output.lines(map(summary, found))
    if with_digest and not as_json:
        output.line(f"digest {digest(found)[:_SHORT]}")


_DISCARD_EXAMPLES = """\b
Examples:
  bbfs discard ~/bb                   all changes
  bbfs discard ~/bb ~/bb/bb-filesystem+notes+file/plans
  bbfs discard ~/try                  those of a scratch that is not mounted
"""


@click.command(epilog=_DISCARD_EXAMPLES, short_help="Drop changes of a scratch.")
@_operands
@click.option("--yes", is_flag=True, help="Do not ask.")
@verbosity_options
def discard(verbosity: Verbosity, operand: str, paths: tuple[str, ...], yes: bool) -> None:
    """Drop what was changed at MNT, which has a scratch; with PATH only what is at and below it.

    What a name was in the source is there again. No program may use MNT meanwhile: the overlay is mounted again.
    Without PATH it asks first on a terminal.
    """
    scratch = _readable(operand) if paths else Scratch.of(operand)
    chosen = _chosen(scratch, operand, paths) if paths else None
    if chosen is None and not yes and sys.stdin.isatty():
        click.confirm(f"drop all changes in {scratch.path}?", abort=True, err=True)
    settling.discard(scratch, chosen)
    if not verbosity.quiet:
        what = "all changes" if chosen is None else output.count(len(chosen), "change")
        output.message(f"{scratch.path}: {what} discarded")


_APPLY_EXAMPLES = """\b
Examples:
  bbfs apply ~/bb                     all changes
  bbfs apply ~/bb notes/plans ~/bb/bb-filesystem+notes+file/ideas
  bbfs apply ~/bb --dry-run
  bbfs apply ~/bb --as 9c1185a5c5e9fc54

\b
Exit status: 0 all is applied, 1 something is not: it stays in the scratch.
"""


@click.command(epilog=_APPLY_EXAMPLES, short_help="Write changes of a scratch to the sources.")
@_operands
@click.option("-n", "--dry-run", is_flag=True, help="Only list what would be applied, in its order.")
@click.option("--overwrite", is_flag=True, help="Replace also what a source has changed meanwhile.")
@click.option(
    "--as", "reviewed", metavar="DIGEST", help="Apply the changes of this digest ('bbfs changes --digest') only."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@verbosity_options
def apply(
    _verbosity: Verbosity,
    operand: str,
    paths: tuple[str, ...],
    dry_run: bool,
    overwrite: bool,
    reviewed: str | None,
    yes: bool,
) -> None:
    """Write what was changed at MNT to the sources; with PATH only what is at and below it.

    The sources have to be granted the capability 'write'. New directories come first, then files, removals last. What
    fails stays in the scratch, with the reason. What a source has changed since is a conflict and is not replaced.
    On a terminal it lists the changes and asks first; what has changed since the list is not applied.
    """
    scratch = _compared(operand)
    chosen = _chosen(scratch, operand, paths)
    if dry_run:
        for change in settling.ordered(chosen):
            output.line(summary(change))
        return
    if reviewed is not None:
        _require_reviewed(reviewed, chosen, operand)
    elif chosen and not yes and sys.stdin.isatty() and sys.stderr.isatty():
        show(chosen)
        click.confirm(f"apply {output.count(len(chosen), 'change')}?", abort=True, err=True)
    if applied(scratch, chosen, overwrite=overwrite):
        click.get_current_context().exit(1)


def _require_reviewed(reviewed: str, chosen: Sequence[Change], operand: str) -> None:
    """Raise MountError unless a digest is the digest of the changes."""
    if not _DIGEST.fullmatch(reviewed):
        raise click.UsageError(f"--as: {reviewed!r} is no digest of 'bbfs changes'")
    if not digest(chosen).startswith(reviewed):
        raise MountError(f"the changes are not those that were reviewed: 'bbfs changes {operand}' lists them again")


def applied(scratch: Scratch, chosen: Sequence[Change], *, overwrite: bool = False, is_holder: bool = False) -> int:
    """Apply changes and print each. Return how many failed."""
    failed = done = 0
    try:
        for outcome in settling.apply(scratch, chosen, overwrite=overwrite, is_holder=is_holder):
            if outcome.error is None:
                done += 1
                output.line(summary(outcome.change))
            else:
                failed += 1
                output.message(f"not applied: {_shown(outcome.change)}: {outcome.error}")
    except KeyboardInterrupt:
        output.message(
            f"interrupted: {done} of {len(chosen)} are applied, and what was under way; the rest stays in the scratch"
        )
        raise
    if failed:
        output.message(f"{output.count(failed, 'change')} not applied; they stay in {scratch.path}")
    return failed


def _names(change: Change) -> Iterator[str]:
    """Yield the letter of a change, the old name of a renamed file, and the name, which ends with / for a directory."""
    yield LETTERS[change.what]
    if change.old is not None:
        yield change.old
    yield change.path + ("/" if change.is_directory else "")


def _shown(change: Change) -> str:
    """Return the name that a change is about; for a renamed file, both of its names."""
    name = output.quoted(change.path + ("/" if change.is_directory else ""))
    return name if change.old is None else f"{output.quoted(change.old)} -> {name}"


def summary(change: Change) -> str:
    """Return a change as a line: letter, names, and in brackets what its user should know before it is applied."""
    notes = ", ".join(_notes(change))
    return f"{LETTERS[change.what]}  {_shown(change)}" + (f"  [{notes}]" if notes else "")


def _notes(change: Change) -> Iterator[str]:
    """Yield where a link leads, and the permission bits that a new file does not have."""
    if change.target is not None:
        yield f"link to {output.quoted(change.target)}"
        if change.leads_out:
            yield "leads out of the source"
    if change.mode is None or change.what == "removed":
        return
    usual = _USUAL[change.is_directory]
    if change.before is not None and change.before != change.mode:
        yield f"mode {change.before:04o} -> {change.mode:04o}"
    elif change.before is None and change.mode & ~usual:
        yield f"mode {change.mode:04o}"
    if refused := copying.refused_bits(change.mode, change.before):
        yield f"{refused}: not applied"


def document(change: Change) -> dict[str, object]:
    found: dict[str, object] = {"change": change.what, "path": change.path, "type": change.type}
    if change.old is not None:
        found["from"] = change.old
    if change.type == "file" and change.what != "removed":
        found["size"] = change.size
    if change.mode is not None:
        found["mode"] = f"{change.mode:04o}"
    if change.before is not None and change.mode is not None:
        found["modeBefore"] = f"{change.before:04o}"
    if change.target is not None:
        found |= {"target": change.target, "leadsOut": change.leads_out}
    return found


def show(found: Sequence[Change]) -> None:
    """Print the first changes on standard error, for a question about them."""
    for change in found[:_SHOWN]:
        output.message(summary(change))
    if len(found) > _SHOWN:
        output.message(f"… and {len(found) - _SHOWN} more")


def differences(scratch: Scratch, found: Sequence[Change]) -> Iterator[str]:
    """Yield the lines of a unified diff, with a line for what has no text."""
    for change in found:
        old = change.old or change.path
        if change.type != "file" or change.what == "attributes":
            yield summary(change)
            continue
        before = None if change.what == "added" else _lines(scratch.lower, old)
        after = None if change.what == "removed" else _lines(scratch.upper, change.path)
        if isinstance(before, str) or isinstance(after, str):
            yield f"{summary(change)}  ({before if isinstance(before, str) else after})"
            continue
        if change.what == "renamed" or any(_notes(change)):
            yield summary(change)
        names = (
            "/dev/null" if before is None else output.quoted(f"a/{old}"),
            "/dev/null" if after is None else output.quoted(f"b/{change.path}"),
        )
        for line in difflib.unified_diff(before or [], after or [], *names):
            yield line.removesuffix("\n")
            if not line.endswith("\n"):
                yield "\\ No newline at end of file"


def _lines(root: str, path: str) -> list[str] | str:
    """Return the lines of a file, or why they cannot be shown."""
    with closed_after(os.open(root, os.O_RDONLY | os.O_DIRECTORY)) as descriptor:
        with open(open_file(path, descriptor), "rb") as file:
            data = file.read(_LARGEST_DIFF + 1)
    if len(data) > _LARGEST_DIFF:
        return f"larger than {_LARGEST_DIFF >> 20} MiB"
    if b"\0" in data:
        return "binary"
    try:
        return data.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        return "binary"


def _is_compared(scratch: Scratch) -> bool:
    """Return whether the lower layer of a scratch is mounted here."""
    mount = mountpoint.mount_at(scratch.lower)
    return mount is not None and mount.is_bbfs


def _readable(operand: str) -> Scratch:
    """Return a scratch whose changes can be listed. Raise MountError."""
    scratch = Scratch.of(operand)
    if not _is_compared(scratch) and scratch.mounted_at() is None and scratch.is_held():
        raise MountError(
            f"a command of 'bbfs run' uses the scratch {scratch.path}: its changes are listed when it ends"
        )
    return scratch


def _compared(operand: str) -> Scratch:
    """Return a scratch whose lower layer is mounted. Raise MountError."""
    scratch = _readable(operand)
    if not _is_compared(scratch):
        raise MountError(
            f"the sources below {scratch.path} are not mounted here: "
            f"'bbfs mount MNT --scratch {scratch.path} …' with the same sources first"
        )
    return scratch


def _chosen(scratch: Scratch, operand: str, paths: Sequence[str]) -> list[Change]:
    below = _below(scratch, operand, paths)
    all_changes = changes_of(scratch) if _is_compared(scratch) else recorded(scratch)
    found = [change for change in all_changes if change.concerns(below)]
    for path in below:
        if not any(change.concerns([path]) for change in found):
            is_there = any(os.path.lexists(os.path.join(layer, path)) for layer in (scratch.upper, scratch.lower))
            raise MountError(f"{path or '.'}: {'nothing was changed there' if is_there else f'not below {operand}'}")
    return found


def _below(scratch: Scratch, operand: str, paths: Sequence[str]) -> list[str]:
    """Return paths as paths below the mount, which they may be already, or begin with a source's name.

    Raise MountError if a path is elsewhere.
    """
    roots = [mountpoint.canonical(operand), scratch.mounted_at(), scratch.upper]
    return [_one_below(path, [root for root in roots if root is not None], scratch.lower) for path in paths]


def _one_below(path: str, roots: Sequence[str], lower: str) -> str:
    absolute = mountpoint.canonical(path)  # the name of a source is a link to its directory
    if os.path.dirname(absolute) in roots and os.path.islink(absolute):
        absolute = os.path.realpath(absolute)
    for root in roots:
        if absolute == root or absolute.startswith(root + "/"):
            return absolute[len(root) + 1 :]
    if os.path.isabs(path) or path.startswith((".", "~")):
        raise MountError(f"{path} is not below {roots[0]}")
    source, slash, below = path.strip("/").partition("/")
    with suppress(OSError):  # SOURCE/PATH: the name of a source is a link to its directory there, too
        source = os.readlink(os.path.join(lower, source)).rstrip("/")
    return source + slash + below
