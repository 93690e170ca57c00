"""Listings of any length in little memory: a row a resource, equal descriptions kept once. Pure.

A resource costs its native URI and a slot of a table. What else is said of it (`Description`) is a plain tuple, shared
by all resources of which the same is said; a name that is the URI's last part, as most are, is not written out in it.
Tuples and texts are nothing that Python's cyclic garbage collector goes through, so a million of them delays nobody.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, overload

from bbfs.model.bucket_dict import Buckets
from bbfs.model.errors import InvalidUri
from bbfs.model.uri import parse_data_source_uri, source_uri
from bbfs.model.values import ResourceMetadata

Description = tuple[Any, ...]
"""The fields of `FIELDS` in this order; those at the end that have their default are left out."""

FIELDS: Final = (
    "name",
    "mime_type",
    "size",
    "title",
    "description",
    "modified_ns",
    "annotations",
    "mcp_data",
    "content_type",
    "etag",
    "uri_template",
    "variables",
    "kind",
    "target",
    "on_open",
    "lazy",
    "properties",
    "uri",
)
_DEFAULTS: Final = (None,) * 8 + ("unknown",) + (None,) * 3 + ("resource", None, False, False, None, None)
_POSITION = {field: position for position, field in enumerate(FIELDS)}
MIME_TYPE, SIZE, MODIFIED_NS = _POSITION["mime_type"], _POSITION["size"], _POSITION["modified_ns"]
_ETAG, _KIND = _POSITION["etag"], _POSITION["kind"]
_SHARED_AT_MOST = 10_000
"""Descriptions that are looked up in order to be shared; where there are more, most are of one resource each."""
_LAST_PART = None
"""Stands for a name that is the last part of the URI."""


def last_part(uri: str) -> str:
    """What follows the last slash, or the whole URI where nothing does."""
    return uri[uri.rfind("/") + 1 :] or uri


def base_prefix(uri: str) -> str:
    """The prefix without a scheme of a bbfs URI, or nothing where there is none."""
    try:
        return parse_data_source_uri(uri).base_prefix
    except InvalidUri:
        return ""


def trimmed(values: Sequence[Any]) -> Description:
    """`values` of all `FIELDS` without the defaults at their end."""
    end = len(values)
    while end and values[end - 1] == _DEFAULTS[end - 1]:
        end -= 1
    return tuple(values[:end])


def value(description: Description, position: int) -> Any:
    """One field, by its position in `FIELDS`."""
    return description[position] if position < len(description) else _DEFAULTS[position]


def version(description: Description) -> tuple[Any, Any, Any]:
    """What hints at another content when it changes: size, time and etag."""
    return value(description, SIZE), value(description, MODIFIED_NS), value(description, _ETAG)


def is_plain_file(description: Description) -> bool:
    """Whether it is shown as a file until a load tells otherwise."""
    return len(description) <= _KIND


class Rows(Sequence[ResourceMetadata]):
    """The resources of one listing, each URI once, in the order in which they came, or of URIs where there are many.

    Only its owner changes it.

    base_prefix: of the source (`DataSource.base_prefix`).
    """

    __slots__ = ("_base_prefix", "_descriptions", "_shared")

    def __init__(self, base_prefix: str, resources: Iterable[ResourceMetadata] = ()) -> None:
        self._base_prefix = base_prefix
        self._descriptions: Buckets[Description] = Buckets()
        self._shared: dict[Description, Description] = {}
        for metadata in resources:
            self.add_metadata(metadata)

    # -- making ------------------------------------------------------------------------------------------------------

    def add(self, uri: str, description: Description) -> None:
        """Add a row, unless there is one of this native URI. description: `trimmed`, and `shared` where that helps."""
        self._descriptions.setdefault(uri, description)

    def shared(self, description: Description) -> Description:
        """An equal description that is there already, if any."""
        shared = self._shared
        try:
            if len(shared) >= _SHARED_AT_MOST:
                return shared.get(description, description)
            return shared.setdefault(description, description)
        except TypeError:  # it holds an object of the server's
            return description

    def described(self, uri: str, name: str, *rest: Any) -> Description:
        """The description with these values of `FIELDS`, as far as they are given."""
        return self.shared(trimmed((_LAST_PART if name == last_part(uri) else name, *rest)))

    def add_metadata(self, metadata: ResourceMetadata) -> None:
        uri = metadata.native_uri
        derived = source_uri(self._base_prefix, uri)
        values = [getattr(metadata, field) for field in FIELDS[1:-1]]
        self.add(uri, self.described(uri, metadata.name, *values, None if metadata.uri == derived else metadata.uri))

    def replace(self, uri: str, description: Description) -> None:
        """Describe a resource that is listed anew."""
        if uri in self._descriptions:
            self._descriptions[uri] = description

    def discard(self, uri: str) -> None:
        """Take a row out, if there is one."""
        self._descriptions.pop(uri, None)

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def base_prefix(self) -> str:
        return self._base_prefix

    @property
    def descriptions(self) -> Buckets[Description]:
        """Description by native URI. Not to be changed."""
        return self._descriptions

    def metadata(self, uri: str) -> ResourceMetadata:
        """All that is said of a resource. Raises KeyError for one that is not listed."""
        description = self._descriptions[uri]
        fields = dict(zip(FIELDS, description, strict=False))
        own = fields.pop("uri", None)
        name = fields.pop("name", None)
        whole = source_uri(self._base_prefix, uri) if own is None else own
        return ResourceMetadata(whole, uri, last_part(uri) if name is _LAST_PART else name, **fields)

    def __contains__(self, uri: object) -> bool:
        """Whether a native URI is listed."""
        return uri in self._descriptions

    def __len__(self) -> int:
        return len(self._descriptions)

    def __iter__(self) -> Iterator[ResourceMetadata]:
        return map(self.metadata, self._descriptions)

    @overload
    def __getitem__(self, index: int) -> ResourceMetadata: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ResourceMetadata]: ...
    def __getitem__(self, index: int | slice) -> ResourceMetadata | Sequence[ResourceMetadata]:
        """By position, in time linear in it."""
        if isinstance(index, slice):
            return tuple(self.metadata(uri) for uri in islice(self._descriptions, *index.indices(len(self))))
        position = index if index >= 0 else len(self) + index
        for uri in islice(self._descriptions, max(position, 0), None):
            return self.metadata(uri)
        raise IndexError(index)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Rows):
            return self._base_prefix == other._base_prefix and self._descriptions == other._descriptions
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment]
