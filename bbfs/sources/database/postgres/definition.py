"""SQL that makes a table of PostgreSQL, from its catalog."""

from collections.abc import Callable, Iterator
from typing import Any

from bbfs.sources.database.postgres import catalog
from bbfs.sources.database.tables import Column, Table, quoted


def definition(table: Table, rows: Callable[[str], list[tuple[Any, ...]]]) -> str:
    """Return the statements. rows: runs a statement on the catalog with the table's oid as its value."""
    name = table.sql_name
    if table.kind in ("view", "materialized view"):
        query = rows(catalog.VIEW)[0][0].strip().rstrip(";")
        made = [f"CREATE {table.kind.upper()} {name} AS\n{query};"]
    else:
        made = [_table(table, name, rows)]
    made += [f"{index};" for (index,) in rows(catalog.PLAIN_INDEXES)]
    kind = table.kind.upper() if "table" not in table.kind else "TABLE"
    if table.comment is not None:
        made.append(f"COMMENT ON {kind} {name} IS {_literal(table.comment)};")
    for column in table.columns:
        if column.comment is not None:
            made.append(f"COMMENT ON COLUMN {name}.{quoted(column.name)} IS {_literal(column.comment)};")
    return "\n".join(made) + "\n"


def _table(table: Table, name: str, rows: Callable[[str], list[tuple[Any, ...]]]) -> str:
    collations = dict(rows(catalog.COLLATIONS))
    parts = [_column(column, collations.get(column.name)) for column in table.columns]
    parts += [f"CONSTRAINT {quoted(constraint)} {text}" for constraint, text in rows(catalog.CONSTRAINTS)]
    inside = ",".join(f"\n    {part}" for part in parts)
    kind = "FOREIGN TABLE" if table.kind == "foreign table" else "TABLE"
    partitions = f" PARTITION BY {rows(catalog.PARTITION_KEY)[0][0]}" if table.kind == "partitioned table" else ""
    return f"CREATE {kind} {name} ({inside}\n){partitions};"


def _column(column: Column, collation: str | None) -> str:
    def words() -> Iterator[str]:
        yield quoted(column.name)
        yield column.type
        if collation is not None:
            yield f"COLLATE {collation}"
        if column.generated is not None:
            yield f"GENERATED ALWAYS AS ({column.generated}) {'STORED' if column.stored else 'VIRTUAL'}"
        if column.identity is not None:
            yield f"GENERATED {column.identity.upper()} AS IDENTITY"
        if column.default is not None:
            yield f"DEFAULT {column.default}"
        if not column.nullable:
            yield "NOT NULL"

    return " ".join(words())


def _literal(text: str) -> str:
    escaped = text.replace("'", "''")
    return f" E'{escaped}'".replace("\\", "\\\\").strip() if "\\" in text else f"'{escaped}'"
