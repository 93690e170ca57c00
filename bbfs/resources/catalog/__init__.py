"""The tree of names of a source: its listings, their freshness, and the changes between two of them.

Two kinds, after the two ways in which sources list. A flat source lists everything at once and its URIs make the tree;
a hierarchical one lists a directory at a time. A flat source may name directories that it lists so. All answer the same
questions, once without waiting (`cached`, `cached_view`: None means "ask") and once with.
"""

from bbfs.resources.catalog.base import SERVED_STALE, Catalog, CatalogContext, Changes, Children
from bbfs.resources.catalog.directory import DirectoryCatalog
from bbfs.resources.catalog.flat import FlatCatalog
from bbfs.resources.catalog.levels import MixedCatalog

__all__ = [
    "SERVED_STALE", "Catalog", "CatalogContext", "Changes", "Children", "DirectoryCatalog", "FlatCatalog",
    "MixedCatalog",
]  # fmt: skip
