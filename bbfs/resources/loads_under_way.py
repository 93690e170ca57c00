"""Loads that are under way: whether what one brings may be older than something that was told since it began.

What is told of a resource is kept apart from its record: while a load is under way, the record may not have been loaded
before, may be replaced by another one, or may be forgotten. Between two awaits a task is alone; nothing here waits.
"""

from bbfs.resources.catalog.record import Record


class Loading:
    """One load of a resource. key: fingerprint of its source, and native URI."""

    __slots__ = ("_suspicions", "_told", "key", "record")

    def __init__(self, key: tuple[str, str], record: Record) -> None:
        self.key = key
        self.record = record
        self.begin_anew()

    def begin_anew(self) -> None:
        """Nothing is known yet that was asked for before now."""
        self._told = False
        self._suspicions = self.record.suspicions

    def tell(self) -> None:
        self._told = True

    @property
    def outdated(self) -> bool:
        """Whether the resource was told or hinted to have changed since the load began."""
        return self._told or self._suspicions != self.record.suspicions


class LoadsUnderWay:
    """All loads, so that each hears of what is told while it lasts."""

    def __init__(self) -> None:
        self._loads: set[Loading] = set()

    def begin(self, key: tuple[str, str], record: Record) -> Loading:
        loading = Loading(key, record)
        self._loads.add(loading)
        return loading

    def end(self, loading: Loading) -> None:
        self._loads.discard(loading)

    def changed(self, fingerprint: str, uri: str | None) -> None:
        """A resource has changed (None: any of the source may have)."""
        for loading in self._loads:
            if loading.key[0] == fingerprint and uri in (None, loading.key[1]):
                loading.tell()
