"""Validation of the options of one source (`[sources.config]`): unknown keys are refused with a suggestion."""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from bbfs.errors import ConfigError
from bbfs.model import DataSource

OptionsT = TypeVar("OptionsT", bound="SourceOptions")


class SourceOptions(BaseModel):
    """Base of the options model of a source type: frozen, and no key but its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def parse_options(options: type[OptionsT], source: DataSource) -> OptionsT:
    """The options in `source.config`. Raises ConfigError that names each bad key as `sources[ID].config.KEY`."""
    return parse_table(options, source.config, f"sources[{source.id}].config")


def parse_table(options: type[OptionsT], values: Mapping[str, Any], where: str) -> OptionsT:
    """The options in a table. Raises ConfigError that names each bad key as `where.KEY`."""
    try:
        return options.model_validate(dict(values))
    except ValidationError as error:
        # The values are left out of the text: an option may hold a secret.
        problems = [
            _problem(options, where, problem["loc"], problem["type"], problem["msg"])
            for problem in error.errors(include_url=False, include_input=False, include_context=False)
        ]
    raise ConfigError("; ".join(problems))


def local_path(source: DataSource, path: str) -> str:
    """An absolute path for one among the options: `~` is the home directory, `DataSource.base` the start."""
    return os.path.abspath(os.path.join(source.base or "", os.path.expanduser(path)))


def _problem(options: type[SourceOptions], table: str, location: tuple[int | str, ...], kind: str, message: str) -> str:
    where = ".".join([table, *map(str, location)])
    if kind == "missing":
        return f"{where}: this option is required"
    if kind != "extra_forbidden":
        return f"{where}: {message.removeprefix('Value error, ')}"
    known = sorted(options.model_fields)
    near = get_close_matches(str(location[-1]), known, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"known options are {', '.join(known)}"
    return f"{where}: unknown option; {remedy}"
