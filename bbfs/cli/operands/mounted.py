"""Sources through a mount: plain file operations and extended attributes."""

import errno
import json
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar

from bbfs.cli import lazy
from bbfs.cli.operands import scratches
from bbfs.cli.operands.access import Target, TreeEntry, kept_write, pending_ids, with_pending
from bbfs.cli.operands.attributes import Attributes
from bbfs.cli.operands.location import Asking, NoAnswer, asked, await_shown, is_removed, resolved, without_links
from bbfs.cli.operands.rule import Path, path_by_rule, uri_by_rule
from bbfs.fuse import mountpoint
from bbfs.fuse.mountpoint import STATUS, STATUS_DIRECTORY
from bbfs.fuse.scratch.directory import Scratch
from bbfs.model.errors import BbfsError, ConfigError, InvalidUri, NotFound, NotSupported
from bbfs.model.quantities import timestamp
from bbfs.model.uri import parse_uri_prefix

if TYPE_CHECKING:
    from bbfs.model.versions import Labels
    from bbfs.resources.commands.requests import Request
    from bbfs.resources.commands.requests.reading import Entries, Entry

A = TypeVar("A")
_CHUNK = 1 << 20
_FOLDERS = "bb-filesystem+"
"""The prefix of the names of local folders at the root."""
_MANY = 20
"""Entries of a directory for which a connection to the daemon costs less than an attribute of each."""
_TOLD_WITHIN = 2.0
"""Seconds for an attribute, which a daemon answers from memory."""
_SHOWN_WITHIN, _LOOK_EVERY = 3.0, 0.1
"""Seconds for an overlay to show that a file of the sources has become a directory."""
_REASONED = (
    errno.EHOSTDOWN, errno.ETIMEDOUT, errno.EPROTO, errno.EIO, errno.EACCES, errno.EFBIG, errno.EOPNOTSUPP, errno.EINVAL
)  # fmt: skip
"""Errors whose text says less than the source's error in the daemon."""


class MountedTree:
    """A live mount. Its daemon bounds every wait; an interrupted call ends at once.

    No method needs an event loop, but for the requests that last: all others return without suspending their task.
    names: the names at the root, if the mount has just told them.
    """

    def __init__(self, mount: str, names: list[str] | None = None) -> None:
        self.mount: str | None = mount
        self._just_told = names
        self._root = mount
        scratch = Scratch.mounted(mount)
        self.has_scratch = scratch is not None
        """True if writes stay in a scratch."""
        self._attributes = Attributes(mount, scratch)

    async def ask(self, request: "Request[A]", hear: Callable[[A], object] | None = None) -> None:
        if request.lasts:
            await lazy.control_client.follow(self._root, request, hear)
        else:
            self._names()
            lazy.control_client.ask(self._root, request, hear)

    async def resolved(self, path: Path) -> Path:
        return resolved(self._root, path) if path else ()

    def has(self, path: str) -> bool:
        return not self.has_scratch or not is_removed(os.path.join(self._root, path))

    def _at(self, path: Path) -> str:
        return os.path.join(self._root, *path)

    def source_directory(self, source: str, names: list[str]) -> Path | None:
        """Return the directory of a source named by its prefix, name or id. Raise ConfigError if several have it."""
        for name in names:
            if source == name or source.startswith(name + "+"):
                return (source,)  # with a scheme it is a link that lookup finds
        found = [
            name for name in names if source in (_source_name(name), self._attributes.get((name,), "user.bbfs.id"))
        ]
        if not found:
            found = [name for name in names if name.startswith(source + "+")]
        if len(found) > 1:
            raise ConfigError(f"{source!r} names several sources: {', '.join(found)}")
        return (found[0],) if found else None

    async def locate(self, uri: str) -> Path:
        path = path_by_rule(uri)
        here = self._at(path)
        own = self._attributes.uri(path)
        meant = (uri, lazy.uri_paths.quoted(uri))  # people type spaces and umlauts as they are
        if own in meant:
            return path
        for directory, may_lead in ((path, _is_index), (path[:-1], lazy.uri_paths.is_suffixed)):
            for name in filter(may_lead, _names(self._at(directory))):
                if self._attributes.uri((*directory, name)) in meant:
                    return (*directory, name)
        if own is None and _is_directory(here):
            return path  # the beginning of other resources' URIs
        raise NotFound(f"not listed at {self._root}")

    async def children(self, path: Path, *, exact: bool) -> list[TreeEntry]:
        found = self._listed(path)
        return [await self._learnt(entry.path) for entry in found] if exact else found

    async def _learnt(self, path: Path) -> TreeEntry:
        """Return an entry of a listing with its size, or with the error if the source does not give one."""
        try:
            return self._exact(path)
        except OSError as error:
            if error.errno in mountpoint.GONE:
                raise
            why = await self.why(path, error)
            return TreeEntry(path, "file", error=f"{error.strerror}: {why}" if why else error.strerror)

    async def described(self, entries: list[TreeEntry]) -> list[TreeEntry]:
        directory = entries[0].path[:-1] if len(entries) >= _MANY else ()
        known = await self._listed_by_daemon(directory) if directory else {}

        def described() -> list[TreeEntry]:
            return [self._described_entry(entry, known) for entry in entries]

        return asked(self._root, described, None)

    def _described_entry(self, entry: TreeEntry, known: "dict[str, Entry]") -> TreeEntry:
        if self._attributes.are_above(entry.path):
            return self._exact(entry.path)
        return _described(entry, known.get(entry.path[-1]) or self._known(entry))

    async def _listed_by_daemon(self, path: Path) -> "dict[str, Entry]":
        """Return the metadata of the names in a directory, as far as the daemon answers this user at once."""
        known: dict[str, Entry] = {}

        def hear(page: "Entries") -> None:
            known.update((entry.name, entry) for entry in page.entries)

        with suppress(BbfsError, OSError):  # the attributes of each file tell, or say why
            await self.ask(lazy.reading.ListDirectory("/".join(await self.resolved(path))), hear)
        return known

    def _known(self, entry: TreeEntry) -> "Entry":
        """Return the metadata of an entry, or nothing for a link and a source: they have none of a resource."""
        name = entry.path[-1]
        if entry.kind == "symlink" or len(entry.path) < 2:
            return lazy.reading.Entry(name)
        said = json.loads(self._attributes.get(entry.path, "user.bbfs.metadata") or "{}")
        return lazy.reading.Entry(
            name, said.get("size"), said.get("lastModified"), said.get("mimeType"), said.get("uri")
        )

    async def entry(self, path: Path, *, exact: bool) -> TreeEntry:
        if exact:
            return self._exact(path)
        uri = self._attributes.uri(path)
        if len(path) <= 1:
            return TreeEntry(path, "directory")
        listed = next((entry for entry in self._listed(path[:-1]) if entry.path == path), None)
        if listed is None:
            return self._exact(path)  # not listed: perhaps of a template, a tool or a prompt
        return replace(listed, uri=uri)

    def _listed(self, path: Path) -> list[TreeEntry]:
        """Return the names of a directory with their kinds. That loads no content, unlike a stat of each."""
        with os.scandir(self._at(path)) as scan:
            found = [TreeEntry((*path, entry.name), _kind(entry)) for entry in scan]
        return sorted(found, key=lambda entry: entry.path)

    def _exact(self, path: Path) -> TreeEntry:
        here = self._at(path)
        status = os.lstat(here)
        if stat.S_ISLNK(status.st_mode):
            return TreeEntry(path, "symlink", None, status.st_mtime_ns, target=os.readlink(here))
        uri, mime = (self._attributes.get(path, name) for name in ("user.bbfs.uri", "user.mime_type"))
        if stat.S_ISDIR(status.st_mode):
            return TreeEntry(path, "directory", None, status.st_mtime_ns, mime, uri)
        return TreeEntry(path, "file", status.st_size, status.st_mtime_ns, mime, uri)

    async def document(self, target: Target) -> dict[str, Any]:
        path = await target.located()
        here = self._at(path)
        try:
            status = os.stat(here)  # loads the content if the size is unknown
        except OSError as error:
            text, _ = self._told(path, "user.bbfs.metadata")
            if error.errno not in _REASONED or text is None:
                raise
            return {"error": error.strerror, **json.loads(text), "kind": "file", "mount": self._root}
        text = self._attributes.get(path, "user.bbfs.metadata")
        document: dict[str, Any] = json.loads(text) if text is not None else {"path": "/".join(path)}
        if self._attributes.are_above(path):
            document["lastModified"] = timestamp(status.st_mtime_ns)
        if stat.S_ISREG(status.st_mode):
            document["size"] = status.st_size
        document["kind"] = "file" if stat.S_ISREG(status.st_mode) else "directory"
        document["mount"] = self._root
        return document

    async def copy(self, target: Target, write: Callable[[bytes], object]) -> None:
        path = await target.located()
        here = self._at(path)
        if not stat.S_ISDIR(os.stat(here).st_mode):
            try:
                return _copy_file(here, write)
            except IsADirectoryError:
                pass  # the open ran a tool with several contents, which are in the directory now
            except OSError as error:
                if error.errno != errno.ESTALE or not self.has_scratch:
                    raise
                if not self._is_directory_soon(here):
                    return _copy_file(here, write)
        if not self._has_several_contents(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        for name in sorted(os.listdir(here)):
            _copy_file(os.path.join(here, name), write)
        return None

    def _is_directory_soon(self, here: str) -> bool:
        """Return the type of what has changed below an overlay, once the overlay shows it. Raise OSError."""
        until = time.monotonic() + _SHOWN_WITHIN
        while True:
            try:
                return stat.S_ISDIR(os.stat(here).st_mode)
            except OSError as error:
                if error.errno != errno.ESTALE or time.monotonic() > until:
                    raise
            time.sleep(_LOOK_EVERY)

    async def require_written(self, target: Target) -> None:
        self._require_own_write()
        if not self.has_scratch:
            granted = self._told_by_source(await self._place(target), "user.bbfs.capabilities")
            if granted is not None and "write" not in json.loads(granted):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def _is_granted(self, target: Target) -> bool:
        """Return whether the configuration grants the target's source the capability `write`."""
        path = target.path or path_by_rule(target.uri or "")  # no look at the name, or the kernel has it as absent
        told = self._told_by_source(path, "user.bbfs.capabilities")
        return "write" in json.loads(told or "[]")

    async def write(
        self, target: Target, file: IO[bytes], *, replace: bool, labels: "Labels | None" = None, by_owner: bool = False
    ) -> None:
        self._require_own_write()
        if self.has_scratch and labels:
            raise NotSupported("a file in a scratch has neither a MIME type nor a description")
        if not self.has_scratch and (labels or (by_owner and not self._is_granted(target))):
            await self._put(target, file, labels, replace=replace)
        else:
            await self._write(target, file, replace=replace)

    async def _put(self, target: Target, file: IO[bytes], labels: "Labels | None", *, replace: bool) -> None:
        """Have the daemon store a file. Raise BbfsError, OSError."""
        data = asked(self._root, file.read, None)
        before = pending_ids()
        path, uri = await self._named(target)
        try:
            told = (labels.mime_type, labels.description) if labels else (None, None)
            await self.ask(lazy.writing.Put(path, uri, data, replace, False, *told))
        except BbfsError as error:
            place = await self._place(target)
            raise kept_write(before, uri=target.uri or uri_by_rule(place), path=place) or error from error
        if target.path is not None:
            await_shown(self._root, target.path)

    async def _named(self, target: Target) -> tuple[str | None, str | None]:
        """Return the path or the URI of a target for a request. Raise BbfsError, OSError."""
        if target.path is None:
            return None, target.uri
        return "/".join(await self.resolved(target.path)), None

    async def _write(self, target: Target, file: IO[bytes], *, replace: bool) -> None:
        """Write a file. Raise BbfsError, OSError."""
        place = await self._place(target)
        here = self._at(place)
        os.makedirs(os.path.dirname(here), exist_ok=True)

        def write() -> None:
            above = without_links(self._root, place[:-1])
            lazy.file_writing.store(
                here,
                file,
                replace,
                is_plain=self.has_scratch or os.path.islink(here),
                in_folder=bool(above) and above[0].startswith(_FOLDERS),
            )

        before = pending_ids()
        try:
            asked(self._root, write, None)
        except OSError as error:
            raise kept_write(before, path=without_links(self._root, place)) or error from error

    async def remove(self, target: Target, *, by_owner: bool = False) -> None:
        self._require_own_write()
        if by_owner and not self.has_scratch and not self._is_granted(target):
            await self.ask(lazy.writing.Remove(*await self._named(target)))
            return
        place = await self._place(target)
        native_uri, _ = self._told(place, "user.xdg.origin.url")
        try:
            asked(self._root, partial(os.unlink, self._at(place)), None)
        except OSError as error:
            problem = self._told_by_source(place, "user.bbfs.error") or ""
            reason = problem.removeprefix(f"{native_uri}: not removed: ")
            raise (error if reason == problem else BbfsError(reason)) from error

    def _require_own_write(self) -> None:
        """Raise Denied if a write at this mount would go past a scratch to the sources."""
        if not self.has_scratch:
            scratches.require_no_scratch(self.mount)

    async def _place(self, target: Target) -> Path:
        """Return the path of a resource, by the rule if it is not there yet."""
        try:
            return await target.located()
        except NotFound:
            return path_by_rule(target.uri or "")

    def _has_several_contents(self, directory: Path) -> bool:
        """Return whether a directory is one resource of a server. (A folder's directories have URIs as well.)"""
        return (
            bool(self._attributes.uri(directory))
            and self._attributes.get(directory, "user.bbfs.access_method") == "mcp"
        )

    async def sources(self, timeout: float | None) -> list[dict[str, Any]]:
        return self.sources_now(timeout)

    def sources_now(self, timeout: float | None) -> list[dict[str, Any]]:
        """As `sources`, without a task."""
        names = self._names()
        contacts = [Asking(self._root, partial(self._contacted, name, timeout)) for name in names]
        rows = [contact.answer() for contact in contacts]
        if any("error" in row for row in rows):
            mountpoint.names(self._root)  # raises if the mount died: then its sources are not down
        left_out = {"state": "down", "mount": self._root}
        return [
            *with_pending(rows),
            *({"id": name, "error": f"left out: {why}", **left_out} for name, why in self.left_out().items()),
        ]

    def _contacted(self, name: str, timeout: float | None) -> dict[str, Any]:
        """Return the description of a source after a contact of at most `timeout` seconds (None: no contact)."""
        listed = False
        problem: str | None = None
        if timeout is not None:
            try:
                asked(self._root, partial(_list_below, self._at((name,))), timeout)
                listed = True
            except NoAnswer:
                problem = f"did not answer within {timeout:g} s"
            except OSError as error:
                problem = error.strerror
        text, unknown = self._told((name,), "user.bbfs.metadata")
        document = {"id": name, "uriPrefix": name, "state": "down", **json.loads(text or "{}")}
        if listed and document["state"] == "idle" and "resources" not in document:
            document["state"] = "up"  # the folder itself has answered
        document.update(resources=document.get("resources") if listed else None, mount=self._root)
        if problem or unknown:
            document.setdefault("error", problem or unknown)
        return document

    def _names(self) -> list[str]:
        """Return the names at the root, and do not ask again what has just been told. Raise MountError, DeadMount."""
        told, self._just_told = self._just_told, None
        return mountpoint.names(self._root) if told is None else told

    def status(self) -> dict[str, Any]:
        """Return the state of the mount; nothing where it cannot be read. The daemon answers from memory."""
        try:
            with open(self._at((STATUS_DIRECTORY, STATUS)), encoding="utf-8") as file:
                document: dict[str, Any] = json.load(file)
                return document
        except (OSError, ValueError):
            return {}

    def left_out(self) -> dict[str, str]:
        """Return why servers of the mount's configuration are no sources of it, by name, each in one line."""
        return {name: why.replace("\n", "; ") for name, why in self.status().get("left_out", {}).items()}

    async def why(self, path: Path, error: OSError) -> str | None:
        if error.errno == errno.ENOTDIR and any("?" in name for name in path[:-1]):
            return "what is before the slash is a call; write a slash in a value as %2F"
        if error.errno == errno.EROFS:
            return "the option capabilities of the source does not grant write, or its type cannot be written"
        if error.errno not in _REASONED:
            return None
        # The file itself has the error of a wrong argument; an error of the source is unrelated to it.
        above = () if error.errno == errno.EINVAL else (path[:1], _source_of(path))
        for place in dict.fromkeys((path, *above)):
            text, _ = self._told(place, "user.bbfs.error")
            if text:
                return text
        return None

    def _told_by_source(self, path: Path, name: str) -> str | None:
        """Return an extended attribute of the directory of a path's source, or None."""
        for place in dict.fromkeys((path[:1], _source_of(path))):
            text, _ = self._told(place, name)
            if text is not None:
                return text
        return None

    def _told(self, path: Path, name: str) -> tuple[str | None, str | None]:
        """Return an extended attribute, or None and the error that prevents it within `_TOLD_WITHIN` seconds."""
        try:
            return asked(self._root, partial(self._attributes.get, path, name), _TOLD_WITHIN), None
        except NoAnswer:
            return None, "the mount does not answer"
        except OSError as error:
            return None, error.strerror


def _described(entry: TreeEntry, known: "Entry") -> TreeEntry:
    if entry.kind == "symlink":
        return entry
    return replace(
        entry,
        size=known.size if entry.kind == "file" else None,
        modified_ns=_nanoseconds(known.last_modified),
        mime_type=known.mime_type,
        uri=known.uri,
    )


def _source_of(path: Path) -> Path:
    """Return the directory of the source to which a name with a scheme is a link."""
    try:
        return (parse_uri_prefix(path[0]).base,)
    except InvalidUri:
        return path[:1]


def _source_name(directory: str) -> str | None:
    try:
        return parse_uri_prefix(directory).name
    except InvalidUri:
        return None


def _kind(entry: os.DirEntry[str]) -> Literal["directory", "file", "symlink"]:
    if entry.is_symlink():
        return "symlink"
    return "directory" if entry.is_dir(follow_symlinks=False) else "file"


def _nanoseconds(timestamp: str | None) -> int | None:
    """Return a time of a document as nanoseconds since the epoch, to the second; None if there is none to tell."""
    try:
        return int(datetime.fromisoformat(timestamp or "").timestamp()) * 1_000_000_000
    except (ValueError, OverflowError):
        return None


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_directory(path: str) -> bool:
    return os.path.isdir(path)


def _is_index(name: str) -> bool:
    """Return whether a name in the directory of a resource may be that of its own content (S5)."""
    return name.startswith("index")


def _list_below(directory: str) -> None:
    """Have the daemon list everything below a directory. This loads no content. Raise OSError."""
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            _list_below(entry.path)


def _copy_file(path: str, write: Callable[[bytes], object]) -> None:
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            write(chunk)
