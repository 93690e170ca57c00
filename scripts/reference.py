"""Write the command reference and the pages of the manual from the commands themselves (`make docs`).

scripts/reference.py            docs/commands.md
scripts/reference.py DIRECTORY  the pages for man(1) and the completions of shells, as below a directory `share`
"""

import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from inspect import cleandoc
from pathlib import Path

import click
import option_tables
from click.shell_completion import get_completion_class
from roff import Heading, Literal, Name, Paragraph, Part, Terms, manual, markdown, plain

from bbfs import __version__
from bbfs.cli import GROUPS, main, mount_helper
from bbfs.cli.options import source_options
from bbfs.knowledge.__main__ import main as knowledge

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "commands.md"
TABLES: Mapping[str, str] = {
    "source": "[[sources]]",
    "mcpConfig": "mcpConfig of an MCP server",
    "search": "search of an MCP server",
    "write": "write and remove of an MCP server",
    "map": "map of an MCP server",
    "map list": "list and search of a map",
    "map read": "read of a map",
    "map write": "write, create, remove, make_directory and remove_directory of a map",
    "map rename": "rename of a map",
    "filesystem": "config of the type filesystem",
    "memory": "config of the type memory",
    "memory resources": "A table below resources of the type memory",
    "database": "config of the type database",
    "database queries": "A table below queries of the type database",
    "storage": "config of the type storage",
    option_tables.SCHEMES_TABLE: "options and auth of the type storage",
    "url": "config of the type url",
    "api": "config of the type api",
    "api search": "search of the type api",
    "notion": "config of the type notion",
    "vector_search": "config of the type vector_search",
    "mount": "[mount]",
    "cache": "[cache]",
    "documents": "[documents]",
    "embeddings": "[embeddings]",
}
"""The headings of the tables of options in bbfs.toml(5), in the order of the page."""
_SECTION = re.compile(r"(Exit status|JSON)(?: (?=\d))?( of '\w+')?:? ?(.*)", re.DOTALL)
_TITLE = re.compile(r"([A-Z][a-z ]+):\n")
_COLUMNS = re.compile(r"  (\S+) {2,}(\S.*)")
_TYPE = re.compile(r"^\| \[`(\w+)`\]\([^)]*\) \| ([^|]+?) \|", re.MULTILINE)
"""A row of the table of types in docs/sources.md."""
_SHELLS = {
    "bash": "bash-completion/completions/bbfs",
    "zsh": "zsh/site-functions/_bbfs",
    "fish": "fish/vendor_completions.d/bbfs.fish",
}
"""Where each shell looks for completions, below a directory `share`."""


def run() -> None:
    if len(sys.argv) > 1:
        write_share(Path(sys.argv[1]))
    elif (now := reference()) != (REFERENCE.read_text() if REFERENCE.exists() else ""):
        REFERENCE.write_text(now)
        print(f"written: {REFERENCE}")


def write_share(directory: Path) -> None:
    """Write the pages of the manual and the completions below a directory."""
    for (name, section), parts in pages().items():
        path = directory / f"man/man{section}/{name}.{section}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(manual(name, section, parts, version=__version__, date=_date()))
    importlib.import_module("bbfs.cli.completion")  # it registers the completion in bash
    for shell, name in _SHELLS.items():
        kind = get_completion_class(shell)
        assert kind is not None
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(kind(main, {}, "bbfs", "_BBFS_COMPLETE").source())


def _date() -> str:
    """Return the date of the release that is built; an empty text outside of a build."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%d") if seconds else ""


def pages() -> dict[tuple[str, int], list[Part]]:
    """Return the parts of each page by its name and section."""
    found = {("bbfs", 1): [*_overview()], ("bbfs.toml", 5): [*_configuration()], ("mount.bbfs", 8): [*_mount_helper()]}
    found |= {(f"bbfs-{name}", 1): [*_page(f"bbfs {name}", command)] for name, command in _commands().items()}
    return found | {("bbfs-knowledge", 1): [*_page("bbfs-knowledge", knowledge)]}


def reference() -> str:
    """Return the text of docs/commands.md."""
    parts: list[str] = [
        "# Commands\n\n`make docs` makes this page from the commands, and the pages for `man bbfs`, too. `bbfs COMMAND"
        " --help` says the same.\n\n## bbfs\n\n" + markdown(_of_command("bbfs", main), depth=2)
    ]
    for group, names in GROUPS.items():
        parts.append(f"## {group}\n")
        for name in names:
            command = _commands()[name]
            parts.append(f"### bbfs {name}\n\n" + markdown(_of_command(f"bbfs {name}", command, short=True), depth=4))
    parts.append("## bbfs-knowledge\n\n" + markdown(_of_command("bbfs-knowledge", knowledge), depth=4))
    shared = markdown([Paragraph("Many commands take these options."), Terms(_shared_options())], depth=4)
    parts.append("## Options that name sources\n\n" + shared)
    return "\n".join(parts)


@cache
def _commands() -> dict[str, click.Command]:
    """Return the commands of bbfs, in the order of its help."""
    context = click.Context(main)
    found = {name: main.get_command(context, name) for names in GROUPS.values() for name in names}
    return {name: command for name, command in found.items() if command is not None}


def _page(path: str, command: click.Command) -> Iterator[Part]:
    yield from _name(path.replace(" ", "-"), command.get_short_help_str(200))
    yield Heading("SYNOPSIS")
    yield Paragraph(f"`{_usage(path, command)}`")
    yield Heading("DESCRIPTION")
    yield from _of_command(path, command, usage=False)
    others = ["bbfs.toml(5)"] if any(option.name == "config_file" for option in command.params) else []
    yield from _see_also("bbfs(1)", *others)


def _overview() -> Iterator[Part]:
    yield from _name("bbfs", "mount MCP servers and other data sources as a file system")
    yield Heading("SYNOPSIS")
    yield Paragraph("`bbfs COMMAND [OPTIONS] [ARGS]...`")
    yield Heading("DESCRIPTION")
    help_, *epilog = _of_command("bbfs", main, usage=False)
    yield help_
    where = next(index for index, part in enumerate(epilog) if isinstance(part, Heading) and part.text == "Examples")
    yield from epilog[:where]
    yield Heading("COMMANDS")
    for group, names in GROUPS.items():
        yield Heading(group, level=2)
        yield Terms([(f"bbfs-{name}(1)", plain(_commands()[name].get_short_help_str(200))) for name in names])
    for part in epilog[where:]:
        yield Heading(part.text.upper()) if isinstance(part, Heading) else part
    yield from _see_also("bbfs.toml(5)", "bbfs-knowledge(1)", "mount.bbfs(8)", "fusermount3(1)")


def _configuration() -> Iterator[Part]:
    yield from _name("bbfs.toml", "the configuration of bbfs")
    yield Heading("DESCRIPTION")
    yield Paragraph(
        "A file in TOML. Each table `[[sources]]` is a data source; the other tables are about all of them. Keys and"
        " options may be written in camelCase or snake_case. bbfs refuses keys that are not listed here, with the line."
        ' A number of bytes may be written as `"64MiB"`, a duration as `"30s"` or as a number of seconds.'
        " `bbfs config check` looks for faults."
    )
    yield Paragraph(
        "`${env:NAME}`, `${file:PATH}` and `${keyring:SERVICE/USER}` stand for the value of a variable, the text of a"
        " file, and an entry of the system's keyring."
    )
    yield Heading("FILES")
    yield Terms([("~/.config/bbfs/config.toml", "The file of a user; the option `--config` names another one.")])
    yield Heading("EXAMPLE")
    yield Literal(_example())
    yield Heading("TYPES")
    yield Terms(_TYPE.findall((ROOT / "docs/sources.md").read_text()))
    for name, title in TABLES.items():
        yield Heading(title)
        yield Terms([*_option_rows(name)])
    yield from _see_also("bbfs(1)", "bbfs-add(1)", "bbfs-config(1)")


def _example() -> str:
    """Return the configuration file that README.md shows."""
    found = re.search(r"```toml\n(.*?)\n```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def _option_rows(name: str) -> Iterator[tuple[str, str]]:
    """Yield the options of a table of the documents. Equal keys of several schemes each have a row."""
    for *schemes, key, values, default, meaning in option_tables.rows(name):
        shown = {"": "", "required": ", required"}.get(default, f", by default {default}")
        of = f" ({schemes[0]})".replace("`", "") if schemes else ""
        yield f"{key.strip('`')}{of}", f"{meaning} ({values}{shown})"


def _mount_helper() -> Iterator[Part]:
    first, *paragraphs = cleandoc(mount_helper.__doc__ or "").split("\n\n")
    mount = click.Context(_commands()["mount"])
    said = {opt: record for option in mount.command.params for opt in option.opts if (record := _row(option, mount))}
    yield from _name("mount.bbfs", "mount a configuration of bbfs, for mount(8) and fstab(5)")
    yield Heading("SYNOPSIS")
    yield Paragraph("`mount -t bbfs SOURCE DIRECTORY [-o OPTIONS]`")
    yield Paragraph("`mount.bbfs SOURCE DIRECTORY [-sfnvrw] [-o OPTIONS] [-t TYPE]`")
    yield Heading("DESCRIPTION")
    yield Paragraph(first.replace("\n", " "))
    yield Paragraph("SOURCE is a configuration file, see bbfs.toml(5); `none` stands for that of the user.")
    for each in paragraphs:
        yield Literal(cleandoc("\n" + each)) if each.startswith(" ") else Paragraph(each.replace("\n", " "))
    yield Heading("OPTIONS")
    yield Terms([
        *((name, said[option][1]) for name, option in mount_helper.FLAGS.items()),
        *((f"{name}=", said[option][1]) for name, option in mount_helper.VALUES.items()),
        ("setuid=USER", "Mount as this user, whose home has the logins and caches, and who may enter the mount point."),
    ])  # fmt: skip
    others = ", ".join(f"`{name}`" for name in sorted(mount_helper.IGNORED))
    beginnings = " or ".join(f"`{each}`" for each in mount_helper.IGNORED_BEGINNINGS)
    yield Paragraph(f"These are for mount(8), systemd and the kernel: {others}, and all that begin with {beginnings}.")
    yield from _see_also("bbfs-mount(1)", "bbfs.toml(5)", "mount(8)", "fstab(5)")


def _name(page: str, said: str) -> Iterator[Part]:
    begin = said[0].lower() if said[1:2].islower() or said[1:2] == " " else said[0]
    yield Heading("NAME")
    yield Name(page, plain(begin + said[1:].rstrip(".")))


def _see_also(*others: str) -> Iterator[Part]:
    yield Heading("SEE ALSO")
    yield Paragraph(", ".join(f"`{other}`" for other in others))


def _usage(path: str, command: click.Command) -> str:
    return " ".join([path, *command.collect_usage_pieces(click.Context(command, info_name=path))])


def _of_command(path: str, command: click.Command, *, usage: bool = True, short: bool = False) -> Iterator[Part]:
    """Yield what the help of a command says.

    usage: begin with the line of the call. short: refer to the options that name sources instead of listing them.
    """
    if usage:
        yield Literal(_usage(path, command))
    yield from (Paragraph(plain(text)) for text in _paragraphs(command.help or ""))
    yield from _options(command, short=short)
    yield from _epilog(command.epilog or "")
    if isinstance(command, click.Group) and command is not main:
        for name, below in command.commands.items():
            yield Heading(f"{path} {name}")
            yield from _of_command(f"{path} {name}", below, short=short)


def _paragraphs(text: str) -> list[str]:
    return [" ".join(each.split()) for each in cleandoc(text).split("\n\n")]


def _options(command: click.Command, *, short: bool) -> Iterator[Part]:
    context = click.Context(command)
    rows = [row for option in command.params if (row := _row(option, context)) is not None]
    shared = _shared_options()
    refers = short and set(shared) <= set(rows)
    kept = [row for row in rows if row not in shared] if refers else rows
    if rows:
        yield Heading("Options", level=2)
    if kept:
        yield Terms(kept)
    if refers:
        yield Paragraph(f"{'And the' if kept else 'The'} [options that name sources](#options-that-name-sources).")


@cache
def _shared_options() -> list[tuple[str, str]]:
    """Return the rows of the options that name sources."""
    command = click.command()(source_options(lambda *_, **__: None))
    return [row for option in command.params if (row := _row(option, click.Context(command))) is not None]


def _row(option: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    """Return how an option is written, and what its help says; None for an argument and for a hidden option."""
    record = option.get_help_record(context) if isinstance(option, click.Option) else None
    return None if record is None else (record[0], plain(" ".join(record[1].split())))


def _epilog(epilog: str) -> Iterator[Part]:
    """Yield the parts of an epilog: sections with a title, and texts whose indented lines stay as they are."""
    for block in re.split(r"\n\s*\n|\n(?=Exit status\b|JSON\b)", cleandoc(epilog.replace("\b", ""))):
        if (titled := _TITLE.match(block)) is not None:
            yield Heading(titled[1], level=2)
            yield from _titled(block[titled.end() :].splitlines(), columns=titled[1] != "Examples")
        elif (known := _SECTION.match(block)) is not None:
            yield Heading(known[1] + (known[2] or ""), level=2)
            yield from _lines(known[3][:1].upper() + known[3][1:])
        else:
            yield from _lines(block)


def _titled(lines: Sequence[str], *, columns: bool) -> Iterator[Part]:
    rows = [found.groups() for line in lines if (found := _COLUMNS.fullmatch(line)) is not None]
    if columns and len(rows) == len(lines):
        yield Terms([(term, plain(said)) for term, said in rows])
    else:
        yield Literal(cleandoc("\n" + "\n".join(lines)))


def _lines(text: str) -> Iterator[Part]:
    """Yield unindented lines as paragraphs, and indented ones as they are."""
    for found in re.finditer(r"(?:^(?! ).*\n?)+|(?:^ .*\n?)+", text, re.MULTILINE):
        indented = found[0].startswith(" ")
        joined = " ".join(found[0].split())
        if joined:
            yield Literal(cleandoc("\n" + found[0].rstrip("\n"))) if indented else Paragraph(plain(joined))


if __name__ == "__main__":
    run()
