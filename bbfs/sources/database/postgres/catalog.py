"""Statements on the catalog of PostgreSQL, which read no row of a user's table, and values of their answers."""

from collections.abc import Mapping
from typing import Any

from bbfs.sources.database.tables import Column, ForeignKey, TableIndex

KINDS = {"r": "table", "p": "partitioned table", "v": "view", "m": "materialized view", "f": "foreign table"}
_IDENTITY = {"a": "always", "d": "by default"}

SCHEMAS = """
SELECT nspname, obj_description(oid, 'pg_namespace') FROM pg_catalog.pg_namespace
ORDER BY nspname
"""
SCHEMA = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1"
TABLES = """
SELECT c.relname, c.relkind::text, obj_description(c.oid, 'pg_class'), nullif(c.reltuples, -1)::bigint,
  ARRAY(SELECT ARRAY[a.attname::text, format_type(a.atttypid, a.atttypmod)] FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
  ARRAY(SELECT a.attname::text FROM pg_catalog.pg_constraint k
    CROSS JOIN LATERAL unnest(k.conkey) WITH ORDINALITY AS p(attnum, position)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = p.attnum
    WHERE k.conrelid = c.oid AND k.contype = 'p' ORDER BY p.position)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
ORDER BY c.relname
"""
_TABLE = """
SELECT c.oid, c.relkind::text, obj_description(c.oid, 'pg_class'),
  CASE WHEN c.relkind IN ('r', 'p', 'm') THEN (
    WITH RECURSIVE parts AS (
      SELECT c.oid AS part UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN parts ON i.inhparent = parts.part)
    SELECT sum(CASE
      WHEN p.reltuples >= 0 AND p.relpages > 0 THEN
        p.reltuples / p.relpages * (pg_relation_size(p.oid) / current_setting('block_size')::bigint)
      ELSE pg_relation_size(p.oid) / 40.0 END)
    FROM pg_catalog.pg_class p JOIN parts ON p.oid = parts.part WHERE p.relkind <> 'p') END::float8,
  {parts}
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
"""The estimate is the planner's: rows a page at the last ANALYZE, times pages now; before that, 40 bytes a row."""
_COLUMNS = """
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, NOT a.attnotnull AS nullable,
  pg_get_expr(d.adbin, d.adrelid) AS default, col_description(a.attrelid, a.attnum) AS comment,
  a.attidentity::text AS identity, a.attgenerated::text AS generated
FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_PRIMARY_KEY = """
SELECT a.attname AS name FROM pg_catalog.pg_constraint o
CROSS JOIN LATERAL unnest(o.conkey) WITH ORDINALITY AS k(attnum, position)
JOIN pg_catalog.pg_attribute a ON a.attrelid = o.conrelid AND a.attnum = k.attnum
WHERE o.conrelid = c.oid AND o.contype = 'p' ORDER BY k.position
"""
_INDEXES = """
SELECT r.relname AS name, i.indisunique AS unique,
  ARRAY(SELECT pg_get_indexdef(i.indexrelid, k, true) FROM generate_series(1, i.indnkeyatts) k) AS columns,
  CASE WHEN m.amname = 'btree' AND i.indisvalid AND i.indpred IS NULL THEN
    (SELECT a.attname FROM pg_catalog.pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = i.indkey[0])
    END AS leading
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class r ON r.oid = i.indexrelid
JOIN pg_catalog.pg_am m ON m.oid = r.relam
WHERE i.indrelid = c.oid ORDER BY r.relname
"""
_FOREIGN_KEYS = """
SELECT s.nspname AS schema, t.relname AS table,
  ARRAY(SELECT a.attname FROM unnest(o.conkey) WITH ORDINALITY AS k(attnum, position)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = o.conrelid AND a.attnum = k.attnum ORDER BY k.position) AS columns,
  ARRAY(SELECT a.attname FROM unnest(o.confkey) WITH ORDINALITY AS k(attnum, position)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = o.confrelid AND a.attnum = k.attnum ORDER BY k.position)
    AS references
FROM pg_catalog.pg_constraint o JOIN pg_catalog.pg_class t ON t.oid = o.confrelid
JOIN pg_catalog.pg_namespace s ON s.oid = t.relnamespace
WHERE o.conrelid = c.oid AND o.contype = 'f' ORDER BY o.conname
"""
_PARTS = (_COLUMNS, _PRIMARY_KEY, _INDEXES, _FOREIGN_KEYS)
TABLE = _TABLE.format(parts=", ".join(f"(SELECT coalesce(json_agg(q), '[]') FROM ({part}) AS q)" for part in _PARTS))
"""All of a table in one statement: the database may be far away. The parts are lists of objects."""
KEYS = """
SELECT c.relkind::text,
  ARRAY(SELECT a.attname::text FROM pg_catalog.pg_constraint o
    CROSS JOIN LATERAL unnest(o.conkey) WITH ORDINALITY AS k(attnum, position)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = o.conrelid AND a.attnum = k.attnum
    WHERE o.conrelid = c.oid AND o.contype = 'p' ORDER BY k.position),
  ARRAY(SELECT a.attname::text FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class r ON r.oid = i.indexrelid
    JOIN pg_catalog.pg_am m ON m.oid = r.relam
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = c.oid AND m.amname = 'btree' AND i.indisvalid AND i.indpred IS NULL)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
"""The facts that find rows: the kind, the primary key, and the columns that indexes begin with."""
CONSTRAINTS = """
SELECT conname, pg_get_constraintdef(oid) FROM pg_catalog.pg_constraint
WHERE conrelid = $1 AND contype IN ('p', 'u', 'c', 'f', 'x') ORDER BY position(contype::text in 'pucxf'), conname
"""
PLAIN_INDEXES = """
SELECT pg_get_indexdef(i.indexrelid) FROM pg_catalog.pg_index i
WHERE i.indrelid = $1 AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_constraint c WHERE c.conindid = i.indexrelid)
ORDER BY 1
"""
VIEW = "SELECT pg_get_viewdef($1::oid)"
PARTITION_KEY = "SELECT pg_get_partkeydef($1)"
COLLATIONS = """
SELECT a.attname, quote_ident(n.nspname) || '.' || quote_ident(l.collname)
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation JOIN pg_catalog.pg_namespace n ON n.oid = l.collnamespace
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped AND a.attcollation <> t.typcollation
"""


def column(given: Mapping[str, Any]) -> Column:
    """Return a column of TABLE. The expression of a generated column is no default."""
    default, generated = given["default"], given["generated"]
    return Column(
        given["name"],
        given["type"],
        given["nullable"],
        None if generated else default,
        default if generated else None,
        _IDENTITY.get(given["identity"]),
        given["comment"],
        generated != "v",
    )


def index(given: Mapping[str, Any]) -> TableIndex:
    return TableIndex(given["name"], tuple(given["columns"]), given["unique"], given["leading"])


def foreign_key(own_schema: str, given: Mapping[str, Any]) -> ForeignKey:
    schema = None if given["schema"] == own_schema else given["schema"]
    return ForeignKey(tuple(given["columns"]), schema, given["table"], tuple(given["references"]))
