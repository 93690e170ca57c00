"""The health of a source, as the answers to its requests show it."""

from bbfs.model.errors import BbfsError
from bbfs.model.values import SourceState


class Health:
    """A block around each request; `state` follows from how the latest one ended.

    outages: the errors after which the source is `down`. After any other error, which is an answer too, it is `up`.
    """

    def __init__(self, *outages: type[BbfsError]) -> None:
        self.state = SourceState("idle")
        self._outages = outages

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, self._outages):
            self.state = SourceState("down", reason=str(error))
        elif error is None or isinstance(error, BbfsError):
            self.state = SourceState("up")
