"""`bbfs doctor`: faults of this machine, the mounts, the configuration and the sources, with remedies."""

import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from bbfs.cli import lazy, output
from bbfs.cli.operands.access import pending_store
from bbfs.cli.operands.location import Asking
from bbfs.cli.options import SourceChoice, source_options
from bbfs.fuse import mountpoint
from bbfs.fuse.mountpoint import ForeignMount, MountError
from bbfs.fuse.scratch.directory import Scratch
from bbfs.model.errors import BbfsError, ConfigError
from bbfs.runtime.extras import install_command

if TYPE_CHECKING:
    from bbfs.cli.commands.service.units import Scope
    from bbfs.cli.operands.operand import Trees
    from bbfs.config import Config
    from bbfs.model.values import DataSource, McpServer, SharedCache

_COLOURS = {"ok": "green", "warn": "yellow", "FAIL": "red"}
_FUSE_CONF = Path("/etc/fuse.conf")
_EXAMPLES = """\b
Examples:
  bbfs doctor
  bbfs doctor --mcp-config ~/.claude.json
  bbfs doctor --json | jq '.[] | select(.level == "FAIL")'

\b
JSON: an array of objects with check, level (ok, warn, FAIL), finding, and where there is one remedy.
Exit status: 1 if anything is FAIL, else 0.
"""


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. remedy: an action of the user, if something is wrong."""

    check: str
    level: Literal["ok", "warn", "FAIL"]
    finding: str
    remedy: str | None = None


@click.command(epilog=_EXAMPLES, short_help="Look for what keeps bbfs from working.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=10.0, show_default=True, metavar="SECONDS", help="For sources."
)
@source_options
def doctor(choice: SourceChoice, as_json: bool, timeout: float) -> None:
    """Look for what keeps bbfs from working, and say what to do."""
    found: list[Check] = []
    for check in _checks(choice, timeout):
        found.append(check)
        if not as_json:
            _print(check)
    if as_json:
        output.as_json([{k: v for k, v in asdict(check).items() if v is not None} for check in found])
    click.get_current_context().exit(1 if any(check.level == "FAIL" for check in found) else 0)


def _print(check: Check) -> None:
    level = click.style(check.level.ljust(4), fg=_COLOURS[check.level], bold=check.level != "ok")
    click.echo(f"{level}  {check.check}: {output.printable(check.finding)}")
    if check.remedy is not None:
        for line in check.remedy.splitlines():
            click.echo(f"      {output.printable(line)}")


def _checks(choice: SourceChoice, timeout: float) -> Iterator[Check]:
    yield from _versions()
    config: Config | None = None
    problem: BbfsError | None = None
    left_out: list[str] = []
    try:
        config = choice.load(left_out.append)
    except BbfsError as error:
        problem = error
    yield _device()
    yield _mounting_program(root=os.geteuid() == 0)
    if config is not None and config.mount.allow_other:
        yield _other_users(root=os.geteuid() == 0)
    yield _mount_table(root=os.geteuid() == 0)
    yield from _mounts(None if choice.given else timeout)
    yield from _services()
    for unreadable in pending_store().unreadable():
        remedy = "make it yours again, or move it away: its source has not taken what it has"
        yield Check("pending writes", "FAIL", unreadable, remedy)
    if config is None:
        yield Check("configuration", "FAIL", str(problem), "correct the file or option named")
    else:
        for text in left_out:
            yield Check("configuration", "warn", text, "correct it in its file, or disable the server there")
        yield from _configuration(choice, config, timeout)


def _versions() -> Iterator[Check]:
    yield Check("bbfs", "ok", f"{_installed('bbfs')}, Python {platform.python_version()}, Linux {platform.release()}")
    lack = lazy.mounting.missing_binding()
    if lack is None:
        yield Check("pyfuse3", "ok", _installed("pyfuse3") or "without metadata")
    else:
        yield Check("pyfuse3", "warn", "bbfs cannot mount, and all else works", lack)
    yield Check("mcp", "ok", _installed("mcp") or "without metadata")


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _device(path: str = "/dev/fuse") -> Check:
    lack = lazy.mounting.missing()
    if not os.path.exists(path) or not os.access(path, os.R_OK | os.W_OK):
        finding, _, remedy = (lack or f"{path} cannot be opened").partition(": ")
        return Check("FUSE device", "FAIL", finding, remedy or None)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        remedy = "a container needs '--device /dev/fuse --cap-add SYS_ADMIN', a virtual machine the module fuse"
        return Check("FUSE device", "FAIL", f"{path} cannot be opened: {error.strerror}", remedy)
    return Check("FUSE device", "ok", f"{path} can be opened")


def _mounting_program(*, root: bool) -> Check:
    path = shutil.which("fusermount3")
    if path is None:
        remedy = "install the package fuse3 ('apt install fuse3')"
        if root:
            return Check("fusermount3", "warn", "not installed; root can mount without it", remedy)
        return Check("fusermount3", "FAIL", "not installed; only root can mount without it", remedy)
    said = subprocess.run([path, "-V"], capture_output=True, text=True, timeout=10, check=False).stdout
    libfuse = said.partition(":")[2].strip() or "unknown"
    is_setuid = os.stat(path).st_mode & stat.S_ISUID and os.stat(path).st_uid == 0
    if not root and not is_setuid:
        remedy = f"'chown root {path} && chmod u+s {path}', as the package fuse3 has it"
        return Check("fusermount3", "FAIL", f"{path} is not setuid root, so only root can mount", remedy)
    return Check("fusermount3", "ok", f"{path}, libfuse {libfuse}")


def _other_users(*, root: bool) -> Check:
    if root:
        return Check("allow_other", "ok", "root may let other users see a mount")
    try:
        lines = _FUSE_CONF.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    if any(line.strip() == "user_allow_other" for line in lines):
        return Check("allow_other", "ok", f"user_allow_other is in {_FUSE_CONF}")
    remedy = f"as root: echo user_allow_other >> {_FUSE_CONF}"
    return Check("allow_other", "FAIL", f"wanted, but user_allow_other is not in {_FUSE_CONF}", remedy)


def _mount_table(*, root: bool) -> Check:
    lack = lazy.mounting.missing_table()
    if lack is None:
        return Check("mount table", "ok", f"{lazy.mounting.MOUNT_TABLE} can be read")
    finding, _, remedy = lack.partition(": ")
    if root:
        return Check("mount table", "warn", f"{finding}, which df(1) needs", remedy)
    return Check("mount table", "FAIL", f"{finding}, so fusermount3 lets only root unmount", remedy)


def _mounts(timeout: float | None) -> Iterator[Check]:
    """Check the mounts. timeout: seconds for the sources of live mounts; None asks no source."""
    found = {mount.path: mount for mount in mountpoint.mounts() if mount.is_bbfs}
    if not found:
        yield Check("mounts", "ok", "none at the moment")
    asked = _asked([path for path, mount in found.items() if mount.is_ours], timeout)
    for path, mount in found.items():
        rows = asked.get(path, ForeignMount(f"{path} belongs to another user"))
        scratch = Scratch.above(path) if mount.is_ours else None
        shown = path if scratch is None else scratch.mounted_at() or path
        if isinstance(rows, ForeignMount):
            yield Check("mount", "ok", str(rows))
        elif isinstance(rows, MountError):
            yield Check("mount", "warn", str(rows), f"'bbfs umount {shown}', or mount there again")
        else:
            over = "" if scratch is None else f" with the scratch {scratch.path}"
            log = lazy.places.log_path(shown)
            logs = f"; its log: {log}" if log.exists() else ""
            yield Check("mount", "ok", f"{shown}{over}, {output.count(len(rows), 'source')}{logs}")
            for row in rows if timeout is not None else ():
                yield from _source(row, f"source {row['id']} at {shown}")


def _services() -> Iterator[Check]:
    """Check the units of systemd that `bbfs service install` has written."""
    scopes: tuple[Scope, ...] = ("user", "system")
    for unit in [unit for scope in scopes for unit in lazy.units.installed(scope)]:
        for found in lazy.systemd.findings(unit):
            yield Check(f"service {unit.unit}", found.level, found.text, found.remedy)


def _asked(mounts: list[str], timeout: float | None) -> dict[str, list[dict[str, Any]] | MountError]:
    """Return the sources of each mount, all asked at once for their listings within the time, or why there are none."""
    contacts = {mount: Asking(mount, partial(_sources_of, mount, timeout)) for mount in mounts}
    found: dict[str, list[dict[str, Any]] | MountError] = {}
    for mount, contact in contacts.items():
        try:
            found[mount] = contact.answer()
        except MountError as error:
            found[mount] = error
    return found


def _sources_of(mount: str, timeout: float | None) -> list[dict[str, Any]]:
    return lazy.mounted.MountedTree(mount).sources_now(timeout)


def _configuration(choice: SourceChoice, config: "Config", timeout: float) -> Iterator[Check]:
    if not config.sources:
        remedy = "name some: --config, --mcp-config, --mcp, --dir or --source"
        if not choice.given and mountpoint.own_mounts():
            yield Check("configuration", "ok", "no sources in the configuration file; the mounts have their own")
        else:
            yield Check("configuration", "warn", "no sources", remedy)
        return
    if config.shared is not None:
        yield _shared_cache(config.shared, config.sources)
    where = f"{config.path}, " if config.path else ""
    yield Check("configuration", "ok", where + output.count(len(config.sources), "source"))
    try:
        rows = _contact(choice, config, timeout)
    except BbfsError as error:
        yield Check("sources", "FAIL", str(error), "correct the file or option named")
        return
    yield from _of_sources(config, rows)


def _of_sources(config: "Config", rows: list[dict[str, Any]]) -> Iterator[Check]:
    for source, row in zip(config.sources, rows, strict=True):
        yield from _source(row, f"source {row['id']}", source.mcp)


def check_sources(choice: SourceChoice, config: "Config", timeout: float) -> bool:
    """Contact the sources of a configuration and print the findings. Return whether no source fails. Raise BbfsError.

    timeout: seconds.
    """
    found = [*_of_sources(config, _contact(choice, config, timeout))]
    for check in found:
        _print(check)
    return all(check.level != "FAIL" for check in found)


def _shared_cache(shared: "SharedCache", sources: "Sequence[DataSource]") -> Check:
    """Check the shared cache. A server that is away is no failure: mounts go on without it."""
    try:
        found = lazy.trio.run(lazy.shared_cache.probe, shared)
    except ConfigError as error:
        return Check("shared cache", "FAIL", str(error), install_command("shared"))
    except BbfsError as error:
        remedy = "start the server, or correct [cache] shared; mounts go on without it meanwhile"
        return Check("shared cache", "warn", f"{shared}: {error}", remedy)
    names = ", ".join(source.id for source in sources if lazy.shared_tier.may_be_shared(source))
    if not names:
        remedy = "with 'shared = true' a source is shared that is not by default"
        return Check("shared cache", "warn", f"{shared}, {found}; no source is shared", remedy)
    return Check("shared cache", "ok", f"{shared}, {found}; shared, unless there is a login: {names}")


def _contact(choice: SourceChoice, config: "Config", timeout: float) -> list[dict[str, Any]]:
    async def work(opened: "Trees") -> list[dict[str, Any]]:
        return await (await opened.direct()).sources(timeout)

    return lazy.operand.run(choice, work, config)


def _source(row: dict[str, Any], name: str, server: "McpServer | None" = None) -> Iterator[Check]:
    yield _contacted(row, name, server)
    if (number := row.get("pending", 0)) > 0:
        remedy = "'bbfs pending' says why, hands them over again, or drops them"
        yield Check(name, "warn", output.count(number, "pending write"), remedy)
    if isinstance(line := row.get("proposedSearch"), str):
        table = "[sources.config]" if row.get("accessMethod") == "bb" else "[[sources]]"
        remedy = f"to let 'bbfs search' ask it, add right below its {table} in the configuration: {line}"
        yield Check(name, "ok", "has something that looks like a search, and is not searched by it", remedy)
    if isinstance(lines := row.get("proposedWrite"), list):
        remedy = "to let bbfs write to it, add right below its [[sources]], in place of keys that are there already:"
        yield Check(name, "ok", "has tools that look as if they write, and is read-only", "\n".join([remedy, *lines]))
    if isinstance(lines := row.get("proposedMap"), list):
        remedy = "to show them as a tree, look at these lines, and add them right below its [[sources]]:"
        yield Check(name, "ok", "has tools that a map can show as a tree", "\n".join([remedy, *lines]))


def _contacted(row: dict[str, Any], name: str, server: "McpServer | None") -> Check:
    error, command = row.get("error"), None if server is None else server.command
    if "uriPrefix" not in row:
        return Check(name, "warn", str(error), "correct it in its file, or disable the server there, and mount again")
    if command is not None and shutil.which(command) is None:
        kind = "is no program that can be run" if "/" in command else "is not on the PATH"
        return Check(name, "FAIL", f"{command} {kind}", "install it, or write its whole path")
    if error is not None and row.get("state") != "up":
        remedy = f"'bbfs sources -vv' shows the messages of the source {row['id']!r}"
        if server is not None and server.url is not None and lazy.source_tables.is_host((server.url,)):
            remedy = f"'bbfs add {server.url}' asks that host where its server is"
        return Check(name, "FAIL", error, remedy)
    resources, offers = row.get("resources"), output.offers(row)
    counts = [] if resources is None else [output.count(resources, "resource")]
    count = "".join(f", {each}" for each in (*counts, offers) if each)
    protocol = row.get("protocolVersion", "")
    spoken = (
        f", MCP {protocol}" if protocol and row.get("accessMethod") == "mcp" else f", {protocol}" if protocol else ""
    )
    finding = f"{row['state']}{count}{spoken}"
    return Check(name, "ok", finding) if error is None else Check(name, "warn", f"{finding}; {error}")
