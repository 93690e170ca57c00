"""The health of a source, as the answers to its requests show it."""

import logging
import os

from bbfs.model.errors import BbfsError
from bbfs.model.redaction import shown
from bbfs.model.values import SourceState

_log = logging.getLogger(__name__)


class Health:
    """A block around each request; `state` follows from how the latest one ended.

    outages: the errors after which the source is `down`. After any other error, which is an answer too, it is `up`.
    """

    def __init__(self, *outages: type[BbfsError]) -> None:
        self.state = SourceState("idle")
        self._outages = outages

    def look_for(self, source_id: str, path: str) -> None:
        """Say in the log that the local file of a source is missing, before a program finds out. It may come later."""
        if not os.path.exists(path):
            reason = f"{shown(path, 1000)}: the file is not there"
            self.state = SourceState("down", reason=reason)
            _log.warning("%s: %s", source_id, reason)

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, self._outages):
            self.state = SourceState("down", reason=str(error))
        elif error is None or isinstance(error, BbfsError):
            self.state = SourceState("up")
