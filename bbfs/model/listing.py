"""Listings of any length, in little memory and in small steps: a row a resource, equal descriptions kept once. Pure.

A resource costs its native URI and a slot of a table. Its other fields (`Description`) are a plain tuple, which all
resources with equal fields share. A name that is the URI's last part, as most are, is not written out in it. Python's
cyclic garbage collector does not go through tuples and texts, so a million of them causes no delay.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar, overload

from bbfs.model.errors import InvalidUri
from bbfs.model.uri import parse_data_source_uri, source_uri
from bbfs.model.values import ResourceMetadata

T = TypeVar("T")
LARGEST = 8192
"""Keys of a bucket; splitting one takes about 3 ms."""
Description = tuple[Any, ...]
"""The fields of `FIELDS` in this order; those at the end that have their default are left out."""

FIELDS: Final = (
    "name", "mime_type", "size", "title", "description", "modified_ns", "annotations", "mcp_data", "content_type",
    "etag", "uri_template", "variables", "kind", "target", "on_open", "properties", "uri",
)  # fmt: skip
_DEFAULTS: Final = (None,) * 8 + ("unknown",) + (None,) * 3 + ("resource", None, False, None, None)
_POSITION = {field: position for position, field in enumerate(FIELDS)}
MIME_TYPE, SIZE, MODIFIED_NS = _POSITION["mime_type"], _POSITION["size"], _POSITION["modified_ns"]
_ETAG, _KIND = _POSITION["etag"], _POSITION["kind"]
_SHARED_AT_MOST = 10_000
"""Descriptions that are looked up to be shared; beyond that, most are of one resource each."""
_LAST_PART = None
"""Stands for a name that is the last part of the URI."""


class Buckets(MutableMapping[str, T]):
    """A mapping of texts that stays quick to change and to go through when it holds a million of them.

    A dict of that size moves all its items when it grows, and sorting or copying it takes as long: 0.1 s and more in
    which no other task runs. Here the keys are in many small dicts, each of a range of keys, which are split as they
    fill. So one step handles one bucket at most. The buckets are in the order of their keys, the keys within a bucket
    are not; while there is one bucket, they are in the order in which they came, as in a dict.

    As with a dict, it must not change while an iterator of it is in use; `portions` may be.
    """

    __slots__ = ("_buckets", "_first", "_last", "_length", "_lowest", "_orders", "_place", "_recent")

    def __init__(self, items: dict[str, T] | None = None) -> None:
        self._lowest: list[str] = [""]
        """The least key that each bucket may hold."""
        self._buckets: list[dict[str, T]] = [{}]
        self._orders: list[tuple[str, ...] | None] = [None]
        """The keys of each bucket in order, once they were wanted."""
        self._length = self._place = 0
        self._first, self._last, self._recent = "", None, self._buckets[0]  # the range of the bucket last used
        if items:
            self.update(items)

    def _bucket(self, key: str) -> dict[str, T]:
        last: str | None = self._last
        if key >= self._first and (last is None or key < last):
            return self._recent
        self._place = place = bisect_right(self._lowest, key) - 1
        self._first = self._lowest[place]
        self._last = self._lowest[place + 1] if place + 1 < len(self._lowest) else None
        self._recent = self._buckets[place]
        return self._recent

    def _split(self, key: str, value: T) -> None:
        """Add a key to a full bucket: halve it, or begin a new bucket if the key is beyond all others."""
        place = bisect_right(self._lowest, key) - 1
        bucket = self._buckets[place]
        if place == len(self._buckets) - 1 and key > max(bucket):
            self._buckets.append({key: value})
            self._lowest.append(key)
            self._orders.append(None)
        else:
            bucket[key] = value
            keys = sorted(bucket)
            half = len(keys) // 2
            self._buckets[place : place + 1] = [
                {each: bucket[each] for each in keys[:half]},
                {each: bucket[each] for each in keys[half:]},
            ]
            self._lowest.insert(place + 1, keys[half])
            self._orders[place : place + 1] = [None, None]
        self._length += 1
        self._first, self._last = "\U0010ffff", ""  # no key is in this range

    # -- as a dict ---------------------------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> T:
        return self._bucket(key)[key]

    def __setitem__(self, key: str, value: T) -> None:
        bucket = self._bucket(key)
        before = len(bucket)
        if before >= LARGEST and key not in bucket:
            self._split(key, value)
            return
        bucket[key] = value
        if len(bucket) != before:
            self._length += 1
            self._orders[self._place] = None

    def setdefault(self, key: str, default: T) -> T:  # type: ignore[override] # no default is no value
        bucket = self._bucket(key)
        before = len(bucket)
        if before >= LARGEST and key not in bucket:
            self._split(key, default)
            return default
        value = bucket.setdefault(key, default)
        if len(bucket) != before:
            self._length += 1
            self._orders[self._place] = None
        return value

    def __delitem__(self, key: str) -> None:
        del self._bucket(key)[key]
        self._length -= 1
        self._orders[self._place] = None

    def get(self, key: str, default: T | None = None) -> T | None:  # type: ignore[override]
        return self._bucket(key).get(key, default)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self._bucket(key)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        for bucket in self._buckets:
            yield from bucket

    # -- by position -------------------------------------------------------------------------------------------------

    def _order(self, place: int) -> tuple[str, ...]:
        order = self._orders[place]
        if order is None:
            order = self._orders[place] = tuple(sorted(self._buckets[place]))
        return order

    def position(self, key: str) -> int | None:
        """Return the number of keys before this key, or None if it is absent."""
        if key not in self._bucket(key):
            return None
        place = self._place
        return sum(map(len, self._buckets[:place])) + bisect_left(self._order(place), key)

    def key_at(self, position: int) -> str:
        """Return the key at a position. Raise IndexError."""
        if position >= 0:
            for place, bucket in enumerate(self._buckets):
                if position < len(bucket):
                    return self._order(place)[position]
                position -= len(bucket)
        raise IndexError(position)

    def sorted_keys(self) -> Iterator[str]:
        """Yield the keys in order, without an object for the garbage collector. They must not change meanwhile."""
        for bucket in self._buckets:
            yield from sorted(bucket)

    # -- a bucket at a time ------------------------------------------------------------------------------------------

    def portions(self) -> Iterator[list[tuple[str, T]]]:
        """Yield all items, a bucket at a time. An item that stays comes once, whatever changes between two buckets."""
        after = ""  # where a bucket begins one always will
        while True:
            place = bisect_right(self._lowest, after) - 1
            items = list(self._buckets[place].items())
            end = self._lowest[place + 1] if place + 1 < len(self._lowest) else None
            yield items
            if end is None:
                return
            after = end

    def in_order(self) -> Iterator[list[tuple[str, T]]]:
        """Yield as `portions` does, in the order of the keys."""
        for items in self.portions():
            yield sorted(items, key=_key)


def _key(item: tuple[str, object]) -> str:
    return item[0]


def last_part(uri: str) -> str:
    """Return the text after the last slash, or the whole URI if there is none."""
    return uri[uri.rfind("/") + 1 :] or uri


def base_prefix(uri: str) -> str:
    """Return the prefix of a bbfs URI without its scheme, or an empty text for any other URI."""
    try:
        return parse_data_source_uri(uri).base_prefix
    except InvalidUri:
        return ""


def trimmed(values: Sequence[Any]) -> Description:
    """Return `values` of all `FIELDS` without the defaults at their end."""
    end = len(values)
    while end and values[end - 1] == _DEFAULTS[end - 1]:
        end -= 1
    return tuple(values[:end])


def value(description: Description, position: int) -> Any:
    """Return one field, by its position in `FIELDS`."""
    return description[position] if position < len(description) else _DEFAULTS[position]


def version(description: Description) -> tuple[Any, Any, Any]:
    """Return size, time and etag. A change of the version hints at a new content."""
    return value(description, SIZE), value(description, MODIFIED_NS), value(description, _ETAG)


def is_plain_file(description: Description) -> bool:
    """Return whether the resource is shown as a file until a load shows otherwise."""
    return len(description) <= _KIND


class Rows(Sequence[ResourceMetadata]):
    """The resources of one listing, each URI once, in the order of arrival, or of URIs if there are many.

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
        """Add a row, unless this native URI has a row. description: `trimmed`, and `shared` where that helps."""
        self._descriptions.setdefault(uri, description)

    def shared(self, description: Description) -> Description:
        """Return an equal description that the rows already hold, or this description."""
        shared = self._shared
        try:
            if len(shared) >= _SHARED_AT_MOST:
                return shared.get(description, description)
            return shared.setdefault(description, description)
        except TypeError:  # it holds an unhashable object of the server
            return description

    def described(self, uri: str, name: str, *rest: Any) -> Description:
        """Return the description with these values of `FIELDS`; the rest are defaults."""
        return self.shared(trimmed((_LAST_PART if name == last_part(uri) else name, *rest)))

    def add_metadata(self, metadata: ResourceMetadata) -> None:
        self.add(metadata.native_uri, self._described(metadata))

    def replace_metadata(self, metadata: ResourceMetadata) -> None:
        """Replace the metadata of a resource, if it is listed."""
        self.replace(metadata.native_uri, self._described(metadata))

    def _described(self, metadata: ResourceMetadata) -> Description:
        uri = metadata.native_uri
        derived = source_uri(self._base_prefix, uri)
        values = [getattr(metadata, field) for field in FIELDS[1:-1]]
        return self.described(uri, metadata.name, *values, None if metadata.uri == derived else metadata.uri)

    def replace(self, uri: str, description: Description) -> None:
        """Replace the description of a listed resource."""
        if uri in self._descriptions:
            self._descriptions[uri] = description

    def clear(self) -> None:
        """Take all rows out."""
        self._descriptions = Buckets()

    def discard(self, uri: str) -> None:
        """Take a row out, if there is one."""
        self._descriptions.pop(uri, None)

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def base_prefix(self) -> str:
        return self._base_prefix

    @property
    def descriptions(self) -> Buckets[Description]:
        """The descriptions by native URI. Read-only."""
        return self._descriptions

    def metadata(self, uri: str) -> ResourceMetadata:
        """Return the metadata of a resource. Raise KeyError if it is not listed."""
        description = self._descriptions[uri]
        fields = dict(zip(FIELDS, description, strict=False))
        own = fields.pop("uri", None)
        name = fields.pop("name", None)
        whole = source_uri(self._base_prefix, uri) if own is None else own
        return ResourceMetadata(whole, uri, last_part(uri) if name is _LAST_PART else name, **fields)

    def __contains__(self, uri: object) -> bool:
        """Return whether a native URI is listed."""
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
        """Return a resource by position, in time linear in it."""
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
