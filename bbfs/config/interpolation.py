"""References in configured strings: `${env:NAME}`, `${env:NAME:-DEFAULT}`, `${file:PATH}`, `${credential:NAME}`,
`${keyring:SERVICE/USERNAME}`, and `$${` for `${`.

With them, users can share a configuration file and keep its secrets in the environment, in other files or in the
system's keyring. So the value of a reference is never printed: messages name the reference, and the `repr` of a
resolved string is the configured text.
"""

import os
import re
import shlex
import stat
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bbfs.config import system_keyring
from bbfs.config.system_keyring import KeyringUnusable
from bbfs.runtime.files import closed_after

SECRET_FILE_MAX = 1 << 20
"""Most bytes of a `${file:…}`: a larger file is a mistake (a log, a device), not a secret."""

_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CREDENTIAL_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_FORMS = (
    "expected ${env:NAME}, ${file:PATH}, ${credential:NAME} or ${keyring:SERVICE/USERNAME} (write $${ for a literal ${)"
)


class Interpolated(str):
    """A string with resolved references. Its `repr` is the configured text, so that it prints no secret."""

    template: str = "${…}"
    secrets: frozenset[str] = frozenset()

    @classmethod
    def of(cls, value: str, template: str, secrets: Iterable[str] | None = None) -> "Interpolated":
        """Return a string with its secrets: the values of its references. Without them, all of `value` is secret."""
        made = cls(value)
        made.template = template
        made.secrets = frozenset((value,) if secrets is None else secrets)
        return made

    def __repr__(self) -> str:
        return repr(self.template)


class UnresolvedReference(ValueError):
    """A reference without a value. The text names it and the reason, and never holds a value."""


def expand_user(path: str, environ: Mapping[str, str]) -> str:
    """Expand `~` and `~/…` by the HOME of `environ`, and any other path as `os.path.expanduser` does."""
    home = environ.get("HOME")
    if home and (path == "~" or path.startswith("~/")):
        return home + path[1:]
    return os.path.expanduser(path)


def as_path(text: str, base: str, environ: Mapping[str, str]) -> str:
    """Return the absolute path of `text`: `~` expanded, relative paths from `base`. A secret stays one."""
    path = os.path.normpath(os.path.join(base, expand_user(text, environ)))
    return Interpolated.of(path, text.template, text.secrets) if isinstance(text, Interpolated) else path


class Interpolator:
    """Resolves the references of one file; relative `${file:…}` paths start at `base`."""

    def __init__(self, environ: Mapping[str, str], base: str) -> None:
        self._environ = environ
        self._base = base

    def resolve(self, text: str) -> str:
        """Return `text` with its references resolved. Raise UnresolvedReference for the first one without a value."""
        if "${" not in text:
            return text
        values: list[str] = []

        def value(match: re.Match[str]) -> str:
            replacement = self._replacement(match)
            if match[1] is not None:
                values.append(replacement)
            return replacement

        resolved = _REFERENCE.sub(value, text)
        return Interpolated.of(resolved, text, values)

    def resolve_all(self, value: Any, path: tuple[str | int, ...], problem: Callable[..., None]) -> Any:
        """Return `value` with the references in all its tables and arrays resolved. Call `problem` for each failure.

        Keys are not resolved. A string that fails stays unresolved.
        """
        if isinstance(value, str):
            try:
                return self.resolve(value)
            except UnresolvedReference as error:
                problem(path, str(error))
                return value
        if isinstance(value, Mapping):
            return {key: self.resolve_all(item, (*path, key), problem) for key, item in value.items()}
        if isinstance(value, list):
            return [self.resolve_all(item, (*path, index), problem) for index, item in enumerate(value)]
        return value

    def _replacement(self, match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        body = match[1]
        if body is None:
            raise UnresolvedReference(f"'${{' without '}}': {_FORMS}")
        kind, colon, argument = body.partition(":")
        if colon and kind == "env":
            return self._variable(*argument.split(":-", 1))
        if colon and kind == "file":
            return read_secret_file(as_path(argument, self._base, self._environ), argument)
        if colon and kind == "credential":
            return self._credential(argument)
        if colon and kind == "keyring":
            return read_keyring_entry(argument)
        hint = f"; did you mean ${{env:{body}}}?" if _ENV_NAME.fullmatch(body) else ""
        raise UnresolvedReference(f"unknown reference ${{{body}}}: {_FORMS}{hint}")

    def _variable(self, name: str, default: str | None = None) -> str:
        """Return a variable; as in a shell, the default also replaces an empty value."""
        if not _ENV_NAME.fullmatch(name):
            raise UnresolvedReference(f"${{env:{name}}} does not name an environment variable: {_FORMS}")
        if default is not None:
            return self._environ.get(name) or default
        if name not in self._environ:
            raise UnresolvedReference(f"environment variable {name} is not set")
        return self._environ[name]

    def _credential(self, name: str) -> str:
        """Return a credential that the service manager has given to this service (systemd.exec(5), LoadCredential)."""
        where = f"${{credential:{name}}}"
        if not _CREDENTIAL_NAME.fullmatch(name) or name in (".", ".."):
            raise UnresolvedReference(f"{where} does not name a credential: {_FORMS}")
        directory = self._environ.get("CREDENTIALS_DIRECTORY")
        if not directory:
            hint = f"systemd gives them to a unit that has LoadCredential={name}:PATH"
            raise UnresolvedReference(f"{where}: this process has no credentials; {hint}")
        return read_secret_file(os.path.join(directory, name), name, "credential")


def read_secret_file(path: str, shown: str, kind: str = "file") -> str:
    """Return the UTF-8 text of a regular file without one newline at its end. shown, kind: the reference, for messages.

    Raise UnresolvedReference, also for pipes and devices: a read of them may never end.
    """
    where = f"${{{kind}:{shown}}}"
    if not shown or "\0" in shown:
        raise UnresolvedReference(f"{where} does not name a file: {_FORMS}")
    try:
        with closed_after(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as descriptor:
            is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            data = _read(descriptor, SECRET_FILE_MAX + 1) if is_regular else b""
    except OSError as error:
        raise UnresolvedReference(f"{where}: {error.strerror}") from None
    if not is_regular:
        raise UnresolvedReference(f"{where}: not a regular file")
    if len(data) > SECRET_FILE_MAX:
        raise UnresolvedReference(f"{where}: larger than {SECRET_FILE_MAX} bytes")
    # A strict decoder would raise a UnicodeDecodeError, which holds all the bytes.
    text = data.decode("utf-8", "surrogateescape")
    if any("\udc80" <= character <= "\udcff" for character in text):
        raise UnresolvedReference(f"{where}: not UTF-8 text")
    if text.endswith("\n"):
        text = text[:-1].removesuffix("\r")
    return text


def read_keyring_entry(entry: str) -> str:
    """Return the password of `SERVICE/USERNAME` in the system's keyring; the service may hold slashes, as URLs do.

    Raise UnresolvedReference.
    """
    where = f"${{keyring:{entry}}}"
    service, slash, username = entry.rpartition("/")
    if not service or not slash or not username or "\0" in entry:
        raise UnresolvedReference(f"{where} does not name an entry of the keyring: {_FORMS}")
    try:
        password = system_keyring.read(service, username)
    except KeyringUnusable as error:
        raise UnresolvedReference(f"{where}: {error}") from None
    if password is None:
        hint = f"make it with `keyring set {shlex.quote(service)} {shlex.quote(username)}`"
        raise UnresolvedReference(f"{where}: the keyring has no such entry; {hint}")
    return password


def _read(descriptor: int, limit: int) -> bytes:
    """Return at most `limit` bytes; fewer only at the end of the file."""
    data = b""
    while len(data) < limit and (piece := os.read(descriptor, limit - len(data))):
        data += piece
    return data
