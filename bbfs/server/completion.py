"""Values for the variables of the templates: what a source completes, and the names below a folder."""

from collections.abc import Mapping

import trio

from bbfs.model.errors import DeadlineExceeded, InvalidUri, NotADirectory, NotFound
from bbfs.model.uri import parse_data_source_uri, source_uri
from bbfs.model.uri_templates.expand import template_variables
from bbfs.model.values import Completion
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source, Waiting
from bbfs.server import templates
from bbfs.server.tools import documents
from bbfs.server.walk import Walk
from bbfs.sources import CanComplete

MOST = 100
"""Values of one answer, as the protocol has it."""


async def complete(
    manager: ResourceManager, uri_template: str, variable: str, value: str, context: Mapping[str, str]
) -> Completion:
    """Values that begin with `value`, for a variable of a template under its bbfs URI.

    context: the values of other variables. Raises NotFound for a template or a variable there is not, and the source's
    error.
    """
    source = _source_of(manager, uri_template)
    if variable not in template_variables(uri_template):
        raise NotFound(f"no variable {variable!r} in {uri_template}")
    if templates.own_template_variable(source, uri_template):
        return await _names(source, value)
    handler = source.handler
    if not isinstance(handler, CanComplete):
        return Completion()
    native = parse_data_source_uri(uri_template).original_uri
    timeout = source.data.policy.timeout
    with Waiting(source), trio.move_on_after(timeout):
        async with source.slots.ask():
            found = await handler.complete(native, variable, value, dict(context))
            return Completion(found.values[:MOST], found.more or len(found.values) > MOST)
    raise DeadlineExceeded(f"no answer within {timeout:g} s")


def _source_of(manager: ResourceManager, uri_template: str) -> Source:
    """The source of a template. Raises NotFound."""
    try:
        source = manager.sources.get(parse_data_source_uri(uri_template).base_prefix)
    except InvalidUri as error:
        raise NotFound(str(error)) from error
    if source is not None:
        base = source.data.base_prefix
        native = (source_uri(base, each.uri_template) for each in source.catalog.all_templates())
        if templates.own_template_variable(source, uri_template) or uri_template in native:
            return source
    raise NotFound(f"no template {uri_template!r}")


async def _names(source: Source, value: str) -> Completion:
    """The paths that go on from `value`; that of a directory ends with a slash."""
    directory, _, begun = value.rpartition("/")
    start = documents.given_path(source, directory)
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
            found.append(documents.shown_path(source, each.path) + ("/" if is_directory else ""))
    slash = "/" if value.startswith("/") else ""
    return Completion(tuple(slash + name for name in found[:MOST]), len(found) > MOST)
