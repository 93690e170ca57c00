"""MIME types by file names, and which of them are text. The same on every machine and every Python."""

from functools import lru_cache
from mimetypes import MimeTypes

from bbfs.model.values import ContentType

# Missing in the standard library's table of some version, or outdated there.
_ADDED = {
    ".cfg": "text/plain",
    ".conf": "text/plain",
    ".dot": "text/vnd.graphviz",  # a template of Word, too, but seldom
    ".go": "text/x-go",
    ".ini": "text/plain",
    ".ipynb": "application/x-ipynb+json",
    ".js": "text/javascript",  # RFC 9239
    ".jsonl": "application/jsonl",
    ".log": "text/plain",
    ".markdown": "text/markdown",
    ".md": "text/markdown",  # RFC 7763
    ".mjs": "text/javascript",
    ".parquet": "application/vnd.apache.parquet",
    ".rs": "text/x-rust",
    ".rst": "text/x-rst",
    ".rtf": "application/rtf",
    ".sql": "application/sql",  # RFC 6922
    ".sqlite": "application/vnd.sqlite3",
    ".toml": "application/toml",
    ".ts": "text/x-typescript",
    ".tsx": "text/x-typescript",
    ".webp": "image/webp",
    ".xml": "application/xml",
    ".yaml": "application/yaml",  # RFC 9512
    ".yml": "application/yaml",
}
# A compressed file has the type of its compression, not of what is inside.
_COMPRESSED = {
    "gzip": "application/gzip",
    "bzip2": "application/x-bzip2",
    "xz": "application/x-xz",
    "compress": "application/x-compress",
    "br": "application/x-brotli",
}
_TEXT = frozenset((
    "application/ecmascript", "application/graphql", "application/javascript", "application/json",
    "application/jsonl", "application/ld+json", "application/rtf", "application/sql", "application/toml",
    "application/x-csh", "application/x-ndjson", "application/x-sh", "application/x-tex", "application/x-yaml",
    "application/xml", "application/yaml",
))  # fmt: skip
_TEXT_SUFFIXES = ("+json", "+xml", "+yaml", "+json-seq")


def _table() -> MimeTypes:
    # A separate instance: the module's functions read the machine's /etc/mime.types.
    table = MimeTypes()
    for extension, mime_type in _ADDED.items():
        table.add_type(mime_type, extension)
    return table


_TABLE = _table()


def mime_type_of_name(name: str) -> str | None:
    """Return the MIME type for the extension of a file name, or None."""
    # Pass extensions only: the standard library would take a name such as `data:text/html,` for a URL.
    # Dots at the start of a name make it hidden and begin no extension.
    extensions = name.lstrip(".").split(".")[1:][-2:]
    return _mime_type_of_extensions(tuple(extensions)) if extensions else None


@lru_cache(maxsize=1024)
def _mime_type_of_extensions(extensions: tuple[str, ...]) -> str | None:
    mime_type, encoding = _TABLE.guess_type(".".join(("name", *extensions)))
    if encoding is not None:
        return _COMPRESSED.get(encoding)
    return mime_type


def content_type_of(mime_type: str | None) -> ContentType:
    """Return whether a MIME type is text: "text", "binary", or "unknown" without a type."""
    if not mime_type:
        return "unknown"
    essence = mime_type.partition(";")[0].strip().lower()
    if essence.startswith("text/") or essence in _TEXT or essence.endswith(_TEXT_SUFFIXES):
        return "text"
    return "binary"
