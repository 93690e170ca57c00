"""The traces of a real mount, as a collector of OpenTelemetry gets them."""

from collections.abc import Iterator
from contextlib import closing
from typing import ClassVar

import pytest
from harness import Mounts
from http_server import Answers, HttpServer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from programs import run
from scripted import ScriptedServer

PATH = "mcp-server+docs/test/d/note"


class Collector(HttpServer):
    """Receives OTLP over HTTP. received: the exports, by the path of their request."""

    def __init__(self) -> None:
        self.received: list[tuple[str, ExportTraceServiceRequest]] = []
        super().__init__(type("Bound", (_Export,), {"received": self.received}))

    def spans(self) -> list[Span]:
        return [
            span
            for _, export in self.received
            for resource in export.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class _Export(Answers):
    received: ClassVar[list[tuple[str, ExportTraceServiceRequest]]]

    def answer(self) -> None:
        self.received.append((self.path, ExportTraceServiceRequest.FromString(self.body())))
        self.reply(200)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with closing(Collector()) as server:
        yield server


def attributes(span: Span) -> dict[str, str | int]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def test_a_collector_gets_the_requests_of_a_mount(
    mounted: Mounts, server: ScriptedServer, collector: Collector
) -> None:
    server.add("test://d/note", "a secret")
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
    }
    mount = mounted(server.source("docs"), environ=environ)
    assert run("cat", mount / PATH).text == "a secret"
    mount.stop()  # which exports all that waits

    assert {where for where, _ in collector.received} == {"/v1/traces"}
    resource = collector.received[0][1].resource_spans[0].resource
    given = {each.key: each.value.string_value for each in resource.attributes}
    assert given["service.name"] == "bbfs"
    assert given["deployment.environment.name"] == "test"
    spans = collector.spans()
    (loading,) = (span for span in spans if span.name == "source load")
    (opening,) = (span for span in spans if span.span_id == loading.parent_span_id)
    assert opening.trace_id == loading.trace_id
    assert opening.name.startswith("fuse ")
    assert attributes(opening)["bbfs.path"] == PATH
    assert attributes(opening)["bbfs.program"] == "cat"
    assert attributes(opening)["bbfs.outcome"] == attributes(loading)["bbfs.outcome"] == "ok"
    assert any(span.name == "source list" for span in spans)
    assert not any(b"a secret" in export.SerializeToString() for _, export in collector.received)


def test_a_mount_whose_traces_are_off_exports_nothing(
    mounted: Mounts, server: ScriptedServer, collector: Collector
) -> None:
    server.add("test://d/note", "text")
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SDK_DISABLED": "true"}
    mount = mounted(server.source("docs"), environ=environ)
    assert run("cat", mount / PATH).text == "text"
    mount.stop()
    assert not collector.received
