"""URI ↔ path by the rule alone (`docs/semantics.md`, S2 to S5). Pure: no source is asked.

Paths start at the root of a mount. If several URIs of a listing need one name, or one of them is a directory as well,
only the listing knows the path. Otherwise the rule and the listing agree.
"""

from bbfs.cli import lazy
from bbfs.model.errors import InvalidUri
from bbfs.model.uri import parse_data_source_uri, parse_uri_prefix, source_uri

Path = tuple[str, ...]


def path_by_rule(uri: str) -> Path:
    """Return the path of a bbfs URI. Raise InvalidUri."""
    parsed = parse_data_source_uri(uri)
    return (parsed.uri_prefix, *lazy.uri_paths.plain_path(parsed.original_uri).path[1:])


def uri_by_rule(path: Path) -> str:
    """Return the bbfs URI of a path. Raise InvalidUri for a bare URI prefix, and for a path without one."""
    if not path:
        raise InvalidUri("the root of a mount, which has the directories of all data sources: no URI stands for it")
    prefix = parse_uri_prefix(path[0])
    below = path[1:] if prefix.scheme is None else (prefix.scheme, *path[1:])
    if not below or (prefix.scheme is not None and len(below) == 1):
        raise InvalidUri(f"{path[0]!r} is the directory of a data source: no URI stands for it")
    found = lazy.source_types.find(prefix.type) if prefix.access_method == "bb" else None
    opening = found.opening if found is not None and found.scheme == below[0] else lazy.uri_paths.OPENING
    return source_uri(prefix.base, lazy.uri_paths.native_of(below, opening=opening))


def components(path: str) -> Path:
    """Return the names of a path as the kernel reads them: empty ones and `.` vanish."""
    return tuple(name for name in path.split("/") if name not in ("", "."))


def is_called(fingerprint: str, name: str) -> bool:
    """Return whether a source has this URI prefix (with or without a scheme), or this name."""
    prefix = fingerprint.partition(" ")[0]
    return name in (prefix, prefix.partition("+")[2]) or name.startswith(prefix + "+")
