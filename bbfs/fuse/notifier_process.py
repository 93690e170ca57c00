"""The notifier: a process that notifies the kernel of changed names for a daemon, and outlives a killed one.

The kernel takes such a notification under the lock of the directory, and a program's request may hold that until it is
answered. The thread that waits for the lock cannot be killed, and it keeps its descriptors of `/dev/fuse` open. If it
were a thread of the daemon, a killed daemon would never close its connection: no request would ever end, and no program
that waits for one could be killed. So the notifier sends, on a descriptor of its own (FUSE_DEV_IOC_CLONE):

- When the daemon is killed, the kernel closes its descriptor. That ends every request that the daemon has read.
- The notifier answers the requests that the daemon has not read. So every lock is released, and its own thread returns.
- Then it ends. The last descriptor is closed, and the kernel ends the connection.

None of this needs a privilege. The process runs this file with nothing but the standard library.
"""

import errno
import os
import select
import socket
import struct
import sys
import threading

_IN = struct.Struct("=IIQ")
"""The beginning of struct fuse_in_header: length, opcode, unique."""
_OUT = struct.Struct("=IiQ")
"""struct fuse_out_header: length, error or the code of a notification, unique."""
_INVALIDATED = struct.Struct("=QII")
"""struct fuse_notify_inval_entry_out: directory, length of the name, flags."""
_INVALIDATE_ENTRY = 3
_UNANSWERED = (2, 36, 42)
"""FORGET, INTERRUPT, BATCH_FORGET: requests without an answer."""
_LARGEST_REQUEST = 1 << 17
"""Bytes to begin with: the kernel refuses a read with less room than for the largest write, which may be more."""
_LARGEST_BATCH = 1 << 17
LOOK_EVERY = 50
"""Milliseconds between two looks whether the sending thread has returned."""
DONE = b"."


def notification(parent: int, name: bytes) -> bytes:
    """Return the message for the kernel that a name has changed."""
    length = _OUT.size + _INVALIDATED.size + len(name) + 1
    return _OUT.pack(length, _INVALIDATE_ENTRY, 0) + _INVALIDATED.pack(parent, len(name), 0) + name + b"\0"


def _send(device: int, daemon: socket.socket) -> None:
    """Send batches of notifications for the daemon until it is gone."""
    while batch := daemon.recv(_LARGEST_BATCH):
        at = 0
        while at < len(batch):
            end = at + _OUT.unpack_from(batch, at)[0]
            try:
                os.write(device, batch[at:end])
            except OSError:
                pass  # the kernel does not hold the name, or the mount is gone
            at = end
        daemon.send(DONE)


def _answer(device: int, room: int) -> int:
    """Answer a request that waits, if there is one, with the error of a dead daemon. Return the room for the next."""
    try:
        request = os.read(device, room)
    except BlockingIOError:
        return room
    except OSError as error:
        if error.errno == errno.EINVAL:
            return 2 * room
        if error.errno in (errno.ENOENT, errno.EINTR):  # the program has given up
            return room
        raise
    _, opcode, unique = _IN.unpack_from(request)
    if opcode not in _UNANSWERED:
        try:
            os.write(device, _OUT.pack(_OUT.size, -errno.ECONNABORTED, unique))
        except FileNotFoundError:
            pass  # as above
    return room


def main(device: int, daemon: socket.socket) -> None:
    """Send until the daemon is gone. Then answer requests until the sending thread has returned."""

    def send() -> None:
        try:
            _send(device, daemon)
        except OSError:
            pass  # the daemon is gone

    os.set_blocking(device, False)
    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    gone = select.poll()
    gone.register(daemon, 0)  # the end of the connection, which is always told
    gone.poll()
    waiting, room = select.poll(), _LARGEST_REQUEST
    waiting.register(device, select.POLLIN)
    while sending.is_alive():
        if waiting.poll(LOOK_EVERY):
            room = _answer(device, room)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))
    finally:
        os._exit(0)
