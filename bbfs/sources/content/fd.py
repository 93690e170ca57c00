"""An open file descriptor with an owner."""

import logging
import os

log = logging.getLogger(__name__)


class Descriptor:
    """Owns an open file descriptor. It is closed by `close`, or with the last reference, whichever comes first.

    So what a worker thread has opened is closed even if nobody waits for the thread any more, and never while another
    thread still uses it through a reference of its own.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def fileno(self) -> int:
        return self.number

    def close(self) -> None:
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        try:
            self.close()
        except OSError as error:
            log.warning("closing a file failed: %s", error)

    def __enter__(self) -> "Descriptor":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
