"""`bbfs service`: install, remove and list mounts that systemd starts, watches and stops."""

import os
from pathlib import Path

import click

from bbfs.cli import lazy, output
from bbfs.cli.commands.mount import DIRECTORY
from bbfs.cli.commands.service import systemd, units
from bbfs.cli.commands.service.units import Scope, Written
from bbfs.model.errors import BbfsError
from bbfs.runtime.files import replace_file

_EXAMPLES = """\b
Examples:
  bbfs service install docs --config ~/docs.toml ~/docs --now
  bbfs service install docs --dry-run                     prints the unit
  sudo bbfs service install docs                          /etc/bbfs/docs.toml at /mnt/bbfs/docs, for all users
  bbfs service list
  bbfs service uninstall docs
"""
_INSTALL_EXAMPLES = """\b
Examples:
  bbfs service install docs                               ~/.config/bbfs/docs.toml at ~/bbfs/docs
  bbfs service install docs ~/docs --config docs.toml --now
  bbfs service install --system docs --credential kb=/etc/bbfs/kb.token

\b
A unit that this command has not written, or that somebody has changed since, is left alone: 'systemctl edit' makes a
drop-in beside it.
"""
_RESTART_EXAMPLES = """\b
Examples:
  pipx upgrade bbfs && bbfs service restart docs
"""
_LIST_EXAMPLES = """\b
Examples:
  bbfs service list
  bbfs service list --json | jq -r '.[].mountPoint'

\b
JSON: an array of objects with name, scope, unit, file, config, mountPoint, enabled, active.
"""
_BEGINNING = {"user": "each login", "system": "each boot"}
_scope = click.option(
    "--user/--system",
    "is_user",
    default=lambda: os.geteuid() != 0,
    show_default="--system for root, else --user",
    help="A mount of yours, or one of the machine.",
)


@click.group(epilog=_EXAMPLES, short_help="Have systemd mount at boot, watch and restart.")
def service() -> None:
    """Mounts as services: units that systemd starts at boot or login, watches, starts again and stops."""


@service.command(epilog=_INSTALL_EXAMPLES, short_help="Write a unit.")
@click.argument("name")
@click.argument("mount_point", metavar="[MNT]", type=DIRECTORY, required=False)
@_scope
@click.option("--config", metavar="FILE", type=click.Path(), help="What to mount, if not the file of the name.")
@click.option(
    "--as", "user", metavar="USER", default="bbfs", show_default=True, help="Whose a mount of the machine is."
)
@click.option(
    "--credential", "credentials", metavar="ID=FILE", multiple=True, help="Give a secret to this service alone."
)
@click.option("--now", is_flag=True, help="Enable it and start it, too.")
@click.option("--dry-run", is_flag=True, help="Print the unit, and write nothing.")
def install(
    name: str,
    mount_point: str | None,
    is_user: bool,
    config: str | None,
    user: str,
    credentials: tuple[str, ...],
    now: bool,
    dry_run: bool,
) -> None:
    """Write the unit bbfs-NAME.service, which mounts a configuration file at MNT.

    Without --config the file is NAME.toml in ~/.config/bbfs (--user) or /etc/bbfs (--system), and without MNT the
    directory is ~/bbfs/NAME or /mnt/bbfs/NAME. Installing again with other arguments changes the unit.
    """
    units.require_name(name)
    scope: Scope = "user" if is_user else "system"
    unit = Written(
        units.path_of(scope, name),
        scope,
        name,
        systemd.program(),
        _absolute(config or str(_home_of_configs(scope) / f"{name}.toml")),
        _absolute(mount_point or ("~/bbfs/" if is_user else "/mnt/bbfs/") + name),
        "" if is_user else user,
        dict(map(_credential, credentials)),
    )
    missing = f"{unit.config} does not exist: make it, or name another file with --config"
    if dry_run:
        click.echo(unit.text(), nl=False)
        if not os.path.exists(unit.config):
            output.message(missing)
        return
    if not os.path.exists(unit.config):
        raise BbfsError(missing)
    is_new = _write(unit)
    output.message(f"{unit.path} is {'written' if is_new else 'as it was'}")
    if is_new:
        _reload(scope)
    problems = [*systemd.problems(unit)]
    for each in problems:
        output.message(each.text + ("" if each.remedy is None else f"; {each.remedy}"))
    if any(each.level == "FAIL" for each in problems):
        click.get_current_context().exit(1)
    if now:
        systemd.systemctl(scope, "enable", "--now", unit.unit)
        output.message(f"{unit.unit} is enabled and started")
    else:
        output.message(f"'{systemd.command(scope)} enable --now {unit.unit}' mounts now and at {_BEGINNING[scope]}")


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _home_of_configs(scope: Scope) -> Path:
    if scope == "system":
        return Path("/etc/bbfs")
    return Path(lazy.config.default_config_path(os.environ)).parent


def _credential(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not equals or not name or not path or not set(name) <= units.CREDENTIAL_CHARACTERS:
        raise click.BadParameter(
            f"{text!r}: expected ID=FILE, such as kb=/etc/bbfs/kb.token", param_hint="--credential"
        )
    return name, _absolute(path)


def _write(unit: Written) -> bool:
    """Write a unit. Return False if it is there as it is to be. Raise BbfsError if it is not ours."""
    wanted = unit.text()
    if os.path.lexists(unit.path):
        _require_ours(unit.path, unit.scope)
        if unit.path.read_text("utf-8") == wanted:
            return False
    unit.path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(unit.path, wanted.encode(), 0o644)  # systemd complains about other modes
    return True


def _require_ours(path: Path, scope: Scope) -> Written:
    """Return what a file was written from. Raise BbfsError if somebody else has written or changed it."""
    found = None if path.is_symlink() or not path.is_file() else units.read(path, scope)
    if found is None:
        raise BbfsError(f"{path} was not written by 'bbfs service install', and is left alone")
    if found.is_changed:
        raise BbfsError(f"{path} was changed by somebody, and is left alone: move the changes to a drop-in, remove it")
    return found


def _reload(scope: Scope) -> None:
    """Have systemd read the units again. Where no systemd runs, as in a chroot, the user is told."""
    try:
        systemd.systemctl(scope, "daemon-reload")
    except BbfsError as error:
        output.message(f"systemd has not read it yet: {error}")


@service.command(epilog="\b\nExamples:\n  bbfs service uninstall docs\n", short_help="Stop a mount, remove its unit.")
@click.argument("name")
@_scope
@click.option("--dry-run", is_flag=True, help="Say what it would do, and do nothing.")
def uninstall(name: str, is_user: bool, dry_run: bool) -> None:
    """Stop the mount of the unit bbfs-NAME.service, and remove the unit.

    If there is no such unit, the command says so and ends with 0. The configuration file and the mount point stay.
    """
    units.require_name(name)
    scope: Scope = "user" if is_user else "system"
    path = units.path_of(scope, name)
    if not os.path.lexists(path):
        output.message(f"{path}: there is no such unit")
        return
    unit = _require_ours(path, scope)
    if dry_run:
        output.line(f"systemctl --{scope} disable --now {unit.unit}")
        output.line(f"rm {path}")
        output.line(f"systemctl --{scope} daemon-reload")
        return
    try:
        systemd.systemctl(scope, "disable", "--now", unit.unit)
    except BbfsError as error:
        output.message(f"systemd has not stopped it: {error}")
    path.unlink()
    _reload(scope)
    output.message(f"{path} is removed")


@service.command(epilog=_RESTART_EXAMPLES, short_help="Start bbfs again, and keep the mount.")
@click.argument("name")
@_scope
def restart(name: str, is_user: bool) -> None:
    """Start the bbfs that is installed now under the mount of the unit bbfs-NAME.service.

    Programs keep what they have open there, and wait for a second or two. Where a source may be written, or Linux is
    older than 6.9, the mount goes on as it is: 'systemctl restart' unmounts it and mounts again.
    """
    units.require_name(name)
    scope: Scope = "user" if is_user else "system"
    path = units.path_of(scope, name)
    if not os.path.lexists(path):
        raise BbfsError(f"{path}: there is no such unit")
    unit = _require_ours(path, scope)
    systemd.systemctl(scope, "kill", "--kill-who=main", "--signal=USR2", unit.unit)
    output.message(f"{unit.unit} starts bbfs again; if the mount cannot be kept, it goes on, and its log says why")


@service.command("list", epilog=_LIST_EXAMPLES, short_help="Show the units.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
def list_(as_json: bool) -> None:
    """Show the units that 'bbfs service install' has written, yours and those of the machine."""
    scopes: tuple[Scope, ...] = ("user", "system")
    found = [each for scope in scopes for each in units.installed(scope)]
    rows = [(each, *systemd.state(each)) for each in found]
    if as_json:
        output.as_json(
            [
                {
                    "name": unit.name,
                    "scope": unit.scope,
                    "unit": unit.unit,
                    "file": str(unit.path),
                    "config": unit.config,
                    "mountPoint": unit.mount_point,
                    "enabled": enabled,
                    "active": active,
                }
                for unit, enabled, active in rows
            ]
        )
    elif rows:
        header = ["NAME", "FOR", "AT BOOT", "STATE", "CONFIGURATION", "MOUNT"]
        lines = [[u.name, u.scope, enabled, active, u.config, u.mount_point] for u, enabled, active in rows]
        output.table([header, *lines])
