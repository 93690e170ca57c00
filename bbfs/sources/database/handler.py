"""The tree of a database: schemas, tables, rows by their keys, and named queries.

Native URIs are `sqlite://SCHEMA/TABLE/…` and `postgres://SCHEMA/TABLE/…`; `bbfs.sources.database.names` writes
the names and keys in them. Every request is a transaction of its own, which sees one state of the database.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from bbfs.model.errors import (
    BbfsError,
    Conflict,
    DeadlineExceeded,
    IsADirectory,
    NotFound,
    NotSupported,
    Rejected,
    TooLarge,
    Unreachable,
)
from bbfs.model.uri_paths import hide_component, show_component
from bbfs.model.values import (
    Change,
    Content,
    DataSource,
    Hit,
    Listing,
    Loaded,
    Part,
    ResourceMetadata,
    SourceState,
    WriteOperation,
)
from bbfs.model.versions import Expected
from bbfs.sources import Services
from bbfs.sources.abilities import LONGEST_QUERY
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.database import entries
from bbfs.sources.database.backend import DatabaseBackend, Job, RemoteSession
from bbfs.sources.database.names import (
    QUERIES,
    Key,
    named,
    shown,
    text_identifier,
    text_key,
    text_of,
    text_schema,
    text_value,
    value_text,
)
from bbfs.sources.database.options import DatabaseOptions, access_of
from bbfs.sources.database.queries import Query, parse_file_name
from bbfs.sources.database.rendering import RowFormat, Write
from bbfs.sources.database.search.columns import scanned
from bbfs.sources.database.tables import (
    MOST_RANGED,
    RowHit,
    RowsPart,
    Table,
    columns_json,
    part_of,
    parts_beginning,
    parts_between,
)
from bbfs.sources.database.writing.rows import LARGEST_WRITTEN
from bbfs.sources.health import Health
from bbfs.sources.options import parse_options

T = TypeVar("T")
Path = tuple[str, ...]
_MOST_WORDS = 32
"""Words of a query."""


class DatabaseHandler:
    """One database, asked by processes of its own, from threads.

    Raises ConfigError for options that cannot be used. The first request connects. most_ranged: see `MOST_RANGED`.
    """

    options = DatabaseOptions
    offers: Mapping[str, int] = MappingProxyType({})
    loads_while_wanted = True
    """When all readers have given up, the database cancels the statement."""
    detects_conflicts = True
    """The row is locked from the comparison to the commit."""

    def __init__(self, source: DataSource, services: Services, most_ranged: int = MOST_RANGED) -> None:
        self.source = source
        self._ranged = most_ranged
        self._options = parse_options(DatabaseOptions, source)
        url = self._options.url.get_secret_value()
        self._access = access = access_of(source, url, self._options.max_memory)
        self._backend = DatabaseBackend(access)
        self.local_file = access.file
        self._has_full_text = False
        may_write = access.writes and source.capabilities.write
        self._writer = (
            DatabaseBackend(access.writing(), self._backend if access.writes_alone else None) if may_write else None
        )
        self._spool = services.spool
        self._entries = entries.DatabaseEntries(source.base_prefix, source.scheme or access.scheme, access.formats)
        self._queries = {name: Query(name, given) for name, given in self._options.queries.items()}
        self._health = Health(Unreachable)
        self._sink: Callable[[Change], None] = lambda _: None
        if access.file is not None:
            self._health.look_for(source.id, access.file)

    @property
    def state(self) -> SourceState:
        """`down` after the database could not be reached, `up` after anything else."""
        return self._health.state

    @property
    def notes(self) -> Sequence[str]:
        """Return where the rows are that no listing has."""
        files = ", ".join(f"`{name}`" for name in self._entries.of_all_rows)
        told = [
            f"A table of more than {self._options.row_limit} rows (`row_limit`), and a view whose rows have no"
            f" estimate, lists none of {files}: open them by name. `rows/` has all rows of such a table in parts, by"
            " ranges of its key. It is not there without a primary key, nor for keys of rare types, nor above"
            f" {self._ranged} rows unless the key is a whole number."
        ]
        if any(query.required or query.options.lazy for query in self._queries.values()):
            told.append(
                "Of queries that need values or are `lazy`, only the SQL is listed: open `query/NAME.csv` or"
                " `query/NAME?PARAMETER=VALUE.csv`."
            )
        return told

    async def aclose(self) -> None:
        for backend in filter(None, (self._backend, self._writer)):
            await backend.aclose()

    async def list_directory(self, path: Path) -> Listing:
        if path == (QUERIES,) and self._queries:
            return Listing(tuple(self._entries.queries(self._queries.values())), open=True)
        texts = tuple(map(text_of, path))
        return await self._ask(lambda session, _job: self._list(session, texts))

    async def find(self, path: Path, name: str) -> ResourceMetadata:
        if path == (QUERIES,) and self._queries:
            return self._find_query(name)
        texts = (*map(text_of, path), named(name))
        if len(texts) == 3 and name not in self._entries.of_all_rows:
            raise NotFound(f"{shown(name)}: no such file")  # the listing has the others
        return await self._ask(lambda session, _job: self._find(session, texts))

    @property
    def searches(self) -> bool | None:
        """Return whether the option `search` names columns, or the last listing has found full-text indexes.

        Otherwise return None where there may be some by now.
        """
        if self._options.search is not None or self._has_full_text:
            return True
        return None if self._access.searches else False

    async def search(self, query: str, limit: int) -> Sequence[Hit]:
        """Return the rows that full-text indexes find, then the rows that a scan finds by the option. Raises
        BbfsError."""
        words = " ".join(re.findall(r"\w+", query[:LONGEST_QUERY])[:_MOST_WORDS])
        if not words:
            return ()

        def work(session: RemoteSession, _job: Job) -> list[RowHit]:
            return self._search(session, words, limit)

        found: dict[str, Hit] = {}
        for hit in await self._ask(work):
            uri = self._entries.row(Table(hit.schema, hit.table, "table", ()), ("row",), hit.key).native_uri
            score = None if self._options.search else float(hit.score)
            found.setdefault(uri, Hit(uri, score, snippet=" ".join(str(hit.snippet).split()) or None))
        return [*found.values()][:limit]

    async def load(self, native_uri: str) -> Loaded:
        """Load the content of a file. A large content is spooled to the disk cache."""
        path = self._entries.path_of(native_uri)
        if path[0] == QUERIES and len(path) == 2 and self._queries:
            content = await self._load_query(path[1])
        else:
            texts = tuple(map(text_of, path))
            content = await self._ask(lambda session, job: self._load(session, job, texts))
        mime_type, content_type = entries.types_of(path[-1])
        return Loaded((Part(native_uri, mime_type, content, content_type),))

    def writes(self, native_uri: str) -> Collection[WriteOperation]:
        """Return what rows have, unless bbfs does not write this kind of database."""
        try:
            path = self._entries.path_of(native_uri)
        except NotFound:
            return ()
        is_row = len(path) == 4 and path[2] == "row" and path[3].endswith(".json")
        return ("create", "replace", "remove") if is_row and self._writer is not None else ()

    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        """Make a row, or change the columns of a row that differ. Raise BbfsError."""
        if content.size > LARGEST_WRITTEN:
            raise TooLarge(f"a row of {content.size} bytes, more than {LARGEST_WRITTEN}")
        try:
            text = (await content.read_waiting(0, content.size)).decode()
        except UnicodeDecodeError:
            raise Rejected("a row is a JSON object in UTF-8") from None
        try:
            return await self._change(native_uri, text, expected)
        except Rejected:
            if expected.exists is False and await self._is_there(native_uri):
                raise Conflict("somebody else has made the row") from None
            raise

    async def remove(self, native_uri: str, expected: Expected) -> None:
        await self._change(native_uri, None, expected)

    async def _is_there(self, native_uri: str) -> bool:
        try:
            await self.load(native_uri)
        except NotFound:
            return False
        return True

    async def _change(self, native_uri: str, text: str | None, expected: Expected) -> ResourceMetadata:
        if self._writer is None or not self.writes(native_uri):
            raise NotSupported(f"{shown(native_uri)}: only rows are written, as row/KEY.json")
        schema, name, _, file = map(text_of, self._entries.path_of(native_uri))

        def work(session: RemoteSession, _job: Job) -> ResourceMetadata:
            table = session.table(self._schema(schema), text_identifier(name))
            if table.kind not in ("table", "partitioned table"):
                raise NotSupported(f"{shown(table.name)}: a {table.kind} is never written")
            try:
                key = self._key(table, file)
                session.change(table, key, text, expected.exists, expected.version)
            except NotFound as error:
                raise error if text is None else Rejected(str(error)) from None
            return self._entries.row(table, ("row",), key)

        try:
            with self._health:
                return await self._writer.run(work)
        finally:  # an error may have come after the commit
            for uri in self._entries.made_of_rows(schema, name, self._queries.values()):
                self._sink(Change(self.source.id, "changed", uri))
            for uri in self._entries.directories_of_rows(schema, name):
                self._sink(Change(self.source.id, "changed", uri, below=True))

    def watch(self, sink: Callable[[Change], None]) -> None:
        """Report what a written row changes elsewhere. What other programs write is not reported."""
        self._sink = sink

    def interested(self, native_uri: str) -> None:
        """Do nothing: the database reports no change."""

    def announces(self, native_uri: str | None) -> bool:
        """Return False: other programs may write any row."""
        return False

    async def confirmed(self) -> None:
        """Return at once: there is nothing to confirm."""

    async def _ask(self, work: Callable[[RemoteSession, Job], T]) -> T:
        with self._health:
            return await self._backend.run(work)

    # -- in the worker's thread --------------------------------------------------------------------------------------

    def _search(self, session: RemoteSession, words: str, limit: int) -> list[RowHit]:
        """Return rows, the best first; a row may be found twice."""
        schemas, option = [each.name for each in session.schemas() if self._has(each.name)], self._options.search
        found: list[RowHit] = []
        if self._access.searches:
            try:
                found = session.search(words, limit, schemas)
            except NotSupported:
                if option is None:
                    raise
        if option is not None:
            texts = scanned(session, schemas, option, self._options.row_limit)
            hits = [hit for table, columns in texts for hit in session.scan(table, columns, words.split(), limit)]
            found += sorted(hits, key=lambda hit: -hit.score)
        return found

    def _look_for_full_text(self, session: RemoteSession, schemas: Sequence[str]) -> None:
        """Note whether there are full-text indexes. Nothing depends on it but what is said of the source."""
        if self._access.searches:
            try:
                session.search("", 0, schemas)
                self._has_full_text = True
            except BbfsError:
                self._has_full_text = False

    def _list(self, session: RemoteSession, path: Path) -> Listing:
        made = self._entries
        if not path:
            schemas = [schema for schema in session.schemas() if self._has(schema.name)]
            listing = Listing((*map(made.schema, schemas), *([made.query_directory()] if self._queries else [])))
            self._look_for_full_text(session, [schema.name for schema in schemas])
            return listing
        schema = self._schema(path[0])
        if len(path) == 1:
            return Listing(tuple(made.table_name(table) for table in session.tables(schema)))
        name, below = path[1], path[2:]
        keys_only = bool(below) and below not in (("by",), ("rows",))
        table = session.table(schema, text_identifier(name), keys_only=keys_only)
        match below:
            case ():
                is_large = table.estimated_rows is None or table.estimated_rows > self._options.row_limit
                return Listing(tuple(made.table(table, is_large)), open=is_large)
            case ("rows",) if table.has_parts:
                return self._parts(session, table)
            case ("row",) if table.primary_key:
                return self._keys(session, table, ("row",), None)
            case ("by",) if table.indexed:
                return Listing(tuple(made.column(table, column) for column in table.indexed))
            case ("by", column):
                return self._values(session, table, self._indexed(table, column))
            case ("by", column, value):
                by = (self._indexed(table, column), text_value(value))
                return self._keys(session, table, ("by", column, value), by)
        raise NotFound(f"{shown('/'.join(path))}: no such directory")

    def _has(self, schema: str) -> bool:
        given = self._options.schemas
        return schema in given if given is not None else not self._access.is_system(schema)

    def _schema(self, text: str) -> str:
        schema = text_schema(text)
        if not self._has(schema):
            raise NotFound(f"schema {shown(schema)!r} is not shown; the option schemas says which are")
        return schema

    @staticmethod
    def _indexed(table: Table, text: str) -> str:
        column = text_identifier(text)
        if column not in table.indexed:
            there = ", ".join(table.indexed) or "none"
            raise NotFound(
                f"{shown(table.name)}: no index begins with column {shown(column)!r}; those that do: {there}"
            )
        return column

    def _parts(self, session: RemoteSession, table: Table) -> Listing:
        options, parts = self._options, iter(())
        if table.part_key is None:
            parts = parts_beginning(self._starts(session, table))
        elif (bounds := session.bounds(table)) is not None:
            parts = parts_between(*bounds, table.estimated_rows, options.row_limit, options.listed_rows)
        return Listing(tuple(self._entries.part(table, f"{name}.csv") for name, _ in parts), open=True)

    def _starts(self, session: RemoteSession, table: Table) -> list[Key]:
        """Return the keys with which the parts of a table begin, but for the first part."""
        starts: list[Key] = []
        in_one, seen = max(self._options.row_limit, 1), 0
        while (key := session.next_start(table, starts[-1] if starts else None, in_one)) is not None:
            starts.append(key)
            seen += in_one
            if seen > self._ranged:
                raise TooLarge(f"{shown(table.name)}: more than {self._ranged} rows, whose keys are no whole numbers")
            if len(starts) > max(self._options.listed_rows, 1):
                starts, in_one = starts[1::2], 2 * in_one
        return starts

    def _keys(self, session: RemoteSession, table: Table, below: Path, by: Any) -> Listing:
        limit = self._options.listed_rows
        keys = session.keys(table, limit + 1, by)
        listed = dict.fromkeys(keys[:limit])
        problem = f"only the first {limit} rows are listed (listed_rows)" if len(keys) > limit else None
        if len(listed) < min(limit, len(keys)):
            problem = "rows whose key is NULL are not told apart"
        return Listing(tuple(self._entries.row(table, below, key) for key in listed), problem=problem, open=True)

    def _values(self, session: RemoteSession, table: Table, column: str) -> Listing:
        limit = self._options.listed_rows
        values = session.values(table, column, limit + 1)
        problem = f"only the first {limit} values are listed (listed_rows)" if len(values) > limit else None
        found = (self._entries.value(table, column, value) for value in dict.fromkeys(values[:limit]))
        return Listing(tuple(found), problem=problem, open=True)

    def _find(self, session: RemoteSession, path: Path) -> ResourceMetadata:
        nothing = NotFound(f"{shown('/'.join(path))}: no such file")
        if len(path) < 3:
            raise nothing
        *above, last = path[2:]
        if above and above[0] in ("row", "by") and len(above) != 2 and not last.endswith(".json"):
            raise nothing
        keys_only = above not in ([], ["rows"])
        table = session.table(self._schema(path[0]), text_identifier(path[1]), keys_only=keys_only)
        match above:
            case [] if last in self._entries.of_all_rows:
                return self._entries.file(table, last)
            case ["rows"]:
                self._part(table, last)
                return self._entries.part(table, last)
            case ("row",) | ("by", _, _):
                by = None if above == ["row"] else (self._indexed(table, above[1]), text_value(above[2]))
                key = self._key(table, last)
                if session.has_key(table, key, by):
                    return self._entries.row(table, tuple(above), key)
            case ("by", text):
                column, value = self._indexed(table, text), text_value(last)
                if value_text(value) == last and session.has_value(table, column, value):
                    return self._entries.value(table, column, value)
        raise nothing

    def _part(self, table: Table, name: str) -> tuple[RowsPart, RowFormat]:
        stem, _, ending = name.rpartition(".")
        part = part_of(stem, table)
        form = self._entries.formats.get(f"rows.{ending}")
        if part is None or form is None:
            raise NotFound(f"{shown(name)}: no part of the rows")
        return part, form

    @staticmethod
    def _key(table: Table, name: str) -> tuple[Any, ...]:
        if not name.endswith(".json") or not table.primary_key:
            raise NotFound(f"{shown(name)}: no such row")
        return text_key(name.removesuffix(".json"), len(table.primary_key))

    def _load(self, session: RemoteSession, job: Job, path: Path) -> Content:
        schema = self._schema(path[0])
        if len(path) == 1:
            session.tables(schema)
            raise IsADirectory(f"{shown(schema)}: is a schema")
        table = session.table(schema, text_identifier(path[1]), keys_only=len(path) > 3 and path[2:3] != ("rows",))
        match path[2:]:
            case ("schema.sql",):
                return self._content(job, lambda write: write(session.definition(table)))
            case ("columns.json",):
                return self._content(job, lambda write: write(columns_json(table)))
            case ("count",):
                return self._content(job, lambda write: write(b"%d\n" % session.count(table)))
            case (name,) if name in self._entries.formats:
                every = self._entries.formats[name]
                return self._content(job, lambda write: session.rows(table, every, None, write))
            case ("rows", name):
                part, form = self._part(table, name)
                return self._content(job, lambda write: session.rows(table, form, part, write))
            case ("row", name):
                return self._row(session, job, table, name, None)
            case ("by", column, value, name):
                return self._row(session, job, table, name, (self._indexed(table, column), text_value(value)))
            case () | ("row",) | ("rows",) | ("by", *_):
                raise IsADirectory(f"{shown('/'.join(path))}: is a directory")
        raise NotFound(f"{shown('/'.join(path))}: no such file")

    def _row(self, session: RemoteSession, job: Job, table: Table, name: str, by: Any) -> Content:
        key = self._key(table, name)
        row = session.row(table, key) if by is None or session.has_key(table, key, by) else None
        if row is None:
            raise NotFound(f"{shown(table.name)}: no row {shown(name)!r}")
        return self._content(job, lambda write: write(row))

    def _content(self, job: Job, make: Callable[[Write], None]) -> Content:
        with self._spool() as spool:

            def write(data: bytes) -> None:
                if job.stopped:
                    raise DeadlineExceeded("no reader waits for it any more")
                spool.write(data)

            make(write)
            return spool.content()

    # -- named queries -----------------------------------------------------------------------------------------------

    def _find_query(self, name: str) -> ResourceMetadata:
        segment = hide_component(name)
        if show_component(segment) != name:
            raise NotFound(f"{shown(name)}: no such name")
        # Only load checks the values: then the log and the file's attributes have the error.
        query, _, _ = parse_file_name(segment, self._queries)
        return self._entries.query(query, segment)

    async def _load_query(self, segment: str) -> Content:
        query, form, arguments = parse_file_name(segment, self._queries)
        if form == "sql":
            return MemoryContent(query.source_text().encode())
        name, sql, values, rows = query.name, self._access.sql(query), query.values(arguments), form
        return await self._ask(
            lambda session, job: self._content(job, lambda write: session.query(name, sql, values, rows, write))
        )
