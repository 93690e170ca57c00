"""Tables of PostgreSQL with columns of vectors (pgvector), inside the process that reads them.

A collection is a column of the type `vector` or `halfvec` in a table whose primary key is one column.
"""

import json
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import errors as pg

from bbfs.model.errors import InvalidUri, NotFound, NotSupported
from bbfs.sources.database.names import shown
from bbfs.sources.database.postgres.database import PostgresDatabase
from bbfs.sources.database.postgres.session import PostgresSession, plain_text
from bbfs.sources.database.tables import quoted
from bbfs.sources.vector_search.stored import match_json, point_json
from bbfs.sources.vector_search.values import MOST_COLLECTIONS, Metric, score_of

_COLUMNS = f"""
SELECT n.nspname::text, c.relname::text, a.attname::text, y.typname::text, a.atttypmod,
  (SELECT k.attname::text FROM pg_catalog.pg_attribute k WHERE k.attrelid = c.oid AND k.attnum = p.conkey[1]),
  ARRAY(SELECT ARRAY[o.attname::text, format_type(o.atttypid, o.atttypmod)] FROM pg_catalog.pg_attribute o
    WHERE o.attrelid = c.oid AND o.attnum > 0 AND NOT o.attisdropped AND o.attnum <> p.conkey[1]
    AND o.atttypid NOT IN (SELECT v.oid FROM pg_catalog.pg_type v WHERE v.typname IN ('vector', 'halfvec', 'sparsevec'))
    ORDER BY o.attnum),
  (SELECT min(s.opcname::text) FROM pg_catalog.pg_index i
    JOIN pg_catalog.pg_opclass s ON s.oid = i.indclass[0]
    WHERE i.indrelid = c.oid AND i.indkey[0] = a.attnum AND i.indisvalid),
  nullif(c.reltuples, -1)::bigint
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type y ON y.oid = a.atttypid AND y.typname IN ('vector', 'halfvec')
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p')
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_constraint p ON p.conrelid = c.oid AND p.contype = 'p' AND cardinality(p.conkey) = 1
WHERE a.attnum > 0 AND NOT a.attisdropped AND has_table_privilege(c.oid, 'SELECT')
ORDER BY n.nspname <> 'public', 1, 2, a.attnum LIMIT {MOST_COLLECTIONS}
"""
_OPERATORS: dict[Metric, str] = {"cosine": "<=>", "l2": "<->", "dot": "<#>", "l1": "<+>"}
_METRICS: dict[str, Metric] = {"cosine": "cosine", "l2": "l2", "ip": "dot", "l1": "l1"}
_TEXTS = ("text", "character", "character varying", "citext")
_LARGEST = 1 << 20
"""Bytes of a payload in a result; a larger one is left out of it. A point has all."""


class VectorServer(PostgresDatabase):
    def begin(self) -> "VectorRows":
        return VectorRows(self.connected())


open_database = VectorServer


@dataclass(frozen=True, slots=True)
class _Table:
    """One column of vectors: a collection. columns: the others, by their types."""

    name: str
    schema: str
    table: str
    vector: str
    type: str
    dimensions: int
    key: str
    columns: Mapping[str, str]
    metric: Metric
    count: int | None

    @property
    def sql_name(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    @property
    def texts(self) -> list[str]:
        return [name for name, kind in self.columns.items() if kind.partition("(")[0] in _TEXTS]

    @property
    def payload(self) -> str:
        """The expression of the payload, as a JSON object."""
        if not self.columns:
            return "'{}'::jsonb"
        return f"(SELECT to_jsonb(p) FROM (SELECT {', '.join('t.' + quoted(name) for name in self.columns)}) AS p)"


class VectorRows(PostgresSession):
    """The calls of one transaction. All answers are JSON, as texts; None where there is no such point."""

    def _collections(self) -> list[_Table]:
        rows = self._all(_COLUMNS)
        columns = Counter((schema, table) for schema, table, *_ in rows)
        found: dict[str, _Table] = {}
        for schema, table, vector, kind, dimensions, key, others, operators, count in rows:
            name = table if schema == "public" else f"{schema}.{table}"
            name = name if columns[schema, table] == 1 else f"{name}.{vector}"
            metric = _METRICS.get((operators or "").split("_")[1] if "_" in (operators or "") else "", "cosine")
            made = _Table(name, schema, table, vector, kind, dimensions, key, dict(others), metric, count)
            found.setdefault(name, made)
        return list(found.values())

    def _table(self, name: str) -> _Table:
        there = self._collections()
        found = next((table for table in there if table.name == name), None)
        if found is None:
            listed = ", ".join(shown(table.name) for table in there[:20]) or "none"
            raise NotFound(f"no collection {shown(name)!r}; there are: {listed}")
        return found

    def collections(self) -> str:
        return json.dumps([self._described(table) for table in self._collections()])

    def collection(self, name: str) -> str:
        return json.dumps(self._described(self._table(name)))

    def _described(self, table: _Table) -> dict[str, Any]:
        dimensions = table.dimensions
        if dimensions < 1:  # the column has none; its first vector says it
            column = quoted(table.vector)
            sql = f"SELECT vector_dims({column}) FROM {table.sql_name} WHERE {column} IS NOT NULL LIMIT 1"
            dimensions = next((row[0] for row in self._all(sql)), 0)
        return {
            "name": table.name,
            "dimensions": dimensions,
            "metric": table.metric,
            "element": "half" if table.type == "halfvec" else "float",
            "texts": table.texts,
            "filters": list(table.columns),
            "count": table.count,
        }

    def ids(self, name: str, limit: int) -> str:
        table = self._table(name)
        key = quoted(table.key)
        rows = self._all(f"SELECT t.{key}::text FROM {table.sql_name} AS t ORDER BY t.{key} LIMIT {int(limit)}")
        return json.dumps([text for (text,) in rows])

    def has(self, name: str, id: str) -> str:
        return json.dumps(self._point_row(self._table(name), id, "1") is not None)

    def _point_row(self, table: _Table, id: str, columns: str) -> tuple[Any, ...] | None:
        key, text = quoted(table.key), plain_text(id)
        sql = f"SELECT {columns} FROM {table.sql_name} AS t WHERE t.{key} = $1 AND t.{key}::text = $2 LIMIT 1"
        try:
            rows = self._all(sql, text, text)
        except pg.DataError:
            return None  # no value of the key's type
        return rows[0] if rows else None

    def point(self, name: str, id: str) -> str | None:
        table = self._table(name)
        row = self._point_row(
            table, id, f"{table.payload}, t.{quoted(table.vector)}::text, to_jsonb(t.{quoted(table.key)})"
        )
        return None if row is None else point_json(row[2], row[0], row[1] or "null")

    def near(self, name: str, to: str | bytes, limit: int, filters: Mapping[str, str]) -> str | None:
        table = self._table(name)
        key, vector = quoted(table.key), quoted(table.vector)
        if isinstance(to, bytes):
            left_out, query = None, json.dumps(list(array("f", to)))
        else:
            row = self._point_row(table, to, f"t.{vector}::text")
            if row is None:
                return None
            left_out, query = to, row[0]
            if query is None:
                return "[]"
        conditions, values = self._conditions(table, filters, 2)
        distance = f"t.{vector} {_OPERATORS[table.metric]} $1::{table.type}"
        where = " AND ".join([f"t.{vector} IS NOT NULL", *conditions])
        rows = self._all(
            f"SELECT t.{key}::text, ({distance})::float8, {_bounded(table)} FROM {table.sql_name} AS t WHERE {where}"
            f" ORDER BY {distance} LIMIT {int(limit) + 1}",
            query,
            *values,
        )
        kept = [row for row in rows if row[0] != left_out][:limit]
        found = (match_json(key, score_of(table.metric, distance), payload) for key, distance, payload in kept)
        return f"[{', '.join(found)}]"

    def _conditions(self, table: _Table, filters: Mapping[str, str], at: int) -> tuple[list[str], list[Any]]:
        """Return conditions on the payload, and their values. at: the number of the first value."""
        conditions: list[str] = []
        values: list[Any] = []
        for name, text in filters.items():
            column, dot, inner = (name, "", "") if name in table.columns else name.partition(".")
            kind = table.columns.get(column)
            if kind is None or (dot and kind not in ("json", "jsonb")):
                there = ", ".join(table.columns) or "none"
                raise InvalidUri(f"{shown(table.name)}: no field {shown(name)!r} to filter by; there are: {there}")
            value = f"t.{quoted(column)}"
            if dot:
                value = f"({value} #>> ${at + len(values)}::text[])"
                values.append([plain_text(part) for part in inner.split(".")])
            conditions.append(f"{value}::text = ${at + len(values)}")
            values.append(plain_text(text))
        return conditions, values

    def words(self, name: str, words: Sequence[str], limit: int, filters: Mapping[str, str]) -> str:
        table = self._table(name)
        if not table.texts:
            raise NotSupported(f"{shown(name)}: has no column of text to search for words")
        all_texts = f"lower(concat_ws(' ', {', '.join('t.' + quoted(text) for text in table.texts)}))"
        conditions, values = self._conditions(table, filters, 2)
        where = "".join(f" AND {condition}" for condition in conditions)
        score = f"(SELECT count(*) FROM unnest($1::text[]) AS w(word) WHERE strpos({all_texts}, w.word) > 0)"
        rows = self._all(
            f"SELECT q.id, q.score, q.payload FROM (SELECT t.{quoted(table.key)}::text AS id, {score} AS score,"
            f" {_bounded(table)} AS payload FROM {table.sql_name} AS t WHERE true{where}) AS q"
            f" WHERE q.score > 0 ORDER BY q.score DESC, q.id LIMIT {int(limit)}",
            [plain_text(word) for word in words],
            *values,
        )
        return f"[{', '.join(match_json(key, score / len(words), payload) for key, score, payload in rows)}]"


def _bounded(table: _Table) -> str:
    """Return the expression of a payload that is empty where it is large."""
    return f"CASE WHEN octet_length({table.payload}::text) <= {_LARGEST} THEN {table.payload} ELSE '{{}}'::jsonb END"
