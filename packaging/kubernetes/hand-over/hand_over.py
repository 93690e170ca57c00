"""Mount for a daemon that may not: the two ends between which the descriptor of /dev/fuse goes.

    hand_over.py mount POINT SOCKET UID               as root: mount, again and again, for programs of UID
    hand_over.py take SOCKET COMMAND ARGUMENT…        without rights: run a command whose argument {} is /dev/fd/N

The program that mounts opens the device, mounts, and passes the descriptor over the Unix socket (`SCM_RIGHTS`). It
keeps no copy, so that requests fail once the daemon is gone. The other end of the connection stays open in the daemon:
when it closes, the daemon has ended, and its mount is replaced. A program that reads in between gets an error.
"""

import ctypes
import os
import signal
import socket
import struct
import sys
import time

MS_NOSUID, MS_NODEV, MS_NOEXEC, MNT_DETACH = 2, 4, 8, 2
PATIENCE = 60
"""Seconds for which the daemon waits for the program that mounts."""
LIBC = ctypes.CDLL(None, use_errno=True)


def mount(point: str, uid: int) -> int:
    """Mount at a directory, and return the descriptor. Raises OSError."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    # The kernel checks modes, and users other than the daemon's may enter: the workload has a user of its own.
    options = f"fd={device},rootmode=40000,user_id={uid},group_id={uid},default_permissions,allow_other"
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    if LIBC.mount(b"bbfs", os.fsencode(point), b"fuse.bbfs", flags, options.encode()):
        os.close(device)
        raise OSError(ctypes.get_errno(), "mount", point)
    return device


def unmount(point: str) -> None:
    """Remove all mounts at a directory, dead ones too. What has files open there goes on to its end."""
    while LIBC.umount2(os.fsencode(point), MNT_DETACH) == 0:
        pass


def peer(connection: socket.socket) -> int:
    """Return the user of the program at the other end, by the kernel's word."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1]


def serve(point: str, path: str, uid: int) -> None:
    """Mount for one daemon after the other, until SIGTERM."""
    unmount(point)
    os.makedirs(point, exist_ok=True)
    if os.path.lexists(path):
        os.unlink(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        os.chmod(path, 0o666)  # who connects is checked below, by what the kernel says
        listener.listen(1)
        while True:
            connection, _ = listener.accept()
            with connection:
                if peer(connection) != uid:
                    print(f"refused user {peer(connection)}", flush=True)
                    continue
                device = mount(point, uid)
                try:
                    socket.send_fds(connection, [b"fuse"], [device])
                except OSError as error:
                    print(f"the daemon has gone: {error}", flush=True)
                finally:
                    os.close(device)
                print(f"mounted {point}", flush=True)
                try:
                    connection.recv(1)  # returns when the daemon ends
                except OSError:
                    pass  # a daemon that was killed may reset the connection
            unmount(point)
            print("the daemon has ended", flush=True)


def take(path: str, command: list[str]) -> None:
    """Become the command, with the descriptor of a mount."""
    deadline = time.monotonic() + PATIENCE
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    while True:
        try:
            connection.connect(path)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    _, descriptors, _, _ = socket.recv_fds(connection, 16, 1)
    if not descriptors:
        raise SystemExit("no descriptor came: the other end takes no programs of this user")
    os.set_inheritable(descriptors[0], True)
    os.set_inheritable(connection.fileno(), True)  # its end tells that the daemon has ended
    words = [word.replace("{}", f"/dev/fd/{descriptors[0]}") for word in command]
    os.execvp(words[0], words)


def main(mode: str, *arguments: str) -> None:
    if mode == "take":
        take(arguments[0], list(arguments[1:]))
    point, path, uid = arguments
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        serve(point, path, int(uid))
    finally:
        unmount(point)


if __name__ == "__main__":
    main(*sys.argv[1:])
