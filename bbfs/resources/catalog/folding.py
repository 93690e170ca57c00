"""Flat listings folded into directories: a tree of names whose leaves are resources, each with a name of its own. Pure.

`bbfs.model.uri_paths` says where a URI belongs; this module decides when several want one name
(`docs/semantics.md`, S4 and S5). The result is total and injective: every URI of a listing has one path, and no two
share one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from bbfs.model.listing import LARGEST, Buckets
from bbfs.model.uri_paths import (
    MAX_DEPTH,
    PLAIN,
    VANISHING,
    free_names,
    index_name,
    native_of,
    plain_path,
    show_component,
)
from bbfs.model.values import Finding

PORTION = 1000
"""Names that are compared before other tasks get their turn."""
TOLD_APART = 1000
"""Changed paths that are notified singly. Beyond it, their directories are notified instead."""
Leaf: TypeAlias = str
"""A resource in the tree: its native URI."""
Children: TypeAlias = "dict[str, Directory | Leaf] | Buckets[Directory | Leaf]"


class Directory:
    """A directory of the folded tree. `children` is in listing order, a directory's own content before all else.

    More children than a bucket's are in `Buckets`. in_order: whether others have been sorted by their names since.
    changes: counted up when a child has other attributes to show.
    """

    __slots__ = ("changes", "children", "in_order")

    def __init__(self) -> None:
        self.children: Children = {}
        self.in_order = False
        self.changes = 0

    def sorted_children(self) -> "Iterator[list[tuple[str, Directory | Leaf]]]":
        """Yield the children by name, in portions; a small directory keeps this order from now on."""
        if isinstance(self.children, Buckets):
            yield from self.children.in_order()
            return
        if not self.in_order:
            self.children = dict(sorted(self.children.items(), key=_name))
            self.in_order = True
        yield list(self.children.items())

    def grown(self) -> None:
        """Call after a child was added: a directory that is large now gets buckets."""
        if len(self.children) > LARGEST and isinstance(self.children, dict):
            self.children = Buckets(self.children)

    def lookup(self, path: Sequence[str]) -> "Directory | Leaf | None":
        """Return the node at `path` below this directory (itself for the empty path), or None."""
        node: Directory | Leaf | None = self
        for name in path:
            if not isinstance(node, Directory):
                return None
            node = node.children.get(name)
        return node

    def alias(self, name: str) -> str | None:
        """Return the child that `name`, written as in a URI (`a%20b`), stands for (`a b`), or None.

        With it the rule of S2 holds for what a user copies out of a URI; a child called `name` itself comes first.
        """
        shown = show_component(name) if name else name
        return shown if shown != name and name not in self.children and shown in self.children else None


_name = itemgetter(0)


class _Moved(NamedTuple):
    """The place of a resource without its plain path: `name` inside the directory there, or beside it."""

    inside: bool
    name: str


class Tree(Directory):
    """The root of a folded listing: the source's directory.

    moved: the resources whose path is not the plain one. dependent: the directories in which names depend on others.
    kept: those that are there whatever is listed. directories: how many there are below. made, emptied: those that the
    last `change` has made and removed.
    """

    __slots__ = ("dependent", "directories", "emptied", "kept", "made", "moved")

    def __init__(self) -> None:
        super().__init__()
        self.moved: dict[str, _Moved] = {}
        self.dependent: set[Directory] = set()
        self.kept: set[Directory] = {self}
        self.directories = 0
        self.made: set[tuple[str, ...]] = set()
        self.emptied: set[tuple[str, ...]] = set()

    def change(self, added: Sequence[str], removed: Sequence[str]) -> "ChangedPaths | None":
        """Add and remove resources by their native URIs, where that changes no other's name.

        Return the paths that are new or gone, or None: then nothing is done, and the listing is to be folded again.
        """
        paths: list[tuple[str, ...]] = []
        self.made, self.emptied = set(), set()
        for uri, change in (*((uri, self.remove) for uri in removed), *((uri, self.place) for uri in added)):
            path = change(uri)
            if path is None:
                for number in reversed(range(len(paths))):
                    if number < len(removed):
                        self.place(removed[number])
                    else:
                        self.remove(added[number - len(removed)])
                return None
            paths.append(path)
        gone, new = {*paths[: len(removed)], *self.emptied}, {*paths[len(removed) :], *self.made}
        return ChangedPaths(paths, added=new - gone, removed=gone - new)

    def place(self, native_uri: str) -> tuple[str, ...] | None:
        """Add a resource where that changes no other's name. Return its path, or None as `change` does."""
        path, inside = plain_path(native_uri)
        if inside:
            return None
        node: Directory = self
        depth = 0
        while (child := node.children.get(path[depth])) is not None:
            depth += 1
            if not isinstance(child, Directory) or depth == len(path):
                return None
            node = child
        if node in self.dependent:
            return None
        for place, name in enumerate(path[depth:-1], depth + 1):
            self.made.add(path[:place])
            node.in_order = False
            below = node.children[name] = Directory()
            self.directories += 1
            node.grown()
            node = below
        node.in_order = False
        node.children[path[-1]] = native_uri
        node.grown()
        return path

    def remove(self, native_uri: str) -> tuple[str, ...] | None:
        """Remove a resource, and the directories that it alone made. Return as `place` does."""
        path, inside = plain_path(native_uri)
        if inside or native_uri in self.moved:
            return None
        way: list[Directory] = [self]
        for name in path[:-1]:
            child = way[-1].children.get(name)
            if not isinstance(child, Directory):
                return None
            way.append(child)
        if way[-1].children.get(path[-1]) != native_uri:
            return None
        last = len(way) - 1  # the deepest directory that stays
        while len(way[last].children) == 1 and way[last] not in self.kept:
            if way[last] in self.dependent:
                return None
            last -= 1
        if way[last] in self.dependent:
            return None
        del way[last].children[path[last]]
        self.directories -= len(way) - 1 - last
        self.emptied.update(path[:depth] for depth in range(last + 1, len(path)))
        return path

    def path_of(self, native_uri: str) -> tuple[str, ...] | None:
        """Return the path of a listed resource, or None."""
        path = plain_path(native_uri).path
        if (moved := self.moved.get(native_uri)) is not None:
            return (*(path if moved.inside else path[:-1]), moved.name)
        found = self.lookup(path)
        return path if found == native_uri else None


class Folding:
    """A listing on its way into a tree: `add` every resource once, then take the `tree` (S4, S5).

    The listing's order decides the order of children and nothing else. contested: resources without their plain name
    to themselves, which take `tree` most of its time.
    """

    def __init__(self) -> None:
        self.contested = 0
        self._tree = Tree()
        self._rivals: dict[Directory, dict[str, list[Leaf]]] = {}  # several resources at one name
        self._contents: dict[Directory, list[Leaf]] = {}  # resources that are directories themselves
        self._above: dict[str, Directory] = {}  # by what stands before the last slash of a URI

    def add(self, uri: Leaf) -> None:
        """Add a resource by its native URI. Each URI once."""
        before, slash, last = uri.rpartition("/")
        parent = self._above.get(before) if slash and last not in VANISHING else None
        if parent is None:
            path, inside = plain_path(uri)
            parent = self._directory(path if inside else path[:-1])
            if inside:
                self._contents.setdefault(parent, []).append(uri)
                self.contested += 1
                return
            name = path[-1]
            if slash and len(path) < MAX_DEPTH:
                self._above[before] = parent
        else:
            name = last if PLAIN.fullmatch(last) and last != ".." else show_component(last)
        children = parent.children
        child = children.setdefault(name, uri)
        if child is uri:
            if len(children) > LARGEST:
                parent.grown()
            return
        self.contested += 1
        if isinstance(child, Directory):
            self._contents.setdefault(child, []).append(uri)
        else:
            self._rivals.setdefault(parent, {}).setdefault(name, [child]).append(uri)

    def add_directory(self, path: Sequence[str]) -> None:
        """Add a directory that exists whatever is listed."""
        node: Directory = self._tree
        for name in path:
            node = self._below(node, name)
            self._tree.kept.add(node)

    @property
    def directories(self) -> int:
        """The number of directories so far."""
        return self._tree.directories

    def _directory(self, path: Sequence[str]) -> Directory:
        node: Directory = self._tree
        for name in path:
            node = self._below(node, name)
        return node

    def _below(self, parent: Directory, name: str) -> Directory:
        child = parent.children.get(name)
        return child if isinstance(child, Directory) else self._enter(parent, name)

    def _enter(self, parent: Directory, name: str) -> Directory:
        child = parent.children.get(name)
        directory = parent.children[name] = Directory()
        self._tree.directories += 1
        parent.grown()
        if child is not None:
            assert not isinstance(child, Directory)
            self._contents[directory] = self._rivals.get(parent, {}).pop(name, [child])
            self.contested += 1
        return directory

    def tree(self, mime_type: Callable[[Leaf], str | None]) -> Tree:
        """Return the tree, with every name resolved. Call it once. mime_type: of a resource, for the name in S5."""

        for directory in self._contents | self._rivals:
            contents = [(leaf, mime_type(leaf)) for leaf in self._contents.get(directory, [])]
            self._tree.dependent.add(directory)
            self._tree.moved.update(_resolve(directory, contents, self._rivals.get(directory, {})))
        return self._tree


def _leads_back(uri: Leaf) -> bool:
    return native_of(plain_path(uri).path) == uri


def _resolve(
    directory: Directory, contents: list[tuple[Leaf, str | None]], rivals: dict[str, list[Leaf]]
) -> dict[str, _Moved]:
    """Give every resource that wants a taken name, and a directory's own content, a name of its own in `directory`.

    Directories keep their names before all (the paths of others run through them), then the resource that the rule
    leads back to, then a resource that is alone in wanting the name; own content comes last.
    """
    children = directory.children
    wanted: dict[str, list[Leaf]] = {}
    for leaf, mime_type in contents:
        wanted.setdefault(index_name(mime_type), []).append(leaf)
    keepers: dict[str, str] = {}  # URI to name
    for name, group in rivals.items():
        keepers.update((leaf, name) for leaf in group if _leads_back(leaf))
    for name, group in wanted.items():
        if name not in children:
            keepers.update((leaf, name) for leaf in group if len(group) == 1 or _leads_back(leaf))
    groups = (*wanted.items(), *rivals.items())
    losers = [(name, leaf) for name, group in groups for leaf in group if leaf not in keepers]
    kept = set(keepers.values())
    given = keepers | free_names(losers, lambda name: name in kept or (name in children and name not in rivals))

    moved: dict[str, _Moved] = {}
    before: dict[str, Directory | Leaf] = {}
    for leaf, _ in contents:
        name = given[leaf]
        before[name] = leaf
        moved[leaf] = _Moved(inside=True, name=name)
    for plain, group in rivals.items():
        del children[plain]
        for leaf in group:
            name = given[leaf]
            if name != plain:
                moved[leaf] = _Moved(inside=False, name=name)
    for group in rivals.values():
        for leaf in group:
            children[given[leaf]] = leaf
    if isinstance(children, Buckets):
        children.update(before)
    else:
        directory.children = before | children
        directory.grown()
    return moved


def _halves(child: Directory | Leaf | None) -> tuple[Directory | None, str | None]:
    """Return a child as a directory or as a resource."""
    if child is None or isinstance(child, Directory):
        return child, None
    return None, child


def differences(
    old: Directory | None, new: Directory | None, told: "ChangedPaths | None" = None
) -> Iterator[tuple[str, ...] | None]:
    """Yield the paths where two trees differ, and None between them, often. Neither tree may change meanwhile.

    told: is told which of all names are new or gone, directories as well.
    """
    pending: list[tuple[tuple[str, ...], Directory | None, Directory | None]] = [((), old, new)]
    while pending:
        path, before, after = pending.pop()
        was: Children = before.children if before is not None else {}
        now: Children = after.children if after is not None else {}
        for number, name in enumerate(chain(was, (name for name in now if name not in was))):
            if number % PORTION == PORTION - 1:
                yield None
            left, right = was.get(name), now.get(name)
            left_inner, left_uri = _halves(left)
            right_inner, right_uri = _halves(right)
            if left_inner is not None or right_inner is not None:
                pending.append(((*path, name), left_inner, right_inner))
            if told is not None and (left is None or right is None):
                told.tell((*path, name), is_added=left is None)
            if left_uri != right_uri:
                yield (*path, name)
        yield None


class ChangedPaths:
    """The changed paths of a listing. Beyond `TOLD_APART` paths, it keeps the directories above them instead.

    Adding a path takes the same time and memory, however many there are. added, removed: those that are new or gone, as
    long as they are told apart. found: as of a `Change`.
    """

    def __init__(
        self,
        paths: Iterable[tuple[str, ...]] = (),
        added: Iterable[tuple[str, ...]] = (),
        removed: Iterable[tuple[str, ...]] = (),
        found: Finding = "listing",
    ) -> None:
        self.places: set[tuple[str, ...]] = set()
        self.added, self.removed = set(added), set(removed)
        self.found: Finding = found
        self._depth: int | None = None
        self.update(paths)

    @classmethod
    def all_below(cls, paths: Iterable[tuple[str, ...]]) -> "ChangedPaths":
        """Return directories that stand for all that is below them."""
        changed = cls(paths)
        if changed._depth is None:
            changed._depth = max(map(len, changed.places), default=0)
        return changed

    def __bool__(self) -> bool:
        return bool(self.places)

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self.places)

    @property
    def below(self) -> bool:
        """Return whether the places stand for all that is below them."""
        return self._depth is not None

    def update(self, paths: Iterable[tuple[str, ...]]) -> None:
        for path in paths:
            self.places.add(path[: self._depth])
            while len(self.places) > TOLD_APART:
                self._depth = max(map(len, self.places)) - 1
                self.places = {place[: self._depth] for place in self.places}
                self.added, self.removed = set(), set()

    def tell(self, path: tuple[str, ...], *, is_added: bool) -> None:
        """Tell a path apart that is new or gone, while there are few."""
        if self._depth is None and len(self.added) + len(self.removed) < 2 * TOLD_APART:
            (self.added if is_added else self.removed).add(path)


def below(directory: Directory, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Leaf | None]]:
    """Yield all that is below a directory at `path`: directories (None) and resources, with their paths."""
    pending = [(path, directory)]
    while pending:
        place, node = pending.pop()
        for name, child in node.children.items():
            if isinstance(child, Directory):
                pending.append(((*place, name), child))
                yield (*place, name), None
            else:
                yield (*place, name), child
