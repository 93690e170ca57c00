"""The names of tools and prompts of the servers behind this one: `SOURCE_NAME`, at most 64 characters `[A-Za-z0-9_-]`.

Other characters become `_`. A name that is changed by that, too long, or could be another one's ends in `_` and eight
hexadecimal digits of a hash of the source and the name. So a name depends on the configured sources and on the server's
own name alone: it is the same whether other servers answer or not, and no server takes the name of another one's tool.
"""

import re
from collections.abc import Collection, Mapping
from hashlib import blake2b

LONGEST = 64
"""Characters that hosts and models take (the API of Anthropic and that of OpenAI refuse longer names)."""
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_MARK_BYTES = 4
_MARKED = re.compile(r"_[0-9a-f]{8}")
_UNMARKED = LONGEST - 1 - 2 * _MARK_BYTES


class Names:
    """The public names of one server. sources: their names by id. own: names that this server's own tools have."""

    def __init__(self, sources: Mapping[str, str], own: Collection[str] = ()) -> None:
        self._sources = dict(sources)
        self._own = frozenset(own)
        self._plain = [(source_id, name) for source_id, name in sources.items() if _clean(name) == name]

    def public(self, source_id: str, name: str) -> str:
        """Return the name under which clients see a tool or prompt of a source."""
        source = self._sources[source_id]
        wanted = f"{source}_{name}"
        plain = _clean(wanted)
        if (
            plain == wanted
            and len(plain) <= LONGEST
            and plain not in self._own
            and not self._is_ambiguous(source_id, plain)
        ):
            return plain
        mark = blake2b(f"{source_id}\0{name}".encode(), digest_size=_MARK_BYTES).hexdigest()
        return f"{plain[:_UNMARKED]}_{mark}"

    def sources_of(self, public: str) -> list[str]:
        """Return the ids of the sources of which a tool or prompt may have this name."""
        return [
            source_id
            for source_id, name in self._sources.items()
            if public.startswith((_clean(name) + "_")[:_UNMARKED])
        ]

    def _is_ambiguous(self, source_id: str, plain: str) -> bool:
        """Return whether a name may be that of another source as well, or looks as if it had a mark."""
        length = len(self._sources[source_id])
        return _MARKED.fullmatch(plain[-9:]) is not None or any(
            other != source_id and len(name) >= length and plain.startswith(f"{name}_") for other, name in self._plain
        )


def _clean(text: str) -> str:
    return _OTHER.sub("_", text)
