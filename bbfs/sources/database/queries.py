"""Named queries of the configuration, and the file names that run them. Pure.

`sales?from=2026-01-01&region=EU.csv` runs the query `sales` with two values; without values it is `sales.csv`. A value
is percent-encoded where it must be: `&` is `%26`, `/` is `%2F`, `%` is `%25`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Literal
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from bbfs.model.errors import InvalidUri, NotFound
from bbfs.sources.database.names import shown
from bbfs.sources.database.rendering import QueryValue, QueryValues

ParameterType = Literal["text", "integer", "number", "boolean", "date", "timestamp"]
FORMATS: tuple[Literal["csv", "ndjson"], ...] = ("csv", "ndjson")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_PARAMETER = re.compile(r"(?<![:\w\\]):([A-Za-z_]\w*)(?!\w)(?!:(?!:))|\\(:)")
"""`:name`, also before a cast (`:name::date`), but not `:name:`; or an escaped colon."""


class ParameterOptions(BaseModel):
    """A parameter of a query."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    type: ParameterType = "text"
    """The type of its values."""
    default: str | int | float | bool | None = None
    """The value if a program gives none, written as in a file name. Without it, the parameter is required."""
    description: str | None = None
    """The description."""


class QueryOptions(BaseModel):
    """A named query."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    sql: str = Field(min_length=1)
    """A single statement, with `:name` for each parameter."""
    description: str | None = None
    """The description."""
    parameters: dict[str, ParameterOptions] = Field(default_factory=dict)
    """A table from name to parameter: a type, or a table with the keys `type`, `default` and `description`. A parameter
    that is not in the table is a required text."""
    lazy: bool = False
    """Do not list the results."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        return {"sql": given} if isinstance(given, str) else given

    @field_validator("parameters", mode="before")
    @classmethod
    def _short_parameters(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {name: {"type": value} if isinstance(value, str) else value for name, value in given.items()}

    @model_validator(mode="after")
    def _known(self) -> "QueryOptions":
        names = [match[1] for match in _PARAMETER.finditer(self.sql) if match[1]]
        for name, parameter in self.parameters.items():
            if name not in names:
                raise ValueError(f"parameter {name!r} is not in the SQL (as :{name})")
            if parameter.default is not None:
                parse_value(name, parameter.type, _as_text(parameter.default))
        return self


def _as_text(default: str | int | float | bool | None) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


def valid_name(name: str) -> str:
    """Return a name. Raises ValueError if it cannot be the name of a query."""
    if not _NAME.fullmatch(name) or name.endswith((".csv", ".ndjson", ".sql")):
        raise ValueError(f"{name!r} cannot be the name of a query: letters, digits, '_', '-' and '.'")
    return name


@dataclass(frozen=True, slots=True)
class Query:
    name: str
    options: QueryOptions

    @property
    def parameters(self) -> dict[str, ParameterOptions]:
        """In the order of the SQL."""
        found = dict.fromkeys(match[1] for match in _PARAMETER.finditer(self.options.sql) if match[1])
        return {name: self.options.parameters.get(name, ParameterOptions()) for name in found}

    @property
    def required(self) -> list[str]:
        return [name for name, parameter in self.parameters.items() if parameter.default is None]

    def pyformat(self) -> str:
        """Return the statement with `%(name)s` for each parameter, and `%%` for each percent sign."""
        return self._written(lambda name: f"%({name})s", lambda text: text.replace("%", "%%"))

    def named(self) -> str:
        """Return the statement with `:name` for each parameter, and plain colons."""
        return self._written(lambda name: f":{name}", str)

    def dollars(self) -> str:
        """Return the statement with `$name` for each parameter, and plain colons."""
        return self._written(lambda name: f"${name}", str)

    def escaped(self) -> str:
        """Return the statement for SQLAlchemy's `text()`: `:name` for each parameter, `\\:` for each other colon."""
        return self._written(lambda name: f":{name} ", lambda text: text.replace(":", "\\:"))

    def _written(self, parameter: Callable[[str], str], text: Callable[[str], str]) -> str:
        parts, position = [], 0
        sql = self.statement
        for match in _PARAMETER.finditer(sql):
            parts.append(text(sql[position : match.start()]))
            parts.append(parameter(match[1]) if match[1] else text(":"))
            position = match.end()
        return "".join([*parts, text(sql[position:])])

    @property
    def statement(self) -> str:
        return self.options.sql.strip().rstrip(";").rstrip()

    def source_text(self) -> str:
        """Return the query as SQL, with comments on its parameters."""
        lines = [f"-- {line}" for line in (self.options.description or "").splitlines()]
        for name, parameter in self.parameters.items():
            default = "" if parameter.default is None else f", {_as_text(parameter.default)} unless given"
            about = "" if parameter.description is None else f": {parameter.description}"
            lines.append(f"-- :{name} {parameter.type}{default}{about}")
        return "\n".join([*lines, self.statement]) + ";\n"

    def values(self, arguments: str | None) -> QueryValues:
        """Return the values after the `?` of a file name. Raises InvalidUri, which says which value is wrong."""
        given: dict[str, str] = {}
        parameters = self.parameters
        for pair in (arguments or "").split("&") if arguments else []:
            name, equals, value = pair.partition("=")
            name = unquote(name)
            if not equals or name not in parameters:
                there = ", ".join(parameters) or "none"
                raise InvalidUri(f"query {self.name}: no parameter {shown(name)!r}; there are: {there}")
            if name in given:
                raise InvalidUri(f"query {self.name}: parameter {name!r} is given twice")
            given[name] = value
        missing = [name for name in self.required if name not in given]
        if missing:
            example = "&".join(f"{name}=…" for name in missing)
            raise InvalidUri(f"query {self.name}: missing {', '.join(missing)}; ask for {self.name}?{example}.csv")
        made: dict[str, QueryValue] = {}
        for name, parameter in parameters.items():
            text = _decoded(name, given[name]) if name in given else _as_text(parameter.default)
            made[name] = parse_value(name, parameter.type, text)
        return made


def _decoded(name: str, value: str) -> str:
    try:
        return unquote(value, errors="strict")
    except UnicodeError:
        raise InvalidUri(f"parameter {name!r}: not UTF-8") from None


def parse_value(name: str, type: ParameterType, text: str) -> QueryValue:
    """Return the value that is written in a file name. Raises InvalidUri."""
    try:
        match type:
            case "integer":
                return int(text)
            case "number":
                return Decimal(text)
            case "boolean":
                return {"true": True, "false": False}[text]
            case "date":
                return date.fromisoformat(text)
            case "timestamp":
                return datetime.fromisoformat(text)
    except (ValueError, KeyError, InvalidOperation):
        raise InvalidUri(f"parameter {name!r}: {shown(text)!r} is no {type}") from None
    if "\0" in text:
        raise InvalidUri(f"parameter {name!r}: a text with a zero byte")
    return text


def parse_file_name(
    text: str, queries: Mapping[str, Query]
) -> tuple[Query, Literal["csv", "ndjson", "sql"], str | None]:
    """Return the query, the format and the arguments of a file name. Raises NotFound."""
    stem, _, ending = text.rpartition(".")
    name, question, arguments = stem.partition("?")
    query = queries.get(name)
    if query is None or (ending not in FORMATS and not (ending == "sql" and not question)):
        there = ", ".join(queries) or "none"
        raise NotFound(f"{shown(text)}: no such query; there are: {there}, each with .csv, .ndjson and .sql")
    chosen: Literal["csv", "ndjson", "sql"] = "sql" if ending == "sql" else "csv" if ending == "csv" else "ndjson"
    return query, chosen, arguments if question else None
