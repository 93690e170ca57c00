"""The files that describe the sources of a mount, in Markdown: `.about.md` at the root and in each source's directory.

They are a source of their own, which no configuration names.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import trio

from bbfs.model import uri_paths
from bbfs.model.errors import BbfsError, NotADirectory, NotFound
from bbfs.model.quantities import counted
from bbfs.model.redaction import printable
from bbfs.model.source_types import describes_itself
from bbfs.model.uri import ABOUT, SEARCH
from bbfs.model.uri_templates.expand import expand_template, template_variables
from bbfs.model.values import DataSource, Listing, Loaded, Part, Policy, ResourceMetadata, ResourceTemplate
from bbfs.resources.catalog.base import View
from bbfs.resources.catalog.record import Path
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.resources.views import SourceView
from bbfs.resources.writing.pending import PendingWrite
from bbfs.sources import MemoryContent, TellsMore

AGENTS = "AGENTS.md"
FRESH_FOR = 1.0
"""Seconds for which a description is served again."""
_FIRST_LISTING = 2.0
"""Seconds that a description waits for the first listing of its source."""
_TEMPLATES, _LONGEST = 20, 500
"""Templates in a description, and characters of each text of a source but its instructions."""
_KINDS = {
    "mcp": "An MCP server",
    "api": "The GET operations of a REST API",
    "database": "A database: a directory for each table and view",
    "filesystem": "A folder",
    "memory": "Resources in memory",
    "notion": "The pages and databases of a Notion workspace",
    "storage": "An object store, a file server or an archive",
    "url": "Web pages",
}


class AboutHandler(SourceView):
    """The source of the descriptions; each is made when it is read.

    agents: the root's has the name `AGENTS.md` too. left_out: why configured servers are no sources, by name.
    """

    marks = (ABOUT,)
    depth = 1
    comes_first = True

    def __init__(
        self, manager: ResourceManager, *, agents: bool = False, left_out: Mapping[str, str] | None = None
    ) -> None:
        self.source = DataSource(
            id="about",
            name="about",
            type="about",
            access_method="bb",
            uri_prefix="",
            policy=Policy(listing_ttl=1e9, content_ttl=FRESH_FOR, max_stale=0.0, disk=False),
        )
        self._manager = manager
        self._left_out = left_out or {}
        self.root_files = (ABOUT, AGENTS) if agents else (ABOUT,)

    def owns(self, path: Path) -> bool:
        """Return whether a path is that of a description.

        A source that does not describe itself may have a file of that name, and is asked first.
        """
        if len(path) == 1:
            return path[0] in self.root_files
        if path[1:] != (ABOUT,):
            return False
        source, below = self._manager.roots.place(path)
        if source.data.base_prefix not in self._manager.sources:
            return False
        catalog, is_first = source.catalog, describes_itself(source.data)
        try:
            node = catalog.last_cached(below) if is_first else catalog.cached(below)
        except (NotFound, NotADirectory):
            return True
        return node is None and is_first

    async def follows(self, path: Path, error: BbfsError) -> bool:
        return path[1:] == (ABOUT,)

    def is_listed_in(self, source: Source) -> bool:
        return describes_itself(source.data)

    async def names(self, path: Path, view: View) -> Sequence[str]:
        return (ABOUT,) if self.owns((*path, ABOUT)) else ()

    async def list_directory(self, path: tuple[str, ...]) -> Listing:
        """List the root, or the directory of a source."""
        if path:
            return Listing((_file("/".join((*path, ABOUT))),))
        directories = (ResourceMetadata(name, name, name, kind="directory") for name in self._prefixes())
        return Listing((*map(_file, self.root_files), *directories))

    async def load(self, native_uri: str) -> Loaded:
        """Make one of the descriptions. That of a source waits for its first listing, two seconds at most."""
        prefix, _, name = native_uri.rpartition("/")
        if not prefix and name in self.root_files:
            text = root_description(self._manager, self._left_out)
        elif prefix in self._prefixes() and name == ABOUT:
            await self._first_listing(prefix)
            source = self._manager.roots.place((prefix,))[0]
            text = description(source, await self._pending(source))
        else:
            raise NotFound(native_uri)
        return Loaded((Part(None, "text/markdown", MemoryContent(text.encode("utf-8", "replace")), "text"),))

    async def _pending(self, source: Source) -> list[PendingWrite]:
        store = self._manager.writer.pending
        items = await trio.to_thread.run_sync(lambda: [*store.items()]) if store.has_some() else []
        return [item for item in items if item.source_id == source.data.id]

    def _prefixes(self) -> list[str]:
        return [source.data.uri_prefix for source in self._manager.sources.values()]

    async def _first_listing(self, prefix: str) -> None:
        with trio.move_on_after(_FIRST_LISTING):
            with suppress(BbfsError):  # the description has it
                await self._manager.tree.view((prefix,))


def _file(uri: str) -> ResourceMetadata:
    return ResourceMetadata(uri, uri, uri.rpartition("/")[2], mime_type="text/markdown")


def root_description(manager: ResourceManager, left_out: Mapping[str, str]) -> str:
    """Describe all sources of a mount, and name the servers that are none. Asks no source."""
    lines = [
        "# Data sources",
        "",
        "This file system shows data sources as directories, with bbfs. Every resource is a file: read it with `cat`,",
        f"`grep`, an editor or any other program. {_writable(manager)}",
        "",
    ]
    for source in manager.sources.values():
        prefix = source.data.uri_prefix
        has = "".join(f"; {counted(number, what)}" for what, number in _counts(source) if number)
        lines.append(f"- [{prefix}]({prefix}/{ABOUT}): {_kind(source)}{has}. {_state(source)}")
    lines += [f"- {_text(name)}: left out, not a source of this mount. {_text(why)}" for name, why in left_out.items()]
    lines += [
        "",
        *_searching(manager),
        f"`{ABOUT}` in each directory says more. `.bbfs/status.json` has the state of this mount.",
        "The path of a resource is its URI with `://` written as `/`; the attribute `user.bbfs.uri` is the exact URI.",
    ]
    return "\n".join(lines) + "\n"


def _writable(manager: ResourceManager) -> str:
    written = [f"`{source.data.uri_prefix}`" for source in manager.sources.values() if source.writes is not None]
    return f"What is in {', '.join(written)} can be written." if written else "All files are read-only."


def _searching(manager: ResourceManager) -> Iterator[str]:
    """Yield how to search, if something can."""
    sources, indexes = manager.sources.values(), manager.searches.searchers
    if any(source.searches or any(each.covers(source.data.id) for each in indexes) for source in sources):
        yield f"`ls '{SEARCH}/some words'` finds resources, here or in any directory below; `bbfs search` does as well."


def description(source: Source, pending: Sequence[PendingWrite] = ()) -> str:
    """Describe a source: what it is and has, how it is used, its state, pending writes. Asks the source nothing."""
    data, state = source.data, source.state
    heading = [
        f"# {_text(data.title or data.name)}",
        "",
        f"{_kind(source)}, mounted at `{data.uri_prefix}`. {_state(source)}",
    ]
    parts = [heading, *map(list, (_contents(source), _templates(source), _pending(pending)))]
    if state.instructions:
        parts.append(["## Instructions of the source", "", *(f"> {line}" for line in _lines(state.instructions))])
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _counts(source: Source) -> Iterator[tuple[str, int]]:
    """Yield what a source is known to have, as the noun for one, with the number."""
    yield "resource", source.resources
    yield from ((noun, source.offers.get(f"{noun}s", 0)) for noun in ("template", "tool", "prompt"))


def _kind(source: Source) -> str:
    kind = _KINDS.get(
        "mcp" if source.data.access_method == "mcp" else source.data.type, f"A source of type {source.data.type}"
    )
    server = source.state.server
    return f"{kind} ({_text(server)})" if server else kind


def _state(source: Source) -> str:
    """Return the state, and the last error if there is one, in words."""
    state, problem = source.state, source.problem
    words = {"idle": "Not in use", "connecting": "Connecting", "up": "Up", "down": "Down"}[state.state]
    if source.is_passed and state.state == "idle":
        return f"Programs {'read' if source.writes is None else 'read and write'} the folder itself."
    protocol = f", protocol {_text(state.protocol_version)}" if state.protocol_version else ""
    return f"{words}{protocol}." + (f" Last error: {_text(problem)}" if problem else "")


def _contents(source: Source) -> Iterator[str]:
    yield "## What is here"
    yield ""
    count, listed = source.resources, source.catalog.cached_view((), completed=False) is not None
    if source.is_passed:
        yield "- The files of the folder, as they are."
    elif not listed and not count:
        yield "- The source has not been listed yet."
    elif count:
        yield f"- {counted(count, 'listed resource')}."
    else:
        yield "- No listed resource."
    templates = source.offers["templates"]
    if templates:
        yield f"- {counted(templates, 'template')}: for names that are not listed."
    if isinstance(source.handler, TellsMore):
        yield from (f"- {note}" for note in source.handler.notes)
    granted = source.data.capabilities
    if not granted.read:
        yield "- Reading is off: the option `capabilities` of this source does not grant `read`."
    if not granted.list:
        yield "- Listing is off: the option `capabilities` of this source does not grant `list`."
    if source.is_passed and source.writes is not None:
        yield "- It can be written, as the folder itself."
    elif source.writes is not None:
        yield "- It can be written. What it does not take is kept: `bbfs pending`."
    elif source.could_write:
        yield "- Writing is off: the option `capabilities` of this source does not grant `write`."


def _pending(pending: Sequence[PendingWrite]) -> Iterator[str]:
    """Yield the writes that the source has not taken."""
    if not pending:
        return
    yield "## Pending writes"
    yield ""
    for item in pending[:_TEMPLATES]:
        yield f"- `bbfs pending show {item.id}`: {_text(item.uri)}: {_text(item.error or 'not taken yet')}"
    if len(pending) > _TEMPLATES:
        yield f"- and {len(pending) - _TEMPLATES} more: `bbfs pending`"


def _templates(source: Source) -> Iterator[str]:
    """Yield the templates with the path of an example each."""
    templates = [each for each in source.catalog.all_templates() if not each.on_open]
    if not templates:
        return
    yield "## Templates"
    yield ""
    for template in templates[:_TEMPLATES]:
        example = _example(source.data, template)
        said = template.description or template.title
        opened = f", for example `cat {example}`" if example else ""
        yield f"- `{_text(template.uri_template)}`{opened}" + (f": {_text(said)}" if said else "")
    if len(templates) > _TEMPLATES:
        yield f"- and {len(templates) - _TEMPLATES} more: see the attribute `user.bbfs.uri_templates` of directories"


def _example(data: DataSource, template: ResourceTemplate) -> str | None:
    """Return the path, below the source's directory, of the resource whose variables have their own names as values.

    It is quoted for a shell, since a reader may run the line. None if it cannot be shown as it is.
    """
    try:
        values = {name: name.upper() for name in template_variables(template.uri_template)}
        path = uri_paths.plain_path(expand_template(template.uri_template, values), data.scheme).path
    except BbfsError:
        return None
    shown = shlex.quote("/".join(path))
    return shown if shown == _text(shown) else None


def _text(text: str) -> str:
    """Return a text of the source in one line, without what would end a code span."""
    return " ".join(printable(text[:_LONGEST]).replace("`", "'").split())


def _lines(text: str) -> Iterable[str]:
    return (printable(line) for line in text.splitlines())
