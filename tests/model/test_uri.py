"""The grammar of bbfs URIs and of URI prefixes."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bbfs.model.errors import InvalidUri
from bbfs.model.uri import (
    ParsedUri,
    UriPrefix,
    build_uri_prefix,
    native_scheme,
    parse_data_source_uri,
    parse_uri_prefix,
    source_uri,
)

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))  # lone surrogates and control characters included
METHODS = st.sampled_from(["bb", "mcp"])
TYPES = st.from_regex(r"[a-z][a-z0-9_-]{0,12}", fullmatch=True)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,12}", fullmatch=True)
SCHEMES = st.from_regex(r"[A-Za-z][A-Za-z0-9+.-]{0,8}", fullmatch=True) | st.just("_")
NATIVE = ANY_TEXT | st.builds("{}{}{}".format, SCHEMES, st.sampled_from(["://", ":", ":/", ""]), ANY_TEXT)


@pytest.mark.semantics("S1", "S2")
def test_the_parts_of_a_database_uri() -> None:
    uri = "mcp-database+supabase-prod+postgres://database/customers/schema"
    parsed = parse_data_source_uri(uri)
    assert parsed == ParsedUri(
        uri_prefix="mcp-database+supabase-prod+postgres",
        access_method="mcp",
        data_source_type="database",
        data_source_name="supabase-prod",
        original_uri="postgres://database/customers/schema",
        resource_type="postgres",
    )
    assert parsed.base_prefix == "mcp-database+supabase-prod"
    assert str(parsed) == uri
    assert {parsed: 1}[parse_data_source_uri(uri)] == 1


@pytest.mark.parametrize(
    ("uri", "type_", "name", "scheme", "original"),
    [
        ("bb-filesystem+local+file:./src/x", "filesystem", "local", "file", "file:./src/x"),
        ("bb-filesystem+local+file:///x", "filesystem", "local", "file", "file:///x"),
        ("mcp-server+docs+urn:isbn:1", "server", "docs", "urn", "urn:isbn:1"),
        ("mcp-server+docs+urn:a:b", "server", "docs", "urn", "urn:a:b"),
        ("mcp-server+docs+c:foo", "server", "docs", "c", "c:foo"),
        ("mcp-vector-search+v.1_x-y+x-notion://p", "vector-search", "v.1_x-y", "x-notion", "x-notion://p"),
        ("mcp-server+docs+git+ssh://h/r", "server", "docs", "git+ssh", "git+ssh://h/r"),
        ("mcp-server+docs+HTTP://h/?q=a+b:c#d", "server", "docs", "HTTP", "HTTP://h/?q=a+b:c#d"),
        ("mcp-server+docs+_:read me/../x", "server", "docs", "_", "read me/../x"),
        ("mcp-server+docs+_:", "server", "docs", "_", ""),
        ("mcp-server+docs+x:", "server", "docs", "x", "x:"),
        ("mcp-server+docs+_:_:x", "server", "docs", "_", "_:x"),
    ],
)
def test_forms_of_uris(uri: str, type_: str, name: str, scheme: str, original: str) -> None:
    parsed = parse_data_source_uri(uri)
    assert (parsed.data_source_type, parsed.data_source_name, parsed.resource_type) == (type_, name, scheme)
    assert parsed.original_uri == original
    assert str(parsed) == uri
    assert source_uri(parsed.base_prefix, original) == uri


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("", "empty URI"),
        ("x", "unknown access method 'x'"),
        ("http://h/p", "unknown access method 'http'"),
        ("MCP-server+docs+x://y", "unknown access method 'MCP'"),
        ("mcp", "missing type"),
        ("mcp-", "missing type"),
        ("mcp-+docs+x://y", "missing type"),
        ("mcp-server", "missing name"),
        ("mcp-server://x", "missing name"),
        ("mcp-server+", "missing name"),
        ("mcp-server++x://y", "missing name"),
        ("mcp-server+docs", "missing scheme"),
        ("mcp-server+docs://y", "missing scheme"),
        ("mcp-server+docs+", "missing scheme"),
        ("mcp-server+docs+://y", "missing scheme"),
        ("mcp-server+docs+resource", "no ':' after the scheme 'resource'"),
        ("mcp-Server+docs+x://y", "illegal type 'Server'"),
        ("mcp-server+-docs+x://y", "illegal name '-docs'"),
        ("mcp-server+dócs+x://y", "illegal name 'dócs'"),
        ("mcp-server+docs+1x://y", "illegal scheme '1x'"),
        ("mcp-server+docs+_x://y", "illegal scheme '_x'"),
        ("mcp-ser ver+docs+x://y", "whitespace ' ' in the type"),
        ("mcp-server+do\ncs+x://y", r"whitespace '\n' in the name"),
        ("mcp-server+do\0cs+x://y", r"control or unprintable character '\x00' in the name"),
        ("mcp-server+docs+x\u202ey://y", r"control or unprintable character '\u202e' in the scheme"),
    ],
)
def test_malformed_uris_are_refused_by_name(uri: str, problem: str) -> None:
    with pytest.raises(InvalidUri) as caught:
        parse_data_source_uri(uri)
    assert problem in str(caught.value)


def test_messages_are_bounded_and_printable() -> None:
    with pytest.raises(InvalidUri) as caught:
        parse_data_source_uri("mcp-server+d\udc80\x1b[31m" + "x" * 100_000)
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isascii()


@pytest.mark.semantics("S2")
@given(METHODS, TYPES, NAMES, NATIVE)
@example("mcp", "server", "docs", "")
@example("mcp", "server", "docs", "_:x")
@example("mcp", "server", "docs", "\ud800\0\n")
def test_every_native_text_has_one_uri_and_comes_back(method: str, type_: str, name: str, native: str) -> None:
    prefix = build_uri_prefix(method, type_, name)
    uri = source_uri(prefix, native)
    parsed = parse_data_source_uri(uri)
    assert parsed.original_uri == native
    assert parsed.base_prefix == prefix
    assert parsed.resource_type == (native_scheme(native) or "_")
    assert parsed.uri_prefix == build_uri_prefix(method, type_, name, parsed.resource_type)
    assert str(parsed) == uri


@given(ANY_TEXT | st.text(alphabet="mcpb-+:/_ a.") | st.builds("mcp-{}".format, st.text(alphabet="-+:/_a.1 \0")))
def test_whatever_is_parsed_is_what_is_printed(text: str) -> None:
    try:
        parsed = parse_data_source_uri(text)
    except InvalidUri:
        return
    assert str(parsed) == text
    assert str(parse_uri_prefix(parsed.uri_prefix)) == parsed.uri_prefix


@given(METHODS, TYPES, NAMES, st.none() | SCHEMES, st.sampled_from(["", ":", "://"]))
def test_prefixes_round_trip(method: str, type_: str, name: str, scheme: str | None, end: str) -> None:
    text = build_uri_prefix(method, type_, name, scheme)
    parsed = parse_uri_prefix(text + end)
    assert (parsed.access_method, parsed.type, parsed.name, parsed.scheme) == (method, type_, name, scheme)
    assert str(parsed) == text
    assert parsed.base == build_uri_prefix(method, type_, name)


@pytest.mark.parametrize(
    ("prefix", "problem"),
    [
        ("", "empty URI prefix"),
        ("mcp-server+docs//", "illegal name 'docs//'"),
        ("mcp-server+docs:::", "illegal name 'docs::'"),
        ("mcp-server+docs+x://y", "illegal scheme 'x://y'"),
        ("mcp-server+docs/", "illegal name"),
        ("mcp-server+docs\n", "whitespace"),
        ("mcp-server+" + "d" * 255, "longer than 255"),
    ],
)
def test_malformed_prefixes_are_refused(prefix: str, problem: str) -> None:
    with pytest.raises(InvalidUri) as caught:
        parse_uri_prefix(prefix)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "parts",
    [
        ("mcp", "server", "a+b", None),
        ("mcp", "server", "a:", None),
        ("mcp", "server", "a", "x:"),
        ("mcp", "server+a", "b", None),
        ("mcp-a", "server", "b", None),
        ("mcp", "server", "a", ""),
        ("ftp", "server", "a", None),
    ],
)
def test_prefixes_are_built_of_legal_parts_only(parts: tuple[str, str, str, str | None]) -> None:
    with pytest.raises(InvalidUri):
        build_uri_prefix(*parts)


def test_a_prefix_is_a_value() -> None:
    prefix = parse_uri_prefix("mcp-database+supabase+postgres://")
    assert prefix == UriPrefix("mcp", "database", "supabase", "postgres")
    assert hash(prefix) == hash(UriPrefix("mcp", "database", "supabase", "postgres"))
    assert native_scheme("postgres://x") == "postgres"
    assert native_scheme("./a:b") is None
