"""Descriptions of the entries of a database's tree, with their native URIs. Pure."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bbfs.model.errors import NotFound
from bbfs.model.uri import source_uri
from bbfs.model.uri_paths import show_component
from bbfs.model.values import ContentType, ResourceMetadata
from bbfs.sources.database.names import (
    QUERIES,
    Key,
    KeyValue,
    identifier_text,
    key_text,
    schema_text,
    segment_of,
    shown,
    value_text,
)
from bbfs.sources.database.queries import Query
from bbfs.sources.database.rendering import RowFormat
from bbfs.sources.database.tables import Schema, Table, without_none
from bbfs.sources.media_types import content_type_of

_TYPES = {
    "sql": "application/sql",
    "json": "application/json",
    "csv": "text/csv",
    "ndjson": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
    "count": "text/plain",
}
_ABOUT = {
    "schema.sql": "SQL that makes it",
    "columns.json": "its columns, keys and indexes",
    "rows.csv": "all rows as CSV",
    "rows.ndjson": "all rows, a JSON object in each line",
    "rows.parquet": "all rows as Parquet",
    "count": "how many rows there are",
}


class NativeUris:
    """The native URIs of one source. base_prefix: of the source. scheme: of its native URIs."""

    def __init__(self, base_prefix: str, scheme: str) -> None:
        self._base_prefix = base_prefix
        self._start = f"{scheme}://"

    def path_of(self, native_uri: str) -> tuple[str, ...]:
        """Return the segments of a native URI. Raises NotFound for one of another scheme, and for the root."""
        if not native_uri.lower().startswith(self._start):
            raise NotFound(f"{shown(native_uri)}: the URIs of this source begin with {self._start}")
        path = tuple(native_uri[len(self._start) :].split("/"))
        if path == ("",):
            raise NotFound(f"{shown(native_uri)}: names nothing")
        return path

    def metadata(self, segments: Sequence[str], **about: Any) -> ResourceMetadata:
        """Return what a native URI of these segments names, by default under the file name of the last one."""
        native_uri = self._start + "/".join(segments)
        uri = source_uri(self._base_prefix, native_uri)
        return ResourceMetadata(uri, native_uri, **{"name": show_component(segments[-1]), **about})


def types_of(name: str) -> tuple[str, ContentType]:
    """Return the MIME type of a file, by the end of its name."""
    mime_type = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
    return mime_type, content_type_of(mime_type)


class DatabaseEntries(NativeUris):
    """Makes the descriptions. base_prefix: of the source. scheme: of its native URIs.

    formats: of rows, by the names of the files. of_all_rows: files that a large table has, but does not list.
    """

    def __init__(self, base_prefix: str, scheme: str, formats: Collection[RowFormat]) -> None:
        super().__init__(base_prefix, scheme)
        self.formats: Mapping[str, RowFormat] = {f"rows.{form}": form for form in formats}
        self.of_all_rows = (*self.formats, "count")

    def _made(self, path: Iterable[str], **about: Any) -> ResourceMetadata:
        segments = [segment_of(text) for text in path]
        return self._at(segments, **about)

    def _at(self, segments: list[str], **about: Any) -> ResourceMetadata:
        if "properties" in about:
            about["properties"] = _printable(about["properties"])
        if about.get("kind", "resource") == "resource":
            mime_type, content_type = types_of(segments[-1])
            about = {"mime_type": mime_type, "content_type": content_type, **about}
        return self.metadata(segments, **about)

    def schema(self, schema: Schema) -> ResourceMetadata:
        return self._made(
            [schema_text(schema.name)],
            description=schema.comment,
            kind="directory",
            properties=without_none(schema=schema.name, comment=schema.comment),
        )

    def query_directory(self) -> ResourceMetadata:
        return self._made([QUERIES], description="named queries of the configuration", kind="directory")

    def table_name(self, table: Table) -> ResourceMetadata:
        path, properties = _path(table.schema, table.name), table.properties(listed=True)
        return self._made(path, description=table.comment, kind="directory", properties=properties)

    def table(self, table: Table, is_large: bool) -> Iterator[ResourceMetadata]:
        """Yield the entries of a table's directory. is_large: without those of all rows, whose size costs too much."""
        path, properties = _path(table.schema, table.name), table.properties()
        for name in ("schema.sql", "columns.json", *(() if is_large else self.of_all_rows)):
            yield self.file(table, name)
        if is_large and table.has_parts:
            about = "all rows in parts, by ranges of their keys"
            yield self._made([*path, "rows"], description=about, kind="directory", properties=properties)
        if table.primary_key:
            about = f"rows by {', '.join(table.primary_key)}"
            yield self._made([*path, "row"], description=_printable(about), kind="directory", properties=properties)
        if table.indexed:
            about = f"rows by {', '.join(table.indexed)}"
            yield self._made([*path, "by"], description=_printable(about), kind="directory", properties=properties)

    def file(self, table: Table, name: str) -> ResourceMetadata:
        path = [*_path(table.schema, table.name), name]
        return self._made(path, description=_ABOUT[name], properties=table.properties())

    def part(self, table: Table, name: str) -> ResourceMetadata:
        return self._made([*_path(table.schema, table.name), "rows", name])

    def column(self, table: Table, column: str) -> ResourceMetadata:
        properties = {"column": column, "column_type": table.column(column).type}
        path = [*_path(table.schema, table.name), "by", identifier_text(column)]
        return self._made(path, kind="directory", properties=properties)

    def value(self, table: Table, column: str, value: KeyValue) -> ResourceMetadata:
        path = [*_path(table.schema, table.name), "by", identifier_text(column), value_text(value)]
        return self._made(path, kind="directory")

    def row(self, table: Table, below: tuple[str, ...], key: Key) -> ResourceMetadata:
        """Return a row in `row/`, or the link to it in a directory of `by/`."""
        name = key_text(key) + ".json"
        path = [*_path(table.schema, table.name), *below, name]
        if below == ("row",):
            return self._made(path)
        return self._made(path, kind="symlink", target="../../../row/" + show_component(segment_of(name)))

    def queries(self, queries: Iterable[Query]) -> Iterator[ResourceMetadata]:
        """Yield the SQL of the named queries, and the results of those that need no values and cost little."""
        for query in queries:
            yield self.query(query, f"{query.name}.sql")
            if not query.required and not query.options.lazy:
                yield self.query(query, f"{query.name}.csv")
                yield self.query(query, f"{query.name}.ndjson")

    def made_of_rows(self, schema: str, table: str, queries: Iterable[Query]) -> list[str]:
        """Return the native URIs of the listed files that a change of a row changes, too. schema, table: in URIs."""
        of_table = [self._made([schema, table, name]) for name in self.of_all_rows]
        return [each.native_uri for each in (*of_table, *self.queries(queries)) if not each.native_uri.endswith(".sql")]

    def directories_of_rows(self, schema: str, table: str) -> list[str]:
        """Return the native URIs of directories whose files a change of a row may change. schema, table: in URIs."""
        return [self._made(path, kind="directory").native_uri for path in ([schema, table, "rows"], [QUERIES])]

    def query(self, query: Query, segment: str) -> ResourceMetadata:
        parameters = {name: parameter.type for name, parameter in query.parameters.items()}
        return self._at(
            [QUERIES, segment],
            name=show_component(segment),
            description=query.options.description,
            properties=without_none(query=query.name, parameters=parameters or None),
        )


def _path(schema: str, table: str) -> list[str]:
    return [schema_text(schema), identifier_text(table)]


def _printable(value: Any) -> Any:
    """Return a value with replacement characters for everything in its texts that is not UTF-8."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
