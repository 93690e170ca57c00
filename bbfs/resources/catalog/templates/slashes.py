"""Slashes that are not escaped, in values of a call: `read?path=/etc/hosts`, `fetch?url=https://example.com/a`. Pure.

The kernel splits such a name, so its first part must be a directory. It is one only where no call can be meant:

- The last value is empty, or ends after the scheme of a URL. (`read?path=&` is the call with an empty text.)
- An argument that every call needs does not stand there yet: `convert?from=Europe` before `/Berlin&to=UTC`.
- The last value is not allowed, but the beginning of one that is: `fetch?format=text` before `/html`.

Any other first part is a call; a slash in its last value is escaped (`now?zone=Europe%2FBerlin`).
"""

import re
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import unquote

from bbfs.model.uri_paths import hide_component
from bbfs.model.values import ResourceTemplate
from bbfs.resources.catalog.record import Path

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class Slashed(NamedTuple):
    """A name of several components. name: the same with escaped slashes. depth: of its first component. ends: whether
    no further component can belong to it."""

    name: str
    depth: int
    ends: bool


def slashed(path: Path, template: ResourceTemplate) -> Slashed | None:
    """Return the name of a call that ends with this path, or leads on below it; None for any other path."""
    depth = next((number for number, name in enumerate(path) if "?" in name), None)
    if depth is None:
        return None
    name, _, text = path[depth].partition("?")
    text = hide_component(text)
    for component in path[depth + 1 :]:
        value = _last(text)[1]
        # The kernel takes several slashes for one.
        between = "" if _URL.fullmatch(value) is None else "%2F%2F" if value.lower() == "file:" else "%2F"
        text += f"{between}%2F{hide_component(component)}"
    variable, value = _last(text)
    is_free = variable in map(unquote, template.slashed)
    is_begun = not is_free and _is_begun(f"{variable}={value}", template.choices)
    leads = is_begun or (is_free and (not value or _URL.fullmatch(value) or _lacks(text, template.needed)))
    if len(path) == depth + 1 and not leads:
        return None
    return Slashed(f"{name}?{text}", depth, not (is_free or is_begun))


def _last(query: str) -> tuple[str, str]:
    """Return the last variable of a query and its value, decoded; both are empty after `&`."""
    variable, _, value = query.rpartition("&")[2].partition("=")
    return unquote(variable), unquote(value)


def _is_begun(pair: str, choices: Collection[str]) -> bool:
    """Return whether a variable with its value, decoded, is no choice, and a slash makes it the beginning of one."""
    return pair not in choices and any(choice.startswith(pair + "/") for choice in choices)


def _lacks(query: str, needed: Collection[str]) -> bool:
    given = {unquote(pair.partition("=")[0]) for pair in query.split("&")}
    return not given.issuperset(map(unquote, needed))
