"""The options of a map (`map` in `[[sources]]`)."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field

from bbfs.model.errors import ConfigError
from bbfs.model.values import DataSource, WriteTool
from bbfs.sources.mcp.maps.shipped import shipped
from bbfs.sources.options import Bytes, SourceOptions, parse_table

T = TypeVar("T")


def _array(value: object) -> object:
    return (value,) if isinstance(value, str | Mapping) else value


OneOrMore = Annotated[tuple[T, ...], BeforeValidator(_array)]
"""One table, or an array of them: the first one whose `at` fits a path is used."""
Answer = Literal["json", "python"]


class CallOptions(SourceOptions):
    """A call of a tool."""

    tool: str = Field(min_length=1)
    """The name of the tool."""
    at: OneOrMore[str] | None = None
    """The paths that this is for, as a template below the root: `{table}.json`; `{+any}.png` has slashes as well, and
    `""` is the root. Without it, all paths."""
    arguments: dict[str, Any] = Field(default={})
    """The arguments of the call. `{path}`, `{name}`, `{stem}` (the name without extension), `{folder}`,
    and the variables of `at` and of `values` stand for their values."""
    without: str = ""
    """Characters that no value in the arguments may have: for a value within a query, its quotation mark."""


class AnswerOptions(CallOptions):
    """A call whose answer has names."""

    lines: dict[str, str] = Field(default={})
    """For an answer in lines: the form of a line, and the name in it: `"[DIR] {name}" = "{name}/"`. A slash at its end
    makes a directory, an empty name leaves the line out. The first form that fits a line counts."""
    items: dict[str, str] = Field(default={})
    """For an answer in JSON: the pointer (RFC 6901) to an array or an object, and the name of an item: `"/notes" =
    "{title}.md"`. The variables are its members (`{meta.id}`), `{item}` if it is a text or a number, and `{key}`."""
    directories: dict[str, str | int | bool] = Field(default={})
    """Items with these values of their members are directories."""
    format: Answer = "json"
    """`python` for an answer that is the text of a Python value (`[{'name': 'a'}]`)."""
    next: str | None = None
    """For an answer in pages: the pointer to what says that there are more. It may be `true`, or a mark: the next call
    has the number of its page as `{page}` (from 1), and the mark as `{next}`. The first call is without `{next}`."""


class ListOptions(AnswerOptions):
    """The call that lists a directory."""

    tool: str = ""
    """The name of the tool. With `names`, it may be left out."""
    names: tuple[str, ...] = ()
    """Names that are there in any case; directories end with a slash."""
    whole: bool = False
    """The names in the answer are paths from the root: of all that is below, or of the whole tree."""


class ReadOptions(CallOptions):
    """The call that reads a file."""

    result: str | None = None
    """The pointer (RFC 6901) to the content in the JSON of the answer. Without it, the content is the whole answer."""
    format: Answer | None = None
    """`python` for an answer that is the text of a Python value: the content is its JSON."""
    next: str | None = None
    """As for `list`. The texts or the arrays of all pages are the content."""


class WriteOptions(CallOptions):
    """The call that writes a file. `{content}` is its text, `{blob}` its bytes in Base64."""

    max_size: Bytes = WriteTool("").max_size
    """Largest content. A larger one is `EFBIG`."""
    changes: bool = False
    """The server keeps another text than it gets, for example with front matter. Without it, bbfs reads once what the
    server has, and other bytes are `EIO` and a pending write."""


class RenameOptions(CallOptions):
    """The call that renames. `{to}`, `{to_name}`, `{to_stem}` and `{to_folder}` are the new path and its parts."""

    to: OneOrMore[str] | None = None
    """The new paths that this is for, as a template. A variable that `at` has, too, has the same value in both. Without
    it, all paths."""
    replaces: bool = False
    """The tool replaces a file that has the new name. Without it, the tool is called for a free name alone."""
    directories: bool = False
    """The tool renames directories, too."""


class MapOptions(SourceOptions):
    """A map."""

    use: str | None = None
    """The name of a map that comes with bbfs. The other keys replace those of that map."""
    values: dict[str, str] = Field(default={})
    """Values of variables for the arguments of all calls, such as a folder that the server needs to be told."""
    errors: dict[str, str] = Field(default={})
    """For a server that answers errors as texts: forms of such a text, and what each means: `not_found`, `denied`,
    `exists`, `too_large`, `no_space`, `conflict`, `not_supported`, or `failed`."""
    list: OneOrMore[ListOptions] = ()
    """The calls that list directories. Required, with the keys below."""
    read: OneOrMore[ReadOptions] = ()
    """The calls that read files. Required, with the keys below."""
    write: OneOrMore[WriteOptions] = ()
    """The calls that write files. Without it, nothing is written."""
    create: OneOrMore[WriteOptions] = ()
    """The calls that write files which are not there yet, where the server has a tool of its own for that."""
    remove: OneOrMore[CallOptions] = ()
    """The calls that remove files."""
    rename: OneOrMore[RenameOptions] = ()
    """The calls that rename files. Without it, a rename copies the file and removes it under its old name."""
    make_directory: OneOrMore[CallOptions] = ()
    """The calls that make directories. Without it, a directory lives in the mount until a file is in it."""
    remove_directory: OneOrMore[CallOptions] = ()
    """The calls that remove empty directories, each by a tool that refuses one with files in it."""
    search: OneOrMore[AnswerOptions] = ()
    """The call that searches; `{query}` has the words and `{limit}` the number of hits. A name in the answer is the
    path of a file."""


def map_options(source: DataSource) -> MapOptions:
    """Return the map of a source, with those of the map that it uses. Raise ConfigError that names each bad key."""
    where = f"sources[{source.id}].map"
    options = parse_table(MapOptions, source.map or {}, where)
    if options.use is None:
        return options
    used = shipped().get(options.use)
    if used is None:
        raise ConfigError(f"{where}.use: no map {options.use[:100]!r}; bbfs has {', '.join(shipped())}")
    if missing := [name for name in used.needs if not options.values.get(name)]:
        told = "; ".join(f"{name}: {used.needs[name]}" for name in missing)
        raise ConfigError(f"{where}.values: the map {options.use!r} needs {told}")
    its = parse_table(MapOptions, used.map, f"the map {options.use!r}").model_dump(exclude_unset=True)
    own = options.model_dump(exclude_unset=True)
    return parse_table(MapOptions, {**its, **own, "values": {**its.get("values", {}), **options.values}}, where)
