"""Units of systemd that mount: their text, and the files that `bbfs service install` has written.

The first lines of a file say who wrote it and from what, with a digest of the rest. So a file that somebody else has
written, or has changed, is noticed and left alone.
"""

import hashlib
import json
import re
import string
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import platformdirs

from bbfs.model.errors import BbfsError

Scope = Literal["user", "system"]
_MARK = "# bbfs-service: "
_NAME = re.compile(r"[A-Za-z0-9:_.-]{1,200}")
CREDENTIAL_CHARACTERS = frozenset(string.ascii_letters + string.digits + "_.-")
_PLAIN = re.compile(r"[\w@%+=:,./~-]+", re.ASCII)
_SYSTEM_UNITS = Path("/etc/systemd/system")
PATHS = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

_LEFT_OUT = """\
# Left out on purpose, and not to be added in a drop-in:
# - A mount namespace of its own would hide the mount from everybody else. These directives make one: PrivateTmp,
#   PrivateDevices (which takes /dev/fuse away as well), PrivateMounts, PrivateIPC, ProtectSystem, ProtectHome,
#   ProtectProc, ProcSubset, ProtectControlGroups, ProtectKernelTunables, ProtectKernelModules, ProtectKernelLogs,
#   ReadOnlyPaths, ReadWritePaths, InaccessiblePaths, ExecPaths, NoExecPaths, TemporaryFileSystem, BindPaths,
#   BindReadOnlyPaths, MountFlags, MountAPIVFS, MountImages, ExtensionImages, RootDirectory, RootImage, DynamicUser,
#   LogNamespace. PrivateNetwork would take the sources away besides.
# - fusermount3 is setuid, and can mount nothing without the rights that brings: NoNewPrivileges forbids them, and so
#   does every seccomp filter, because systemd sets no_new_privs with it for services that are not root's:
#   SystemCallFilter, SystemCallArchitectures, SystemCallLog, RestrictSUIDSGID, RestrictNamespaces, RestrictRealtime,
#   RestrictAddressFamilies, LockPersonality, MemoryDenyWriteExecute, ProtectHostname. CapabilityBoundingSet would take
#   them from it too, and in PrivateUsers its root would not be the machine's.
# - DevicePolicy, DeviceAllow and ProtectClock would take /dev/fuse away.
# - IPAddressDeny and IPAddressAllow are for a drop-in: only you know where the sources are.
# - UMask would change the modes of files that programs make in folders that are passed through.
# - RemoveIPC and Delegate: the daemon has no System V objects and no control groups of its own.
"""
_CLEARED = """\
# After a crash the mount point is still taken by a dead mount ("Transport endpoint is not connected"): clear it first.
"""
_RUNNING = """\
# SIGTERM unmounts (lazily if busy), ends the servers and exits 0. Only the daemon gets it: it ends its children itself.
KillMode=mixed
TimeoutStartSec=30s
TimeoutStopSec=20s
# The daemon asks its own mount twice in this time, and reports only an answer. If two are missing, it is killed and
# started again.
WatchdogSec=30s
Restart=on-failure
RestartSec=2s
# A server of a source that takes all the memory is killed alone; its source is down, and the mount goes on.
OOMPolicy=continue
# The memory of the daemon holds the tokens of sources.
LimitCORE=0
"""
_LIMITED = "StartLimitIntervalSec=10min\nStartLimitBurst=10\n"


@dataclass(frozen=True, slots=True)
class Unit:
    """One mount as a unit. Words and paths are those of systemd.unit(5), with its specifiers: see `escaped`.

    name: of the instance, or %i in a template. program: the words of `bbfs`. user: whose a mount of the machine is.
    credentials: paths of the files that hold them, by their names.
    """

    scope: Scope
    name: str
    program: str
    config: str
    mount_point: str
    user: str = ""
    credentials: Mapping[str, str] = field(default_factory=dict[str, str])

    def text(self) -> str:
        """Return the unit without a mark."""
        return f"""\
[Unit]
Description=bbfs mount {self.name}
Documentation=man:bbfs-mount(1) man:bbfs.toml(5)
{"" if self.scope == "user" else _NETWORK}{_LIMITED}
[Service]
# The daemon says READY=1 once the mount is there, and STATUS= how its sources are; it never waits for a sick source.
Type=notify
NotifyAccess=main
{self._environment()}{self._secrets()}{self._commands()}{_RUNNING}
{_LEFT_OUT}
[Install]
WantedBy={"default" if self.scope == "user" else "multi-user"}.target
"""

    def _environment(self) -> str:
        if self.scope == "user":
            return f"""\
# `pipx`, `uv tool` and most runners of MCP servers are in the first one, which the PATH of the user manager lacks.
Environment=PATH=%h/.local/bin:{PATHS}
"""
        return f"""\
User={self.user}
CacheDirectory=bbfs/{self.name}
Environment=XDG_CACHE_HOME=%C/bbfs/{self.name}
Environment=PATH={PATHS}
"""

    def _secrets(self) -> str:
        if not self.credentials:
            return ""
        lines = "".join(f"LoadCredential={name}:{path}\n" for name, path in self.credentials.items())
        return f"# Only this service can read them, as ${{credential:NAME}} in its configuration.\n{lines}"

    def _commands(self) -> str:
        mount = f"{self.program} mount --restartable {'--allow-other ' if self.scope == 'system' else ''}"
        start = f"ExecStart={mount}--config {self.config} {self.mount_point}\n"
        start = f"# SIGUSR2 ('bbfs service restart') has it start again and keep the mount, if nothing writes.\n{start}"
        start += f"# SIGHUP has it read the configuration again; what programs have open stays open.\n{_RELOAD}"
        clear = f"fusermount3 -quz {self.mount_point}\n"
        if self.scope == "user":
            return (
                f"{_CLEARED}ExecStartPre=-{clear}ExecStartPre=mkdir -p {self.mount_point}\n{start}ExecStopPost=-{clear}"
            )
        return (
            f'{_CLEARED}# fusermount3 lets a user mount on a directory of its own only; "+" runs these two as root.\n'
            f"ExecStartPre=-+{clear}ExecStartPre=+install -d -o {self.user} {self.mount_point}\n"
            f"{start}ExecStopPost=-+{clear}"
        )


_RELOAD = "ExecReload=/bin/sh -c 'kill -HUP $$MAINPID'\n"  # by the shell: not each machine has a kill(1)
_NETWORK = "Wants=network-online.target\nAfter=network-online.target\n"


def escaped(word: str) -> str:
    """Return a word as systemd.unit(5) and systemd.service(5) have it. Raise BbfsError for a line feed."""
    if "\n" in word:
        raise BbfsError(f"{word!r} holds a line feed, which no unit can hold")
    word = word.replace("%", "%%").replace("$", "$$")
    if _PLAIN.fullmatch(word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(frozen=True, slots=True)
class Written:
    """A file and the arguments that it was written from. is_changed: whether somebody has changed the file since."""

    path: Path
    scope: Scope
    name: str
    program: list[str]
    config: str
    mount_point: str
    user: str
    credentials: Mapping[str, str]
    is_changed: bool = False

    @property
    def unit(self) -> str:
        return self.path.name

    def text(self) -> str:
        """Return the whole content of the file."""
        rest = Unit(
            self.scope,
            self.name,
            " ".join(map(escaped, self.program)),
            escaped(self.config),
            escaped(self.mount_point),
            self.user,
            {name: path.replace("%", "%%") for name, path in self.credentials.items()},
        ).text()
        about = {key: value for key, value in asdict(self).items() if key not in ("path", "scope", "is_changed")}
        about["sha256"] = _digest(rest)
        manager = "systemctl --user" if self.scope == "user" else "systemctl"
        return (
            f"# Written by 'bbfs service install'. To change it: '{manager} edit {self.unit}'.\n"
            f"# To remove it: 'bbfs service uninstall --{self.scope} {self.name}'.\n"
            f"{_MARK}{json.dumps(about)}\n\n{rest}"
        )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def require_name(name: str) -> None:
    """Raise BbfsError for a name that is none of a unit."""
    if not _NAME.fullmatch(name):
        raise BbfsError(f"{name!r} is no name of a unit: letters, digits and any of :_.- are")


def path_of(scope: Scope, name: str) -> Path:
    return directory(scope) / f"bbfs-{name}.service"


def directory(scope: Scope) -> Path:
    """Return the directory of the units that an administrator, or a user, writes."""
    if scope == "system":
        return _SYSTEM_UNITS
    return platformdirs.user_config_path("systemd") / "user"


def read(path: Path, scope: Scope) -> Written | None:
    """Return what a file was written from; None if `bbfs service install` has not written it. Raise OSError."""
    head, _, rest = path.read_text("utf-8", "surrogateescape").partition("\n\n")
    marks = [line.removeprefix(_MARK) for line in head.splitlines() if line.startswith(_MARK)]
    try:
        about = json.loads(marks[0])
        is_changed = about.pop("sha256") != _digest(rest)
        return Written(path=path, scope=scope, is_changed=is_changed, **about)
    except (IndexError, ValueError, KeyError, TypeError, AttributeError):
        return None


def installed(scope: Scope) -> list[Written]:
    """Return the units that `bbfs service install` has written, and nobody has removed."""
    found = [read(path, scope) for path in sorted(directory(scope).glob("bbfs-*.service")) if path.is_file()]
    return [each for each in found if each is not None]
