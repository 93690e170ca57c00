"""The command line of the knowledge base: `bbfs-knowledge`."""

import json
import sqlite3
import sys
from contextlib import nullcontext
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from bbfs.knowledge.addresses import document_uri
from bbfs.knowledge.database.store import Store
from bbfs.knowledge.documents import KnowledgeError, check_id
from bbfs.knowledge.importing import read_document, source_files
from bbfs.serving.options import HttpChoice, http_options

_EXAMPLES = """
\b
Examples:
  bbfs-knowledge import --db kb.sqlite --collection docs ~/notes
  bbfs-knowledge put --db kb.sqlite docs ssl-setup ssl-setup.md
  echo 'More to come.' | bbfs-knowledge put --db kb.sqlite docs draft -
  bbfs-knowledge list --db kb.sqlite docs
  bbfs-knowledge serve --db kb.sqlite
  bbfs-knowledge serve --db kb.sqlite --http 127.0.0.1:8000
"""

_database = click.option(
    "--db", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The SQLite file.", metavar="FILE"
)


class _Commands(click.Group):
    """Says what went wrong in one sentence, with exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KnowledgeError, OSError, sqlite3.Error) as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Commands, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """A knowledge base in one SQLite file: put documents in, serve them over MCP.

    All commands may run while a server serves the same file: it tells its clients what changed.
    """


@main.command()
@_database
@http_options
@click.option("--create", is_flag=True, help="Make an empty knowledge base if there is no file.")
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
def serve(db: Path, http: HttpChoice | None, create: bool, ttl: float, interval: float, writable: bool) -> None:
    """Serve the knowledge base over MCP, on standard input and output or over HTTP."""
    # The MCP SDK takes a second to import, which other commands need not wait for.
    serving = import_module("bbfs.knowledge.server.run")
    with Store(db, create=create, durable=writable) as store:
        server = serving.KnowledgeServer(store, ttl=ttl, interval=interval, writable=writable)
        if http is None:
            serving.serve_stdio(server)
        else:
            with http.listening(_say, open_at_home=not writable) as listener:
                serving.serve_http(server, listener)


@main.command("import")
@_database
@click.option("--collection", required=True, metavar="NAME", help="The collection's id; made if there is none.")
@click.option("--title", help="The collection's name, if it is to be another than its id.")
@click.option("--prune", is_flag=True, help="Remove documents of earlier imports whose files are not among these.")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="FOLDER_OR_FILE…"
)
def import_(db: Path, collection: str, title: str | None, prune: bool, paths: tuple[Path, ...]) -> None:
    """Import files and folders into a collection.

    A file imported before updates its document, which keeps its id. Hidden files and symbolic links are left out.
    """
    files = source_files(paths)
    with _made(db) as store:
        report = store.import_files(collection, files, title=title, prune=prune)
    click.echo(", ".join(f"{count} {what}" for what, count in asdict(report).items()))


@main.command()
@_database
@click.argument("collection")
@click.argument("id")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--mime", metavar="TYPE", help="The MIME type, if the name does not tell it.")
def put(db: Path, collection: str, id: str, file: Path, mime: str | None) -> None:
    """Put one document in, from FILE or (-) from standard input; one with this ID is replaced."""
    stdin = str(file) == "-"
    with nullcontext(sys.stdin.buffer) if stdin else file.open("rb") as opened:
        content = read_document(opened)
    with _made(db) as store:
        outcome = store.put(collection, id, content, name=None if stdin else file.name, mime=mime)
    click.echo(f"{outcome} {_uri(collection, id)}")


@main.command()
@_database
@click.argument("collection")
@click.argument("id", required=False)
@click.option("--all", "whole", is_flag=True, help="Remove the whole collection.")
def remove(db: Path, collection: str, id: str | None, whole: bool) -> None:
    """Remove the document ID from COLLECTION, or with --all the whole collection."""
    if whole == (id is not None):
        raise click.UsageError("give either an ID or --all")
    with Store(db, create=False) as store:
        if id is not None:
            store.remove(collection, id)
            click.echo(f"removed {_uri(collection, id)}")
        else:
            click.echo(f"removed {collection} with {store.remove_collection(collection)} documents")


@main.command("list")
@_database
@click.argument("collection", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
def list_(db: Path, collection: str | None, as_json: bool) -> None:
    """List the collections, or the documents of COLLECTION."""
    with Store(db, create=False) as store, store.snapshot() as snapshot:
        if collection is None:
            found = [(asdict(one), f"{one.document_count}\t{one.id}") for one in snapshot.collections()]
        else:
            documents = snapshot.documents(snapshot.collection(collection).id)
            found = [(asdict(one), f"{one.size}\t{one.mime_type}\t{one.id}") for one in documents]
    click.echo(json.dumps([one for one, _ in found], indent=2) if as_json else "\n".join(line for _, line in found))


def _made(db: Path) -> Store:
    """Open a knowledge base; if there is no file, make it and say so: the name may be mistyped."""
    if not db.exists():
        _say(f"{db} is new")
    return Store(db)


def _say(text: str) -> None:
    click.echo(f"bbfs-knowledge: {text}", err=True)


def _uri(collection: str, document: str) -> str:
    return document_uri(check_id(collection, "collection"), check_id(document, "document"))


if __name__ == "__main__":
    main(prog_name="bbfs-knowledge")
