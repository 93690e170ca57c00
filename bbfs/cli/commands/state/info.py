"""`bbfs info`: the paths that bbfs uses."""

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import click

from bbfs import __version__
from bbfs.cli import lazy, output
from bbfs.cli.commands.state.status import events_text, states
from bbfs.fuse import mountpoint
from bbfs.fuse.scratch.directory import Scratch

_EXAMPLES = """\b
Examples:
  bbfs info
  cd "$(bbfs info --json | jq -r .cache)"

\b
JSON: an object with the version and the paths, by name; mounts is an array of objects with path, log and, of a mount
that answers, control and inotify (the events for programs that watch it: on or why_off, and counts). Nothing is made or
changed, and no source is asked.
"""


class Place(NamedTuple):
    """A path, under its name in JSON. about: what is there."""

    name: str
    path: str
    about: str


@click.command(epilog=_EXAMPLES, short_help="Print every path that bbfs uses.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def info(as_json: bool) -> None:
    """Print where bbfs has its configuration, caches, logins, logs and sockets, whether they are there or not."""
    found, mounts = [*places(os.environ)], [*_mounts()]
    if as_json:
        named = {place.name: place.path for place in found}
        output.as_json({"version": __version__, **named, "mounts": mounts})
        return
    click.echo(f"bbfs {__version__}")
    absent = {place.path for place in found if not os.path.lexists(place.path)}
    rows = [(each.about, output.quoted(each.path), "(not there)" if each.path in absent else "") for each in found]
    rows += [("a mount", output.quoted(each["path"]), "") for each in mounts]
    for each in mounts:
        rows += [(f"its {name}", output.quoted(each[name]), "") for name in ("log", "control") if name in each]
        if "inotify" in each:
            rows.append(("its events", events_text(each["inotify"]), ""))
    output.table(rows)


def places(environ: Mapping[str, str]) -> Iterator[Place]:
    """Yield the paths that bbfs uses, in the order in which people look for them."""
    state = lazy.platformdirs.user_state_dir("bbfs")
    store = lazy.opening.store_path()
    yield Place("configuration", str(lazy.config.default_config_path(environ)), "configuration")
    yield Place("cache", str(store.parent), "cache")
    yield Place("metadata", str(store), "sizes and listings")
    yield Place("contents", str(lazy.opening.contents_path(store)), "contents on disk")
    yield Place("index", str(lazy.opening.index_path()), "the local index")
    yield Place("state", state, "state")
    yield Place("pending", str(lazy.pending.pending_path()), "pending writes")
    yield Place("logs", os.path.join(state, "logs"), "logs of mounts in the background")
    yield Place("logins", os.path.join(lazy.platformdirs.user_data_dir("bbfs"), "logins"), "logins")
    yield Place("runtime", lazy.places.runtime_path(), "control sockets")


def _mounts() -> Iterator[dict[str, Any]]:
    """Yield the mounts of this user, each with the files that belong to it, and what it says of its events."""
    mounts = mountpoint.own_mounts()
    events = {each["mount"]: each.get("inotify") for each in states(mount.path for mount in mounts)}
    for mount in mounts:
        scratch = Scratch.above(mount.path)
        shown = mount.path if scratch is None else scratch.mounted_at() or mount.path
        found: dict[str, Any] = {"path": shown}
        if (log := lazy.places.log_path(shown)).exists():
            found["log"] = str(log)
        for address in lazy.control_address.sockets(lazy.places.runtime_path(), mount.path):
            found["control"] = str(address)
        if events.get(shown) is not None:
            found["inotify"] = events[shown]
        yield found
