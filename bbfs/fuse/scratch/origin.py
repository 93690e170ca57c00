"""The extended attribute by which a file of an upper layer tells the resource and version that it was copied from.

An overlay copies the attributes that its lower layer lists. Those of a resource may be larger than a disk takes (ext4:
4 KiB for all of a file), and then no program could write the file; so a lower mount lists this short one alone.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

ATTRIBUTE = "user.bbfs.origin"
BASE = "user.bbfs.base"
"""The attribute that a program sets to such a value right before it replaces or removes a file. This change, by the
same thread, is refused if the source has another version by then."""
_LONGEST = 1024
"""Bytes of a path or an etag that are kept; of a longer one a digest is."""


def origin(path: str, version: Mapping[str, Any]) -> bytes:
    """Return the value of the attribute for a resource."""
    kept = {"path": path, **version}
    return json.dumps(
        {name: _short(said) for name, said in kept.items()}, ensure_ascii=False, separators=(",", ":")
    ).encode("utf-8", "surrogateescape")


def version(etag: str | None, modified_ns: int | None, size: int | None) -> Mapping[str, Any]:
    """Return what tells one version of a resource from another, as far as its source states it. It may be empty."""
    if etag is not None:
        return {"etag": _short(etag)}
    return {} if modified_ns is None else {"modified_ns": modified_ns, "size": size}


def parsed(value: bytes) -> Mapping[str, Any]:
    """Return the fields of a value. Any program may have written it: what is no document is empty."""
    try:
        found = json.loads(value.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def version_of(value: bytes) -> Mapping[str, Any]:
    """Return the version in a value. It may be empty."""
    return {name: said for name, said in parsed(value).items() if name != "path"}


def _short(value: object) -> object:
    if not isinstance(value, str) or len(value.encode("utf-8", "surrogatepass")) <= _LONGEST:
        return value
    return "#" + blake2b(value.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()
