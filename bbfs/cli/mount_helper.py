"""`mount.bbfs`: what mount(8) runs for the type bbfs, by hand or for a line of fstab(5).

    /etc/bbfs/docs.toml  /srv/docs  bbfs  _netdev,allow_other,setuid=bbfs  0 0

mount(8), "External helpers", has the form of the call: `mount.bbfs SOURCE DIRECTORY [-sfnvrw] [-o OPTIONS] [-t TYPE]`,
and the exit statuses: 1 for a wrong call or configuration, 2 for an error of the system, 32 if the mount failed. It
relies on no variable of the environment, since mount(8) at boot has none.
"""

import getopt
import os
import pwd
import sys
from collections.abc import Sequence
from typing import NoReturn

from bbfs.cli import main as bbfs

USAGE, SYSTEM = 1, 2
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEFAULT = ("none", "bbfs")
"""Sources that stand for the user's own configuration file."""
FLAGS = {"ro": "--read-only", "allow_other": "--allow-other", "agents": "--agents", "audit_reads": "--audit-reads"}
VALUES = {name: f"--{name}" for name in ("uid", "gid", "umask", "cache", "log", "metrics", "audit")}
VALUES["log_format"] = "--log-format"
IGNORED = frozenset((
    "rw", "defaults", "auto", "noauto", "nofail", "user", "nouser", "users", "owner", "group", "_netdev", "dev",
    "nodev", "suid", "nosuid", "exec", "noexec", "sync", "async", "atime", "noatime", "diratime", "nodiratime",
    "relatime", "norelatime", "strictatime", "lazytime", "nolazytime",
))  # fmt: skip
"""Options for mount(8), systemd and the kernel; of the last, a mount of bbfs has nodev, nosuid and noexec always."""
IGNORED_BEGINNINGS = ("x-", "X-", "comment=")


class WrongCall(Exception):
    """The message is a sentence for people."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Mount as the arguments say, and exit once the mount answers."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        flags, operands = getopt.gnu_getopt(list(words), "sfnvrwo:t:N:")
        command, user = translated(flags, operands)
    except (getopt.GetoptError, WrongCall) as error:
        print(f"mount.bbfs: {error}", file=sys.stderr)
        sys.exit(USAGE)
    if ("-f", "") in flags:
        sys.exit(0)
    try:
        become(user)
    except OSError as error:
        print(f"mount.bbfs: cannot become the user {user.pw_name}: {error.strerror}", file=sys.stderr)
        sys.exit(SYSTEM)
    bbfs(command, prog_name="bbfs")
    sys.exit(0)


def translated(flags: Sequence[tuple[str, str]], operands: Sequence[str]) -> tuple[list[str], pwd.struct_passwd]:
    """Return the arguments of `bbfs`, and the user who is to mount. Raise WrongCall."""
    if len(operands) != 2:
        raise WrongCall("expected SOURCE DIRECTORY [-sfnvrw] [-o OPTIONS]; SOURCE is a configuration file, or 'none'")
    source, directory = operands
    command = ["mount", "--background", os.path.abspath(directory)]
    if source not in DEFAULT:
        command += ["--config", os.path.abspath(source)]
    user = pwd.getpwuid(os.geteuid())
    sloppy = ("-s", "") in flags
    for option in _options(flags):
        name, separator, value = option.partition("=")
        if option in FLAGS:
            command.append(FLAGS[option])
        elif name in VALUES and separator:
            command += [VALUES[name], value]
        elif name == "setuid" and separator:
            user = _user(value)
        elif option not in IGNORED and not option.startswith(IGNORED_BEGINNINGS) and not sloppy:
            known = ", ".join([*FLAGS, *(f"{each}=" for each in VALUES), "setuid="])
            raise WrongCall(f"unknown option {option!r}; known are {known} and those of mount(8)")
    return command, user


def _options(flags: Sequence[tuple[str, str]]) -> list[str]:
    """Return the options of all `-o`, and what single letters stand for."""
    given = [option for flag, value in flags if flag == "-o" for option in value.split(",") if option]
    return [*given, "ro"] if ("-r", "") in flags else given


def _user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(int(name)) if name.isascii() and name.isdecimal() else pwd.getpwnam(name)
    except KeyError:
        raise WrongCall(f"setuid={name}: no such user") from None


def become(user: pwd.struct_passwd) -> None:
    """Go on as a user. What the environment has to have follows from the user alone. Raise OSError."""
    if user.pw_uid != os.geteuid():
        os.initgroups(user.pw_name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
        for name in [name for name in os.environ if name.startswith("XDG_")]:
            del os.environ[name]  # the directories of another user
    os.environ.update(HOME=user.pw_dir, USER=user.pw_name, LOGNAME=user.pw_name, SHELL=user.pw_shell)
    os.environ["PATH"] = f"{user.pw_dir}/.local/bin:{os.environ.get('PATH', PATH)}"
    os.chdir("/")


if __name__ == "__main__":
    main()
