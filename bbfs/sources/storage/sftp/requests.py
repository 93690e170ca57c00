"""Requests of SFTP that are sent together (draft-ietf-secsh-filexfer-02), beside those of paramiko on one channel.

paramiko waits for each answer. A server handles requests for the same file as if they came one at a time (section 4.1
of the draft), so those that need no answer of each other cost one wait.
"""

import errno
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from paramiko import Channel, SSHException

_OPEN, _CLOSE, _READ, _WRITE, _LSTAT, _SETSTAT = 3, 4, 5, 6, 7, 9
_STATUS, _HANDLE, _DATA, _ATTRIBUTES = 101, 102, 103, 105
_OK, _END, _NO_SUCH_FILE, _PERMISSION_DENIED = 0, 1, 2, 3
_OLD = 0x01  # SSH_FXF_READ
_NEW = 0x02 | 0x08 | 0x10  # SSH_FXF_WRITE, CREAT, TRUNC
_HAS_SIZE, _HAS_OWNER, _HAS_MODE, _HAS_TIMES = 1, 2, 4, 8
_NUMBER, _SIZE, _PAIR = struct.Struct(">I"), struct.Struct(">Q"), struct.Struct(">II")
_HEAD, _ANSWER = struct.Struct(">IBI"), struct.Struct(">BI")
_LARGEST_ANSWER = 1 << 16
"""Bytes of an answer. The longest one here has a piece of a file."""
_PIECE = 32 << 10
"""Bytes of a read or a write. All servers take so many, and some no more."""
_BLOCK = 8 * _PIECE
"""Bytes that are read of a file at a time, and sent together."""
_AT_ONCE = 128
"""Writes that wait for their answers: twice the bytes that servers let a channel send ahead."""
_OWN = 1 << 31
"""The least number of a request here. paramiko counts from 1, and passes over answers with other numbers."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """A file as its server describes it. size: bytes. mode: with the type. modified: seconds since the epoch."""

    size: int | None
    mode: int | None
    modified: int | None


class Requests:
    """Requests of one thread, which alone uses the channel until it has their answers, or gives them up.

    numbers: counts the requests of all. Methods raise errors as paramiko does: OSError with a number or without
    for a refusal, TimeoutError, and EOFError, SSHException or OSError if the connection has ended.
    """

    def __init__(self, channel: Channel, numbers: Iterator[int]) -> None:
        self._channel, self._numbers = channel, numbers
        self._unsent: list[bytes | memoryview] = []
        self._answers: dict[int, bytes | None] = {}

    def lstat(self, path: bytes) -> int:
        """Ask for the attributes of a path. Return the number of the request, as all such methods do."""
        return self._ask(_LSTAT, _text(path))

    def open_old(self, path: bytes) -> int:
        """Ask for a handle of a file to read."""
        return self._ask(_OPEN, _text(path), _PAIR.pack(_OLD, 0))

    def open_new(self, path: bytes) -> int:
        """Ask for a handle of a new or empty file."""
        return self._ask(_OPEN, _text(path), _PAIR.pack(_NEW, 0))

    def set_mode(self, path: bytes, mode: int) -> int:
        return self._ask(_SETSTAT, _text(path), _PAIR.pack(_HAS_MODE, mode))

    def set_time(self, path: bytes, seconds: int) -> int:
        """Ask for the times of the last access and modification to be set."""
        return self._ask(_SETSTAT, _text(path), _NUMBER.pack(_HAS_TIMES), _PAIR.pack(seconds, seconds))

    def close(self, handle: bytes) -> int:
        return self._ask(_CLOSE, _text(handle))

    def read(self, handle: bytes, offset: int, length: int) -> list[int]:
        """Ask for bytes of a file. Return the requests, each for a piece."""
        end, to = offset + length, _text(handle)
        pieces = [(at, min(_PIECE, end - at)) for at in range(offset, end, _PIECE)]
        return [self._ask(_READ, to, _SIZE.pack(at), _NUMBER.pack(size)) for at, size in pieces]

    def write(self, handle: bytes, file: IO[bytes]) -> deque[int]:
        """Ask for all bytes of a file to be written. Return the last of these requests, after the others succeeded."""
        waiting: deque[int] = deque()
        offset, to, following = 0, _text(handle), file.read(_BLOCK)
        while data := memoryview(following):
            for at in range(0, len(data), _PIECE):
                piece = data[at : at + _PIECE]
                waiting.append(self._ask(_WRITE, to, _SIZE.pack(offset + at), _NUMBER.pack(len(piece)), piece))
            offset += len(data)
            following = file.read(_BLOCK)
            if following:  # else they go with what comes after
                self.send()
            while waiting and (len(waiting) > _AT_ONCE or self._is_there(waiting[0])):
                self.finish(waiting.popleft())
        return waiting

    def _ask(self, kind: int, *fields: bytes | memoryview) -> int:
        number = _OWN | next(self._numbers) % _OWN
        self._unsent.append(_HEAD.pack(5 + sum(map(len, fields)), kind, number))
        self._unsent += fields
        self._answers[number] = None
        return number

    def send(self) -> None:
        """Send what was asked since the last time."""
        data, at = b"".join(self._unsent), 0
        self._unsent.clear()
        while at < len(data):
            sent = self._channel.send(data[at : at + _PIECE])
            if not sent:
                raise EOFError
            at += sent

    # -- answers -----------------------------------------------------------------------------------------------------

    def finish(self, number: int) -> None:
        """Wait for the answer to a change. Raise the error that it is."""
        self._answer(number, _STATUS)

    def handle(self, number: int) -> bytes:
        """Return the handle of a file that was opened."""
        answer = self._answer(number, _HANDLE)
        return answer[4 : 4 + _NUMBER.unpack_from(answer)[0]]

    def data(self, number: int) -> bytes:
        """Return the bytes that were read, none behind the end of the file. They may be fewer than were asked for."""
        answer = self._answer(number, _DATA)
        return answer[4 : 4 + _NUMBER.unpack_from(answer)[0]]

    def attributes(self, number: int) -> Attributes:
        answer = self._answer(number, _ATTRIBUTES)
        (flags,), at = _NUMBER.unpack_from(answer), 4
        size = mode = modified = None
        if flags & _HAS_SIZE:
            (size,), at = _SIZE.unpack_from(answer, at), at + 8
        if flags & _HAS_OWNER:
            at += 8
        if flags & _HAS_MODE:
            (mode,), at = _NUMBER.unpack_from(answer, at), at + 4
        if flags & _HAS_TIMES:
            _, modified = _PAIR.unpack_from(answer, at)
        return Attributes(size, mode, modified)

    def _answer(self, number: int, wanted: int) -> bytes:
        self.send()
        while (answer := self._answers[number]) is None:
            self._receive()
        del self._answers[number]
        kind = answer[0]
        if kind == _STATUS:
            (code,) = _NUMBER.unpack_from(answer, 5)
            if code == _END and wanted == _DATA:
                return _text(b"")
            if code == _NO_SUCH_FILE:
                raise FileNotFoundError(errno.ENOENT, "no such file")
            if code == _PERMISSION_DENIED:
                raise PermissionError(errno.EACCES, "permission denied")
            if code != _OK:
                raise OSError(f"the server answers {code}")
        if kind != wanted:
            raise SSHException(f"an answer of the kind {kind} to a request for one of {wanted}")
        return answer[5:]

    def _is_there(self, number: int) -> bool:
        while self._answers[number] is None and self._channel.recv_ready():
            self._receive()
        return self._answers[number] is not None

    def _receive(self) -> None:
        (size,) = _NUMBER.unpack(self._exactly(_NUMBER.size))
        if not _ANSWER.size <= size <= _LARGEST_ANSWER:
            raise SSHException(f"an answer of {size} bytes")
        answer = self._exactly(size)
        _, number = _ANSWER.unpack_from(answer)
        if number in self._answers:  # else one that nothing waits for any more
            self._answers[number] = answer

    def _exactly(self, size: int) -> bytes:
        """Receive so many bytes, and no byte that another request may wait for."""
        data = self._channel.recv(size)
        while len(data) < size:
            more = self._channel.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data


def _text(text: bytes) -> bytes:
    return _NUMBER.pack(len(text)) + text
