"""The spans of a mount: one for each request of the kernel that a source is asked for, with a child for each request
to the source.

A context variable carries the request of the kernel into the tasks that it starts. Its span begins with the first
request to a source, dated back: most requests are answered from memory and have no span. A request to a source that
begins after the answer to the kernel, such as readahead, is a trace of its own.

The current span of OpenTelemetry is not set, so the SDKs of sources pass no trace on to servers.
"""

import errno
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import iscoroutinefunction
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pyfuse3
import trio
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

from bbfs import __version__
from bbfs.fuse.adapter import Operations
from bbfs.fuse.status.whole import path_of_request
from bbfs.fuse.waiting_programs import Interrupts, name_of
from bbfs.model.errors import BbfsError, NotFound, NotSupported
from bbfs.model.values import Loaded
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.sources.content.ranges import RangedContent

T = TypeVar("T")
REQUESTS = (
    *("list", "list_through", "list_directory", "read_directory", "find", "load", "load_if_changed", "stat"),
    *("search", "complete"),
    *("write", "write_described", "stage", "write_staged", "unstage", "remove", "rename"),
    *("make_directory", "remove_directory", "set_time", "tools", "call"),
)
"""The methods of handlers that ask the source, see `bbfs.sources.abilities`."""
_ORDINARY = frozenset((errno.ENOENT, errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS))
"""Answers to the kernel that are no failures."""


class _Asked:
    """A request of the kernel. pid: the thread that waits (0: unknown). what: as `Interrupts.watching` takes it."""

    __slots__ = ("_began", "_is_answered", "_operation", "_span", "_tracing", "pid", "what")

    def __init__(self, tracing: "Tracing", operation: str) -> None:
        self.pid = 0
        self.what: tuple[Any, ...] = ()
        self._tracing = tracing
        self._operation = operation
        self._began = time.time_ns()
        self._is_answered = False
        self._span: Span | None = None

    def parent(self, source_id: str) -> Context:
        """Return the context of a request to a source. Begin the span at the first one."""
        if self._is_answered:
            return Context()
        if self._span is None:
            path = path_of_request(self.what, self._tracing.path_of)
            known = {"bbfs.pid": self.pid or None, "bbfs.program": name_of(self.pid), "bbfs.path": path}
            given = {"bbfs.source": source_id, **{key: value for key, value in known.items() if value is not None}}
            begin = self._tracing.tracer.start_span
            self._span = begin(f"fuse {self._operation}", Context(), SpanKind.SERVER, given, start_time=self._began)
        return set_span_in_context(self._span, Context())

    def answered(self, number: int) -> None:
        """End the span. number: the errno of the answer, 0 for success."""
        self._is_answered = True
        if self._span is not None:
            _end(self._span, number, is_failure=number != 0 and number not in _ORDINARY)


_asked: ContextVar[_Asked | None] = ContextVar("asked", default=None)
"""The request of the kernel on whose behalf a task runs."""
_request: ContextVar[Span | None] = ContextVar("request", default=None)
"""The request to a source in which a task runs."""


def _end(span: Span, number: int, *, is_failure: bool) -> None:
    span.set_attribute("bbfs.outcome", errno.errorcode.get(number, str(number)) if number else "ok")
    if is_failure:
        span.set_status(Status(StatusCode.ERROR))
    span.end()


class _NotedInterrupts(Interrupts):
    """Notes the waiting thread, and what it waits for, for the span of its request."""

    @contextmanager
    def watching(self, pid: int, *, until_gone: bool = True, what: tuple[Any, ...] = ()) -> Iterator[trio.CancelScope]:
        asked = _asked.get()
        if asked is not None:
            asked.pid, asked.what = pid, what
        with super().watching(pid, until_gone=until_gone, what=what) as scope:
            yield scope


class Tracing:
    """The traces of one mount. processor: takes the spans that have ended."""

    def __init__(self, processor: SpanProcessor) -> None:
        service = Resource.create({"service.name": "bbfs", "service.version": __version__})
        self._provider = TracerProvider(
            resource=service.merge(OTELResourceDetector().detect()),  # the variables come first
            shutdown_on_exit=False,  # which would wait for a collector that does not answer
        )
        self._provider.add_span_processor(processor)
        self.tracer = self._provider.get_tracer("bbfs", __version__)
        self.interrupts: Interrupts = _NotedInterrupts()
        self.path_of: Callable[[int], tuple[str, ...]] = lambda _inode: ()

    def begin(
        self, operations: Operations, manager: ResourceManager, path_of: Callable[[int], tuple[str, ...]]
    ) -> Operations:
        """Trace the requests to all sources of a manager. Return the operations with traces."""
        self.path_of = path_of
        for source in manager.sources.values():
            self.follow(source)
        manager.source_changes.subscribe(lambda each: self.follow(each.source) if each.event == "added" else None)
        found = {name: getattr(operations, name) for name in dir(pyfuse3.Operations) if not name.startswith("_")}
        traced = {name: self._answer(name, each) if iscoroutinefunction(each) else each for name, each in found.items()}
        return cast(Operations, SimpleNamespace(**traced))

    def end(self) -> None:
        """Export what waits, in the calling thread."""
        self._provider.shutdown()

    def follow(self, source: Source) -> None:
        """Trace the requests to a source."""
        for kind in REQUESTS:
            method = getattr(source.handler, kind, None)
            if method is not None:
                setattr(source.handler, kind, self._asking(source.data.id, kind, method))

    def _answer(self, operation: str, method: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def answer(*arguments: Any) -> T:
            asked = _Asked(self, operation)
            token = _asked.set(asked)
            outcome = errno.EINTR  # if it is cancelled
            try:
                result = await method(*arguments)
                outcome = 0
                return result
            except pyfuse3.FUSEError as error:
                outcome = error.errno
                raise
            finally:
                _asked.reset(token)
                asked.answered(outcome)

        return answer

    def _asking(self, source_id: str, kind: str, method: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def ask(*arguments: Any, **options: Any) -> T:
            within = _request.get()
            if within is not None and within.is_recording():
                return await method(*arguments, **options)  # a part of that request
            with self._span(source_id, kind):
                answer = await method(*arguments, **options)
            for part in answer.parts if isinstance(answer, Loaded) else ():
                if isinstance(part.content, RangedContent):
                    part.content.fetch = self._asking(source_id, "read", part.content.fetch)
            return answer

        return ask

    @contextmanager
    def _span(self, source_id: str, kind: str) -> Iterator[None]:
        asked = _asked.get()
        parent = Context() if asked is None else asked.parent(source_id)
        span = self.tracer.start_span(f"source {kind}", parent, SpanKind.CLIENT, {"bbfs.source": source_id})
        token = _request.set(span)
        number, is_failure = 0, False
        try:
            yield
        except BaseException as error:
            number = (error.errno if isinstance(error, BbfsError) else 0) or errno.EIO
            if isinstance(error, trio.Cancelled):
                number = errno.ECANCELED
            is_failure = not isinstance(error, NotFound | NotSupported)
            span.set_attribute("error.type", type(error).__name__)
            raise
        finally:
            _request.reset(token)
            _end(span, number, is_failure=is_failure)


def exporting() -> Tracing:
    """Return traces that a thread exports, as the variables say. Raise ValueError for a wrong one.

    Spans beyond a bounded queue are dropped (OTEL_BSP_MAX_QUEUE_SIZE): no request waits for the collector.
    """
    return Tracing(BatchSpanProcessor(OTLPSpanExporter()))
