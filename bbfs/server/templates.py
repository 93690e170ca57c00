"""The URI templates of a source under bbfs URIs, and values for their variables."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from bbfs.model.errors import InvalidUri
from bbfs.model.file_names import OPENING
from bbfs.model.source_types import of_source
from bbfs.model.uri import source_uri
from bbfs.model.uri_templates.expand import template_variables
from bbfs.model.values import ResourceTemplate
from bbfs.resources.catalog import DirectoryCatalog
from bbfs.resources.source import Source

FOLDER_VARIABLE = "path"
"""What stands for all names below the root of a source."""


def own_template(source: Source, operator: str = "") -> str | None:
    """The template of all resources of a source of bbfs's own with one scheme, None for any other source.

    operator: without one it is the data model's `{path}`, which bbfs expands with its slashes; `+` makes RFC 6570, and
    so whoever else expands it, do the same.
    """
    data = source.data
    if data.scheme is None or data.access_method != "bb":
        return None
    beginning = source.catalog.beginning if isinstance(source.catalog, DirectoryCatalog) else None
    if beginning is None:
        found = of_source(data)
        beginning = data.scheme + (OPENING if found is None else found.opening)
    return f"{source_uri(data.base_prefix, beginning)}{{{operator}{FOLDER_VARIABLE}}}"


def own_template_variable(source: Source, uri_template: str) -> bool:
    """Whether this is the template of all resources of a source, in one of its spellings."""
    return uri_template in (own_template(source), own_template(source, "+"))


def templates_of(source: Source, operator: str = "") -> list[ResourceTemplate]:
    """The templates of a source as last listed, each with its bbfs URI."""
    own = own_template(source, operator)
    found: list[ResourceTemplate] = []
    if own is not None:
        title = source.data.title or source.data.name
        found = [ResourceTemplate(own, source.data.name, f"Anything in {title}", "By its path, from the root down")]
    base = source.data.base_prefix
    for each in source.catalog.all_templates():
        found.append(replace(each, uri_template=source_uri(base, each.uri_template)))
    return found


def described(templates: Iterable[ResourceTemplate]) -> list[dict[str, Any]]:
    """Templates as JSON; what is not known is left out, and so are those that are none (RFC 6570)."""
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
