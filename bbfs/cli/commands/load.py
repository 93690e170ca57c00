"""`bbfs load`: many resources at once, by their URIs or by a URI template."""

import base64
import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from bbfs.cli import lazy, output
from bbfs.cli.options import NoSources, SourceChoice, source_options
from bbfs.fuse import mountpoint
from bbfs.model.errors import InvalidUri
from bbfs.model.uri_templates.expand import template_variables

if TYPE_CHECKING:
    from bbfs.cli.operands.operand import Trees
    from bbfs.model.values import Part
    from bbfs.resources.by_uri import LoadedResource
    from bbfs.resources.manager import ResourceManager

Values = dict[str, str | Sequence[str]]

_EXAMPLES = """\b
Examples:
  bbfs load --direct mcp-server+docs+resource://guide/install mcp-server+docs+resource://guide/use
  bbfs load --template 'mcp-server+kb+resource://knowledge/{collectionId}/document/{docId}' \\
            --set collectionId=docs --each docId=ssl-setup,install
  bbfs load --template 'bb-filesystem+notes+file:./{path}' --values '[{"path": "a.md"}, {"path": "b/c.md"}]'

\b
JSON: an array in the order asked for, of objects with uri and either
  metadata (as 'bbfs stat --json') and contents: an array of objects with mimeType, size, and text or,
  where the bytes are not UTF-8, blob (base64); with uri where a content has one of its own
or
  error: an object with class, errno (such as ENOENT) and message.

\b
Exit status: 0 all were loaded, 1 some were not, 2 none was.
"""


class _Assignment(click.ParamType):
    name = "assignment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, equals, rest = str(value).partition("=")
        if not equals or not name:
            self.fail(f"{value!r}: expected NAME=VALUE", param, ctx)
        return name, rest


class _Mappings(click.ParamType):
    name = "JSON"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Values]:
        try:
            parsed = json.loads(value)
        except ValueError as error:
            self.fail(f"not JSON: {error}", param, ctx)
        parsed = [parsed] if isinstance(parsed, dict) else parsed
        if not isinstance(parsed, list) or not all(map(_is_mapping, parsed)):
            self.fail("expected an array of objects whose values are texts or arrays of texts", param, ctx)
        return parsed


def _is_mapping(item: object) -> bool:
    return isinstance(item, dict) and all(
        isinstance(value, str) or (isinstance(value, list) and all(isinstance(text, str) for text in value))
        for value in item.values()
    )


@click.command(epilog=_EXAMPLES, short_help="Load many resources at once, as JSON.")
@click.argument("uris", metavar="[URI…]", nargs=-1)
@click.option("--direct", is_flag=True, help="Load the URIs as they are.")
@click.option("--template", metavar="TEMPLATE", help="Load what a bbfs URI template (RFC 6570) expands to.")
@click.option("--set", "constants", type=_Assignment(), multiple=True, metavar="NAME=VALUE", help="A variable's value.")
@click.option(
    "--each",
    type=_Assignment(),
    multiple=True,
    metavar="NAME=V1,V2…",
    help="One resource for each value; of several --each for each combination.",
)
@click.option("--values", type=_Mappings(), metavar="JSON", help="One resource for each object of an array.")
@source_options
def load(
    choice: SourceChoice,
    uris: tuple[str, ...],
    direct: bool,
    template: str | None,
    constants: tuple[tuple[str, str], ...],
    each: tuple[tuple[str, str], ...],
    values: list[Values] | None,
) -> None:
    """Load resources, all at once, and print content and metadata of each as JSON.

    The sources are those of the options and the configuration file; a mount is not asked.
    """
    if direct == (template is not None):
        raise click.UsageError("give either --direct with URIs, or --template")
    if direct and (not uris or constants or each or values is not None):
        raise click.UsageError("--direct takes URIs, and no --set, --each or --values")
    if template is not None and (uris or (each and values is not None)):
        raise click.UsageError("--template takes --set and either --each or --values, and no URIs")
    mappings = [{**dict(constants), **mapping} for mapping in (_combinations(each) if values is None else values)]

    async def work(opened: "Trees") -> list[dict[str, Any]]:
        tree = await opened.direct()
        manager = tree.manager
        waited_for, total = opened.progress.note, len(uris) or len(mappings)
        opened.progress.note = lambda: f"{manager.loads} of {total} loaded" if manager.loads else waited_for()
        await tree.list_all({uri.partition(":")[0] for uri in (uris if template is None else (template,))})
        if template is None:
            loaded = await manager.by_uri.load_many("direct", direct_uris=uris)
        else:
            loaded = await manager.by_uri.load_many("template", uri_template=template, template_resources=mappings)
        return [await _as_json(manager, one) for one in loaded]

    if template is not None:
        try:
            template_variables(template)  # before any source is started for it
        except InvalidUri as error:
            raise click.BadParameter(str(error), param_hint="'--template'") from error

    try:
        items = lazy.operand.run(choice, work)
    except NoSources as error:
        if mountpoint.own_mounts():
            raise NoSources(f"'load' asks the sources itself, not through a mount: name them to it\n{error}") from error
        raise
    output.as_json(items)
    failed = sum("error" in item for item in items)
    click.get_current_context().exit(0 if not failed else 2 if failed == len(items) else 1)


def _combinations(each: Sequence[tuple[str, str]]) -> list[Values]:
    """Return all combinations of values: `id=a,b` and `lang=x,y` give four mappings, no variables an empty one."""
    choices = [[(name, value) for value in texts.split(",")] for name, texts in each]
    return [dict(combination) for combination in product(*choices)]


async def _as_json(manager: "ResourceManager", loaded: "LoadedResource") -> dict[str, Any]:
    if loaded.error is not None:
        error = loaded.error
        described = {"class": type(error).__name__, "errno": output.errno_name(error), "message": str(error)}
        return {"uri": loaded.uri, "error": described}
    _, record = manager.by_uri.record_of(loaded.uri)
    metadata: Mapping[str, Any] = manager.contents.document((), record)
    return {
        "uri": loaded.uri,
        "metadata": {key: value for key, value in metadata.items() if key != "path"},
        "contents": [await _content(part) for part in loaded.parts],
    }


async def _content(part: "Part") -> dict[str, Any]:
    data = await part.content.read_waiting(0, part.content.size)
    found: dict[str, Any] = {"uri": part.native_uri, "mimeType": part.mime_type, "size": len(data)}
    try:
        found["text"] = data.decode()
    except UnicodeDecodeError:
        found["blob"] = base64.b64encode(data).decode()
    return {key: value for key, value in found.items() if value is not None}
