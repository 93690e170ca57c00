"""An OpenAPI document and the documents that it refers to: parsed, with references to follow.

JSON or YAML, of any version of OpenAPI; `operations` reads them. A reference (`$ref`) leads to a place in a document,
or to another document beneath the folder of the first one. It never leaves that folder.
"""

import posixpath
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from urllib.parse import SplitResult, unquote, urldefrag, urljoin, urlsplit

import trio
from referencing import Registry, Resource
from referencing.exceptions import InvalidAnchor, NoSuchAnchor, PointerToNowhere, Unresolvable

from bbfs.model.errors import ConfigError, ProtocolViolation, TooLarge
from bbfs.model.redaction import shown
from bbfs.runtime.extras import needs
from bbfs.sources.bounded.json import JsonBounds, check_json, parse_json
from bbfs.sources.bounded.workers import WorkerPool

REFERENCES_IN_A_ROW = 32
"""References that lead to references. A longer chain is taken for a cycle."""

_CHECKED_EVERY = 1000
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The syntax of a header's name, and of each half of a media type (RFC 9110, section 5.6.2)."""

_YAML_SECONDS = 20
"""CPU time for a document in YAML; one of 10 MB takes about 4 s."""
UNSENDABLE = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect")
)
"""Headers that HTTP itself needs. A document names none of them."""
_MARKUP = re.compile(r"<[!?A-Za-z]")
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)", re.DOTALL
)
"""An escape in a text. Only half of a surrogate pair has six characters."""


class Documents:
    """Parsed documents by their URL.

    location: URL of the first document. missing: why a document could not be read, by URL. wanted: the URLs of all
    other documents that references led to, read or not. check: called now and then, and raises if the reader is gone.
    most_places: of all documents to read for all operations, each counted as often as references lead to it. The
    largest public document has about a million.
    """

    def __init__(
        self,
        location: str,
        parsed: Mapping[str, Any],
        missing: Mapping[str, str],
        check: Callable[[], object] = lambda: None,
        most_places: int = 2_000_000,
    ) -> None:
        self.location = location
        self.wanted: set[str] = set()
        self._left = self._most_places = most_places
        self._check = check
        self.root = DocumentNode(self, location, "", parsed[location])
        self._missing = missing
        # Opaque: an `$id` in a schema changes no URL. This registry has no way to get another document by itself.
        documents = ((url, Resource[Any].opaque(value)) for url, value in parsed.items())
        self._resolver = Registry[Any]().with_resources(documents).crawl().resolver()

    def visit(self, places: int = 1) -> None:
        """Count places that are read. Raise TooLarge if references multiply them."""
        if self._left % _CHECKED_EVERY < places:
            self._check()
        self._left -= places
        if self._left < 0:
            raise TooLarge(f"references lead to more than {self._most_places} places")

    def at(self, reference: str, base: str) -> "DocumentNode":
        """Return the target of a reference in the document at `base`. Raise ProtocolViolation that names it."""
        url = ""
        try:
            url, pointer = urldefrag(urljoin(base, reference))
            pointer = pointer.replace("%2F", "~1")  # many documents write %2F in a step instead of ~1 (RFC 6901)
            if url != self.location:
                self.wanted.add(url)
            return DocumentNode(self, url, unquote(pointer), self._resolver.lookup(f"{url}#{pointer}").contents)
        except (InvalidAnchor, NoSuchAnchor):
            problem = "no JSON pointer"
        except (PointerToNowhere, TypeError, ValueError):  # the library steps into numbers and texts
            problem = "leads nowhere"
        except Unresolvable:
            problem = self._missing.get(url, "not read yet")
        raise ProtocolViolation(f"{shown(reference)}: {problem}")


@dataclass(frozen=True, slots=True)
class DocumentNode:
    """A place in a document, given by a JSON pointer. Going down from it follows references. `str` names it in
    messages."""

    documents: Documents
    url: str
    pointer: str
    value: Any

    def __str__(self) -> str:
        name = posixpath.basename(urlsplit(self.url).path) or self.url
        return shown(f"{unquote(name)}#{self.pointer}")

    def get(self, key: str) -> "DocumentNode":
        """Return the member with a key. Its value is None if there is no such member."""
        return self._below(key, _keyed(self.value).get(key)).followed()

    def items(self) -> Iterator[tuple[str, "DocumentNode"]]:
        """Yield the members of an object, or of an array with their index; nothing for other values."""
        if isinstance(self.value, list):
            for index, value in enumerate(self.value):
                yield str(index), self._below(str(index), value).followed()
        else:
            for key, value in _keyed(self.value).items():
                yield key, self._below(key, value).followed()

    def raw_items(self) -> Iterator[tuple[str, "DocumentNode"]]:
        """Yield the members of an object without following references, so that a broken one spoils no other member."""
        for key, value in _keyed(self.value).items():
            yield key, self._below(key, value)

    def _below(self, step: str, value: Any) -> "DocumentNode":
        self.documents.visit()
        step = step.replace("~", "~0").replace("/", "~1")
        return DocumentNode(self.documents, self.url, f"{self.pointer}/{step}", value)

    def followed(self) -> "DocumentNode":
        """Follow references and return their target, or the node itself if it is no reference. Raise ProtocolViolation.

        Members beside a `$ref` override those of the target, as in JSON Schema since OpenAPI 3.1.
        """
        node, beside = self, {}
        for _ in range(REFERENCES_IN_A_ROW):
            reference = _keyed(node.value).get("$ref")
            if not isinstance(reference, str):
                value = node.value
                if beside and isinstance(value, dict):
                    self.documents.visit(len(value) + len(beside))
                    value = {**value, **beside}
                return DocumentNode(node.documents, node.url, node.pointer, value)
            self.documents.visit(1 + len(node.value) + len(beside))
            beside = {**{k: v for k, v in _keyed(node.value).items() if k != "$ref"}, **beside}
            try:
                node = self.documents.at(reference, node.url)
            except ProtocolViolation as error:
                raise ProtocolViolation(f"{node}: {error}") from None
        raise ProtocolViolation(f"{self}: references that lead to each other")

    def text(self, key: str) -> str | None:
        """Return a member that is a text and not empty, else None."""
        value = _keyed(self.value).get(key)
        return value if isinstance(value, str) and value else None

    def flag(self, key: str) -> bool | None:
        value = _keyed(self.value).get(key)
        return value if isinstance(value, bool) else None


def _keyed(value: Any) -> Mapping[str, Any]:
    """Return an object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def url_origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port of a URL (RFC 6454, section 4). Raise ValueError for an invalid port."""
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def is_unicode(text: str) -> bool:
    """Return whether a text can be encoded: it has no half of a surrogate pair."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


async def parse(data: bytes, location: str, bounds: JsonBounds, workers: WorkerPool, owner: str) -> tuple[Any, int]:
    """Return the value of a document in JSON or YAML, and the number of values in it. Raise ProtocolViolation with the
    line, TooLarge, or ConfigError without PyYAML.

    bounds: of the document as JSON. workers: for YAML. owner: the source.
    """
    what = shown(posixpath.basename(unquote(urlsplit(location).path)) or location)
    data = data.removeprefix(BOM_UTF8)
    try:
        start = data.decode().lstrip()[:2]
    except UnicodeDecodeError as error:
        raise ProtocolViolation(f"{what}: not UTF-8 (byte {error.start})") from None
    if _MARKUP.match(start):
        raise ProtocolViolation(f"{what}: HTML or XML, where a document in JSON or YAML should be")
    if start[:1] not in ("{", "[") or what.endswith((".yaml", ".yml")):
        if find_spec("yaml") is None:
            raise ConfigError(f"{what}: YAML {needs('web')}")
        limits = {"depth": bounds.depth, "size": bounds.size}
        data = await workers.run(
            "yaml", data, limits, owner=owner, what=what, seconds=_YAML_SECONDS, max_result=bounds.size
        )
    try:
        return await trio.to_thread.run_sync(parse_counted, data, bounds)
    except (ProtocolViolation, TooLarge) as error:
        raise type(error)(f"{what}: {shown(str(error))}") from None


def parse_counted(data: bytes, bounds: JsonBounds) -> tuple[Any, int]:
    """Return a document, and an upper bound of the number of its values. Raise ProtocolViolation, TooLarge."""
    if _HALF.search(data):
        # No URL, attribute or other document can hold half of a surrogate pair.
        data = _ESCAPE.sub(lambda found: b"?" if len(found[0]) == 6 else found[0], data)
    return parse_json(data, bounds), check_json(data, bounds)


def is_beneath(url: str, location: str) -> bool:
    """Return whether the document at `location` may refer to a URL: it must be in the same folder or below it."""
    try:
        folder, asked = urlsplit(urljoin(location, ".")), urlsplit(url)
    except ValueError:
        return False
    if (asked.scheme, asked.netloc) != (folder.scheme, folder.netloc) or asked.query:
        return False
    segments = [unquote(segment) for segment in asked.path.split("/")]
    return asked.path.startswith(folder.path) and not any(s in (".", "..") or "/" in s or "\0" in s for s in segments)
