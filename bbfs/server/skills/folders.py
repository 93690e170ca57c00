"""Skills that lie in a local folder: directories whose SKILL.md begins with front matter.

Nothing is read before a client lists skills. Then the folder is walked, and the files of each skill are read once for
their digests; files that have not changed since are not read again. The walk, the files and their bytes have bounds.
"""

import logging
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import trio
from cachetools import LRUCache

from bbfs.model.errors import BbfsError, Denied, NotADirectory, NotFound, ProtocolViolation, TooLarge
from bbfs.model.uri import source_uri
from bbfs.model.values import Content
from bbfs.resources.catalog.record import Path
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.sources.bounded.workers import WorkerPool
from bbfs.sources.mcp.skills import (
    MANIFEST,
    MOST_BYTES,
    MOST_FILES,
    Skill,
    SkillFile,
    digest_of,
    frontmatter_of,
    skill_entry,
)

log = logging.getLogger(__name__)

MOST_SKILLS = 200
"""Skills of a folder."""
MOST_DIRECTORIES = 2000
"""Directories of a folder that are listed to find its skills."""
MOST_NAMES = 4096
"""Names of a directory; one with more of them is passed over."""
DEEPEST = 8
"""Directories in each other: to a skill, and in a skill."""
LONGEST = 20.0
"""Seconds in which the skills of a folder are looked for."""
_KEPT = 16_384
"""Files whose digests are kept."""
_NAME = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_PASSED_OVER = frozenset({".git", "node_modules", ".venv", "__pycache__"})


@dataclass(frozen=True, slots=True)
class _Directory:
    """What a directory has: its files by name with their native URIs, and the names of its directories."""

    files: Mapping[str, str]
    directories: tuple[str, ...]


class FolderSkills:
    """The skills in the local folders of a manager."""

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager
        self._workers = WorkerPool(1)
        self._turn = trio.Lock()
        self._digests: LRUCache[tuple[str, str], tuple[str, SkillFile]] = LRUCache(_KEPT)
        self._frontmatters: LRUCache[tuple[str, str], tuple[str, Any]] = LRUCache(MOST_SKILLS * 4)

    async def skills(self, source: Source) -> list[Skill]:
        """Return the skills of a folder. A directory with a SKILL.md that is no skill is left out. Raise BbfsError."""
        found: list[Skill] = []
        is_whole = False
        with trio.move_on_after(LONGEST):
            async with self._turn:  # the next one finds most digests
                is_whole = await self._find(source, found)
        if not is_whole:
            log.warning("%s: only %d of its skills are there", source.data.id, len(found))
        return found

    async def _find(self, source: Source, found: list[Skill]) -> bool:
        """Add the skills of a folder; return whether that are all of them."""
        waiting: deque[Path] = deque([()])
        asked = 0
        while waiting and asked < MOST_DIRECTORIES and len(found) < MOST_SKILLS:
            path = waiting.popleft()
            asked += 1
            directory = await self._listed(source, path)
            skill = await self._skill(source, path, directory) if MANIFEST in directory.files else None
            if skill is not None:
                found.append(skill)  # a skill in a skill is files of it
            elif len(path) < DEEPEST:
                waiting.extend((*path, name) for name in directory.directories)
        return not waiting

    async def skill(self, source: Source, native_uri: str) -> Skill:
        """Return one skill. native_uri: of its SKILL.md. Raise NotFound, BbfsError."""
        path = source.catalog.plain_path(native_uri)
        if not path or path[-1] != MANIFEST:
            raise NotFound("no SKILL.md")
        skill = await self._skill(source, path[:-1], await self._listed(source, path[:-1]))
        if skill is None or skill.uri != native_uri:
            raise NotFound("no skill: its front matter should have the name of its directory, and a description")
        return skill

    async def _listed(self, source: Source, path: Path) -> _Directory:
        """Return what is in a directory; nothing for one that is gone, or closed to this user. Raise BbfsError."""
        try:
            view = await source.catalog.view(path, completed=False)
        except (NotFound, NotADirectory, Denied):
            return _Directory({}, ())
        files, directories = dict[str, str](), list[str]()
        for name, shown in view if len(view) <= MOST_NAMES else ():
            record = None if isinstance(shown, str) else shown.record
            if isinstance(shown, str):
                files[name] = shown
            elif record is None or record.metadata.kind == "directory":
                directories += [name] if name not in _PASSED_OVER else []
            elif record.metadata.kind == "resource":
                files[name] = record.metadata.native_uri
        return _Directory(files, tuple(directories))

    async def _skill(self, source: Source, path: Path, directory: _Directory) -> Skill | None:
        """Return the skill in a directory with a SKILL.md, or None if it is none."""
        uri = directory.files.get(MANIFEST)
        if uri is None:
            return None
        try:
            frontmatter = await self._frontmatter(source, uri)
            files = {each: await self._file(source, each) for each in await self._files(source, path, directory)}
            skill = skill_entry(Skill(uri, frontmatter, files).as_json())
        except BbfsError as error:
            log.info("%s: %s is no skill: %s", source.data.id, "/".join((*path, MANIFEST)), error)
            return None
        if skill is None:
            log.info(
                "%s: %s is no skill: it should have the name of its directory and a description, and %d bytes at most",
                source.data.id,
                "/".join((*path, MANIFEST)),
                MOST_BYTES,
            )
        return skill

    async def _files(self, source: Source, path: Path, directory: _Directory) -> list[str]:
        """Return the native URIs of all files below a directory. Raise TooLarge beyond the limits of a skill."""
        waiting = deque([(path, directory)])
        found: list[str] = []
        while waiting:
            at, there = waiting.popleft()
            found += there.files.values()
            if len(found) > MOST_FILES or len(at) - len(path) > DEEPEST or len(waiting) > MOST_FILES:
                raise TooLarge(f"more than {MOST_FILES} files, or {DEEPEST} directories in each other")
            for name in there.directories:
                below = (*at, name)
                waiting.append((below, await self._listed(source, below)))
        return found

    async def _file(self, source: Source, native_uri: str) -> SkillFile:
        """Return the digest and the size of a file. Raise BbfsError."""
        content = await self._content(source, native_uri)
        key = source.key, native_uri
        known = self._digests.get(key)
        if known is None or known[0] != content.version:
            if content.size > MOST_BYTES:
                raise TooLarge(f"{native_uri}: a file of more than {MOST_BYTES} bytes")
            known = self._digests[key] = content.version, SkillFile(await digest_of(content), content.size)
        return known[1]

    async def _content(self, source: Source, native_uri: str) -> Content:
        loaded = await self._manager.by_uri.load(source_uri(source.data.base_prefix, native_uri))
        if len(loaded.parts) != 1:
            raise ProtocolViolation(f"{native_uri}: no file")
        return loaded.parts[0].content

    async def _frontmatter(self, source: Source, native_uri: str) -> Any:
        """Return the front matter of a SKILL.md, with a name by the rules of skills. Raise BbfsError."""
        content = await self._content(source, native_uri)
        key = source.key, native_uri
        known = self._frontmatters.get(key)
        if known is None or known[0] != content.version:
            known = content.version, await frontmatter_of(content, self._workers, source.data.id)
            self._frontmatters[key] = known
        if not isinstance(known[1], dict) or not _NAME.fullmatch(str(known[1].get("name"))):
            raise ProtocolViolation("its name should be of small letters, digits and single hyphens, 64 at most")
        return known[1]
