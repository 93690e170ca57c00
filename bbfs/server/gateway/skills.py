"""The skills of the servers behind this one (SEP-2640), under URIs with the source in front.

Digests and sizes stay the server's own: bbfs passes the same bytes on.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from bbfs.model.errors import BbfsError, NotFound
from bbfs.model.uri import source_uri
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.server.errors import Fault
from bbfs.server.listing.resource_list import Offering
from bbfs.server.listing.walk import page_token, place_of
from bbfs.serving.skills import LIST_SKILLS
from bbfs.sources.gateway import IsMcpServer, Passing

_PAGE_CHARACTERS = 1 << 20
"""Characters of the entries of a page, as JSON, from which on it ends."""


class GatewaySkills:
    """The skills of a manager's sources. offering: lists the sources."""

    def __init__(self, manager: ResourceManager, offering: Offering) -> None:
        self._manager = manager
        self._offering = offering

    async def page(self, cursor: str | None) -> tuple[list[dict[str, Any]], str | None]:
        """Return a page of the entries of all servers that answer, and the cursor of the next. Raise Fault.

        A server that does not answer is left out, as in the other lists.
        """
        after = _place(cursor)
        page: list[dict[str, Any]] = []
        size = 0
        last = after
        for base, entry in await self._entries():
            key = base, entry["uri"]
            if after is not None and key <= after:
                continue
            if size >= _PAGE_CHARACTERS and last is not None:
                return page, page_token([LIST_SKILLS], last)
            page.append(_public(base, entry))
            size += len(json.dumps(page[-1]))
            last = key
        return page, None

    async def _entries(self) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Return the entries of all servers in order, each with the base prefix of its source."""
        found: list[tuple[str, Mapping[str, Any]]] = []
        asked = [source for source in self._manager.sources.values() if _passing(source) is not None]
        for source, _ in await self._offering.listed(asked):
            passing = _passing(source)
            try:
                found += [(source.data.base_prefix, entry) for entry in await passing.skills()] if passing else ()
            except BbfsError as error:
                self._offering.note(source, f"skills: {error}")
        return sorted(found, key=lambda each: (each[0], each[1]["uri"]))

    async def get(self, uri: str) -> dict[str, Any]:
        """Return the entry of one skill. uri: of its SKILL.md. Raise InvalidUri, NotFound, or the source's error."""
        source, _, native_uri = self._manager.roots.parsed(uri)
        passing = _passing(source)
        if passing is None:
            raise NotFound(f"{source.data.id} has no skills")
        with source.waiters:
            async with source.slots.ask():
                return _public(source.data.base_prefix, await passing.skill(native_uri))


def _passing(source: Source) -> Passing | None:
    handler = source.handler
    return handler.passing if isinstance(handler, IsMcpServer) and source.data.capabilities.list else None


def _public(base_prefix: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with the URIs of this server."""
    resources = entry["resources"]
    if not isinstance(resources, str):
        resources = [{**each, "uri": source_uri(base_prefix, each["uri"])} for each in resources]
    return {**entry, "uri": source_uri(base_prefix, entry["uri"]), "resources": resources}


def _place(cursor: str | None) -> tuple[str, str] | None:
    """Return the source and the native URI before a page. Raise Fault."""
    if cursor is None:
        return None
    match place_of([LIST_SKILLS], cursor):
        case [str(base_prefix), str(uri)]:
            return base_prefix, uri
    raise Fault("invalid_token", "not a cursor of this server")
