"""The fuzz targets: a function for each parser of a source's bytes, and its seeds.

A target takes any bytes. It raises nothing: `refused` catches the errors that the parser documents, and every other
exception is a finding, as is an assertion that does not hold. None of them does I/O beyond a temporary file.
"""

import base64
import contextlib
import io
import json
import os
import struct
import tempfile
import tomllib
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import trio
from lxml.etree import XMLSyntaxError
from PIL import Image
from pptx.oxml import parse_xml

from bbfs.config.hosts import jsonc, registry
from bbfs.config.hosts.files import host_servers
from bbfs.config.interpolation import Interpolator
from bbfs.knowledge.server import catalogue
from bbfs.model.errors import (
    BbfsError,
    ConfigError,
    InvalidUri,
    NotFound,
    NotSupported,
    ProtocolViolation,
    Rejected,
    TooLarge,
)
from bbfs.model.listing import Rows
from bbfs.model.uri import NAME_MAX, parse_data_source_uri, parse_uri_prefix
from bbfs.model.uri_paths import MAX_DEPTH, hide_component, names, native_of, plain_path, show_component
from bbfs.model.uri_templates.patterns import Pattern
from bbfs.model.values import DataSource
from bbfs.resources.search.index.text import chunks
from bbfs.server.errors import Fault
from bbfs.server.listing import directories as served_directories
from bbfs.server.listing import resource_list, walk
from bbfs.server.skills import entries as served_skills
from bbfs.sources.api import yaml_document
from bbfs.sources.api.document import Documents
from bbfs.sources.api.options import ApiOptions
from bbfs.sources.api.writing import bodies
from bbfs.sources.api.writing.plan import read_with_plan
from bbfs.sources.bounded import json as bounded_json
from bbfs.sources.content.spool import Spool
from bbfs.sources.documents import markdown as document_text
from bbfs.sources.documents.compound import powerpoint, word
from bbfs.sources.documents.compound.compressed_text import decompressed
from bbfs.sources.documents.office_open import drawings
from bbfs.sources.documents.pictures import metafiles, scaling
from bbfs.sources.http.headers import media_type, modified_ns, time_to_live
from bbfs.sources.mcp import arguments, directories, discovery, skills, writing
from bbfs.sources.mcp.client import decode
from bbfs.sources.mcp.client import paging as listing_pages
from bbfs.sources.mcp.client.paging import End
from bbfs.sources.mcp.client.tool_entries import ToolEntry, tool_entry
from bbfs.sources.mcp.maps.answers import Named, content_of, joined, names_in, require_answer
from bbfs.sources.mcp.maps.answers import is_name as is_entry
from bbfs.sources.mcp.maps.calls import TreeMap
from bbfs.sources.mcp.maps.forms import Form
from bbfs.sources.mcp.maps.options import MapOptions
from bbfs.sources.mcp.maps.proposals import proposal
from bbfs.sources.mcp.transport import long_texts, messages
from bbfs.sources.mcp.transport.events import Event, EventParser
from bbfs.sources.notion import markdown
from bbfs.sources.notion.markdown import blocks_text
from bbfs.sources.notion.writing import values as row_values
from bbfs.sources.notion.writing.blocks import UnfitLine, all_same, carried, read_blocks
from bbfs.sources.notion.writing.changes import changes_of
from bbfs.sources.options import parse_table
from bbfs.sources.storage.archives import members
from bbfs.sources.storage.archives.tar_headers import TarError, read_headers
from bbfs.sources.storage.archives.zip_directory import data_of, read_directory
from bbfs.sources.storage.s3.answers import error_of, page_of
from bbfs.sources.storage.webdav.answers import described
from bbfs.sources.storage.xml import read_entries
from bbfs.sources.url.listing import link_in
from bbfs.sources.url.sitemaps import SitemapParser
from bbfs.sources.vector_search import vec0
from bbfs.sources.vector_search.queries import parse_search, words_of
from bbfs.sources.vector_search.stored import as_document, shortened
from bbfs.sources.vector_search.values import Collection, Match, parsed

Run = Callable[[bytes], None]
LONGEST = 4096
"""Bytes of an input."""
_BOUNDS = bounded_json.JsonBounds(size=1 << 16, values=500, depth=40)


@dataclass(frozen=True, slots=True)
class Target:
    """One parser. seeds: inputs to begin with, which reach its parts. words: the texts that mean something to it."""

    run: Run
    seeds: tuple[bytes, ...]
    words: tuple[str, ...] = ()


@contextlib.contextmanager
def refused(*errors: type[Exception]) -> Iterator[None]:
    """Let a parser refuse its input by one of these errors, whose text must be printable as a log has it."""
    try:
        yield
    except errors as error:
        str(error).encode("utf-8", "backslashreplace")


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass" if data.isascii() else "replace")


def json_of(data: bytes) -> Any:
    """Return the value of a document, or None. Halves of surrogate pairs come as escapes."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def pieces(data: bytes) -> Iterator[bytes]:
    """Yield the bytes in pieces whose lengths depend on them."""
    at = 0
    while at < len(data):
        size = 1 + data[at] % 7
        yield data[at : at + size]
        at += size


def is_name(name: str) -> bool:
    """Return whether the kernel can ask for a name."""
    return name not in ("", ".", "..") and not {"/", "\0"} & set(name) and len(name.encode()) <= NAME_MAX


def check_name(name: str) -> None:
    assert is_name(name), name


# -- the model ---------------------------------------------------------------------------------------------------------


def uri_paths(data: bytes) -> None:
    """A URI becomes legal names; the URI of that path has the same path."""
    uri = text_of(data)
    for scheme in (None, "file"):
        path = plain_path(uri, scheme).path
        assert len(path) <= MAX_DEPTH
        for name in path:
            check_name(name)
        if any(len(name.encode()) > NAME_MAX - 4 for name in path):
            continue  # names that were cut: no URI leads to them by the rule alone
        with refused(InvalidUri):
            assert plain_path(native_of(path, scheme), scheme).path == path, path
    segments = uri.split("/")
    for literal in (False, True):
        shown = names(segments, literal=literal)
        assert sorted(shown.values()) == sorted(dict.fromkeys(segments))
        for name in shown:
            check_name(name)
            check_name(show_component(hide_component(name)))


def bbfs_uris(data: bytes) -> None:
    """A URI of bbfs is the text of its parts."""
    uri = text_of(data)
    with refused(InvalidUri):
        assert str(parse_data_source_uri(uri)) == uri
    with refused(InvalidUri):
        check_name(str(parse_uri_prefix(uri)))


def uri_templates(data: bytes) -> None:
    """A path of a template, if there is one, leads back to itself. The input: a template, and a path after a NUL."""
    template, _, path = text_of(data).partition("\0")
    with refused(InvalidUri):
        pattern = Pattern(template)
        for wanted in (tuple(path.split("/")), plain_path(path).path):
            place = pattern.place(wanted) if all(map(is_name, wanted)) else None
            if place is None or place.match is None:
                continue
            for name in place.match.path:
                check_name(name)
            again = pattern.place(place.match.path)
            assert again is not None
            assert again.match is not None
            assert again.match.native_uri == place.match.native_uri


# -- JSON and MCP ------------------------------------------------------------------------------------------------------


def long_json(data: bytes) -> None:
    """The parser for long documents makes what the standard one makes."""
    whole, piece = json_of(data), bounded_json._PIECE
    bounded_json._PIECE = 16
    try:
        with refused(ProtocolViolation, TooLarge):
            bounded_json.check_json(data, _BOUNDS)
            text = data.decode()
            found = bounded_json.LongDocument(text, 16).parsed()
            assert json.dumps(found) == json.dumps(whole)
    except (ValueError, RecursionError):
        assert whole is None or _is_other_json(data)
    finally:
        bounded_json._PIECE = piece
    with refused(ProtocolViolation, TooLarge):
        assert json.dumps(bounded_json.parse_json(data, _BOUNDS)) == json.dumps(whole)


def _is_other_json(data: bytes) -> bool:
    """Return whether the standard parser takes what RFC 8259 has not: NaN, Infinity, a byte order mark, UTF-16."""
    return b"NaN" in data or b"Infinity" in data or b"\0" in data or not data.isascii()


def packed_pages(data: bytes) -> None:
    """A page of a shared listing is an array within the bounds or is refused; packed again, it is the same."""
    for page in (data, zlib.compress(data)):
        with refused(ProtocolViolation, TooLarge):
            entries = listing_pages.unpacked(page)
            again = [entry for each in listing_pages.packed(entries) for entry in listing_pages.unpacked(each)]
            assert json.dumps(again) == json.dumps(entries)


def mcp_messages(data: bytes) -> None:
    """A message is the same in whatever pieces it comes, and whether or not its long texts are cut out."""
    plain = _message(messages.MessageReader(1 << 20, Spool), [data])
    cut = _message(messages.MessageReader(1 << 20, Spool, long=24, scanned=4), pieces(data))
    is_plain = data.isascii() and b"\\" not in data  # other mistakes in a long text may be mended in another way
    assert not is_plain or None in (plain, cut) or plain == cut, (plain, cut)


def _message(reader: messages.MessageReader, fed: Any) -> str | None:
    """Return the messages in pieces of bytes, or None for none and for a text that is lost."""
    with refused(ProtocolViolation, TooLarge):
        for piece in fed:
            reader.feed(piece)
        found = messages.decode(reader.end())
        return None if found is None else "\n".join(_shown(each) for each in found)
    return None


def _shown(message: Any) -> str:
    """Return what bbfs reads of a message: long texts matter in results only, and its own ids are numbers."""
    value = {key: getattr(message, key) for key in ("id", "result") if hasattr(message, key)}
    if not isinstance(value.get("id"), int):
        value = {"message": type(message).__name__}
    text = json.dumps(value, default=lambda item: item.text() if isinstance(item, long_texts.LongText) else str(item))
    return json.dumps(json.loads(text, object_pairs_hook=_shortened))


def _shortened(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object without its long names, which bbfs does not know: one that is cut out has another."""
    return {name if len(name) < 20 else "long": each for name, each in members}


def server_events(data: bytes) -> None:
    """Events are the same in whatever pieces they come."""
    assert _events([data]) == _events(pieces(data))


def _events(fed: Any) -> list[Event | bytes] | None:
    parser = EventParser()
    found: list[Event | bytes] = []
    with refused(ProtocolViolation):
        for piece in fed:
            for part in parser.feed(piece):
                if isinstance(part, bytes) and found and isinstance(found[-1], bytes):
                    found[-1] += part
                elif not isinstance(part, int):
                    found.append(part)
        return found
    return None


WRITTEN_SOURCE = DataSource("a", "a", "server", "mcp", "mcp-server+a")


def mcp_results(data: bytes) -> None:
    """A result of any shape is decoded or refused."""
    result = json_of(data)
    if not isinstance(result, dict):
        return
    for function in (
        lambda: decode.initialized(result, ("2025-06-18",)),
        lambda: decode.discovered(result, "2026-07-28"),
        lambda: list(map(decode.resource_entry, decode.page(result, "resources"))),
        lambda: list(map(decode.template_entry, decode.page(result, "resourceTemplates"))),
        lambda: decode.add_resources(decode.page(result, "resources"), Rows("mcp-server+a")),
        lambda: decode.completion(result),
        lambda: decode.next_cursor(result),
        lambda: decode.ttl_seconds(result),
        lambda: decode.loaded_size(result),
        lambda: [part.content.size for part in decode.loaded(result, None).parts],
        lambda: decode.content_version(result),
        lambda: writing.stored(result, WRITTEN_SOURCE, "resource://a/b"),
    ):
        with refused(BbfsError):
            function()


def mcp_directories(data: bytes) -> None:
    """The entries of a directory are one part longer than it; what a list names hides nothing but what is below."""
    result = json_of(data)
    if not isinstance(result, dict):
        return
    with refused(BbfsError):
        page = decode.page(result, "resources")
        uris = [uri for item in page if (uri := decode.usable_text(item, "uri")) is not None]
        for uri in uris[:3]:
            entries = directories.DirectoryEntries("mcp-server+a", uri)
            entries.take(page)
            path = plain_path(uri).path
            for each in trio.run(entries.listing, End(), lambda listed: listed).resources:
                found = plain_path(each.native_uri).path
                assert found[:-1] == path or (found == path and each.kind == "resource"), (uri, each)
        rows = Rows("mcp-server+a")
        named = directories.NamedDirectories(rows)
        named.take(page)
        roots = {plain_path(uri).path for uri in named.end(End())[0]}
        for uri in uris:
            path = plain_path(uri).path
            assert (uri in rows) or any(path[:depth] in roots for depth in range(1, len(path) + 1)), uri


def skill_entries(data: bytes) -> None:
    """An entry of a skill is refused, or complete and within its directory."""
    skill = skills.skill_entry(json_of(data))
    if skill is not None:
        assert skills.skill_entry(skill.as_json()) == skill
        assert skill.files is None or all(uri.startswith(f"{skill.root}/") for uri in skill.files)


NAMED = (
    Named(lines=[(Form.of("[DIR] {name}"), "{name}/"), (Form.of("{a}: {b} ({any})"), "{b}/{a}")]),
    Named(items=[("", "{name}"), ("/items/0", "{item}"), ("/files", "{key}-{meta.id}")], directories={"type": "d"}),
    Named(items=[("", "{name}"), ("/a~1b", "{item}")], is_python=True),
)


def tool_answers(data: bytes) -> None:
    """The answer of a tool, JSON or a text, gives names of entries and a content, or is refused."""
    value = json_of(data)
    result = value if isinstance(value, dict) else {"content": [{"type": "text", "text": text_of(data)}]}
    for named in NAMED:
        with refused(BbfsError):
            assert all(map(is_entry, names_in(result, named).names))
    for pointer in (None, "/items/0"):
        with refused(BbfsError):
            require_answer(result, [(Form.of("{any}ENOENT{any}"), NotFound)], {"path": "a/b", "n": 1})
            assert joined([content_of(result, pointer, None)]).size >= 0
    text = text_of(data)
    values = Form.of("[{a}] {name} ({b})").match(text)
    assert values is None or f"[{values['a']}] {values['name']} ({values['b']})" == text


def tool_arguments(data: bytes) -> None:
    """A tool's schema of any shape, and a query after a NUL."""
    document, _, query = data.partition(b"\0")
    schema = json_of(document)
    if not isinstance(schema, dict):
        return
    found = arguments.properties(schema)
    for name, each in found.items():
        assert len(arguments.type_text(each, schema)) < 1 << 20
        arguments.takes_several(each, schema)
        arguments.variable_of(name)
    with refused(InvalidUri):
        values = arguments.tool_arguments(ToolEntry("t", None, None, schema, None), text_of(query))
        json.dumps(values)


def tool_maps(data: bytes) -> None:
    """Tools of any shape make a map that bbfs takes, or none."""
    raw = json_of(data)
    tools = [tool_entry(each) for each in raw] if isinstance(raw, list) else []
    lines = proposal([each for each in tools if each is not None], None, None)
    made = tomllib.loads("\n".join(lines)).get("map")
    if made is not None:
        TreeMap(parse_table(MapOptions, made, "map"), "map")


# -- documents ---------------------------------------------------------------------------------------------------------


def openapi(data: bytes) -> None:
    """A document of any shape gives operations; each URI that they list is one that they answer."""
    value = json_of(data)
    options = ApiOptions(document="http://api.example/openapi.json", include=("/**",), write=WRITE)
    with refused(ProtocolViolation):
        api, plan = read_with_plan(Documents(options.document, {options.document: value}, {}).root, options)
        assert 0 < len(plan.sent) + len(plan.refused) <= len(options.write)
        assert all(writable.operations for writable in plan.writable.values())
        for operation in api.operations:
            for number, uri in enumerate(operation.resources()):
                with refused(BbfsError):
                    api.call(uri)
                if number > 20:
                    break
        with refused(BbfsError):
            api.call("http://api.example/" + text_of(data[:200]))


def api_bodies(data: bytes) -> None:
    """A document is rewritten and patched so that the API has its values; what only the API writes is left out."""
    with refused(Rejected, NotSupported):
        old, new = map(bodies.parsed, data.partition(b"\n")[::2])
        patch = bodies.merge_patch(old, new)
        assert bodies.same(bodies.parsed(bodies.text_of(new).encode()), new)
        assert bodies.same(old, new) or patch != {} or not isinstance(old, dict)
        sent = bodies.without(new, [("a",), ("b", "c")], old)
        assert not isinstance(sent, dict) or "a" not in sent


def yaml(data: bytes) -> None:
    """A document of YAML becomes JSON within its bound."""
    with refused(ProtocolViolation, TooLarge):
        made = yaml_document.job(data, {"depth": 40, "size": 1 << 14})
        assert len(made) <= 1 << 14
        json.loads(made)


def document(kind: str) -> Run:
    """Return the target of a kind of document: it becomes text within its bound."""

    def run(data: bytes) -> None:
        with refused(ProtocolViolation, TooLarge, RecursionError):
            made = document_text.job(data, {"kind": kind, "max_unpacked": 1 << 20, "max_text": 1 << 16})
            assert len(made.decode()) <= 1 << 16

    return run


def _extended_text(text: str, x: int) -> bytes:
    """Return a record of an EMF file that draws a text at a place, 10 units for each character."""
    data, steps = text.encode("utf-16-le").ljust(4, b"\0"), struct.pack(f"<{len(text)}i", *[10] * len(text))
    placed = struct.pack("<iiIII16xI", x, 0, len(text), 76, 0, 76 + len(data))
    return struct.pack("<II28x", 84, 76 + len(data) + len(steps)) + placed + data + steps


def word_97(data: bytes) -> None:
    main, _, table = data.partition(b"--table--")
    with refused(ProtocolViolation, TooLarge):
        assert len("".join(word.text_of(main, lambda _name: table))) <= 20 * len(data) + 100


def powerpoint_97(data: bytes) -> None:
    slides, _, user = data.partition(b"--user--")
    user, _, pictures = user.partition(b"--pictures--")
    with refused(ProtocolViolation, TooLarge):
        for number, _ in enumerate(powerpoint.text_of(slides, user, pictures)):
            if number > 1000:
                break


def metafile(data: bytes) -> None:
    """The strings of a metafile are no more than it has, with a character between two of them."""
    assert len(metafiles.text_of(data)) <= 2 * len(data)


def drawing(data: bytes) -> None:
    """The parts of a newer PowerPoint file that no library reads."""
    with refused(XMLSyntaxError, TooLarge):
        root = parse_xml(data)
        texts = drawings.Drawings().texts
        for read in (drawings.chart, drawings.diagram, lambda each: texts(each, Part, lambda _kind: True)):
            for _ in read(root):
                pass


class Part:
    """A part that is related to none."""

    rels: Mapping[str, Any] = {}


def compressed_text(data: bytes) -> None:
    with refused(ProtocolViolation, TooLarge):
        assert len(decompressed(data)) <= 17 * len(data)


def s3_pages(data: bytes) -> None:
    """A page of a listing, or an error."""
    with refused(ProtocolViolation):
        page = trio.run(page_of, data)
        assert all(each.size is None or 0 <= each.size < 1 << 63 for _, each in page.objects)
    assert isinstance(error_of(400, {}, data, "it"), BbfsError)


def webdav_answers(data: bytes) -> None:
    """An answer to PROPFIND is the same in whatever pieces it comes."""
    assert _webdav([data]) == _webdav(pieces(data))


def _webdav(fed: Iterable[bytes]) -> Any:
    found: list[Any] = []

    def take(element: ElementTree.Element) -> bool:
        each = described(element)
        if each is not None:
            assert not {"", ".", ".."} & set(each.path)
            assert not any("/" in name or "\0" in name for name in each.path)
            found.append(each)
        return True

    async def arrive() -> AsyncIterator[bytes]:
        for piece in fed:
            yield piece

    with refused(ProtocolViolation):
        trio.run(read_entries, arrive(), "multistatus", take)
        return found
    return None


def sitemaps(data: bytes) -> None:
    """A sitemap is the same in whatever pieces it comes, and has no more entries than there is room for."""
    whole, cut = _sitemap([data]), _sitemap(pieces(data))
    if whole is not None and cut is not None:
        assert whole == cut


def _sitemap(fed: Any) -> Any:
    parser = SitemapParser("it", 5)
    with refused(ProtocolViolation):
        for piece in fed:
            if not parser.is_full:
                parser.feed(piece)
        if not parser.is_full:
            parser.end()
        assert len(parser.entries) <= 5
        return parser.entries, parser.sitemaps
    return None


def llms_txt(data: bytes) -> None:
    """The links of an llms.txt are one line each, and short."""
    for line in data.decode("utf-8", "replace").split("\n"):
        link = link_in(line)
        if link is None:
            continue
        assert link.url in line
        for said in (link.title, link.description):
            assert said is None or len(said) <= 1000


def html_words(data: bytes) -> None:
    """The chunks of a page are the page, and have no more words than it, whatever its tags."""
    text = data.decode("utf-8", "replace")
    cut = chunks(text, "a.html")
    assert "".join(chunk.markup or "" for chunk in cut) == text
    assert sum(len(chunk.text) for chunk in cut) <= 2 * len(text)  # a tag may become a space, a reference two letters


def http_headers(data: bytes) -> None:
    """Headers of any text."""
    text = data.decode("latin-1")
    keys: list[str] = ["content-type", "cache-control", "last-modified", "date", "expires", "age", "etag"]
    headers = dict.fromkeys(keys, text)
    media_type(headers)
    modified_ns(headers)
    assert (time_to_live(headers) or 0) >= 0


def notion_blocks(data: bytes) -> None:
    """Blocks of any shape become Markdown of a bounded length."""
    value = json_of(data)
    given = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]
    blocks = [markdown.Block.of(each, map(markdown.Block.of, given[:2])) for each in given]
    text = markdown.document("title", blocks)
    assert text.endswith("\n")
    assert len(text) <= 40 * len(data) + 10_000


def notion_markdown(data: bytes) -> None:
    """A text becomes blocks that are written as this text, or is refused. A NUL begins one that replaces it."""
    old, _, new = data.decode("utf-8", "replace").partition("\0")
    with refused(Rejected):
        lines = old.split("\n")
        values, at = row_values.front_matter(lines)
        assert at <= len(lines) + 1
        assert not values or lines[0] == row_values.RULE
    with refused(UnfitLine, Rejected, NotSupported):
        blocks, wanted = (read_blocks(each, {}) for each in (old, new))
        if blocks_text(blocks) == old:
            assert all_same(carried(blocks), blocks)
        changes = changes_of("", blocks, wanted)
        assert all_same(changes.blocks, wanted)
        assert blocks_text(changes.blocks) == blocks_text(wanted)
        assert changes.requests <= len(data) + 1


class Whole(io.BytesIO):
    """An archive in memory, read forwards."""

    @property
    def at(self) -> int:
        return self.tell()

    def read(self, size: int | None = -1) -> bytes:
        return super().read(size)

    def skip_to(self, offset: int) -> None:
        if offset > len(self.getbuffer()):
            raise TarError("ends")
        self.seek(offset)


def vector_tables(data: bytes) -> None:
    """The declaration of a table of vectors, and the description of a collection and its results."""
    table = vec0.declaration("create virtual table t using vec0(" + text_of(data))
    assert table is None or all(vector.size >= 0 for vector in table.vectors)
    with refused(ProtocolViolation, TooLarge):
        value = parsed(data)
        for each in value if isinstance(value, list) else [value]:
            for of in (Collection.of, Match.of):
                with refused(ProtocolViolation):
                    of(each)
    document = as_document(data)
    assert document is data or isinstance(document, dict)
    assert len(json.dumps(shortened(document if isinstance(document, dict) else {}, 10))) < 8 * LONGEST


def vector_searches(data: bytes) -> None:
    """The name of a search."""
    with refused(InvalidUri, NotFound):
        query = parse_search("search?" + text_of(data))
        assert query.text.strip()
        assert len(words_of(query.text)) <= 32


def tar_headers(data: bytes) -> None:
    """The headers of a tar, whose sums are put right, lead forwards. The archive leaves out negative sizes itself."""
    blocks = bytearray(data + bytes(-len(data) % 512))
    for at in range(0, len(blocks), 512):
        block = blocks[at : at + 512]
        block[148:156] = b" " * 8
        blocks[at + 148 : at + 156] = b"%06o\0 " % sum(block)
    last = 0
    with refused(ValueError, TooLarge):
        for header in read_headers(Whole(bytes(blocks))):
            assert header.offset > last
            last = header.offset
            check_members(header.name, header.target)


def zip_directory(data: bytes) -> None:
    """The directory of a zip. The input: what is before its end, whose place is put right."""
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(data), 0, 0)
    for whole in (data, data + end):

        def read(offset: int, length: int, whole: bytes = whole) -> bytes:
            if offset < 0 or length < 0 or offset + length > len(whole):
                raise ProtocolViolation("beyond the end")
            return whole[offset : offset + length]

        with refused(ValueError, ProtocolViolation, TooLarge, struct.error):
            for name, member in read_directory(read, len(whole), None):
                check_members(name, "")
                with refused(ValueError, ProtocolViolation, struct.error):
                    assert data_of(read, member) >= 0


def check_members(name: str, target: str) -> None:
    """A name is a path below the root; a link that stays inside stays below the root of what names it."""
    path = members.names_of(name)
    assert not {"", "."} & set(path)
    if target and members.stays_inside(path, target):
        assert not target.startswith("/")
        assert members.names_of(target).count("..") < max(len(path), 1)


# -- this machine ------------------------------------------------------------------------------------------------------


def host_files(data: bytes) -> None:
    """The file of an MCP host, in JSON or TOML, gives servers, or errors with its name."""
    text = text_of(data)
    assert len(jsonc.strip_comments(text)) == len(text)
    with tempfile.NamedTemporaryFile(suffix=".toml" if data[:1] == b"[" else ".json") as file:
        file.write(data)
        file.flush()
        problems: list[ConfigError] = []
        with refused(ConfigError):
            given = {"HOME": "/nowhere", "SECRET": "the-secret"}
            found = host_servers(file.name, environ=given, cwd=os.sep, on_refused=problems.append)
            assert len({each.source.name for each in found}) == len(found)
            if b"the-secret" not in data:
                assert not any("the-secret" in str(each.table) for each in found)
        assert not any("the-secret" in str(problem) for problem in problems)


def scaled_pictures(data: bytes) -> None:
    """A picture gets fewer pixels, in a form that models take, or is refused."""
    with refused(ProtocolViolation, TooLarge):
        made = scaling.job(data, {"side": 16})
        if made:
            with Image.open(io.BytesIO(made)) as found:
                assert max(found.size) <= 16
                assert found.format in scaling.TAKEN


def _picture(form: str, mode: str) -> bytes:
    out = io.BytesIO()
    Image.linear_gradient("L").resize((40, 24)).convert(mode).save(out, form)
    return out.getvalue()


def server_cards(data: bytes) -> None:
    """What a host publishes about its servers, and a server.json, give servers at URLs, and refer to nothing.

    All references that a source gets are to variables that it says it wants.
    """
    document = json_of(data)
    if isinstance(document, dict):
        for entry in discovery.card_entries(document):
            for remote in discovery.remotes_of(entry, "http://x") if isinstance(entry, dict) else ():
                assert remote.url.startswith(("http://", "https://")), remote.url
    for server in registry.servers_in(document):
        registry.status_of(server)
        for kind in (None, *registry.PACKAGES):
            with refused(ConfigError):
                found = registry.as_source(server, kind=kind, environ={"PATH": "/nowhere"})
                environ = {each.variable: "x" for each in found.wanted}
                Interpolator(environ, os.sep).resolve_all(found.table["mcpConfig"], (), _never)


def _never(path: Any, problem: str) -> None:
    raise AssertionError(f"{path}: {problem}")


def cursors(data: bytes) -> None:
    """A cursor that no server has made is refused; as it is, and as the text that is encoded in one."""
    for text in (text_of(data), base64.urlsafe_b64encode(data).decode(), _marked(data)):
        with refused(Fault):
            walk.place_of(["x"], text)
        with refused(Fault):
            resource_list._resources_place(text)
        with refused(Fault):
            resource_list._templates_place(text)
        with refused(Fault):
            served_directories._place("x", text)
        with refused(Fault):
            served_skills._place(text)
        with refused(catalogue.InvalidCursor):
            catalogue._position(text)


def _marked(data: bytes) -> str:
    """Return a token with the mark of this server, and any place."""
    value = json_of(data)
    with contextlib.suppress(ValueError, RecursionError):
        return walk.page_token([resource_list._LIST], value if isinstance(value, list) else [value])
    return ""


PAGE = {"resources": [{"uri": "a://b", "name": "n", "size": 1, "annotations": {"lastModified": "2026-01-01"}}]}
READ = {"contents": [{"uri": "a://b", "mimeType": "text/plain", "text": "x", "_meta": {}}, {"blob": "AAEC"}]}
WRITTEN = {
    "structuredContent": {"uri": "resource://a/b", "size": 1, "code": "conflict", "error": {"code": "x"}},
    "content": [{"type": "text", "text": "x"}, {"type": "resource_link", "uri": "resource://a/%62", "_meta": {}}],
}
GREETING = {"protocolVersion": "2025-06-18", "capabilities": {"resources": {"subscribe": True}}, "serverInfo": {}}
OPERATION = {"get": {"parameters": [{"name": "a", "in": "path", "schema": {"enum": ["b", 1]}}], "responses": {}}}
WRITE = ("PUT /y", "PATCH /x", "POST /x", "DELETE /x", "id")
"""Operations of `WRITTEN_API`."""
SCHEMA = {
    "allOf": [{"properties": {"a": {"type": "integer", "readOnly": True}}}],
    "nullable": True,
    "items": {"anyOf": []},
}
BODY = {"application/json": {"schema": SCHEMA}, "application/merge-patch+json": {"schema": {"type": "object"}}}
SENT = {"operationId": "id", "requestBody": {"content": BODY}}
WRITTEN_ITEM = {
    "get": {"responses": {"200": {"content": BODY}}},
    "put": SENT,
    "patch": SENT,
    "post": SENT,
    "delete": {},
}
WRITTEN_API = {"openapi": "3.1.0", "paths": {"/x": WRITTEN_ITEM, "/x/{a}": WRITTEN_ITEM, "/y": {"$ref": "#/paths/~1x"}}}
DOCUMENT = {"openapi": "3.0.0", "info": {}, "servers": [{"url": "/{v}", "variables": {"v": {"default": "1"}}}],
            "paths": {"/x/{a}.{b}": OPERATION, "/y": {"$ref": "#/paths/~1x"}}, "components": {}}  # fmt: skip
MARKDOWN = """**a** *b* ~~c~~ `d` <u>e</u> [f](http://g) <http://h> $i$ \\* j

- k
  1. l

> m

<details><summary>n</summary>

o

</details>

```p
q
```

| r | s |
| --- | --- |
| t<br>u | v\\|w |

![x](http://y/x)"""
BLOCKS = [
    {"type": "paragraph", "paragraph": {"rich_text": [{"plain_text": "`x` *y*", "annotations": {"code": True}}]}},
    {"type": "table", "table": {}, "children": []},
    {"type": "code", "code": {"rich_text": [], "language": "c"}},
    {"type": "callout", "callout": {"icon": {"emoji": "x"}}},
]
XML = b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
HOSTS = (
    b'{"mcpServers": {"a": {"command": "x", "args": ["${env:SECRET}"], "env": {}}, /* */ "b": {"url": "http://x"},}}'
)


def _json(*values: Any) -> tuple[bytes, ...]:
    return tuple(json.dumps(value).encode() for value in values)


def _archive(members: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as opened:
        for name, text in members.items():
            opened.writestr(zipfile.ZipInfo(name), text)
    return out.getvalue()


TARGETS: Mapping[str, Target] = {
    "uri-paths": Target(
        uri_paths, (b"file:///a/b%2Fc/../d?e#f", b"x:a//%2E/\xc3\xa9/%00/~"), ("://", "%2F", "%2e", "~")
    ),
    "bbfs-uris": Target(bbfs_uris, (b"mcp-server+kb+resource://a/b", b"bb-url+x+_:a"), ("mcp-", "+", "://", "_:")),
    "uri-templates": Target(
        uri_templates,
        (b"a://{x}/{+y}{?q,r*}\0a/1/2/3?q=1", b"{s}://{a}.{b}/{c:3}\0s/a.b/c", b"f:///{path*}\0f/a/b"),
        ("{+", "{/", "{?", "{;", "{&", "{#", "*}", "://", "%2F"),
    ),
    "long-json": Target(long_json, _json(PAGE, [1, -2.5e3, "\ud83d\ude00", None, True]), ("\\u", "1e", "null", "NaN")),
    "packed-pages": Target(
        packed_pages,
        (b'[{"uri": "x://a", "name": "a"}]', zlib.compress(b'[{"uri": "x://a"}, 1, null]')),
        ("[{", "}]", "\\ud800", "NaN"),
    ),
    "vector-tables": Target(
        vector_tables,
        (
            b"id text primary key, e float[768] distance_metric=cosine, u int partition key, g text, +b blob)",
            *_json(
                {"name": "a", "dimensions": 3, "metric": "l2", "texts": ["t"], "filters": None, "count": 4},
                [{"id": 7, "score": 0.5, "payload": {"a": ["x" * 40, 1e9]}}, {"id": "u", "score": None, "payload": {}}],
            ),
        ),
        ("float[", "int8[", "bit[", " primary key", " partition key", "distance_metric=", "--", "/*", '"payload":'),
    ),
    "vector-searches": Target(
        vector_searches,
        (b"text=a b&limit=7&k.x=%2F.json", b"text=%C3%A9&limit=1000"),
        ("text=", "&limit=", ".json", "%"),
    ),
    "mcp-messages": Target(
        mcp_messages,
        _json(
            {"jsonrpc": "2.0", "id": 1, "result": {"contents": [{"text": "x" * 99, "blob": "QUJD" * 20}]}},
            [{"jsonrpc": "2.0", "method": "m", "params": {}}, {"jsonrpc": "2.0", "id": "a", "error": {"code": 1}}],
        ),
        ('"jsonrpc":"2.0"', '"result":', '"error":', '"method":', '"id":', "\\u", '"blob":'),
    ),
    "server-events": Target(
        server_events,
        (b"\xef\xbb\xbfevent: a\r\nid: 1\rdata: x\ndata\n\n:c\n", b"data:\n\nretry: 1\n\n"),
        ("data:", "event:", "id:", "\r\n"),
    ),
    "mcp-results": Target(
        mcp_results,
        _json(
            *(PAGE, READ, GREETING, WRITTEN, {"isError": True, **WRITTEN}),
            *({"completion": {"values": ["a"], "total": 5}}, {"nextCursor": 7, "ttlMs": 1e300}),
        ),
        ('"contents"', '"resources"', '"text"', '"blob"', '"size"', '"annotations"', '"lastModified"', "\\ud800"),
    ),
    "mcp-directories": Target(
        mcp_directories,
        _json(
            {"resources": [{"uri": "a://b", "mimeType": "inode/directory"}, {"uri": "a://b/c"}, {"uri": "a://b/c/d"}]},
            {"resources": [{"uri": "a:"}, {"uri": "a://", "mimeType": "inode/directory"}, {"uri": "a:./b"}]},
        ),
        ('"uri":"', '"mimeType":"inode/directory"', "a://b/", "%2F", "/..", "/.", "//", "tool:"),
    ),
    "skill-entries": Target(
        skill_entries,
        _json(
            {"uri": "a://b/SKILL.md", "frontmatter": {"name": "b", "description": "c"}, "resources": "dynamic"},
            {
                "uri": "a://b/SKILL.md",
                "frontmatter": {"name": "b", "description": "c", "metadata": {"d": [1, None]}},
                "resources": [{"uri": "a://b/SKILL.md", "digest": "sha256:" + "0" * 64, "size": 1}],
            },
        ),
        ('"resources":', '"digest":"sha256:', '"size":', '"frontmatter":', "/SKILL.md", '"name":"b"'),
    ),
    "tool-answers": Target(
        tool_answers,
        (
            b"[DIR] a b\n[FILE] c\nx: y (z)\n[a] name (b)",
            b"[{'name': 'it', \"name\": \"it's\", 'a/b': [('x',), None, True, '\\x1b\\U0001f600']}]",
            *_json(
                {"content": [{"type": "text", "text": '[{"name": "a"}]'}], "isError": False},
                {"structuredContent": {"items": [["a"]], "files": {"x": {"meta": {"id": 1}, "type": "d"}}}},
            ),
        ),
        ('"content"', '"structuredContent"', '"text"', "'", "\\'", "..", "/", "(", ",)", "True", "\\ud800"),
    ),
    "tool-arguments": Target(
        tool_arguments,
        tuple(
            each + b"\0a=1&b=x,y&b=%7B%7D"
            for each in _json(
                {"properties": {"a": {"type": "integer"}, "b": {"type": ["array", "object"]}}, "required": ["a"]},
                {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"anyOf": [{"enum": [1]}, {}]}}},
            )
        ),
        ('"$ref":"#/', '"anyOf"', '"properties"', '"enum"', '"const"', '"items"', "&a=", "%22"),
    ),
    "tool-maps": Target(
        tool_maps,
        _json(
            [
                {"name": "list_notes", "inputSchema": {}, "outputSchema": {"properties": {"a": {"items": {}}}}},
                {"name": "read_note", "inputSchema": {"properties": {"id": {"type": "string"}}, "required": ["id"]}},
            ],
            [
                {
                    "name": name,
                    "description": "[DIR] and [FILE]",
                    "inputSchema": {"properties": {key: {"type": "string"} for key in needed}, "required": needed},
                }
                for name, needed in {
                    "list_directory": ["path"],
                    "read_file": ["path"],
                    "write_file": ["path", "content"],
                    "move_file": ["source", "destination"],
                    "list_boards": [],
                    "list_cards": ["board"],
                    "card_get": ["board", "id"],
                }.items()
            ],
        ),
        ('"name":', '"required"', '"properties"', '"enum":["directory"]', "_", "{", "\\u0000", '"content"', "[FILE]"),
    ),
    "openapi": Target(
        openapi,
        _json(DOCUMENT, WRITTEN_API),
        ('"$ref":"#/', '"parameters"', '"in":"query"', '"schema"', "{a}", "1e999", '"allOf":[', '"properties":{', "/x"),
    ),
    "api-bodies": Target(
        api_bodies,
        (b'{"a": 1.10, "b": {"c": null}}\n{"a": 1e400, "b": [true, "x"]}', b"[1]\n[1]"),
        ("null", "1.0", "1E5", '"a":', '"b":{', '"c":', "NaN", "\n", '"\\ud800"'),
    ),
    "yaml": Target(
        yaml,
        (b"a: &x [1, {b: c}]\nd: *x\ne: {<<: &y {f: 1}, g: !!str 2}\n? [h]\n: |\n  i\n", b"%YAML 1.2\n--- 'x'\n..."),
        ("<<: ", "&a ", "*a", "!!", "---", "? ", ": ", "- "),
    ),
    "s3-pages": Target(
        s3_pages,
        (
            XML + b"<EncodingType>url</EncodingType>"
            b"<Contents><Key>a%2Fb</Key><Size>1</Size></Contents></ListBucketResult>",
        ),
        ("<Contents>", "</Contents>", "<Key>", "<Size>", "<!--", "<![CDATA[", "<!DOCTYPE", "<?xml"),
    ),
    "webdav-answers": Target(
        webdav_answers,
        (
            b'<D:multistatus xmlns:D="DAV:"><D:response><D:href>/a%2Fb/c/</D:href><D:propstat><D:prop><D:resourcetype>'
            b"<D:collection/></D:resourcetype><D:getcontentlength>1</D:getcontentlength></D:prop>"
            b"<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>",
            b"<multistatus><response><href>http://h/%2E</href><status>HTTP/1.1 403 No</status></response>",
        ),
        ("<response>", "<href>", "<prop>", "</prop>", "<propstat>", "<status>", "200", "<!--", "<![CDATA[", "%00"),
    ),
    "tar-headers": Target(
        tar_headers,
        (
            bytes(512),
            b"name".ljust(124, b"\0") + b"00000000010\0".ljust(32, b"\0") + b"0" + b"to".ljust(100, b"\0") + b"ustar\0",
            b"x".ljust(124, b"\0") + b"00000000016\0".ljust(32, b"\0") + b"x" + bytes(355) + b"14 path=a/b/c\n",
        ),
        ("path=", "linkpath=", "size=", "GNU.sparse.map=", "GNU.sparse.major=1\n", "ustar"),
    ),
    "zip-directory": Target(
        zip_directory,
        (b"PK\1\2" + bytes([20, 3]) + bytes(22) + b"\1\0" + bytes(16) + b"f", b"PK\5\6" + bytes(18)),
        ("PK\1\2", "PK\5\6", "PK\6\6", "PK\6\7", "PK\3\4", "\1\0", "UT\5\0"),
    ),
    "sitemaps": Target(
        sitemaps,
        (b"<urlset><url><loc>http://a/</loc><lastmod>2026-01-01</lastmod></url></urlset>", b"http://a/\nhttp://b/\n",
         b"<sitemapindex><sitemap><loc>http://a/</loc></sitemap></sitemapindex>"),
        ("<url>", "<loc>", "</loc>", "<lastmod>", "<!--", "<![CDATA[", "\xef\xbb\xbf"),
    ),
    "llms-txt": Target(
        llms_txt, (b"# a\n> b\n## c\n- [d](http://e \"f\"): g\n* [h](i)\n",), ("- [", "](", "): ", "## ")
    ),
    "html-words": Target(
        html_words,
        (b"<p>a<b>b</b> &eacute;<script>x<y</script><!-- c -->d", b"&#99999999;<svg/>"),
        ("<!--", "-->", "<style", "</style>", "<b>", "</", ">", "<", "&amp;", "\n"),
    ),
    "notebooks": Target(
        document("notebook"),
        _json(
            {
                "metadata": {"kernelspec": {"language": "python"}},
                "cells": [
                    {"cell_type": "markdown", "source": ["# a\n", "b ![](data:image/png;base64,AA)"]},
                    {"cell_type": "code", "source": "x = '```'", "outputs": [{"text": ["a\x1b[31m"]}]},
                    {"cell_type": "code", "source": "", "outputs": [{"data": {"text/html": "<table><tr><td>a"}}]},
                ],
            },
            {"worksheets": [{"cells": [{"cell_type": "heading", "level": 2, "source": "a"}]}]},
        ),
        ('"cells":', '"source":', '"outputs":', '"traceback":', '"text/markdown"', '"text/html"', "```", "\\u001b["),
    ),
    "subtitles": Target(
        document("subtitles"),
        (
            b"1\n00:00:01,000 --> 00:00:02,000\n<i>a</i>\nb\n\n2\n0:1:2.3 --> 0:1:3.4\nc",
            b"WEBVTT\n\nNOTE x\n\n00:01.000 --> 00:02.000 align:start\n<v.x A>b<00:01.500>c &amp; d\n",
        ),
        ("00:00:01,000 --> 00:00:02,000", "\n\n", "\r\n", "<v ", ">", "{\\an8}", "&lt;"),
    ),
    "open-documents": Target(
        document("opendocument"),
        (
            b'<d xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
            b' xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"><text:h text:outline-level="2">a</text:h>'
            b'<text:list><text:list-item><text:p>b<text:s text:c="3"/><text:note><text:p>n</text:p></text:note>'
            b'</text:p></text:list-item></text:list><table:table><table:table-row table:number-rows-repeated="9">'
            b'<table:table-cell table:number-columns-repeated="9"><text:p>c</text:p></table:table-cell>'
            b"</table:table-row></table:table></d>",
            _archive({"content.xml": "<a/>", "META-INF/manifest.xml": "<a/>"}),
        ),
        ("<text:p>", "</text:p>", "<text:a>", "<table:table>", "</table:table>", "<text:note>", "<!ENTITY"),
    ),
    "mail": Target(
        document("mail"),
        (
            b"From: =?utf-8?q?=C3=A9?= <a@b>\nSubject: x\nContent-Type: multipart/mixed; boundary=b\n\n--b\n"
            b"Content-Type: text/html; charset=cp1252\nContent-Transfer-Encoding: quoted-printable\n\n=E9\n--b\n"
            b"Content-Type: message/rfc822\n\nSubject: y\n\nz\n--b\nContent-Disposition: attachment; filename=a\n"
            b"Content-Transfer-Encoding: base64\n\nQUJD\n--b--\n",
            b"From a\nSubject: x\n\n>From b\n\nFrom c\nSubject: y\n\nz\n",
        ),
        ("\nFrom a\n", "Content-Type: ", "multipart/alternative", "; boundary=", "\n--b\n", "=?", "?q?", "charset="),
    ),
    "rich-text": Target(
        document("rich text"),
        (
            rb"{\rtf1\ansicpg1252{\fonttbl{\f0\fcharset128 a;}}\pard\outlinelevel0 \f0\'82\'a0\par\u8364 ?"
            rb"{\footnote n}{\*\x y}\trowd\intbl a\cell b\cell\row\pard{\listtext 1.}\ilvl1 c\bin3 abc\par}",
        ),
        (r"{\rtf1", "{", "}", r"\par ", r"\cell ", r"\row ", r"\u-10179 ", r"\'e9", r"\uc0 ", r"{\footnote "),
    ),
    "word-97": Target(
        word_97,
        (
            struct.pack("<HHxxxxxxH", 0xA5EC, 0xC1, 0x200).ljust(0x4C, b"\0")
            + struct.pack("<I", 8).ljust(0x102 - 0x4C, b"\0")
            + struct.pack("<II", 21, 12).ljust(0x1A2 - 0x102, b"\0")
            + struct.pack("<II", 0, 21).ljust(0x200 - 0x1A2, b"\0")
            + struct.pack("<IIBB", 0x400, 0x408, 30, 0).ljust(60, b"\0")
            + b"\3\1\0\x16\x24\1\x17\x24\1".ljust(451, b"\0")
            + b"\1"
            + b"a\7\7b\r\x13c\x14"
            + b"--table--"
            + struct.pack("<BIIIHIHIII", 2, 16, 0, 8, 0, 0x40000800, 0, 0x400, 0x408, 1),
        ),
        ("\7", "\r", "\x13", "\x14", "\x15", "--table--"),
    ),
    "powerpoint-97": Target(
        powerpoint_97,
        (
            struct.pack("<HHIHHI", 15, 1000, 57, 15, 4080, 49)
            + struct.pack("<HHIIIIII", 0, 1011, 20, 2, 0, 0, 256, 0)
            + struct.pack("<HHIIHHIc", 0, 3999, 4, 0, 0, 4008, 1, b"a")
            + struct.pack("<HHIII", 0, 6002, 8, 1 << 20 | 1, 0)
            + struct.pack("<HHIIIIIIII", 0, 4085, 28, 0, 0, 0, 65, 1, 0, 0)
            + b"--user--"
            + struct.pack("<HHIIII", 0, 4086, 12, 20, 0, 81),
        ),
        ("--user--", "--pictures--"),
    ),
    "metafiles": Target(
        metafile,
        (
            struct.pack("<II32x4s", 1, 44, b" EMF") + _extended_text("ab", 0) + _extended_text("c", 20),
            struct.pack("<HHHIHIH", 1, 9, 0x300, 0, 1, 0, 0)
            + struct.pack("<IH13xBxx", 11, 0x02FB, 204)
            + struct.pack("<IHHccHH", 7, 0x0521, 2, b"\xe0", b"\xe1", 5, 0)
            + struct.pack("<IHHHHH1sxh", 9, 0x0A32, 5, 20, 1, 0, b"a", 9),
        ),
        (" EMF", "\x54\0\0\0", "\x6c\0\0\0", "\x32\x0a", "\x21\x05"),
    ),
    "drawings": Target(
        drawing,
        (
            b'<p:c xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" xmlns:a="a"><p:sp><p:nvSpPr>'
            b'<p:nvPr><p:ph type="ftr"/></p:nvPr></p:nvSpPr><p:txBody><a:p><a:t>x</a:t><a:br/></a:p></p:txBody></p:sp>'
            b"<a:tbl><a:tr><a:tc><a:p><a:t>y</a:t></a:p></a:tc></a:tr></a:tbl></p:c>",
            b'<c><rich><p><t>title</t></p></rich><ser><tx><v>s</v></tx><cat><pt idx="0"><v>a</v></pt></cat>'
            b'<val><pt idx="0"><v>1</v></pt></val></ser><pt><p><t>b</t></p></pt></c>',
        ),
        ("<pt>", "<v>", "<ser>", "<AlternateContent>", "</", '<pt idx="0">'),
    ),
    "compressed-text": Target(
        compressed_text,
        (
            struct.pack("<IIII", 43, 40, 0x75465A4C, 0)
            + b"\3\0\x0a\0rcpg125\x42\x32\x0a\xf3 hel\x09\0 bw\x05\xb0ld}\x0a\x80\x0f\xa0",
        ),
        ("LZFu", "MELA"),
    ),
    "pictures": Target(
        document("picture"),
        (
            b"\xff\xd8\xff\xe1\0\x22Exif\0\0II*\0\x08\0\0\0\1\0\x0e\1\2\0\4\0\0\0abc\0\0\0\0\0\xff\xfe\0\4ab\xff\xda",
            b"\xff\xd8\xff\xed\0\x24Photoshop 3.0\x008BIM\4\4\0\0\0\0\0\6\x1c\2\x78\0\1a\xff\xda",
            b"\x89PNG\r\n\x1a\n\0\0\0\3tEXtk\0v\0\0\0\0\0\0\0\3zTXtk\0\0\0\0\0\0",
            b"RIFF\0\0\0\0WEBPXMP \x4a\0\0\0<a xmlns:d='http://purl.org/dc/elements/1.1/'><d:title>b</d:title><d:a/></a>",
            b"GIF89a\4\0\3\0\0\0\0\x21\xfe\4hand\0\x21\xff\x0bXMP DataXMP<a/>\1\xff\xfe\0\0;",
            b"\0\0\0\x10ftypheic\0\0\0\0\0\0\0\x0cmeta\0\0\0\0",
        ),
        ("Exif\0\0", "II*\0", "MM\0*", "8BIM\4\4", "\x1c\2", "http://ns.adobe.com/xap/1.0/\0", "<d:title>", "iloc"),
    ),
    "http-headers": Target(
        http_headers,
        (b"text/html; charset=\"utf-8\"", b"max-age=5, no-store", b"Sun, 06 Nov 1994 08:49:37 GMT"),
        ("max-age=", "charset=", " GMT", "no-cache"),
    ),
    "notion-blocks": Target(
        notion_blocks, _json(BLOCKS), ('"rich_text"', '"plain_text"', '"annotations"', '"href"', "`", "\\n", '"type"')
    ),
    "notion-markdown": Target(
        notion_markdown,
        (MARKDOWN.encode(), b"a\n\n- b\0- b\n\n## a", b'---\n"a": 1\n---\n\n# b\n'),
        ("- ", "1. ", "- [x] ", "> ", "```", "$$", "| ", "\n", "\n\n", "  \n", "**", "](http://x)", "\\", "<br>", "\0"),
    ),
    "host-files": Target(
        host_files,
        (
            HOSTS,
            b'{"servers": {"a": {"type": "http", "url": "${input:x}"}}, "inputs": []}',
            b'{"mcp": {"a": {"type": "local", "command": ["x", "{env:SECRET}"], "environment": {"A": "${SECRET}"}}}}',
            b'[mcp_servers.a]\nurl = "http://x"\nbearer_token_env_var = "SECRET"\nenv_http_headers = {A = "SECRET"}\n',
        ),
        ("mcpServers", "${env:", "${input:", "//", "/*", "*/", '"url":', '"command":', ":-", "{env:", "env_vars"),
    ),
    "scaled-pictures": Target(
        scaled_pictures,
        tuple(
            _picture(form, mode)
            for form, mode in (
                ("PNG", "RGBA"), ("PNG", "P"), ("JPEG", "RGB"), ("JPEG", "CMYK"), ("WEBP", "RGB"), ("GIF", "P"),
                ("BMP", "RGB"), ("TIFF", "L"),
            )
        ),
        ("IHDR", "IDAT", "PLTE", "tRNS", "GIF89a", "RIFF", "WEBPVP8X", "II*", "Exif"),
    ),
    "server-cards": Target(
        server_cards,
        (
            b'{"entries": [{"type": "application/mcp-server-card+json",'
            b' "data": {"remotes": [{"type": "sse", "url": "/"}]}}]}',
            b'{"name": "x/y", "remotes": [{"type": "streamable-http", "url": "http://{h}/", "variables": {"h": {}},'
            b' "headers": [{"name": "A", "value": "B {t}", "variables": {"t": {"isRequired": true}}}]}]}',
            b'{"servers": [{"server": {"name": "y", "packages": [{"registryType": "oci", "identifier": "a/b",'
            b' "runtimeArguments": [{"type": "named", "name": "-v", "value": "{s}:/x", "variables": {"s": {}}}],'
            b' "packageArguments": [{"type": "positional", "valueHint": "d", "isRequired": true}],'
            b' "environmentVariables": [{"name": "K", "isSecret": true, "isRequired": true}]}]}}]}',
        ),
        ('"default":', '"value":', '"${env:', '"$', '{x}', '"type": "named"', '"registryType": "npm"', '"transport":'),
    ),
    "cursors": Target(
        cursors, (b'["resources", "a", 0, ["b"]]', b'["document", "a", "b"]', b"[" * 60), ('["', "]", '"collection"')
    ),
}  # fmt: skip
