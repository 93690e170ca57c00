"""The templates of a source that fit a path, and the names that they make for certain. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bbfs.model.uri_paths import hide_component, show_component
from bbfs.model.uri_templates.patterns import Pattern, Position
from bbfs.model.values import ResourceTemplate


@dataclass(frozen=True, slots=True)
class Template:
    """A template of the source with its paths."""

    given: ResourceTemplate
    pattern: Pattern


class Index:
    """Templates in their order, by the literal directories that their paths begin with."""

    def __init__(self, templates: Sequence[Template]) -> None:
        self._here: list[tuple[int, Template]] = []
        self._below: dict[str, Index] = {}
        for numbered in enumerate(templates):
            index = self
            for name in numbered[1].pattern.literal:
                index = index._below.setdefault(name, Index(()))
            index._here.append(numbered)

    def fitting(self, path: tuple[str, ...]) -> list[Template]:
        """Return the templates that may make a path, or a path that begins with it."""
        index, found = self, list(self._here)
        for name in path:
            below = index._below.get(name)
            if below is None:
                break
            index = below
            found += index._here
        else:
            pending = list(index._below.values())
            while pending:
                below = pending.pop()
                found += below._here
                pending += below._below.values()
        return [template for _, template in sorted(found, key=lambda each: each[0])]


Placed = list[tuple[Template, Position]]


class Below:
    """The templates that go on from a directory, so that few are asked about each of its names.

    places: of the directory.
    """

    def __init__(self, path: tuple[str, ...], places: Placed) -> None:
        self._path = path
        self._named: defaultdict[str, list[Pattern]] = defaultdict(list)
        self._leading: list[Pattern] = []
        self._queried: list[Pattern] = []
        for template, place in places:
            following, pattern = place.following, template.pattern
            if following is None:
                continue
            if following.name is not None:
                self._named[following.name].append(pattern)
            elif following.many or not pattern.ends_with(following):
                self._leading.append(pattern)
            if pattern.has_query and pattern.ends_with(following):
                self._queried.append(pattern)

    def leads_certainly(self, name: str) -> bool:
        """Return whether a name of the directory is a directory for certain, as `sorted_out` has it."""
        stem = show_component(hide_component(name.partition("?")[0]))
        named = [self._placed(pattern, name) for key in {name, stem} for pattern in self._named.get(key, ())]
        if any(place.leads for place in named if place is not None):
            return True
        if any(place.match is not None for place in named if place is not None):
            return False
        if "?" in name and any(_is_queried(self._placed(pattern, name)) for pattern in self._queried):
            return False
        places = (self._placed(pattern, name) for pattern in self._leading)
        return any(place is not None and place.match is None and place.leads for place in places)

    def _placed(self, pattern: Pattern, name: str) -> Position | None:
        return pattern.place((*self._path, name))


def _is_queried(place: Position | None) -> bool:
    return place is not None and place.match is not None and not place.leads and place.queried


def sorted_out(places: Placed) -> tuple[Placed, Placed]:
    """Return the places that are resources for certain, and those that are directories for certain.

    A name that a template spells out is not meant as the value of another's variable, and nor is a query.
    """
    files = [each for each in places if each[1].match is not None and not each[1].leads]
    leading = [each for each in places if each[1].match is None and each[1].leads]
    if any(place.queried for _, place in files):
        leading = [each for each in leading if each[1].literal]
    spelt_file, spelt_lead = (any(place.literal for _, place in some) for some in (files, leading))
    if spelt_file and not spelt_lead:
        leading = []
    elif spelt_lead and not spelt_file:
        files = []
    return files, leading
