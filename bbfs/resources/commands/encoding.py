"""Values of commands as JSON: dataclasses as objects with fields in camel case, without those that are None."""

import base64
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from bbfs.model.errors import ProtocolViolation

T = TypeVar("T")
_WORDS = {str: "a string", bool: "true or false", int: "an integer", float: "a number", bytes: "base64"}


def encoded(value: Any) -> Any:
    """Return a value as JSON has it. Bytes are base64."""
    if is_dataclass(value):
        found = ((name, getattr(value, field)) for field, name in _names(type(value)).items())
        return {name: encoded(each) for name, each in found if each is not None}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {key: encoded(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [encoded(each) for each in value]
    return value


def decoded(kind: type[T], document: Any) -> T:
    """Return the dataclass that a JSON object stands for; unknown fields are ignored. Raise ProtocolViolation."""
    if not isinstance(document, Mapping):
        raise ProtocolViolation(f"{kind.__name__} must be an object")
    hints, names, given = _hints(kind), _names(kind), {}
    for field in fields(kind):  # type: ignore[arg-type]
        name = names[field.name]
        value = document.get(name)
        if value is not None:
            given[field.name] = _value(hints[field.name], value, name)
        elif field.default is MISSING and field.default_factory is MISSING:
            if type(None) not in get_args(hints[field.name]):
                raise ProtocolViolation(f"{name} is missing")
            given[field.name] = None
    return kind(**given)


def _value(hint: Any, value: Any, name: str) -> Any:
    """Return a value of JSON as the annotation of a field has it. Raise ProtocolViolation."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is UnionType:
        return _value(next(each for each in arguments if each is not type(None)), value, name)
    if origin is Literal:
        if value not in arguments:
            raise ProtocolViolation(f"{name} must be one of {', '.join(arguments)}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ProtocolViolation(f"{name} must be an array")
        return tuple(_value(arguments[0], each, name) for each in value)
    is_class = isinstance(hint, type) and is_dataclass(hint)
    if origin is not Mapping and not is_class:
        return _plain(hint, value, name)
    if not isinstance(value, dict):
        raise ProtocolViolation(f"{name} must be an object")
    if origin is Mapping:
        return {key: _value(arguments[1], each, name) for key, each in value.items()}
    kind: type[Any] = hint
    return decoded(kind, value)


def _plain(hint: Any, value: Any, name: str) -> Any:
    if hint is bytes and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except ValueError as error:
            raise ProtocolViolation(f"{name}: {error}") from None
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint or (hint is float and not math.isfinite(value)):
        raise ProtocolViolation(f"{name} must be {_WORDS[hint]}")
    return value


@cache
def _names(kind: type[Any]) -> Mapping[str, str]:
    """Return the names in JSON of the fields of a dataclass."""
    return {field.name: _camel_case(field.name) for field in fields(kind)}


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


@cache
def _hints(kind: type[Any]) -> Mapping[str, Any]:
    return get_type_hints(kind)
