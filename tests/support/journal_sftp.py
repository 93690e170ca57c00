"""A server of SFTP that keeps a journal of every state its files ever had, and fails as a plan says."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import paramiko
from fault_oracle import Asked
from journal_server import Faults, Held, JournalStore, Refused
from paramiko.sftp import CMD_NAMES, SFTP_FAILURE, SFTP_NO_SUCH_FILE, SFTP_OK
from paramiko.sftp_attr import SFTPAttributes
from sftp_server import SshServer

_CHANGES = {"rename", "remove", "extended"}
_FILE, _DIRECTORY = 0o100644, 0o40755


class JournalSftp(SshServer):
    """A server of the files of a store."""

    def __init__(self, store: JournalStore, faults: Faults, directory: Path) -> None:
        self.store, self.faults = store, faults
        self.unfinished: dict[str, tuple[bytearray, float]] = {}
        """Files that are being uploaded, by name: bytes and time."""
        self.session, self.files = _Session, _Files
        super().__init__(directory)


class _Session(paramiko.SFTPServer):
    """Fails requests as the plan says."""

    def __init__(self, channel: Any, name: str, server: Any, kind: Any, ours: JournalSftp, transport: Any) -> None:
        super().__init__(channel, name, server, kind, ours)
        self._ours, self._transport, self._is_mute = ours, transport, False

    def _process(self, t: int, request_number: int, msg: Any) -> None:
        name, faults = CMD_NAMES[t], self._ours.faults
        fault = faults.next(name, is_change=name in _CHANGES) if name not in ("init", "close") else ""
        kind, _, detail = fault.partition(" ")
        if kind in ("refuse", "accept"):
            self._send_status(request_number, SFTP_FAILURE)  # pyright: ignore[reportAttributeAccessIssue]
            return
        if kind == "delay":
            time.sleep(0.05)
        if kind not in ("drop", "stall") or detail == "after":
            self._is_mute = kind in ("drop", "stall", "fail")
            super()._process(t, request_number, msg)  # pyright: ignore[reportAttributeAccessIssue]
            self._is_mute = False
        if kind == "fail":
            self._send_status(request_number, SFTP_FAILURE)  # pyright: ignore[reportAttributeAccessIssue]
        if kind == "stall":
            time.sleep(faults.stall)
        if kind in ("drop", "stall"):
            self._transport.close()

    def _send_packet(self, t: int, packet: Any) -> None:
        if not self._is_mute:
            super()._send_packet(t, packet)  # pyright: ignore[reportAttributeAccessIssue]


class _Handle(paramiko.SFTPHandle):
    def __init__(self, data: bytearray, modified: float) -> None:
        super().__init__()
        self._data, self._modified = data, modified

    def read(self, offset: int, length: int) -> Any:
        return bytes(self._data[offset : offset + length])

    def write(self, offset: int, data: Any) -> int:
        self._data[offset : offset + len(data)] = data
        return SFTP_OK

    def stat(self) -> Any:
        return _attributes_of(len(self._data), self._modified)

    def chattr(self, attr: Any) -> int:
        return SFTP_OK


class _Files(paramiko.SFTPServerInterface):
    def __init__(self, server: Any, ours: JournalSftp, *_: Any) -> None:
        super().__init__(server)
        self._ours, self._store = ours, ours.store

    def lstat(self, path: str) -> Any:
        name = path.strip("/")
        if name in ("", "."):
            return _attributes_of(0, time.time(), _DIRECTORY)
        if name in self._ours.unfinished:
            data, modified = self._ours.unfinished[name]
            return _attributes_of(len(data), modified)
        held = self._store.look(name)
        return SFTP_NO_SUCH_FILE if held is None else _attributes(held)

    stat = lstat

    def list_folder(self, path: str) -> Any:
        with self._store.lock:
            found = {name: self._store.look(name) for name in self._store.held}
        entries: list[SFTPAttributes] = []
        for name, held in found.items():
            if held is not None:
                entries.append(_attributes(held))
                entries[-1].filename = name
        return entries

    def open(self, path: str, flags: int, attr: Any) -> Any:
        name = path.strip("/")
        if flags & 3:
            self._ours.unfinished[name] = bytearray(), self._store.clock()
            return _Handle(*self._ours.unfinished[name])
        held = self._store.look(name)
        return SFTP_NO_SUCH_FILE if held is None else _Handle(bytearray(held.data), held.modified)

    def chattr(self, path: str, attr: Any) -> int:
        return SFTP_OK

    def remove(self, path: str) -> int:
        name = path.strip("/")
        if self._ours.unfinished.pop(name, None) is not None:
            return SFTP_OK
        return self._done(lambda: self._store.remove(name, "mount", how="remove"))

    def rename(self, oldpath: str, newpath: str) -> int:
        return self._renamed(oldpath.strip("/"), newpath.strip("/"), replace=False)

    def posix_rename(self, oldpath: str, newpath: str) -> int:
        return self._renamed(oldpath.strip("/"), newpath.strip("/"), replace=True)

    def _renamed(self, old: str, new: str, *, replace: bool) -> int:
        found = self._ours.unfinished.get(old)
        if found is None:
            return self._done(lambda: self._store.move(old, new, "mount", how="rename", replace=replace))
        data, modified = bytes(found[0]), found[1]
        self._store.asked.append(Asked(time.monotonic(), new, self._store.names_in(new, data)))
        none_match = None if replace else "*"
        put = partial(self._store.put, new, data, "mount", None, none_match, how="rename", modified=modified)
        status = self._done(put)
        if status == SFTP_OK:
            del self._ours.unfinished[old]
        return status

    @staticmethod
    def _done(change: Any) -> int:
        try:
            change()
        except Refused as refused:
            return SFTP_NO_SUCH_FILE if refused.status == 404 else SFTP_FAILURE
        return SFTP_OK


def _attributes(held: Held) -> SFTPAttributes:
    return _attributes_of(len(held.data), held.modified)


def _attributes_of(size: int, modified: float, mode: int = _FILE) -> SFTPAttributes:
    found = SFTPAttributes()
    found.st_size, found.st_mode, found.st_mtime, found.st_atime = size, mode, int(modified), int(modified)
    found.st_uid = found.st_gid = 0
    return found
