"""The catalog of PostgreSQL: statements that read no row of a user's table, and values of their answers."""

from bbfs.sources.database.tables import Column, ForeignKey, Index

KINDS = {
    "r": "table",
    "p": "partitioned table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
}
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
TABLE = """
SELECT c.oid, c.relkind::text, obj_description(c.oid, 'pg_class'),
  CASE WHEN c.relkind IN ('r', 'p', 'm') THEN (
    WITH RECURSIVE parts AS (
      SELECT c.oid AS part UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN parts ON i.inhparent = parts.part)
    SELECT sum(CASE
      WHEN p.reltuples >= 0 AND p.relpages > 0 THEN
        p.reltuples / p.relpages * (pg_relation_size(p.oid) / current_setting('block_size')::bigint)
      ELSE pg_relation_size(p.oid) / 40.0 END)
    FROM pg_catalog.pg_class p JOIN parts ON p.oid = parts.part WHERE p.relkind <> 'p') END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
"""The estimate is the planner's: rows a page at the last ANALYZE, times pages now; before that, 40 bytes a row."""
COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull, pg_get_expr(d.adbin, d.adrelid),
  col_description(a.attrelid, a.attnum), a.attidentity::text, a.attgenerated::text
FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
PRIMARY_KEY = """
SELECT a.attname FROM pg_catalog.pg_constraint c
CROSS JOIN LATERAL unnest(c.conkey) WITH ORDINALITY AS k(attnum, position)
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum
WHERE c.conrelid = $1 AND c.contype = 'p' ORDER BY k.position
"""
INDEXES = """
SELECT c.relname, i.indisunique,
  ARRAY(SELECT pg_get_indexdef(i.indexrelid, k, true) FROM generate_series(1, i.indnkeyatts) k),
  CASE WHEN m.amname = 'btree' AND i.indisvalid AND i.indpred IS NULL THEN
    (SELECT a.attname FROM pg_catalog.pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = i.indkey[0]) END
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_am m ON m.oid = c.relam
WHERE i.indrelid = $1 ORDER BY c.relname
"""
FOREIGN_KEYS = """
SELECT n.nspname, t.relname,
  ARRAY(SELECT a.attname FROM unnest(c.conkey) WITH ORDINALITY AS k(attnum, position)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum ORDER BY k.position)::text[],
  ARRAY(SELECT a.attname FROM unnest(c.confkey) WITH ORDINALITY AS k(attnum, position)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.attnum ORDER BY k.position)::text[]
FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_class t ON t.oid = c.confrelid
JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
WHERE c.conrelid = $1 AND c.contype = 'f' ORDER BY c.conname
"""
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


def column(
    name: str, type: str, nullable: bool, default: str | None, comment: str | None, identity: str, generated: str
) -> Column:
    """A row of COLUMNS. The expression of a generated column is no default."""
    return Column(
        name,
        type,
        nullable,
        None if generated else default,
        comment,
        default if generated else None,
        _IDENTITY.get(identity),
    )


def index(name: str, unique: bool, columns: list[str], leading: str | None) -> Index:
    """A row of INDEXES."""
    return Index(name, tuple(columns), unique, leading)


def foreign_key(own_schema: str, schema: str, table: str, columns: list[str], references: list[str]) -> ForeignKey:
    """A row of FOREIGN_KEYS."""
    return ForeignKey(tuple(columns), table, tuple(references), None if schema == own_schema else schema)
