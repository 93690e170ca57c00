"""`bbfs status`: how the mounts are, from what their daemons say of themselves."""

import json
import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import click

from bbfs.cli import output
from bbfs.cli.operands.access import pending_store
from bbfs.cli.operands.location import ANSWERS_WITHIN, Asking
from bbfs.fuse import mountpoint
from bbfs.fuse.mountpoint import STATUS, STATUS_DIRECTORY
from bbfs.fuse.scratch.directory import Scratch
from bbfs.model.errors import BbfsError, ProtocolViolation
from bbfs.model.quantities import counted, duration_text, latency_text, size_text

_EXAMPLES = """\b
Examples:
  bbfs status                   all mounts
  bbfs status ~/bb              one mount
  bbfs status --json | jq '.[].sources[] | select(.state == "down").id'
  watch -c bbfs status          again and again

\b
JSON: an array of objects, one a mount: mount (its path), and what .bbfs/status.json has ('bbfs status' asks no
source, and that file is at most a second old); or mount and error, where the mount does not answer.
"""
_HEADING = ("SOURCE", "STATE", "RESOURCES", "REQUESTS", "FAILED", "MEDIAN", "95 %", "IN FLIGHT", "WAITING")
_MOST_WAITING = 10
"""Waiting programs that are shown."""


@click.command(epilog=_EXAMPLES, short_help="Show how the mounts are.")
@click.argument("mount", required=False, type=click.Path(file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
def status(mount: str | None, as_json: bool) -> None:
    """Show the state of MOUNT, or of all mounts: its process, its cache, its sources, and the programs that wait.

    REQUESTS are those for contents, searches and writes since the mount began; MEDIAN and 95 % are the times within
    which half and nearly all of the last 256 were answered. Exit status 1: a mount does not answer, or there is none.
    """
    paths = [mountpoint.named(mount)] if mount is not None else [each.path for each in mountpoint.own_mounts()]
    found = states(paths)
    if as_json:
        output.as_json(found)
    elif not found:
        output.message("nothing is mounted")
    for number, state in enumerate([] if as_json else found):
        if number:
            click.echo()
        _show(state)
    click.get_current_context().exit(1 if not found or any("error" in state for state in found) else 0)


def states(paths: Iterable[str]) -> list[dict[str, Any]]:
    """Return what the daemons of mounts say of themselves, or why they say nothing."""
    asking = {shown(path): Asking(path, partial(_document, _asked(path))) for path in paths}  # at once: some may hang
    return [_state(path, each) for path, each in sorted(asking.items())]


def events_text(inotify: Mapping[str, Any]) -> str:
    """Return whether programs that watch a mount get events, and how many."""
    if not inotify["on"]:
        return f"off: {output.printable(inotify['why_off'])}"
    counts = ", ".join(f"{inotify[each]} {each}" for each in ("made", "merged", "dropped", "failed") if each in inotify)
    return f"on: {counts}" if counts else "on"


def _asked(path: str) -> str:
    """Return the mount that has the sources: of a scratch, the one below it."""
    scratch = Scratch.mounted(path)
    return path if scratch is None else scratch.lower


def shown(path: str) -> str:
    """Return the mount as its user knows it: of one that is below a scratch, the mount of the scratch."""
    scratch = Scratch.above(path)
    return path if scratch is None else scratch.mounted_at() or path


def _state(path: str, asking: Asking[dict[str, Any]]) -> dict[str, Any]:
    """Return what the daemon of a mount says of itself, or why it says nothing."""
    try:
        return {"mount": path, **asking.answer(ANSWERS_WITHIN)}
    except (BbfsError, OSError) as error:
        gone = isinstance(error, OSError) and error.errno in mountpoint.GONE
        return {"mount": path, "error": output.reason(mountpoint.dead(path) if gone else error)}


def _document(path: str) -> dict[str, Any]:
    with open(os.path.join(path, STATUS_DIRECTORY, STATUS), encoding="utf-8") as file:
        try:
            document: dict[str, Any] = json.load(file)
        except ValueError as error:
            raise ProtocolViolation(f"{STATUS_DIRECTORY}/{STATUS} is no JSON: {error}") from None
    return document


def _show(state: dict[str, Any]) -> None:
    """Print the state of a mount. The daemon of an older bbfs says less."""
    path = click.style(output.printable(state["mount"]), bold=True)
    if "error" in state:
        said = state["error"].removeprefix(f"{state['mount']} ")  # most errors of mounts begin with it
        click.echo(f"{path}: {click.style(output.printable(said), fg='red')}")
        return
    up = datetime.fromisoformat(state["now"]) - datetime.fromisoformat(state["started"])
    about = [f"up {duration_text(up.total_seconds())}", *_process(state)]
    click.echo(f"{path}: {', '.join(about)}")
    memory = state["memory"]
    held = f"{counted(memory['contents'], 'content')}, {size_text(memory['bytes'])} of {size_text(memory['max_bytes'])}"
    click.echo(f"in memory: {held}; loaded: {_loaded(state)}")
    if (inotify := state.get("inotify")) is not None:
        click.echo(f"events for programs that watch: {events_text(inotify)}")
    if pending := len(pending_store().ids()):
        click.echo(f"{counted(pending, 'pending write')} of this user; see 'bbfs pending'")
    click.echo()
    output.table([_HEADING, *map(_cells, state["sources"])], right=range(2, len(_HEADING)))
    for row in state["sources"]:
        if (pinned := row.get("pinned")) is not None:
            missing = f", {pinned['missing']} not on disk yet" if pinned["missing"] else ""
            held = f"{counted(pinned['files'], 'file')} pinned, {size_text(pinned['bytes'])} on disk{missing}"
            click.echo(f"{output.printable(row['id'])}: {held}")
        if row["problem"]:
            click.echo(f"{output.printable(row['id'])}: {output.printable(row['problem'])}")
    for name, why in state.get("left_out", {}).items():
        click.echo(f"{output.printable(name)}, left out: {output.printable(why)}")
    _show_waiting(state.get("waiting", []))


def _process(state: dict[str, Any]) -> list[str]:
    process = state.get("process")
    if process is None:
        return ["an older bbfs"]
    return [
        f"bbfs {process['version']}",
        f"process {process['pid']}",
        size_text(process["bytes"]),
        counted(process["descriptors"], "descriptor"),
        counted(process["threads"], "thread"),
    ]


def _loaded(state: dict[str, Any]) -> str:
    by_tier = state.get("loads_from", {"source": state["loads"]})
    words = {"source": "from sources", "disk": "from disk", "shared": "from other machines"}
    return ", ".join(
        f"{by_tier[tier]} {where}" for tier, where in words.items() if by_tier.get(tier) or tier == "source"
    )


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    requests = row.get("requests", {})
    return (
        output.printable(row["id"]),
        click.style(row["state"], fg=output.STATE_COLOURS.get(row["state"])),
        str(row["resources"]),
        str(requests.get("ended", "-")),
        str(requests.get("failed", "-")),
        latency_text(requests.get("median_seconds")),
        latency_text(requests.get("p95_seconds")),
        f"{row['in_flight']} of {row['concurrency']}",
        str(row["waiting"]),
    )


def _show_waiting(waiting: list[dict[str, Any]]) -> None:
    if not waiting:
        return
    click.echo()
    rows = [
        (
            str(each["pid"]),
            output.printable(each["program"] or "-"),
            f"{each['seconds']:.1f} s",
            output.printable(each.get("path") or ""),
        )
        for each in waiting[:_MOST_WAITING]
    ]
    output.table([("WAITING", "PROGRAM", "FOR", "PATH"), *rows], right=[0, 2])
    if len(waiting) > _MOST_WAITING:
        click.echo(f"and {len(waiting) - _MOST_WAITING} more")
