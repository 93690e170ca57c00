"""The extended attribute by which a file of an upper layer tells the resource and version that it was copied from.

An overlay copies the attributes that its lower layer lists. Those of a resource may be larger than a disk takes (ext4:
4 KiB for all of a file), and then no program could write the file; so a lower mount lists this short one alone.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

ATTRIBUTE = "user.bbfs.origin"
METADATA = "user.bbfs.metadata"
_LONGEST = 1024
"""Bytes of a path or an etag that are kept; of a longer one a digest is."""


def origin(metadata: bytes, state: Mapping[str, int] | None = None) -> bytes | None:
    """Return the value of the attribute for a resource with these metadata; None if it is none.

    state: of a file that is passed through, which may be newer than its metadata.
    """
    found = parsed(metadata)
    if "path" not in found:
        return None
    kept = {name: _short(found[name]) for name in ("path", "etag", "size", "lastModified") if name in found}
    if state is not None:
        kept = {"path": kept["path"], **state}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogateescape")


def parsed(value: bytes) -> Mapping[str, Any]:
    """Return the fields of a value. Any program may have written it: what is no document is empty."""
    try:
        found = json.loads(value.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _short(value: object) -> object:
    if not isinstance(value, str) or len(value.encode("utf-8", "surrogatepass")) <= _LONGEST:
        return value
    return "#" + blake2b(value.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()
