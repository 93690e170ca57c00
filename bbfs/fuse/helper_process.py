"""Small processes beside the daemon, which need nothing but the standard library."""

import socket
import subprocess
import sys

import trio


def started(program: str, *descriptors: int) -> tuple[trio.socket.SocketType, subprocess.Popen[bytes]]:
    """Start a process, and return the daemon's end of a socket to it. Raise OSError.

    program: the path of its file. descriptors: what it gets, each with its number as an argument; the last argument is
    the number of its own end of the socket. Messages keep their boundaries.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    given = (*descriptors, theirs.fileno())
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", program, *map(str, given)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=given,
            env={},
            cwd="/",
            start_new_session=True,  # the signals of a terminal do not reach it
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return trio.socket.from_stdlib_socket(ours), process
