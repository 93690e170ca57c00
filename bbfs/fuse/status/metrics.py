"""The state of a mount as metrics, in the text format of Prometheus.

Names follow https://prometheus.io/docs/practices/naming/: base units, and `_total` for what only grows.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STATES = ("idle", "connecting", "up", "down")
Sample = tuple[dict[str, str], float]


def exposition(state: dict[str, Any]) -> bytes:
    """Return the metrics of a state (`.bbfs/status.json`)."""
    client: Any = import_module("prometheus_client")  # at its first use: few daemons are asked
    core: Any = import_module("prometheus_client.core")
    kinds = {"counter": core.CounterMetricFamily, "gauge": core.GaugeMetricFamily}

    class Collector:
        def collect(self) -> Iterator[Any]:
            for kind, name, says, samples in families(state):
                family = kinds[kind](name, says, labels=list(samples[0][0]) if samples else [])
                for labels, value in samples:
                    family.add_metric(list(labels.values()), value)
                yield family

    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    text: bytes = client.generate_latest(registry)
    return text


def families(document: dict[str, Any]) -> Iterator[tuple[str, str, str, list[Sample]]]:
    """Yield kind, name, description and samples of each metric."""
    process, memory, sources = document["process"], document["memory"], document["sources"]

    def each(*path: str) -> list[Sample]:
        found: list[Sample] = []
        for source in sources:
            value = source
            for key in path:
                value = value[key]
            found.append(({"source": source["id"]}, value))
        return found

    states = [
        ({"source": source["id"], "state": name}, float(source["state"] == name))
        for source in sources
        for name in _STATES
    ]
    loads = [({"tier": tier}, number) for tier, number in document["loads_from"].items()]
    yield "gauge", "bbfs_info", "The version of bbfs.", [({"version": process["version"]}, 1)]
    yield "gauge", "process_resident_memory_bytes", "Resident memory of the daemon.", [({}, process["bytes"])]
    yield "gauge", "process_open_fds", "Open descriptors of the daemon.", [({}, process["descriptors"])]
    yield "gauge", "process_threads", "Threads of the daemon.", [({}, process["threads"])]
    yield "gauge", "bbfs_waiting_programs", "Programs that wait for an answer.", [({}, len(document["waiting"]))]
    yield "counter", "bbfs_loads", "Loads of contents, by what answered them.", loads
    yield "gauge", "bbfs_cache_bytes", "Bytes of the contents in memory.", [({}, memory["bytes"])]
    yield "gauge", "bbfs_cache_contents", "Contents in memory.", [({}, memory["contents"])]
    yield "counter", "bbfs_cache_hits", "Contents that were in memory.", [({}, memory["hits"])]
    yield "counter", "bbfs_cache_misses", "Contents that had to be loaded.", [({}, memory["misses"])]
    yield "counter", "bbfs_cache_evictions", "Contents that others have displaced.", [({}, memory["evictions"])]
    yield "gauge", "bbfs_source_state", "1 for the state that a source is in.", states
    yield "gauge", "bbfs_source_resources", "Listed resources of a source.", each("resources")
    yield "gauge", "bbfs_source_waiting_programs", "Programs that wait for a source.", each("waiting")
    yield "gauge", "bbfs_source_requests_in_flight", "Requests under way.", each("in_flight")
    yield "counter", "bbfs_source_requests", "Requests that have ended.", each("requests", "ended")
    yield "counter", "bbfs_source_requests_failed", "Requests that have failed.", each("requests", "failed")
    yield "counter", "bbfs_source_request_seconds", "Seconds of all requests together.", each("requests", "seconds")
