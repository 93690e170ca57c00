"""Validation of the options of one source (`[sources.config]`). Unknown keys are refused with a suggestion."""

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Annotated, Any, BinaryIO, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from bbfs.model.errors import ConfigError
from bbfs.model.quantities import parse_size
from bbfs.model.values import DataSource

OptionsT = TypeVar("OptionsT", bound="SourceOptions")

Bytes = Annotated[int, BeforeValidator(parse_size)]
"""An option in bytes, written as in `[cache]`: 65536 or "64KiB"."""


class SourceOptions(BaseModel):
    """Base of the options model of a source type. Frozen; keys in camelCase or snake_case, and no others."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True, loc_by_alias=False
    )

    @classmethod
    def tables(cls, config: Mapping[str, Any]) -> Mapping[tuple[str, ...], "type[SourceOptions]"]:
        """Return the tables that an option may be in, by their paths in `[[sources]]`. config: options as given."""
        return {("config",): cls}

    @classmethod
    def problems(cls, values: Mapping[str, Any]) -> list[tuple[tuple[int | str, ...], str]]:
        """Return the faults of a table, each with its key path. No message holds a value, which may be a secret."""
        try:
            cls.model_validate(dict(values))
        except ValidationError as error:
            return [
                (problem["loc"], _message(cls, problem["loc"], problem["type"], problem["msg"]))
                for problem in error.errors(include_url=False, include_input=False, include_context=False)
            ]
        return []


def parse_options(options: type[OptionsT], source: DataSource) -> OptionsT:
    """Return the options in `source.config`. Raise ConfigError that names each bad key as `sources[ID].config.KEY`."""
    return parse_table(options, source.config, f"sources[{source.id}].config")


def parse_table(options: type[OptionsT], values: Mapping[str, Any], where: str) -> OptionsT:
    """Return the options in a table. Raise ConfigError that names each bad key as `where.KEY`."""
    with suppress(ValidationError):  # its text holds values, and an option may be a secret
        return options.model_validate(dict(values))
    problems = options.problems(values)
    raise ConfigError("; ".join(f"{'.'.join([where, *map(str, place)])}: {message}" for place, message in problems))


def refuse_auth(source: DataSource) -> None:
    """Raise ConfigError if the source has secrets. For types that use no secrets."""
    if source.auth:
        key = min(source.auth)
        raise ConfigError(f"sources[{source.id}].auth.{key}: a source of type {source.type!r} takes no secrets")


def as_given(source: DataSource, key: str) -> Any:
    """Return an option as written in the configuration, in either spelling of its key, or None."""
    return source.config.get(key, source.config.get(to_camel(key)))


def made_of_references(value: Any) -> frozenset[str]:
    """Return the secrets that references (`${…}`) brought into an option."""
    if isinstance(value, Mapping):
        return frozenset().union(*map(made_of_references, value.values()))
    if isinstance(value, list | tuple):
        return frozenset().union(*map(made_of_references, value))
    # Strings made from references carry their secrets; see `bbfs.config.interpolation`.
    return frozenset(secret for secret in getattr(value, "secrets", ()) if secret)


def local_path(source: DataSource, path: str) -> str:
    """Return an option as an absolute path: `~` is the home directory, a relative path starts at `DataSource.base`."""
    return os.path.abspath(os.path.join(source.base or "", os.path.expanduser(path)))


def open_regular(path: str) -> BinaryIO:
    """Open a regular file for reading. Raise OSError also for a pipe or device, whose opening might never end."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise OSError(errno.EINVAL, "is no regular file", path)
    return os.fdopen(number, "rb")


def _message(options: type[SourceOptions], location: tuple[int | str, ...], kind: str, message: str) -> str:
    if kind == "missing":
        return "this option is required"
    if kind != "extra_forbidden":
        return _in_words(message)
    known = _known(options, location)
    if location[-1] in known:
        return "is there in camelCase and in snake_case; leave one of them out"
    near = get_close_matches(str(location[-1]), known, n=1)
    return f"unknown option; {f'did you mean {near[0]!r}?' if near else 'known options are ' + ', '.join(known)}"


def _in_words(message: str) -> str:
    """Return a message of pydantic in the words of a configuration file, which has tables and arrays."""
    text = message.removeprefix("Value error, ")
    text = re.sub(r"a valid dictionary(?: or instance of \w+)?", "a table", text)
    text = text.replace("a valid tuple", "an array").replace("a valid list", "an array")
    text = text.replace("a valid integer, unable to parse string as an integer", "an integer")
    text = text.replace("a valid integer", "an integer").replace("a valid string", "a text")
    return text.replace("Input should be", "should be")


def _known(options: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the valid options in the table of a location, sorted."""
    models = [options]
    for step in location[:-1]:
        fields = [model.model_fields[step] for model in models if step in model.model_fields]
        models = [model for field in fields for model in _models(field.annotation)] or models
    return sorted({name for model in models for name in model.model_fields})


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in an annotation, such as the one in `dict[str, Model] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
