"""The operation that searches an API: its request, and the hits among the items of its answer. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urljoin

from bbfs.model.errors import InvalidUri, NotFound, NotSupported
from bbfs.model.redaction import shown
from bbfs.model.uri_templates.expand import expand_template
from bbfs.model.values import Hit
from bbfs.sources.api.operations import LONGEST_URL, Api, Call, Operation
from bbfs.sources.api.options import SearchOptions
from bbfs.sources.api.pages import ListPage
from bbfs.sources.api.parameters import Parameter, text_of
from bbfs.sources.api.values import member, text_at
from bbfs.sources.hits import LIMITS, QUERIES, hit_of, looks_like_search, with_sound_scores

_URIS = ("uri", "url", "href", "self", "link")
"""Members of an item that may have the URL of its resource."""


def proposal(api: Api) -> str | None:
    """Return the option that names an operation which plainly searches, as a line of TOML, or None.

    Such an operation is named like a search and needs its words only.
    """
    for operation in api.operations:
        names = [parameter.name for parameter in operation.in_query]
        words = next((name for name in QUERIES if name in names), None)
        needed = {parameter.name for parameter in operation.required}
        segments = [part for part in operation.path.split("/") if part]
        named = any(looks_like_search(name) for name in (*segments, operation.operation_id or ""))
        if named and words is not None and needed <= {words} and not operation.in_path:
            given = {"operation": operation.path, "query": words, "resource": _found_by(api, operation, segments)}
            texts = (f"{key} = {json.dumps(text)}" for key, text in given.items() if text is not None)
            return f"search = {{ {', '.join(texts)} }}"
    return None


def _found_by(api: Api, search: Operation, segments: Sequence[str]) -> str | None:
    """Return the path of the operation that takes the key of a hit: `/pets/{id}` for `/pets/search`, or None."""
    for operation in api.operations:
        above, _, last = operation.path.rpartition("/")
        takes_key = len(operation.in_path) == 1 and last.startswith("{") and not operation.required
        if takes_key and above.rpartition("/")[2] in segments and operation.path != search.path:
            return operation.path
    return None


def search_call(api: Api, option: SearchOptions, query: str, limit: int) -> Call:
    """Return the request of a search. Raise NotSupported if the option does not fit the document."""
    operation = _operation(api, option.operation, "operation")
    names = {parameter.name: parameter for parameter in operation.in_query}
    given = {name: text for name, value in option.arguments.items() if (text := text_of(value)) is not None}
    words = option.query or next((name for name in QUERIES if name in names), None)
    if words is None:
        raise NotSupported(f"search: GET {shown(operation.path)} takes no query of a usual name; name it: search.query")
    number = option.limit or next((name for name in LIMITS if name in names), None)
    if number is not None:
        given.setdefault(number, str(limit))
    given[words] = query
    known = names | {parameter.name: parameter for parameter in operation.in_path}
    if unknown := [name for name in given if name not in known]:
        raise NotSupported(f"search: GET {shown(operation.path)} has no parameter {shown(unknown[0])}")
    values = {known[name].variable: _value(known[name], text) for name, text in given.items()}
    try:
        return api.call(expand_template(operation.query_template or operation.base, values))
    except (NotFound, InvalidUri) as error:
        raise NotSupported(f"search: {error}") from None


def _operation(api: Api, path: str, key: str) -> Operation:
    found = next((operation for operation in api.operations if operation.path == path), None)
    if found is None:
        raise NotSupported(f"search.{key}: the document has no GET {shown(path)}")
    return found


def _value(parameter: Parameter, text: str) -> Any:
    return [text] if parameter.exploded else text


def hits(api: Api, option: SearchOptions, call: Call, page: ListPage, limit: int) -> list[Hit]:
    """Return the hits in the first items of an answer, at most `limit`.

    Raise NotSupported if there are items, but no item has the URL of a resource.
    """
    items = [item for item in page.parsed(limit) if isinstance(item, dict)]
    found: dict[str, Hit] = {}
    for item, candidates in zip(items, _candidates(api, option, call, items), strict=True):
        uri = next((uri for uri in candidates if _is_resource(api, uri, call.operation)), None)
        if uri is not None:
            found.setdefault(uri, hit_of(uri, item))
    if items and not found:
        raise NotSupported(
            f"search: no item of GET {shown(call.operation.path)} leads to another operation; the option search.uri"
            " names the member with its URL, search.resource the operation that takes its key"
        )
    return with_sound_scores([*found.values()])


def _candidates(
    api: Api, option: SearchOptions, call: Call, items: Sequence[Mapping[str, Any]]
) -> Iterator[Iterator[str]]:
    """Yield for each item the URLs that its resource may have."""
    if option.resource is None:
        names = [(option.uri or "").split(".")] if option.uri else [[name] for name in _URIS]
        for item in items:
            texts = (text_at(item, name) for name in names)
            yield (_joined(call.url, text) for text in texts if text is not None)
        return
    operation = _operation(api, option.resource, "resource")
    # The key of an item is the last variable; only of that the name is guessed.
    members = {each.variable: (each, each.name) for each in operation.in_path[:-1]}
    members |= {each.variable: (each, member(items, each)) for each in operation.in_path[-1:]}
    for item in items:
        values: dict[str, Any] = {}
        for variable, (parameter, name) in members.items():
            text = None if name is None else text_at(item, (name,))
            text = text_of(option.arguments.get(parameter.name)) if text is None else text
            if text is not None:
                values[variable] = _value(parameter, text)
        yield iter(_expanded(operation, values) if len(values) == len(members) else ())


def _expanded(operation: Operation, values: Mapping[str, Any]) -> Sequence[str]:
    try:
        return (expand_template(operation.base, values),)
    except InvalidUri:
        return ()


def _joined(url: str, text: str) -> str:
    try:
        return urljoin(url, text) if len(text) <= LONGEST_URL else ""
    except ValueError:
        return ""


def _is_resource(api: Api, uri: str, search: Operation) -> bool:
    """Return whether a URL is one of another operation than the search."""
    try:
        return api.call(uri).operation is not search
    except NotFound:
        return False
