"""What a client starts in the place of a server that is forked: `python -I -S stand_in.py ADDRESS WORD…`.

It hands its standard streams to the process at the address (forked_daemon.py), passes signals on, and ends as the
server does.
"""

import json
import os
import resource
import signal
import socket
import sys

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def pass_on(forking: socket.socket, number: int) -> None:
    try:
        forking.send(b"%d" % number)
    except OSError:
        pass  # the server has ended, and this process is about to


def main() -> None:
    request = {
        "words": sys.argv[2:],
        "environ": dict(os.environ),
        "directory": os.getcwd(),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as forking:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        forking.connect("\0" + sys.argv[1])
        socket.send_fds(forking, [json.dumps(request).encode()], [0, 1, 2])
        os.closerange(0, 3)  # so that the server alone holds them
        for number in SIGNALS:
            signal.signal(number, lambda number, _: pass_on(forking, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        try:
            ended = forking.recv(1 << 16)
        except ConnectionResetError:  # said once, of a signal that came too late
            ended = forking.recv(1 << 16)
        status = json.loads(ended or b'{"status": 1}')["status"]
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()
