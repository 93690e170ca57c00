"""The state of the daemon for systemd: sd_notify(3), without its library."""

import os
import socket
import time
from collections.abc import Mapping


class ServiceManager:
    """The notification socket of the environment; without one every method does nothing.

    watchdog: seconds within which the service manager expects a message, or None.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        microseconds = environ.get("WATCHDOG_USEC", "")
        meant = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog = int(microseconds) / 1e6 if microseconds.isdigit() and int(microseconds) > 0 and meant else None

    def reloading(self) -> None:
        """Say that the configuration is read again. `tell(READY="1")` follows."""
        self.tell(RELOADING="1", MONOTONIC_USEC=str(time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000))

    def tell(self, **fields: str) -> None:
        """Send fields as `NAME=value` lines: READY, STATUS, STOPPING, WATCHDOG, MAINPID."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        message = "\n".join(f"{name}={value}".replace("\n", " ") for name, value in fields.items())
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)  # its queue holds a few messages (net.unix.max_dgram_qlen), and we must not wait
            try:
                sock.sendto(message.encode("utf-8", "surrogateescape"), address)
            except OSError:
                return  # the service manager is gone, or behind; that is no reason to stop serving
