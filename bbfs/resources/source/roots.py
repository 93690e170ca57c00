"""The sources of a mount, and the directories at its root that they have."""

from bbfs.model.errors import NotFound
from bbfs.model.uri import parse_data_source_uri
from bbfs.resources.catalog import FlatCatalog
from bbfs.resources.catalog.record import Path, Record
from bbfs.resources.source import Source


class Roots:
    """All sources of a configuration.

    sources: by base prefix, without the hidden ones. These are there for programs that ask for them by name.
    """

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}
        self._by_id: dict[str, Source] = {}
        self._by_prefix: dict[str, Source] = {}

    def add(self, source: Source, *, hidden: bool) -> None:
        self._by_id[source.data.id] = self._by_prefix[source.data.uri_prefix] = source
        if not hidden:
            self.sources[source.data.base_prefix] = source

    def of(self, record: Record) -> Source:
        """Return the source of a record."""
        return self._by_id[record.source_id]

    def by_id(self, source_id: str) -> Source:
        """Return the source with exactly this id, hidden or not. Raise KeyError."""
        return self._by_id[source_id]

    def named(self, name: str) -> Source:
        """Return the source with this id, name, URI prefix or base prefix. Raise NotFound, which names the sources."""
        for source in self.sources.values():
            if name in (source.data.id, source.data.name, source.data.uri_prefix, source.data.base_prefix):
                return source
        there = ", ".join(sorted(s.data.id for s in self.sources.values())) or "none"
        raise NotFound(f"no source {name!r}; there are: {there}")

    def parsed(self, uri: str) -> tuple[Source, str, str]:
        """Return the source of a bbfs URI, its normal form, and the native URI. Raise InvalidUri, NotFound."""
        parsed = parse_data_source_uri(uri)
        source = self.sources.get(parsed.base_prefix)
        if source is None:
            there = ", ".join(sorted(self.sources)) or "none"
            raise NotFound(f"no source {parsed.base_prefix!r}; there are: {there}")
        return source, str(parsed), parsed.original_uri

    # -- directories at the root -------------------------------------------------------------------------------------

    def directories(self) -> dict[str, Source]:
        """Return the directories at the root: one a source, and one a stray scheme of a source with a fixed scheme."""
        roots: dict[str, Source] = {}
        for source in self.sources.values():
            roots[source.data.uri_prefix] = source
            if source.data.scheme is not None and isinstance(source.catalog, FlatCatalog):
                for scheme, _ in source.catalog.cached_view(()) or ():
                    roots.setdefault(f"{source.data.base_prefix}+{scheme}", source)
        return roots

    def has(self, name: str) -> bool:
        """Return whether a directory at the root has this name for as long as the mount lasts (S6)."""
        return name in self._by_prefix

    def link(self, name: str) -> str | None:
        """Return the target of a link at the root that no listing has (S2), or None.

        `mcp-server+docs+resource` leads to `mcp-server+docs/resource`, and `docs` to `mcp-server+docs` if no other
        source has this name or id.
        """
        base, plus, scheme = _split_scheme(name)
        source = self.sources.get(base)
        if source is None:
            named = [each.data.uri_prefix for each in self.sources.values() if name in (each.data.name, each.data.id)]
            return named[0] if len(named) == 1 else None
        if not plus or not scheme or source.data.scheme is not None:
            return None
        return f"{source.data.uri_prefix}/{scheme}"

    # -- paths -------------------------------------------------------------------------------------------------------

    def place(self, path: Path) -> tuple[Source, Path]:
        """Return the source of a path from the mount's root, and the path in its catalog. Raise NotFound."""
        source = self._by_prefix.get(path[0]) or self.directories().get(path[0])
        if source is None:
            raise NotFound(f"no such source: {path[0]}")
        if not source.is_split_by_scheme:
            return source, path[1:]
        return source, (path[0].removeprefix(source.data.base_prefix + "+"), *path[1:])

    def path_of(self, record: Record) -> Path:
        """Return the path of a listed resource from the mount's root."""
        return self.mounted(self.of(record), record.path)

    @staticmethod
    def mounted(source: Source, path: Path) -> Path:
        """Return the path from the mount's root of a path in the catalog of a source."""
        data = source.data
        if not data.uri_prefix:
            return path
        if not source.is_split_by_scheme:
            return (data.uri_prefix, *path)
        if not path:
            return ()  # it may have several roots
        return (f"{data.base_prefix}+{path[0]}", *path[1:])


def _split_scheme(name: str) -> tuple[str, str, str]:
    """Split `a-b+c+git+ssh` into (`a-b+c`, `+`, `git+ssh`): a scheme may hold `+`, the rest of a prefix one only."""
    parts = name.split("+", 2)
    return ("+".join(parts[:2]), "+", parts[2]) if len(parts) == 3 else (name, "", "")
