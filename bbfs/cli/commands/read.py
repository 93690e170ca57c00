"""`bbfs ls`, `bbfs cat`, `bbfs stat`: read through a mount, or without one."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from bbfs.cli import lazy, output, progress
from bbfs.cli.completion import complete_operand
from bbfs.cli.operands.access import Target, TreeEntry
from bbfs.cli.operands.location import inside_mount
from bbfs.cli.options import SourceChoice, source_options
from bbfs.model.errors import BbfsError
from bbfs.model.quantities import timestamp
from bbfs.model.uri import ABOUT

if TYPE_CHECKING:
    from bbfs.cli.operands.operand import Trees

_OPERANDS = """\b
An operand is
  a path inside a mount        ~/mnt/mcp-server+docs/resource/guide
  a source and a path below    docs   or   docs/resource/guide   or   mcp-server+docs/resource/guide
  a bbfs URI                   mcp-server+docs+resource://guide
  a URI as its source has it   resource://guide, if no other source has it
All but the first are read through a mount that has the source, if there is one and no option names sources.
"""
_LS_EXAMPLES = f"""{_OPERANDS}
\b
Examples:
  bbfs ls                              the sources; in a directory of a mount, that directory
  bbfs ls -l docs/resource             size, time, MIME type, name
  bbfs ls -R --dir notes=~/notes notes
  bbfs ls --json docs                  all that is known; loads nothing

\b
JSON: an array of objects with path, name, kind (directory, file, symlink), and where known
size (bytes), lastModified, mimeType, uri, target, error. With -l, unknown sizes are learnt, by loading contents.
"""


@dataclass(slots=True)
class _Lister:
    """Prints directories, or collects them for JSON."""

    long: bool
    recursive: bool
    json: bool
    exact: bool
    complete: bool = True
    collected: list[dict[str, Any]] = field(default_factory=list)
    begin: Callable[[], None] = lambda: None
    """Called before the first output."""

    async def show(self, target: Target, heading: str | None = None) -> None:
        path = await target.located()
        if path:
            entry = await target.tree.entry(path, exact=self.exact)
            if entry.kind == "file":
                self._print(await self._described(target, [entry]))
                return
        await self._directory(target, path, ("/".join(path) or ".") if heading is None and self.recursive else heading)

    async def _directory(self, target: Target, path: tuple[str, ...], heading: str | None) -> None:
        entries = await target.tree.children(path, exact=self.exact)
        if not path:
            entries = [entry for entry in entries if entry.kind != "file"]  # beside the sources: what describes them
        if not self.json:
            self.begin()
        if not self.json and heading is not None:
            click.echo(f"{output.printable(heading)}:")
        self._print(await self._described(target, entries))
        if len(path) == 1 and all(entry.path[-1] == ABOUT for entry in entries):
            await self._say_why_empty(target, path)
        if not self.recursive:
            return
        for entry in entries:
            if entry.kind == "directory":
                if not self.json:
                    click.echo()
                try:
                    await self._directory(target, entry.path, "/".join(entry.path))
                except (BrokenPipeError, KeyboardInterrupt):
                    raise
                except (BbfsError, OSError) as error:
                    why = await target.tree.why(entry.path, error) if isinstance(error, OSError) else None
                    output.failure(error, "/".join(entry.path), why)
                    self.complete = False

    async def _described(self, target: Target, entries: list[TreeEntry]) -> list[TreeEntry]:
        return await target.tree.described(entries) if self.json and not self.exact else entries

    async def _say_why_empty(self, target: Target, path: tuple[str, ...]) -> None:
        """Report why a source lists nothing: it may be up and have a fault, or have no resources but other things."""
        document = await target.tree.document(Target(target.tree, path))
        error, offers = document.get("error"), output.offers(document)
        if error is not None:
            output.message(f"{path[0]}: {error}")
            self.complete = False
        else:
            output.message(f"{path[0]}: no resource is listed" + (f"; it has {offers}" if offers else ""))

    def _print(self, entries: list[TreeEntry]) -> None:
        if not self.json:
            self.begin()
        for entry in entries:
            if entry.error is not None:
                output.message(f"{'/'.join(entry.path)}: {entry.error}")
                self.complete = False
        if self.json:
            self.collected += map(_as_json, entries)
        elif self.long and entries:
            rows = [
                (
                    _size(each),
                    output.local_time(each.modified_ns),
                    output.printable(each.mime_type or "-"),
                    _name(each, True),
                )
                for each in entries
            ]
            output.table(rows, right=[0])
        else:
            for entry in entries:
                click.echo(_name(entry, False))


def _as_json(entry: TreeEntry) -> dict[str, Any]:
    modified = None if entry.modified_ns is None else timestamp(entry.modified_ns)
    found = {
        "path": "/".join(entry.path),
        "name": entry.path[-1],
        "kind": entry.kind,
        "size": entry.size if entry.kind == "file" else None,
        "lastModified": modified,
        "mimeType": entry.mime_type,
        "uri": entry.uri,
        "target": entry.target,
        "error": entry.error,
    }
    return {key: value for key, value in found.items() if value is not None}


def _size(entry: TreeEntry) -> str:
    if entry.kind != "file":
        return "-"
    return "?" if entry.size is None else str(entry.size)


def _name(entry: TreeEntry, long: bool) -> str:
    name = output.printable(entry.path[-1])
    if entry.kind == "directory":
        return click.style(name, fg="blue", bold=True) + "/"
    if entry.kind == "symlink":
        arrow = f" -> {output.printable(entry.target or '')}" if long else ""
        return click.style(name, fg="cyan") + arrow
    return name


@click.command(epilog=_LS_EXAMPLES, short_help="List sources and directories.")
@click.argument("operand", metavar="[URI|PATH]", required=False, shell_complete=complete_operand)
@click.option("-l", "long", is_flag=True, help="Size, time and MIME type as well; unknown sizes are learnt.")
@click.option("-R", "--recursive", is_flag=True, help="The directories below as well.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@source_options
def ls(choice: SourceChoice, operand: str | None, long: bool, recursive: bool, as_json: bool) -> None:
    """List the sources, or what is in a directory: within a mount, the current one."""
    lister = _Lister(long, recursive, as_json, exact=long)

    async def work(opened: "Trees") -> bool:
        if sys.stdout.isatty():
            lister.begin = opened.progress.end
        named = "." if operand is None and not choice.given and inside_mount(".") is not None else operand
        if named is not None:
            return await lazy.operand.each(opened, (named,), lister.show)
        await lazy.operand.each_root(opened, lambda tree: lister.show(Target(tree, ()), tree.mount))
        return True

    well = lazy.operand.run(choice, work)
    if as_json:
        output.as_json(lister.collected)
    click.get_current_context().exit(0 if well and lister.complete else 1)


_CAT_EXAMPLES = f"""{_OPERANDS}
\b
Examples:
  bbfs cat docs/resource/guide/install
  bbfs cat mcp-server+docs+resource://guide/install mcp-server+docs+resource://guide/use > guide.md
  bbfs cat --mcp 'docs=uvx some-server' mcp-server+docs+resource://guide/install
"""


@click.command(epilog=_CAT_EXAMPLES, short_help="Write contents, byte for byte.")
@click.argument("operands", metavar="URI|PATH…", nargs=-1, required=True, shell_complete=complete_operand)
@source_options
def cat(choice: SourceChoice, operands: tuple[str, ...]) -> None:
    """Write contents to standard output, byte for byte.

    On a terminal, a content whose last line has no end gets one.

    A resource of several contents gives all of them. A URI need not be listed: one of a template works as well.
    """

    contents = output.Contents()

    async def work(opened: "Trees") -> bool:
        def write(data: bytes) -> None:
            if sys.stdout.isatty():
                opened.progress.end()
            contents.write(data)

        async def show(target: Target) -> None:
            try:
                await target.tree.copy(target, write)
            finally:
                contents.end()

        waited_for = opened.progress.note
        opened.progress.note = lambda: f"{progress.amount(contents.size)} so far" if contents.size else waited_for()
        return await lazy.operand.each(opened, operands, show)

    well = lazy.operand.run(choice, work)
    click.get_current_context().exit(0 if well else 1)


_STAT_EXAMPLES = f"""{_OPERANDS}
\b
Examples:
  bbfs stat docs/resource/guide/install
  bbfs stat docs                                  the source itself
  bbfs stat --json mcp-server+docs+resource://guide/install | jq '.[0].size'

\b
JSON: an array with an object for each operand that was found: kind, uri, originalUri, name, title,
description, accessMethod, type, contentType, mimeType, uriTemplate, path, size (bytes), lastModified,
annotations, mcpData, etag, fetchedAt, cache (fresh, stale, absent), error, mount; of a source: id, name,
title, type, accessMethod, uriPrefix, capabilities, state, protocolVersion, server, error.
"""


@click.command(epilog=_STAT_EXAMPLES, short_help="Print all metadata.")
@click.argument("operands", metavar="URI|PATH…", nargs=-1, required=True, shell_complete=complete_operand)
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@source_options
def stat(choice: SourceChoice, operands: tuple[str, ...], as_json: bool) -> None:
    """Print all metadata of resources, directories or sources. A size that is not known is learnt."""
    documents: list[dict[str, Any]] = []

    async def collect(target: Target) -> None:
        document = await target.tree.document(target)
        documents.append(document)
        if not as_json:
            if len(documents) > 1:
                click.echo()
            output.fields(document)

    well = lazy.operand.run(choice, lambda opened: lazy.operand.each(opened, operands, collect))
    if as_json:
        output.as_json(documents)
    click.get_current_context().exit(0 if well else 1)
