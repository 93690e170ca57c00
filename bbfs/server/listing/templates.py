"""The URI templates of a source under bbfs URIs, and values for their variables."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import trio

from bbfs.model.errors import DeadlineExceeded, InvalidUri, NotADirectory, NotFound
from bbfs.model.source_types import of_source
from bbfs.model.uri import parse_data_source_uri, source_uri
from bbfs.model.uri_paths import OPENING
from bbfs.model.uri_templates.expand import template_variables
from bbfs.model.values import Completion, ResourceTemplate
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.server.documents import given_path, shown_path
from bbfs.server.listing.walk import Walk
from bbfs.sources import CanComplete

MOST_VALUES = 100
"""Values of one answer, as the protocol has it."""
FOLDER_VARIABLE = "path"
"""The variable for all names below the root of a source."""


def own_template(source: Source, operator: str = "") -> str | None:
    """Return the template of all resources of a bbfs source with one scheme; None for any other source.

    operator: "" for the data model's `{path}`, in which bbfs keeps slashes; "+" for RFC 6570, which keeps them too.
    """
    data = source.data
    if data.scheme is None or data.access_method != "bb":
        return None
    beginning = source.catalog.beginning
    if beginning is None:
        found = of_source(data)
        beginning = data.scheme + (OPENING if found is None else found.opening)
    return f"{source_uri(data.base_prefix, beginning)}{{{operator}{FOLDER_VARIABLE}}}"


def own_template_variable(source: Source, uri_template: str) -> bool:
    """Return whether this is `own_template` in one of its spellings."""
    return uri_template in (own_template(source), own_template(source, "+"))


def templates_of(source: Source, operator: str = "") -> list[ResourceTemplate]:
    """Return the templates of a source as last listed, under bbfs URIs."""
    own = own_template(source, operator)
    found: list[ResourceTemplate] = []
    if own is not None:
        title = source.data.title or source.data.name
        found = [ResourceTemplate(own, source.data.name, f"Anything in {title}", "By its path, from the root down")]
    base = source.data.base_prefix
    for each in source.catalog.all_templates():
        found.append(replace(each, uri_template=source_uri(base, each.uri_template)))
    return found


def as_json(templates: Iterable[ResourceTemplate]) -> list[dict[str, Any]]:
    """Return templates as JSON, without unknown fields and without invalid templates (RFC 6570)."""
    found = [
        {
            "uriTemplate": each.uri_template,
            "name": each.name,
            "title": each.title,
            "description": each.description,
            "mimeType": each.mime_type,
            "variables": _variables(each),
        }
        for each in templates
    ]
    return [{key: value for key, value in each.items() if value is not None} for each in found if each["variables"]]


def _variables(template: ResourceTemplate) -> list[str]:
    try:
        return list(template_variables(template.uri_template))
    except InvalidUri:
        return []


async def complete(
    manager: ResourceManager, uri_template: str, variable: str, value: str, context: Mapping[str, str]
) -> Completion:
    """Return values that begin with `value`, for a variable of a template under its bbfs URI.

    context: the values of other variables. Raises NotFound for an unknown template or variable, and the source's error.
    """
    source = _source_of(manager, uri_template)
    if variable not in template_variables(uri_template):
        raise NotFound(f"no variable {variable!r} in {uri_template}")
    if own_template_variable(source, uri_template):
        return await _names(source, value)
    handler = source.handler
    if not isinstance(handler, CanComplete):
        return Completion()
    native = parse_data_source_uri(uri_template).original_uri
    timeout = source.data.policy.timeout
    with source.waiters, trio.move_on_after(timeout):
        async with source.slots.ask():
            found = await handler.complete(native, variable, value, dict(context))
            return Completion(found.values[:MOST_VALUES], found.more or len(found.values) > MOST_VALUES)
    raise DeadlineExceeded(f"no answer within {timeout:g} s")


def _source_of(manager: ResourceManager, uri_template: str) -> Source:
    """Return the source of a template. Raises NotFound."""
    try:
        source = manager.sources.get(parse_data_source_uri(uri_template).base_prefix)
    except InvalidUri as error:
        raise NotFound(str(error)) from error
    if source is not None:
        base = source.data.base_prefix
        native = (source_uri(base, each.uri_template) for each in source.catalog.all_templates())
        if own_template_variable(source, uri_template) or uri_template in native:
            return source
    raise NotFound(f"no template {uri_template!r}")


async def _names(source: Source, value: str) -> Completion:
    """Return the paths that begin with `value`; a directory's path ends with a slash."""
    directory, _, begun = value.rpartition("/")
    start = given_path(source, directory)
    walk = Walk(source, start, 1, 1 << 20)
    try:
        await walk.run()
    except (NotFound, NotADirectory):
        return Completion()
    found: list[str] = []
    for each in walk.found:
        name = each.path[-1]
        if name.startswith(begun):
            is_directory = each.record is None or each.record.metadata.kind == "directory"
            found.append(shown_path(source, each.path) + ("/" if is_directory else ""))
    slash = "/" if value.startswith("/") else ""
    return Completion(tuple(slash + name for name in found[:MOST_VALUES]), len(found) > MOST_VALUES)
