"""Slashes that are not escaped, in values of a call: `read?path=/etc/hosts`, `fetch?url=https://example.com/a`. Pure.

The kernel splits such a name, so its first part must be a directory. It is one only where no call can be meant: if the
last value is empty, or ends after the scheme of a URL. (`read?path=&` is the call with an empty text.)
"""

import re
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import unquote

from bbfs.model.uri_paths import hide_component
from bbfs.resources.catalog.record import Path

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class Slashed(NamedTuple):
    """A name of several components. name: the same with escaped slashes. depth: of its first component. ends: whether
    no further component can belong to it."""

    name: str
    depth: int
    ends: bool


def slashed(path: Path, variables: Collection[str]) -> Slashed | None:
    """Return the name of a call that ends with this path, or leads on below it; None for any other path.

    variables: those whose values may hold slashes.
    """
    depth = next((number for number, name in enumerate(path) if "?" in name), None)
    if depth is None:
        return None
    name, _, text = path[depth].partition("?")
    text = hide_component(text)
    for component in path[depth + 1 :]:
        value = unquote(_last(text)[1])
        # The kernel takes several slashes for one.
        between = "" if _URL.fullmatch(value) is None else "%2F%2F" if value.lower() == "file:" else "%2F"
        text += f"{between}%2F{hide_component(component)}"
    variable, value = _last(text)
    leads = unquote(variable) in {unquote(each) for each in variables}
    if len(path) == depth + 1 and not (leads and (not value or _URL.fullmatch(unquote(value)))):
        return None
    return Slashed(f"{name}?{text}", depth, not leads)


def _last(query: str) -> tuple[str, str]:
    """Return the last variable of a query and its value; both are empty after `&`."""
    variable, _, value = query.rpartition("&")[2].partition("=")
    return variable, value
