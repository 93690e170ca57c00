"""The answers of a WebDAV server to PROPFIND (RFC 4918, section 9.1): entries of a `multistatus` document."""

from collections.abc import Iterator
from urllib.parse import unquote_to_bytes, urlsplit
from xml.etree import ElementTree

from bbfs.sources.http.headers import modified_ns
from bbfs.sources.http.responses import number_in
from bbfs.sources.storage.addresses import Names
from bbfs.sources.storage.backend import StoredItem, short
from bbfs.sources.storage.web_objects import etag_in, mime_type_of
from bbfs.sources.storage.xml import local_name

ROOT = "multistatus"
PROPERTIES = ("resourcetype", "getcontentlength", "getlastmodified", "getetag", "getcontenttype")
QUESTION = (
    '<?xml version="1.0" encoding="utf-8"?><propfind xmlns="DAV:"><prop>'
    + "".join(f"<{name}/>" for name in PROPERTIES)
    + "</prop></propfind>"
).encode()
"""The body of a PROPFIND."""


def described(response: ElementTree.Element) -> StoredItem | None:
    """Return the file or collection that a `response` describes, or None if no URI can name it.

    Its path begins at the root of the server.
    """
    if local_name(response) != "response":
        return None
    names = names_of(next(_below(response, "href"), ""))
    if names is None or not _is_ok(response):
        return None
    said: dict[str, str] = {}
    is_collection = False
    for found in response:
        if local_name(found) != "propstat" or not _is_ok(found):
            continue
        for properties in found:
            for each in properties if local_name(properties) == "prop" else ():
                name = local_name(each)
                if name == "resourcetype":
                    is_collection = any(local_name(kind) == "collection" for kind in each)
                elif name in PROPERTIES:
                    said[name] = (each.text or "").strip()
    modified = modified_ns({"last-modified": said["getlastmodified"]} if "getlastmodified" in said else {})
    if is_collection:
        return StoredItem(names, "directory", modified_ns=modified)
    stored_type = short(said.get("getcontenttype"))
    return StoredItem(
        names,
        "resource",
        number_in(said.get("getcontentlength", "")),
        modified,
        etag_in(said.get("getetag", "")),
        mime_type_of(stored_type or ""),
        {"stored_type": stored_type} if stored_type else None,
    )


def _below(element: ElementTree.Element, name: str) -> Iterator[str]:
    """Yield the texts of the children of a name."""
    return ((child.text or "").strip() for child in element if local_name(child) == name)


def _is_ok(element: ElementTree.Element) -> bool:
    """Return whether an element has no status, or the status of success (`HTTP/1.1 200 OK`)."""
    status = next(_below(element, "status"), None)
    return status is None or status.split(" ", 2)[1:2] == ["200"]


def names_of(href: str) -> Names | None:
    """Return the names in the path of a URL, which may lack scheme and host, or None if they cannot be asked for."""
    if "://" in href[:10]:
        try:
            href = urlsplit(href).path
        except ValueError:
            return None
    path = href.lstrip("/").removesuffix("/")
    names = tuple(map(_name, path.split("/"))) if path else ()
    bad = ("", ".", "..")
    return None if any(name in bad or "/" in name or "\0" in name for name in names) else names


def _name(segment: str) -> str:
    return unquote_to_bytes(segment).decode("utf-8", "surrogateescape")
