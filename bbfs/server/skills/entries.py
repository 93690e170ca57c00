"""The entries of skills: those of the servers behind this one, and those of local folders.

Their URIs have the source behind `skill://`, where the source has such URIs or is a folder. Digests and sizes of a
server stay its own: bbfs passes the same bytes on.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from bbfs.model.errors import BbfsError, NotFound
from bbfs.model.uri import SKILL, skill_uri, source_uri
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.server.errors import Fault
from bbfs.server.listing.resource_list import Offering
from bbfs.server.listing.walk import page_token, place_of
from bbfs.server.skills.folders import FolderSkills
from bbfs.server_parts.skills import LIST_SKILLS
from bbfs.sources.gateway import IsMcpServer, Passing

_PAGE_CHARACTERS = 1 << 20
"""Characters of the entries of a page, as JSON, from which on it ends."""


class SkillEntries:
    """The skills of a manager's sources. offering: lists the sources."""

    def __init__(self, manager: ResourceManager, offering: Offering) -> None:
        self._manager = manager
        self._offering = offering
        self._folders = FolderSkills(manager)

    async def page(self, cursor: str | None) -> tuple[list[dict[str, Any]], str | None]:
        """Return a page of the entries of all sources that answer, and the cursor of the next. Raise Fault.

        A source that does not answer is left out, as in the other lists.
        """
        after = _place(cursor)
        page: list[dict[str, Any]] = []
        size = 0
        last = after
        for source, entry in await self._entries():
            key = source.data.base_prefix, entry["uri"]
            if after is not None and key <= after:
                continue
            if size >= _PAGE_CHARACTERS and last is not None:
                return page, page_token([LIST_SKILLS], last)
            page.append(_public(source, entry))
            size += len(json.dumps(page[-1]))
            last = key
        return page, None

    async def _entries(self) -> Iterable[tuple[Source, Mapping[str, Any]]]:
        """Return the entries of all sources in order, each with its source."""
        found: list[tuple[Source, Mapping[str, Any]]] = []
        asked = [source for source in self._manager.sources.values() if _has_skills(source)]
        for source, _ in await self._offering.listed([each for each in asked if not _is_folder(each)]):
            passing = _passing(source)
            try:
                found += [(source, entry) for entry in await passing.skills()] if passing else ()
            except BbfsError as error:
                self._offering.note(source, f"skills: {error}")
        for source in filter(_is_folder, asked):
            try:
                found += [(source, skill.as_json()) for skill in await self._folders.skills(source)]
            except BbfsError as error:
                self._offering.note(source, f"skills: {error}")
        return sorted(found, key=lambda each: (each[0].data.base_prefix, each[1]["uri"]))

    async def get(self, uri: str) -> dict[str, Any]:
        """Return the entry of one skill. uri: of its SKILL.md. Raise InvalidUri, NotFound, or the source's error."""
        source, _, native_uri = self._manager.roots.parsed(uri)
        passing = _passing(source)
        if not _has_skills(source):
            raise NotFound(f"{source.data.id} has no skills")
        with source.waiters:
            if passing is None:
                return _public(source, (await self._folders.skill(source, native_uri)).as_json())
            async with source.slots.ask():
                return _public(source, await passing.skill(native_uri))

    def shown(self, asked: str, uri: str) -> str:
        """Return the bbfs URI of a file as a client sees it who has asked for the directory `asked`."""
        if not asked.startswith(SKILL):
            return uri
        source, _, native_uri = self._manager.roots.parsed(uri)
        return skill_uri(source.data.id, native_uri, is_folder=_is_folder(source)) or uri


def _passing(source: Source) -> Passing | None:
    handler = source.handler
    return handler.passing if isinstance(handler, IsMcpServer) else None


def _is_folder(source: Source) -> bool:
    return source.data.type == "filesystem"


def _has_skills(source: Source) -> bool:
    granted = source.data.capabilities
    return granted.list and (_passing(source) is not None or (_is_folder(source) and granted.read))


def _public(source: Source, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with the URIs of this server."""
    resources = entry["resources"]
    if not isinstance(resources, str):
        resources = [{**each, "uri": _public_uri(source, each["uri"])} for each in resources]
    return {**entry, "uri": _public_uri(source, entry["uri"]), "resources": resources}


def _public_uri(source: Source, native_uri: str) -> str:
    found = skill_uri(source.data.id, native_uri, is_folder=_is_folder(source))
    return found or source_uri(source.data.base_prefix, native_uri)


def _place(cursor: str | None) -> tuple[str, str] | None:
    """Return the source and the native URI before a page. Raise Fault."""
    if cursor is None:
        return None
    match place_of([LIST_SKILLS], cursor):
        case [str(base_prefix), str(uri)]:
            return base_prefix, uri
    raise Fault("invalid_token", "not a cursor of this server")
