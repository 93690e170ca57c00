"""Tables of sqlite-vec in a SQLite file, inside the process that reads it.

A payload is in the other columns of the table, and in an ordinary table beside it that has rows with the same rowids:
that of the option `payload`, else `T` for a table `T_vec` (as LangChain writes them) or `vec_T`.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bbfs.model.errors import BbfsError, InvalidUri, NotFound, NotSupported, ProtocolViolation
from bbfs.runtime.extras import needs
from bbfs.sources.database.names import shown
from bbfs.sources.database.sqlite.database import SqliteDatabase
from bbfs.sources.database.tables import quoted
from bbfs.sources.vector_search import vec0
from bbfs.sources.vector_search.stored import as_document, match_json, matches, point_json, vector_json
from bbfs.sources.vector_search.values import MOST_COLLECTIONS, score_of
from bbfs.sources.vector_search.vec0 import LONGEST, Declaration, Vector, declaration

_MOST_NEAR = 4096
"""Results of one search by sqlite-vec."""
_TEXT = ("text", "varchar", "char", "clob", "string")
_AS_QUERY = {"float": "vec_f32(?)", "int8": "vec_int8(?)", "bit": "vec_bit(?)"}
_QUANTIZED = {"float": "vec_f32(?)", "int8": "vec_quantize_int8(vec_f32(?), 'unit')", "bit": "vec_quantize_binary(?)"}
"""Functions in SQL that convert a query of floats for a column of other numbers."""


class VectorFile(SqliteDatabase):
    """One file. payload: names of ordinary tables, by the names of the tables of vectors."""

    def __init__(self, path: str, wait: float, payload: Mapping[str, str]) -> None:
        super().__init__(path, wait)
        self._payload = payload

    def begin(self) -> "VectorTables":
        return VectorTables(self.connected(), self._payload)

    def extend(self, connection: sqlite3.Connection) -> None:
        """Load sqlite-vec."""
        try:
            vec0.extend(connection)
        except AttributeError:
            raise NotSupported("this Python's SQLite loads no extensions, so it cannot read vectors (vec0)") from None
        connection.create_function("bbfs_matches", 2, _matches, deterministic=True)

    def fault(self, error: Exception) -> BbfsError | None:
        if isinstance(error, ImportError):
            return NotSupported(f"reading vectors in SQLite {needs('vector')}")
        return super().fault(error)


open_database = VectorFile


def _matches(text: Any, words: str) -> int:
    return matches(text, json.loads(words))


@dataclass(frozen=True, slots=True)
class _Table:
    """One column of vectors: a collection. beside: the ordinary table with its columns and their types, if any."""

    name: str
    table: str
    declared: Declaration
    vector: Vector
    beside: str | None
    columns: Mapping[str, str]

    @property
    def texts(self) -> list[tuple[str, str]]:
        """The columns with words: `v` or `t` and the name."""
        own = {**self.declared.filtered, **self.declared.others}
        return [
            (place, name)
            for place, columns in (("v", own), ("t", self.columns))
            for name, kind in columns.items()
            if kind.partition("(")[0] in _TEXT and not (name == "metadata" and place == "t")
        ]

    @property
    def source(self) -> str:
        """The table, joined with the one beside it."""
        own = f"{quoted(self.table)} AS v"
        if self.beside is None:
            return own
        return f"{own} LEFT JOIN {quoted(self.beside)} AS t ON t.rowid = v.{quoted(self.declared.key)}"


class VectorTables:
    """The calls of one transaction. All answers are JSON, as texts; None where there is no such point."""

    def __init__(self, connection: sqlite3.Connection, payload: Mapping[str, str]) -> None:
        self._connection = connection
        self._payload = payload

    def _all(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()

    def _tables(self) -> Iterator[_Table]:
        master = "SELECT name, sql FROM main.sqlite_master WHERE type = 'table' AND sql LIKE 'create virtual table%'"
        found = 0
        for table, sql in self._all(f"{master} AND length(sql) <= {LONGEST} ORDER BY name"):
            declared = declaration(sql)
            if declared is None:
                continue
            beside = None if declared.key_is_text else self._beside(table)
            columns = {} if beside is None else self._columns(beside, declared)
            for vector in declared.vectors:
                found += 1
                if found > MOST_COLLECTIONS:
                    return
                name = table if len(declared.vectors) == 1 else f"{table}.{vector.name}"
                yield _Table(name, table, declared, vector, beside, columns)

    def _beside(self, table: str) -> str | None:
        """Return the ordinary table that has the payload of a table of vectors."""
        ends = [table.removesuffix("_vec")] if table.endswith("_vec") else []
        begins = [table.removeprefix("vec_")] if table.startswith("vec_") else []
        given = self._payload.get(table)
        for name in [given] if given is not None else [*ends, *begins]:
            sql = "SELECT sql FROM main.sqlite_master WHERE type = 'table' AND name = ? AND rootpage > 0"
            if rows := self._all(sql, name):
                return None if "without rowid" in str(rows[0][0]).lower() else name
        if given is not None:
            raise NotFound(f"no table {shown(given)!r} for the payload of {shown(table)} (payload)")
        return None

    def _columns(self, beside: str, declared: Declaration) -> dict[str, str]:
        own = {declared.key, *declared.payload, *(vector.name for vector in declared.vectors)}
        rows = self._all("SELECT name, type FROM pragma_table_info(?)", beside)
        return {name: kind.lower() for name, kind in rows if name not in own}

    def _table(self, name: str) -> _Table:
        there = []
        for table in self._tables():
            if table.name == name:
                return table
            there.append(table.name)
        listed = ", ".join(shown(each) for each in there[:20]) or "none"
        raise NotFound(f"no collection {shown(name)!r}; there are: {listed}")

    def collections(self) -> str:
        return json.dumps([self._described(table) for table in self._tables()])

    def collection(self, name: str) -> str:
        table = self._table(name)
        count = self._all(f"SELECT count(*) FROM {quoted(table.table + '_rowids')}")[0][0]
        return json.dumps({**self._described(table), "count": count})

    @staticmethod
    def _described(table: _Table) -> dict[str, Any]:
        return {
            "name": table.name,
            "dimensions": table.vector.dimensions,
            "metric": table.vector.metric,
            "element": table.vector.element,
            "texts": [name for _, name in table.texts],
            "filters": [*table.declared.payload, *table.columns],
        }

    def ids(self, name: str, limit: int) -> str:
        table = self._table(name)
        rows = self._all(f"SELECT {quoted(table.declared.key)} FROM {quoted(table.table)} LIMIT ?", limit)
        return json.dumps([str(key) for (key,) in rows])

    def has(self, name: str, id: str) -> str:
        table = self._table(name)
        return json.dumps(self._row(table, _key(table, id), "1") is not None)

    def _row(self, table: _Table, key: Any, columns: str) -> tuple[Any, ...] | None:
        if key is None:
            return None
        own = quoted(table.declared.key)
        rows = self._all(f"SELECT {columns} FROM {quoted(table.table)} WHERE {own} = ? LIMIT 1", key)
        return rows[0] if rows else None

    def point(self, name: str, id: str) -> str | None:
        table = self._table(name)
        key = _key(table, id)
        found = self._row(table, key, quoted(table.vector.name))
        if found is None:
            return None
        return point_json(key, self._payload_of(table, key), vector_json(table.vector.element, _blob(table, found[0])))

    def _payload_of(self, table: _Table, key: Any) -> dict[str, Any]:
        own = table.declared.payload
        payload = dict(zip(own, self._row(table, key, _listed(own)) or (), strict=False)) if own else {}
        if table.beside is not None and table.columns:
            sql = f"SELECT {_listed(table.columns)} FROM {quoted(table.beside)} WHERE rowid = ?"
            for row in self._all(sql, key):
                payload.update(zip(table.columns, row, strict=True))
        return {column: as_document(value) for column, value in payload.items()}

    def near(self, name: str, to: str | bytes, limit: int, filters: Mapping[str, str]) -> str | None:
        table = self._table(name)
        left_out, query, sql = None, to, _QUANTIZED[table.vector.element]
        if isinstance(to, str):
            left_out = _key(table, to)
            found = self._row(table, left_out, quoted(table.vector.name))
            if found is None:
                return None
            query, sql = _blob(table, found[0]), _AS_QUERY[table.vector.element]
        conditions, values = self._conditions(table, filters)
        key = quoted(table.declared.key)
        where = " AND ".join([f"{quoted(table.vector.name)} MATCH {sql}", "k = ?", *conditions])
        wanted = min(limit + (left_out is not None), _MOST_NEAR)
        rows = self._all(
            f"SELECT {key}, distance FROM {quoted(table.table)} WHERE {where} ORDER BY distance", query, wanted, *values
        )
        # A distance that is no number comes as NULL.
        kept = [(found, distance) for found, distance in rows if found != left_out and type(distance) is float]
        metric = table.vector.metric
        return _list(
            match_json(found, score_of(metric, distance), self._payload_of(table, found))
            for found, distance in kept[:limit]
        )

    def _conditions(self, table: _Table, filters: Mapping[str, str]) -> tuple[list[str], list[Any]]:
        """Return conditions of a search on the payload, and their values."""
        key, conditions, values = quoted(table.declared.key), [], []
        for name, text in filters.items():
            column, dot, inner = name.partition(".")
            if name in table.declared.filtered:
                conditions.append(f"{quoted(name)} = ?")
                values.append(_typed(name, table.declared.filtered[name], text))
                continue
            place = table.table if column in table.declared.others else table.beside
            if place is None or column not in (*table.declared.others, *table.columns):
                there = ", ".join([*table.declared.payload, *table.columns]) or "none"
                raise InvalidUri(f"{shown(table.name)}: no field {shown(name)!r} to filter by; there are: {there}")
            value = quoted(column)
            if dot:
                value = f"CASE WHEN json_valid({value}) THEN json_extract({value}, ?) END"
                values.append("$." + ".".join(json.dumps(part, ensure_ascii=False) for part in inner.split(".")))
            own = key if place == table.table else "rowid"
            conditions.append(f"{key} IN (SELECT {own} FROM {quoted(place)} WHERE CAST({value} AS text) = ?)")
            values.append(text)
        return conditions, values

    def words(self, name: str, words: Sequence[str], limit: int, filters: Mapping[str, str]) -> str:
        table = self._table(name)
        if not table.texts:
            raise NotSupported(f"{shown(name)}: has no column of text to search for words")
        conditions, values = self._conditions(table, filters)
        key = quoted(table.declared.key)
        scores = [f"bbfs_matches({place}.{quoted(column)}, ?)" for place, column in table.texts]
        score = scores[0] if len(scores) == 1 else f"max({', '.join(scores)})"
        folded = json.dumps([word.casefold() for word in words])
        where = "".join(f" AND v.{key} IN (SELECT {key} FROM {quoted(table.table)} WHERE {c})" for c in conditions)
        rows = self._all(
            f"SELECT v.{key}, {score} AS score FROM {table.source} WHERE score > 0{where} ORDER BY 2 DESC, 1 LIMIT ?",
            *[folded] * len(scores),
            *values,
            limit,
        )
        return _list(match_json(found, score / len(words), self._payload_of(table, found)) for found, score in rows)


def _list(items: Iterator[str] | Any) -> str:
    return "[" + ",\n".join(items) + "]"


def _listed(columns: Any) -> str:
    return ", ".join(map(quoted, columns))


def _key(table: _Table, id: str) -> str | int | None:
    """Return the key of an id; None where no row can have it."""
    if table.declared.key_is_text:
        return id
    try:
        key = int(id)
    except ValueError:
        return None
    return key if str(key) == id and -(1 << 63) <= key < 1 << 63 else None


def _blob(table: _Table, value: Any) -> bytes:
    if not isinstance(value, bytes) or len(value) != table.vector.size:
        raise ProtocolViolation(
            f"{shown(table.name)}: a vector that has not the {table.vector.dimensions} dimensions of its table"
        )
    return value


def _typed(name: str, kind: str, text: str) -> Any:
    """Return a value for a column of sqlite-vec, which compares strictly by type."""
    try:
        if kind in ("int", "integer"):
            number = int(text)
            if -(1 << 63) <= number < 1 << 63:
                return number
            raise ValueError
        if kind in ("float", "double", "real"):
            return float(text)
        if kind in ("bool", "boolean"):
            return {"true": 1, "1": 1, "false": 0, "0": 0}[text.lower()]
    except (ValueError, KeyError):
        raise InvalidUri(f"{shown(name)}: {shown(text)!r} is no {kind}") from None
    return text
