"""Descriptions of the entries of a source of vectors, with their native URIs. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bbfs.model.errors import NotFound
from bbfs.model.redaction import shown
from bbfs.model.uri_paths import show_component
from bbfs.model.values import ResourceMetadata
from bbfs.sources.database.entries import NativeUris
from bbfs.sources.database.names import identifier_text, segment_of, text_identifier
from bbfs.sources.vector_search.values import Collection, Match

JSON = "application/json"
INFO, POINTS, NEAR, RESULTS = "info.json", "point", "near", "results.json"


class VectorEntries(NativeUris):
    def _at(self, segments: Sequence[str], **about: Any) -> ResourceMetadata:
        if about.get("kind", "resource") == "resource":
            about = {"mime_type": JSON, "content_type": "text", **about}
        return self.metadata(segments, **about)

    def collection(self, collection: Collection) -> ResourceMetadata:
        about = {"dimensions": collection.dimensions, "metric": collection.metric, "element": collection.element}
        return self._at([collection_segment(collection.name)], kind="directory", properties=about)

    def of_collection(self, segment: str) -> Iterator[ResourceMetadata]:
        """Yield the entries of a collection's directory."""
        yield self._at([segment, INFO], description="dimensions, metric, and fields of the payload")
        yield self._at([segment, POINTS], kind="directory", description="the points, each with payload and vector")
        yield self._at([segment, NEAR], kind="directory", description="near/ID/: the nearest points of a point")

    def point(self, segment: str, id: str) -> ResourceMetadata:
        return self._at([segment, POINTS, point_segment(id)])

    def neighbours(self, segment: str, id: str) -> ResourceMetadata:
        """Return the directory of the nearest points of a point."""
        return self._at([segment, NEAR, segment_of(identifier_text(id))], kind="directory")

    def results(self, segment: str, id: str) -> ResourceMetadata:
        """Return the file with the nearest points of a point and their scores."""
        return self._at([segment, NEAR, segment_of(identifier_text(id)), RESULTS])

    def search(self, segment: str, search: str, *, is_file: bool, on_open: bool) -> ResourceMetadata:
        """Return a search as a file or directory. search: its segment."""
        if is_file:
            return self._at([segment, search], on_open=on_open, description="results of a search")
        return self._at([segment, search], kind="directory", description="links to the results of a search")

    def links(self, above: Sequence[str], matches: Iterable[Match]) -> Iterator[ResourceMetadata]:
        """Yield links to points in the order of their rank. above: segments of the directory."""
        found = list(matches)
        digits = max(2, len(str(len(found))))
        for rank, match in enumerate(found, 1):
            to_collection = "../" * (len(above) - 1)
            target = f"{to_collection}{POINTS}/{show_component(point_segment(match.id))}"
            name = segment_of(f"{rank:0{digits}d} {identifier_text(match.id)}.json")
            yield self._at([*above, name], kind="symlink", target=target)


def collection_segment(name: str) -> str:
    return segment_of(identifier_text(name))


def point_segment(id: str) -> str:
    return segment_of(identifier_text(id) + ".json")


def id_of(text: str) -> str:
    """Return the id in the text of a point's file. Raise NotFound."""
    if not text.endswith(".json"):
        raise NotFound(f"{shown(text)}: no such point; its name ends with .json")
    return text_identifier(text.removesuffix(".json"))
