"""Listings folded into trees, for tests that need no source."""

from collections.abc import Callable, Iterable

from bbfs.resources.catalog.folding import Directory, Folding, Tree


def folded(uris: Iterable[str], mime_type: Callable[[str], str | None] = lambda _uri: "text/plain") -> Tree:
    """Return the tree of these native URIs, each of which counts once."""
    folding = Folding()
    for uri in dict.fromkeys(uris):
        folding.add(uri)
    return folding.tree(mime_type)


def places(tree: Tree) -> dict[tuple[str, ...], str]:
    """Return the native URI at each path, depth first in listing order. The tree may be thousands of levels deep."""
    found: dict[tuple[str, ...], str] = {}
    pending: list[tuple[tuple[str, ...], Directory | str]] = [((), tree)]
    while pending:
        path, node = pending.pop()
        if isinstance(node, Directory):
            pending.extend(((*path, name), child) for name, child in reversed(list(node.children.items())))
        else:
            found[path] = node
    return found
