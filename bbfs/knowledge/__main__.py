"""The command line of the knowledge base: `bbfs-knowledge`."""

import json
import re
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import click
import platformdirs
from click.core import ParameterSource

from bbfs.knowledge.addresses import Address, document_uri, meant
from bbfs.knowledge.database.store import ImportReport, Store
from bbfs.knowledge.documents import KnowledgeError, StoreError, check_id
from bbfs.knowledge.importing import read_document, source_files
from bbfs.server_parts.options import HttpChoice, http_options

_EXAMPLES = """
\b
Examples:
  bbfs-knowledge import --collection docs ~/notes
  bbfs-knowledge import --collection docs --watch ~/notes
  echo 'More to come.' | bbfs-knowledge put docs draft -
  bbfs-knowledge search 'zebra certificate'
  bbfs-knowledge show docs ssl-setup
  bbfs-knowledge serve --http 127.0.0.1:8000
  bbfs-knowledge import --db kb.sqlite --create --collection docs ~/notes
"""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that make a terminal do something, or deceive its reader; not the tab and the line feed."""


@dataclass(frozen=True, slots=True)
class _Database:
    """The file of a command. chosen: the user has named it, so that it may be mistyped."""

    path: Path
    chosen: bool

    def open(self, *, create: bool = False, durable: bool = False) -> Store:
        """Open the knowledge base to read, or to make it with its directory (`create`)."""
        if create and not self.path.exists():
            if not self.chosen:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _say(f"{self.path} is new")
        try:
            return Store(self.path, create=create, durable=durable)
        except StoreError as error:
            if self.path.exists():
                raise
            raise StoreError(f"{error}; import{' --create' if self.chosen else ''} makes it") from error


def _database(*, writes: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of the file; the command gets `db`, a `_Database`, and if it writes `create`."""

    def chosen(ctx: click.Context, param: click.Parameter, value: Path) -> _Database:
        return _Database(value, ctx.get_parameter_source("db") is not ParameterSource.DEFAULT)

    def made(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
        return value or not ctx.params["db"].chosen

    def options(command: Callable[..., Any]) -> Callable[..., Any]:
        if writes:
            create = click.option(
                "--create", is_flag=True, callback=made, help="Make the file that --db names if there is none."
            )
            command = create(command)
        return click.option(
            "--db",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            envvar="BBFS_KNOWLEDGE_DB",
            default=lambda: platformdirs.user_data_path("bbfs") / "knowledge.sqlite",
            show_default="$XDG_DATA_HOME/bbfs/knowledge.sqlite",
            show_envvar=True,
            is_eager=True,
            callback=chosen,
            help="The SQLite file.",
        )(command)

    return options


class _Failure(click.ClickException):
    def show(self, file: IO[Any] | None = None) -> None:
        _say(self.format_message())


class _Commands(click.Group):
    """Says what went wrong in one sentence, with exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KnowledgeError, OSError, sqlite3.Error) as error:
            raise _Failure(str(error)) from error


@click.group(cls=_Commands, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="bbfs", prog_name="bbfs-knowledge", message="%(prog)s %(version)s")
def main() -> None:
    """A knowledge base in one SQLite file: put documents in, search them, serve them over MCP.

    All commands may run while a server serves the same file: it tells its clients what changed.
    """


@main.command()
@_database(writes=True)
@http_options
@click.option(
    "--ttl",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="Seconds for which clients may keep what they read, if no change of it is announced.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.01, max=60),
    default=0.2,
    show_default=True,
    help="Seconds between two looks for changes.",
)
@click.option("--writable", is_flag=True, help="Let clients put and remove documents, by two more tools.")
def serve(db: _Database, http: HttpChoice | None, create: bool, ttl: float, interval: float, writable: bool) -> None:
    """Serve the knowledge base over MCP, on standard input and output or over HTTP."""
    # The MCP SDK takes a second to import, which other commands need not wait for.
    serving = import_module("bbfs.knowledge.server.run")
    with db.open(create=create, durable=writable) as store:
        server = serving.KnowledgeServer(store, ttl=ttl, interval=interval, writable=writable)
        if http is None:
            serving.serve_stdio(server)
        else:
            with http.listening(_say, open_at_home=not writable) as listener:
                serving.serve_http(server, listener)


@main.command("import")
@_database(writes=True)
@click.option("--collection", required=True, metavar="NAME", help="The collection's id; made if there is none.")
@click.option("--title", help="The collection's name, if it is to be another than its id.")
@click.option("--prune", is_flag=True, help="Remove documents of earlier imports whose files are not among these.")
@click.option("--watch", is_flag=True, help="Go on: import files that change, and remove documents whose files go.")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="FOLDER_OR_FILE…"
)
def import_(
    db: _Database, create: bool, collection: str, title: str | None, prune: bool, watch: bool, paths: tuple[Path, ...]
) -> None:
    """Import files and folders into a collection.

    A file imported before updates its document, which keeps its id. Hidden files and symbolic links are left out.
    """
    if not watch:
        files = source_files(paths)
        with db.open(create=create) as store:
            _report(store.import_files(collection, files, title=title, prune=prune))
        return
    watching = import_module("bbfs.knowledge.watching")
    with db.open(create=create) as store:
        watched = watching.WatchedImport(store, collection, paths, title)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service manager ends it as Ctrl-C does
        try:
            _report(watched.begin(prune=prune))
            watched.run(_report, _say)
        except KeyboardInterrupt:
            _say("no longer watching")


def _report(report: ImportReport) -> None:
    click.echo(", ".join(f"{count} {what}" for what, count in asdict(report).items()))


@main.command()
@_database(writes=True)
@click.argument("collection")
@click.argument("id")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--mime", metavar="TYPE", help="The MIME type, if the name does not tell it.")
def put(db: _Database, create: bool, collection: str, id: str, file: Path, mime: str | None) -> None:
    """Put one document in, from FILE or (-) from standard input; one with this ID is replaced."""
    stdin = str(file) == "-"
    with nullcontext(sys.stdin.buffer) if stdin else file.open("rb") as opened:
        content = read_document(opened)
    with db.open(create=create) as store:
        outcome = store.put(collection, id, content, name=None if stdin else file.name, mime=mime)
    click.echo(f"{outcome} {_uri(collection, id)}")


@main.command()
@_database(writes=False)
@click.argument("collection")
@click.argument("id", required=False)
@click.option("--all", "whole", is_flag=True, help="Remove the whole collection.")
def remove(db: _Database, collection: str, id: str | None, whole: bool) -> None:
    """Remove the document ID from COLLECTION, or with --all the whole collection."""
    if whole == (id is not None):
        raise click.UsageError("give either an ID or --all")
    with db.open() as store:
        if id is not None:
            store.remove(collection, id)
            click.echo(f"removed {_uri(collection, id)}")
        else:
            click.echo(f"removed {collection} with {store.remove_collection(collection)} documents")


@main.command("list")
@_database(writes=False)
@click.argument("collection", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
def list_(db: _Database, collection: str | None, as_json: bool) -> None:
    """List the collections, or the documents of COLLECTION."""
    with db.open() as store, store.snapshot() as snapshot:
        if collection is None:
            found = [(asdict(one), f"{one.document_count}\t{one.id}") for one in snapshot.collections()]
        else:
            documents = snapshot.documents(snapshot.collection(collection).id)
            found = [(asdict(one), f"{one.size}\t{one.mime_type}\t{one.id}") for one in documents]
    click.echo(json.dumps([one for one, _ in found], indent=2) if as_json else "\n".join(line for _, line in found))


@main.command()
@_database(writes=False)
@click.argument("words", nargs=-1, required=True, metavar="WORD…")
@click.option("--in", "collection", metavar="COLLECTION", help="Only in this collection.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="Hits at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
def search(db: _Database, words: tuple[str, ...], collection: str | None, limit: int, as_json: bool) -> None:
    """Find documents by their words, best first: those with all words or, if there are none, with any.

    A line has the collection, the id, the title and the passage that matched. Exit status 1: nothing was found.
    """
    with db.open() as store, store.snapshot() as snapshot:
        hits = snapshot.search(" ".join(words), collection, limit)
    if as_json:
        click.echo(json.dumps([asdict(hit) for hit in hits], indent=2))
    for hit in () if as_json else hits:
        one, passage = hit.document, " ".join((hit.snippet or "").split())
        click.echo(_plain("\t".join((one.collection, one.id, one.title, passage))))
    if not hits:
        raise click.exceptions.Exit(1)


@main.command()
@_database(writes=False)
@click.argument("collection", metavar="COLLECTION|URI")
@click.argument("id", required=False)
def show(db: _Database, collection: str, id: str | None) -> None:
    """Write the content of a document, byte for byte; on a terminal only a text, without control characters."""
    if id is None:
        address = meant(collection)
        if address is None or address.kind != "document":
            raise click.UsageError("give a COLLECTION and an ID, or the URI of a document")
    else:
        address = Address("document", collection, id)
    with db.open() as store, store.snapshot() as snapshot:
        document = snapshot.document(address.collection, address.document)
        content = snapshot.content(address.collection, address.document)
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    elif document.is_text:
        click.echo(_plain(content.decode()), nl=not content.endswith(b"\n"))
    else:
        raise KnowledgeError(
            f"{document.id!r} is no text but {document.mime_type}: send the output to a file or a program"
        )


def _plain(text: str) -> str:
    """Return a text that a terminal can show: documents come from anywhere."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _say(text: str) -> None:
    click.echo(f"bbfs-knowledge: {text}", err=True)


def _uri(collection: str, document: str) -> str:
    return document_uri(check_id(collection, "collection"), check_id(document, "document"))


if __name__ == "__main__":
    main(prog_name="bbfs-knowledge")
