"""Skills of an MCP server (SEP-2640): their manifests, and the check of what is read against them.

A manifest has the digest and size of each file of a skill, so the files are listed without a read of any. A file that
is read and differs from its manifest is an error, and so is one that the manifest does not have: its bytes are shown to
nobody. A digest is the server's own word: it shows that the server is consistent, not that anybody may trust it.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import trio

from bbfs.model.errors import BbfsError, NotFound, NotSupported, ProtocolViolation, Unreachable
from bbfs.model.listing import Rows
from bbfs.model.uri import source_uri
from bbfs.model.uri_paths import plain_path
from bbfs.model.values import Content, Loaded, ResourceMetadata
from bbfs.runtime.extras import needs
from bbfs.server_parts.skills import LIST_SKILLS
from bbfs.sources.bounded.json import JsonBounds, parse_json
from bbfs.sources.bounded.turns import Turn
from bbfs.sources.bounded.workers import WorkerPool
from bbfs.sources.mcp.client.decode import usable_text, weight
from bbfs.sources.mcp.client.manager import MCPManager
from bbfs.sources.media_types import mime_type_of_name

log = logging.getLogger("bbfs.mcp")

MOST_FILES = 512
"""Files of a skill (SEP-2640, "Limits")."""
MOST_BYTES = 16 << 20
"""Bytes of all files of a skill (the same section)."""
MOST_SKILLS = 5000
"""Skills of a server."""
MANIFEST = "SKILL.md"
_END = f"/{MANIFEST}"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST_FRONTMATTER = 64 << 10
"""Bytes."""
_HEAVIEST_FRONTMATTER = 256 << 10
"""Weight of the frontmatter of an entry."""
_FRONTMATTER = re.compile(rb"(?:\xef\xbb\xbf)?---\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_YAML = {"depth": 32, "size": 1 << 20}
_BOUNDS = JsonBounds(size=1 << 20, values=20_000)
_WORDS = {"yes": True, "on": True, "no": False, "off": False}
"""Texts that are booleans in YAML 1.1, which some servers read: YAML 1.2 has them as texts."""
_IN_THREAD_FROM = 1 << 16
"""Bytes."""


@dataclass(frozen=True, slots=True)
class SkillFile:
    """What a manifest says of a file. size: bytes."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Skill:
    """The entry of one skill. uri: of its SKILL.md. files: by native URI, None where the server makes them as asked."""

    uri: str
    frontmatter: Mapping[str, Any]
    files: Mapping[str, SkillFile] | None

    @property
    def root(self) -> str:
        """The URI of the skill's directory."""
        return self.uri.removesuffix(_END)

    def as_json(self) -> dict[str, Any]:
        """Return the entry as the protocol has it."""
        resources: Any = "dynamic"
        if self.files is not None:
            resources = [{"uri": uri, "digest": file.digest, "size": file.size} for uri, file in self.files.items()]
        return {"uri": self.uri, "frontmatter": dict(self.frontmatter), "resources": resources}


def skill_entry(raw: Any) -> Skill | None:
    """Decode the entry of a skill; None if it is not one that a host may load (SEP-2640, "Skill Entries")."""
    uri = usable_text(raw, "uri")
    frontmatter = raw.get("frontmatter") if isinstance(raw, dict) else None
    if uri is None or not uri.endswith(_END) or not isinstance(frontmatter, dict):
        return None
    told = [frontmatter.get(key) for key in ("name", "description")]
    if not all(isinstance(text, str) and text for text in told):
        return None
    if uri.removesuffix(_END).rpartition("/")[2] != frontmatter["name"]:
        return None
    if weight(frontmatter, _HEAVIEST_FRONTMATTER) > _HEAVIEST_FRONTMATTER:
        return None
    resources = raw.get("resources")
    if resources == "dynamic":
        return Skill(uri, frontmatter, None)
    files = _files(uri, resources)
    return None if files is None else Skill(uri, frontmatter, files)


def _files(uri: str, resources: Any) -> dict[str, SkillFile] | None:
    """Return the files of a manifest; None if it is not complete, or beyond the limits."""
    if not isinstance(resources, list) or len(resources) > MOST_FILES:
        return None
    files: dict[str, SkillFile] = {}
    root, total = uri.removesuffix(MANIFEST), 0
    for raw in resources:
        file_uri = usable_text(raw, "uri")
        digest, size = (raw.get("digest"), raw.get("size")) if isinstance(raw, dict) else (None, None)
        if file_uri is None or file_uri in files or not file_uri.startswith(root) or len(file_uri) == len(root):
            return None
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            return None
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            return None
        files[file_uri] = SkillFile(digest, size)
        total += size
    return files if uri in files and total <= MOST_BYTES else None


class Skills:
    """The skills of one server, as last listed. changed: called with the native URI of a file whose digest differs."""

    def __init__(
        self, manager: MCPManager, server_id: str, base_prefix: str, workers: WorkerPool, changed: Callable[[str], None]
    ) -> None:
        self._manager = manager
        self._id = server_id
        self._base_prefix = base_prefix
        self._workers = workers
        self._changed = changed
        self._by_root: dict[str, Skill] = {}
        self._listing = trio.Lock()
        self.are_listed = False
        """Whether the server has said which skills it has."""

    def __iter__(self) -> Iterator[Skill]:
        return iter(self._by_root.values())

    async def list(self) -> tuple[float | None, str | None]:
        """List the skills of a server that has some. Return the time to live (seconds), and what is missing.

        Reads no file. Raises BbfsError; then the skills are those of before.
        """
        listed = await self._manager.list_skills(self._id, skill_entry, MOST_SKILLS)
        self._take(listed.entries)
        return listed.ttl, listed.problem

    def _take(self, skills: Iterable[Skill]) -> None:
        before, self._by_root = self._by_root, {skill.root: skill for skill in skills}
        self.are_listed = True
        for root, skill in self._by_root.items():
            was, now = before[root].files if root in before else None, skill.files
            if was is None or now is None or was == now:
                continue
            for uri in was.keys() & now.keys():
                if was[uri] != now[uri]:
                    self._changed(uri)

    async def get(self, uri: str) -> Skill:
        """Return the entry of a skill, which need not be listed. Raise NotFound, BbfsError."""
        if not await self._manager.has_skills(self._id):
            raise NotFound("the server has no skills")
        skill = await self._manager.get_skill(self._id, uri, skill_entry)
        if skill is None or skill.uri != uri:
            raise ProtocolViolation("the entry of a skill that is invalid, or of another one")
        return skill

    # -- in the listing ----------------------------------------------------------------------------------------------

    def named(self, directories: Iterable[str] | None) -> tuple[str, ...]:
        """Return the directories that are to be read: none whose manifest has all, and those of skills without one.

        directories: that the server names; None if it reads none.
        """
        named = [uri for uri in directories or () if not self._has_manifest(uri)]
        paths = {plain_path(uri).path for uri in named}
        for skill in self if directories is not None else ():
            path = plain_path(skill.root).path
            if skill.files is None and not is_in(path, paths):
                named.append(skill.root)
                paths.add(path)
        return tuple(named)

    async def add_to(self, rows: Rows, directories: Iterable[str]) -> None:
        """Add the files of all manifests, each with its size and digest, without a read of any.

        directories: that are read one at a time; what is below them is in no listing.
        """
        paths, turn = {plain_path(uri).path for uri in directories}, Turn()
        for skill in list(self):
            for uri in skill.files or (skill.uri,):
                await turn.give_way()
                if is_in(plain_path(uri).path, paths):
                    continue
                listed = rows.metadata(uri) if uri in rows else None
                metadata = self.known(listed or self._made(uri))
                rows.discard(uri)
                rows.add_metadata(metadata)

    def _made(self, uri: str) -> ResourceMetadata:
        name = uri.rpartition("/")[2]
        return ResourceMetadata(source_uri(self._base_prefix, uri), uri, name, mime_type=mime_type_of_name(name))

    def known(self, listed: ResourceMetadata) -> ResourceMetadata:
        """Return the metadata of a resource with what its manifest says, if it is a file of a skill."""
        uri = listed.native_uri
        for skill in self._around(uri) if self._by_root else ():
            file = (skill.files or {}).get(uri)
            if file is not None:
                properties = {**(listed.properties or {}), "digest": file.digest}
                listed = replace(listed, size=file.size, properties=properties)
            if uri == skill.uri:
                name, description = skill.frontmatter["name"], skill.frontmatter["description"]
                listed = replace(
                    listed,
                    name=name,
                    description=listed.description or description,
                    mime_type=listed.mime_type or "text/markdown",
                )
        return listed

    def _has_manifest(self, directory_uri: str) -> bool:
        """Return whether a manifest has all files of a directory: a read of it tells no more of the skill."""
        return any(skill.files is not None for skill in self._around(f"{directory_uri.rstrip('/')}/"))

    def _around(self, uri: str) -> Iterator[Skill]:
        """Yield the skills that a file would belong to: one in another belongs to both."""
        end = len(uri) if self._by_root else -1
        while (end := uri.rfind("/", 0, max(end, 0))) > 0:
            skill = self._by_root.get(uri[:end])
            if skill is not None:
                yield skill

    # -- when a file is read -----------------------------------------------------------------------------------------

    async def check(self, uri: str, loaded: Loaded) -> None:
        """Raise ProtocolViolation if a file that was read differs from the manifest of its skill.

        A skill may have changed since it was listed: then its entry is asked for again, once.
        """
        await self.listed()
        for skill in list(self._around(uri)):
            problem = await self._problem(skill, uri, loaded)
            if problem is None:
                continue
            try:
                current = await self.get(skill.uri)
            except BbfsError as error:
                raise ProtocolViolation(problem) from error
            if current == skill or await self._problem(current, uri, loaded) is not None:
                raise ProtocolViolation(problem)
            self._take([*(each for each in self if each.root != skill.root), current])

    async def listed(self) -> None:
        """List the skills, unless that was done: the listing of an earlier mount has files, and no manifests.

        A server that cannot list its skills has no manifests then. Raise Unreachable.
        """
        async with self._listing:  # manifests may be large: reads that come at once share one listing
            if self.are_listed:
                return
            try:
                await self.list()
            except Unreachable:
                raise
            except BbfsError as error:
                self.are_listed = True
                log.warning("%s: %s: %s: no file of a skill can be checked", self._id, LIST_SKILLS, error)

    async def _problem(self, skill: Skill, uri: str, loaded: Loaded) -> str | None:
        """Return how a file that was read differs from the entry of its skill, or None."""
        content = loaded.parts[0].content
        if skill.files is not None:
            file = skill.files.get(uri)
            if file is None:
                return f"the manifest of the skill {skill.uri} has no such file"
            if len(loaded.parts) != 1 or content.size != file.size:
                sizes = sum(part.content.size for part in loaded.parts)
                return f"{sizes} bytes, and the manifest of the skill says {file.size}"
            if (found := await digest_of(content)) != file.digest:
                return f"the digest is {found}, and the manifest of the skill says {file.digest}"
        if uri == skill.uri and not _same(await frontmatter_of(content, self._workers, self._id), skill.frontmatter):
            return "the frontmatter differs from the one that the server lists for the skill"
        return None


async def frontmatter_of(content: Content, workers: WorkerPool, owner: str) -> Any:
    """Return the frontmatter of a SKILL.md. Raise ProtocolViolation if it has none. owner: of the worker process."""
    found = _FRONTMATTER.match(await content.read_waiting(0, _LONGEST_FRONTMATTER))
    if found is None:
        raise ProtocolViolation("no frontmatter at the beginning of the file")
    if find_spec("yaml") is None:
        raise NotSupported(f"the frontmatter of a skill {needs('web')}")
    made = await workers.run("yaml", found[1], _YAML, owner=owner, what="the frontmatter")
    return parse_json(made, _BOUNDS)


def is_in(path: tuple[str, ...], directories: Collection[tuple[str, ...]]) -> bool:
    """Return whether a path is one of some directories, or below one."""
    return bool(directories) and any(path[:depth] in directories for depth in range(1, len(path) + 1))


async def digest_of(content: Content) -> str:
    """Return the digest of a content as a manifest states it."""
    data = await content.read_waiting(0, content.size)
    if len(data) > _IN_THREAD_FROM:
        return f"sha256:{(await trio.to_thread.run_sync(hashlib.sha256, data)).hexdigest()}"
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _same(read: Any, listed: Any) -> bool:
    """Return whether a value in YAML is one in JSON."""
    if isinstance(read, dict) and isinstance(listed, dict):
        return read.keys() == listed.keys() and all(_same(value, listed[key]) for key, value in read.items())
    if isinstance(read, list) and isinstance(listed, list):
        return len(read) == len(listed) and all(map(_same, read, listed))
    if isinstance(listed, bool) and isinstance(read, str):
        return _WORDS.get(read.lower()) is listed
    return type(read) is type(listed) and read == listed if isinstance(listed, bool) else read == listed
