"""Write the tables of options in docs/sources.md and docs/sources again (`make docs`).

A table stands between `<!-- options: NAME -->` and `<!-- end of options -->`. Its rows are the fields of a model that
checks a configuration file: the name, the values that the model accepts, the default, and the string below the field.
"""

import ast
import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, BeforeValidator, SecretStr
from pydantic.fields import FieldInfo

from bbfs.config import schema
from bbfs.model.quantities import parse_duration, parse_size, parse_umask
from bbfs.model.source_types import find, names, policy
from bbfs.model.values import DataSource, McpServer, Policy
from bbfs.sources.api import options as api
from bbfs.sources.database.options import DatabaseOptions
from bbfs.sources.database.queries import QueryOptions
from bbfs.sources.embeddings.options import EmbeddingOptions
from bbfs.sources.filesystem.handler import FilesystemOptions
from bbfs.sources.mcp.maps import options as maps
from bbfs.sources.memory.handler import MemoryOptions, ResourceOptions
from bbfs.sources.notion.handler import NotionOptions
from bbfs.sources.storage.options import SCHEMES, StorageOptions
from bbfs.sources.url.options import UrlOptions
from bbfs.sources.vector_search.options import VectorSearchOptions

DOCS = Path(__file__).parents[1] / "docs"
MODELS: Mapping[str, type[BaseModel]] = {
    "source": schema.SourceTable,
    "mount": schema.MountTable,
    "cache": schema.CacheTable,
    "documents": schema.DocumentsTable,
    "mcpConfig": schema.McpTable,
    "search": schema.SearchTable,
    "write": schema.WriteTable,
    "api": api.ApiOptions,
    "api search": api.SearchOptions,
    "database": DatabaseOptions,
    "database queries": QueryOptions,
    "embeddings": EmbeddingOptions,
    "filesystem": FilesystemOptions,
    "map": maps.MapOptions,
    "map list": maps.ListOptions,
    "map read": maps.ReadOptions,
    "map write": maps.WriteOptions,
    "map rename": maps.RenameOptions,
    "memory": MemoryOptions,
    "memory resources": ResourceOptions,
    "notion": NotionOptions,
    "storage": StorageOptions,
    "url": UrlOptions,
    "vector_search": VectorSearchOptions,
}
"""The models by the names of their tables."""
SCHEMES_TABLE = "storage schemes"
"""The name of the table of all schemes of `storage`, each of which has models of its own."""
_TABLE = re.compile(r"(<!-- options: ([\w ]+) -->\n).*?(<!-- end of options -->)", re.DOTALL)
_ALSO = {"capabilities": "array or table", "ttl": "duration or table"}
"""Keys of a source that accept a shorter form than their model."""


def main() -> None:
    """Write the tables of all pages."""
    for page in DOCS.rglob("*.md"):
        text = page.read_text()
        if (now := written(text)) != text:
            page.write_text(now)
            print(f"written: {page}")


def written(text: str) -> str:
    """Return the text of a page with the tables that the models have now. Raise KeyError for an unknown name."""
    return _TABLE.sub(lambda match: match[1] + table(match[2]) + match[3], text)


def tables_in(text: str) -> list[str]:
    """Return the names of the tables in the text of a page."""
    return [match[2] for match in _TABLE.finditer(text)]


def table(name: str, models: Mapping[str, type[BaseModel]] = MODELS) -> str:
    """Return the lines of a table. models: those of the other tables than the one of schemes."""
    keys = ["scheme", "key"] if name == SCHEMES_TABLE else ["option"]
    heads = [*keys, "value", "default", "meaning"]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [heads, ["---"] * len(heads), *rows(name, models)])


def rows(name: str, models: Mapping[str, type[BaseModel]] = MODELS) -> Iterator[list[str]]:
    """Yield the cells of each row of a table, which are Markdown."""
    yield from _scheme_rows() if name == SCHEMES_TABLE else _rows(models[name])


def _rows(model: type[BaseModel], prefix: str = "") -> Iterator[list[str]]:
    """Yield the cells of each field. Raise KeyError for a field without a string below it."""
    default = _default_of_source if model is schema.SourceTable else _default
    for key, field in model.model_fields.items():
        kinds = list(_kinds(field.annotation, _flat(field.metadata)))
        values = _ALSO.get(key, " or ".join(dict.fromkeys(kinds)))
        yield [f"`{prefix}{key}`", values, default(key, field, kinds[0]), _meanings(model)[key]]


def _scheme_rows() -> Iterator[list[str]]:
    """Yield the cells of each option and each secret of a scheme. Schemes with the same ones share their rows."""
    for known in dict.fromkeys(SCHEMES.values()):
        alike = ", ".join(f"`{name}`" for name, scheme in SCHEMES.items() if scheme == known)
        for prefix, model in (("options.", known.options), ("auth.", known.auth)):
            for row in _rows(model, prefix):
                yield [alike, *row]


@cache
def _meanings(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the strings below the fields of a model and of its bases, by field."""
    bases = [each for each in model.__mro__ if each.__module__.startswith("bbfs.")]
    return {field: text for each in reversed(bases) for field, text in _strings_in(each)}


def _strings_in(model: type) -> Iterator[tuple[str, str]]:
    """Yield each field in the body of a class with the string below it, on one line."""
    (body,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(body, ast.ClassDef)
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            yield field.target.id, " ".join(ast.literal_eval(below.value).split())


def _flat(metadata: list[Any] | tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the metadata of an annotation, with that of each `Field` in the place of the `Field`."""
    return tuple(part for each in metadata for part in (each.metadata if isinstance(each, FieldInfo) else [each]))


def _kinds(annotation: Any, metadata: tuple[Any, ...]) -> Iterator[str]:
    """Yield the kinds of values that an annotation accepts."""
    parser = next((each.func for each in metadata if isinstance(each, BeforeValidator)), None)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _kinds(arguments[0], (*_flat(arguments[1:]), *metadata))
    elif origin in (Union, types.UnionType):
        for each in arguments:
            yield from _kinds(each, metadata)
    elif origin is Literal:
        yield " or ".join(f"`{value}`" for value in arguments)
    elif origin in (list, tuple):
        yield "array"
    elif parser is parse_umask or annotation in (str, SecretStr):
        yield "text"
    elif annotation is bool:
        yield "boolean"
    elif annotation in (int, float):
        kind = "integer" if annotation is int else "number"
        yield " ".join(
            [{parse_size: "bytes", parse_duration: "duration"}.get(parser, kind), *_bounds(metadata, parser)]
        )
    elif annotation is not type(None):
        yield "table"


def _bounds(metadata: tuple[Any, ...], parser: Any) -> Iterator[str]:
    """Yield the least and the greatest value of a number, each in words."""
    show: Callable[[Any], str] = {parse_size: size, parse_duration: duration}.get(parser, _grouped)
    for each in metadata:
        match each:
            case Ge(ge=least) if least:
                yield f"from {show(least)}"
            case Gt(gt=least):
                yield f"over {show(least)}"
            case Le(le=most):
                yield f"up to {show(most)}"
            case Lt(lt=most):
                yield f"below {show(most)}"


def size(number: int) -> str:
    """Return a number of bytes with the largest unit that divides it."""
    units = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
    return next((f"{number // unit} {name}" for unit, name in units if number and not number % unit), str(number))


def duration(seconds: float) -> str:
    """Return seconds with the largest unit that divides them."""
    units = ((86400, "d"), (3600, "h"), (60, "m"))
    return next(
        (f"{seconds / unit:g} {name}" for unit, name in units if seconds and not seconds % unit), f"{seconds:g} s"
    )


def _grouped(number: float) -> str:
    """Return a number, an integer with its digits in groups of three."""
    return f"{number:,}".replace(",", " ") if isinstance(number, int) else f"{number:g}"


def _default(key: str, field: FieldInfo, kind: str) -> str:
    """Return the default of a field; an empty text if it has none."""
    if field.is_required():
        return "required"
    return _shown(field.get_default(call_default_factory=True), kind)


def _shown(value: Any, kind: str) -> str:
    """Return a value as a cell shows it. kind: of the values of its field."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f"`{value}`"
    if isinstance(value, int | float):
        return {"bytes": size, "duration": duration}.get(kind.partition(" ")[0], _grouped)(value)  # type: ignore[operator]
    return ""


def _default_of_source(key: str, field: FieldInfo, kind: str) -> str:
    """Return the default of a key of `[[sources]]`, with the types that have another one."""
    if key == "ttl":
        return _by_type(lambda found: f"{duration(found.listing_ttl)}, {duration(found.content_ttl)}")
    if key in Policy.__dataclass_fields__:
        return _by_type(lambda found: _shown(getattr(found, key), kind))
    for values in (McpServer, DataSource):
        kept = values.__dataclass_fields__.get(key)
        if kept is not None and kept.default not in (None, MISSING):
            return _shown(kept.default, kind)
    return _default(key, field, kind)


def _by_type(show: Callable[[Policy], str]) -> str:
    """Return the default of all types, and of each type of bbfs that has another one."""
    usual = show(Policy())
    own = [name for name in names() if (found := find(name)) is not None and found.handler.startswith("bbfs.")]
    others = [f"`{name}`: {shown}" for name in own if (shown := show(policy(name))) != usual]
    return "; ".join([usual, *others])


if __name__ == "__main__":
    main()
