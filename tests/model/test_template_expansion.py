"""URI templates: RFC 6570 and the rules for paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbfs.model.errors import InvalidUri
from bbfs.model.uri import parse_data_source_uri
from bbfs.model.uri_templates.expand import expand_template, template_variables

# RFC 6570, section 3.2: the variables of its examples that are texts or lists.
RFC: dict[str, str | tuple[str, ...]] = {
    "count": ("one", "two", "three"),
    "dom": ("example", "com"),
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ("red", "green", "blue"),
    "v": "6",
    "x": "1024",
    "y": "768",
    "empty": "",
    "empty_keys": (),
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{var}", "value"),
        ("{hello}", "Hello%20World%21"),
        ("{half}", "50%25"),
        ("O{empty}X", "OX"),
        ("{x,y}", "1024,768"),
        ("{x,hello,y}", "1024,Hello%20World%21,768"),
        ("?{x,empty}", "?1024,"),
        ("{x,empty_keys,y}", "1024,768"),
        ("{var:3}", "val"),
        ("{var:30}", "value"),
        ("{list}", "red,green,blue"),
        ("{list*}", "red,green,blue"),
        ("{+var}", "value"),
        ("{+hello}", "Hello%20World!"),
        ("{+half}", "50%25"),
        ("{base}index", "http%3A%2F%2Fexample.com%2Fhome%2Findex"),
        ("{+base}index", "http://example.com/home/index"),
        ("{+path}/here", "/foo/bar/here"),
        ("here?ref={+path}", "here?ref=/foo/bar"),
        ("{+x,hello,y}", "1024,Hello%20World!,768"),
        ("{+path:6}/here", "/foo/b/here"),
        ("{#var}", "#value"),
        ("{#half}", "#50%25"),
        ("{#path:6}/here", "#/foo/b/here"),
        ("{.who,who}", ".fred.fred"),
        ("{.half,who}", ".50%25.fred"),
        ("www{.dom*}", "www.example.com"),
        ("{/who}", "/fred"),
        ("{/who,dub}", "/fred/me%2Ftoo"),
        ("{/list}", "/red,green,blue"),
        ("{/list*,path:4}", "/red/green/blue/%2Ffoo"),
        ("{;v,empty,who}", ";v=6;empty;who=fred"),
        ("{;list*}", ";list=red;list=green;list=blue"),
        ("{?x,y,empty}", "?x=1024&y=768&empty="),
        ("{?list*}", "?list=red&list=green&list=blue"),
        ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
        ("{&list}", "&list=red,green,blue"),
    ],
)
def test_the_examples_of_the_rfc(template: str, expected: str) -> None:
    values = {name: RFC[name] for name in template_variables(template)}
    assert expand_template(template, values) == expected


@pytest.mark.parametrize(
    ("template", "path", "expected"),
    [
        ("bb-filesystem+local+file:./{path}", "/src/config.ts", "bb-filesystem+local+file:./src/config.ts"),
        ("bb-filesystem+local+file:./{path}", "src/config.ts", "bb-filesystem+local+file:./src/config.ts"),
        ("bb-filesystem+local+file:./{path}", "//src", "bb-filesystem+local+file:./src"),
        ("bb-filesystem+local+file:./{+path}", "/src", "bb-filesystem+local+file:./src"),
        ("bb-filesystem+local+file:./{path*}", "/a/b", "bb-filesystem+local+file:./a/b"),
        ("bb-filesystem+local+file:{path}", "/src", "bb-filesystem+local+file:/src"),
        ("bb-filesystem+local+file://{path}", "/src", "bb-filesystem+local+file:///src"),
        ("bb-memory+scratch+memory://{path}", "/a/b", "bb-memory+scratch+memory://a/b"),
        (
            "bb-notion+work-documents+x-notion://{+path}",
            "/workspace/p1",
            "bb-notion+work-documents+x-notion://workspace/p1",
        ),
        ("bb-filesystem+local+file:./{path}/x", "a b/ü?#%2F", "bb-filesystem+local+file:./a%20b/%C3%BC%3F%23%252F/x"),
        ("bb-filesystem+local+file:./{path}", "../x", "bb-filesystem+local+file:./../x"),
        ("mcp-server+docs+resource://k/{path}", "a/b", "mcp-server+docs+resource://k/a%2Fb"),
        ("mcp-server+docs+resource://k/{path}", "/a", "mcp-server+docs+resource://k/%2Fa"),
        ("mcp-server+docs+resource://k/{+path}", "/a", "mcp-server+docs+resource://k//a"),
        ("mcp-server+docs+resource://k/{path*}", "a/b c?%41", "mcp-server+docs+resource://k/a/b%20c%3F%2541"),
        ("mcp-server+docs+resource://k/{path:3}", "a/b/c", "mcp-server+docs+resource://k/a%2Fb"),
        ("mcp-server+docs+git+ssh://h{?path*}", "a", "mcp-server+docs+git+ssh://h?path=a"),
        ("resource://k/{path}", "a/b", "resource://k/a%2Fb"),
    ],
)
def test_paths_in_templates(template: str, path: str, expected: str) -> None:
    assert expand_template(template, {"path": path}) == expected


def test_a_wildcard_keeps_slashes_for_itself_alone() -> None:
    assert expand_template("x://{a*,b}", {"a": "1/2", "b": "3/4"}) == "x://1/2,3%2F4"
    assert expand_template("x://{a*}", {"a": ["1/2", "3"]}) == "x://1%2F2,3"


@pytest.mark.parametrize("operator", ["+", "#"])
def test_reserved_expansion_keeps_triplets_and_encodes_all_else(operator: str) -> None:
    expanded = expand_template(f"x:{{{operator}v}}", {"v": "a%20b c%é/?100%"})
    assert expanded.removeprefix("x:").removeprefix("#") == "a%20b%20c%25%C3%A9/?100%25"


def test_variables_are_named_once_and_in_order() -> None:
    assert template_variables("x://{b}/{a-c,b:3}{?q*,%41.x_1}") == ("b", "a-c", "q", "%41.x_1")
    assert template_variables("x://none") == ()


def test_query_variables_may_be_left_out() -> None:
    assert expand_template("x://{a}{?q,limit}", {"a": "1"}) == "x://1"
    assert expand_template("x://{a}{?q,limit}", {"a": "1", "limit": "5"}) == "x://1?limit=5"
    assert expand_template("x://{a}?f{&q}", {"a": "1"}) == "x://1?f"


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("x://{", "'{' without '}' at character 5"),
        ("x://{a", "'{' without '}'"),
        ("x://a}", "'}' without '{' at character 6"),
        ("x://{a}}", "'}' without '{'"),
        ("x://{}", "empty expression"),
        ("x://{{a}}", "illegal variable '{a'"),
        ("x://{+}", "illegal variable ''"),
        ("x://{a,}", "illegal variable ''"),
        ("x://{a b}", "illegal variable 'a b'"),
        ("x://{a..b}", "illegal variable 'a..b'"),
        ("x://{a.}", "illegal variable 'a.'"),
        ("x://{a:0}", "illegal variable 'a:0'"),
        ("x://{a:10000}", "illegal variable 'a:10000'"),
        ("x://{a**}", "illegal variable 'a**'"),
        ("x://{a*:3}", "illegal variable 'a*:3'"),
        ("x://{%4}", "illegal variable '%4'"),
        ("x://{ü}", "illegal variable 'ü'"),
        ("x://{=a}", "reserved operator '='"),
        ("x://{|a}", "reserved operator '|'"),
        ("x://{$a}", "illegal variable '$a'"),
    ],
)
def test_malformed_templates_are_refused(template: str, problem: str) -> None:
    for attempt in (lambda: template_variables(template), lambda: expand_template(template, {"a": "1"})):
        with pytest.raises(InvalidUri) as caught:
            attempt()
        assert problem in str(caught.value)


def test_missing_and_unknown_variables_are_named() -> None:
    with pytest.raises(InvalidUri, match=r"needs collection, id; given: other"):
        expand_template("x://{collection}/{id}/{other}", {"other": "1"})
    with pytest.raises(InvalidUri, match=r"needs id; given: no variables"):
        expand_template("x://{id}", {})
    with pytest.raises(InvalidUri, match=r"has no ID; it has id"):
        expand_template("x://{id}", {"id": "1", "ID": "2"})


def test_values_that_no_uri_can_carry_are_refused() -> None:
    with pytest.raises(InvalidUri, match="the value of id is not valid Unicode"):
        expand_template("x://{id}", {"id": "\udc80"})
    with pytest.raises(InvalidUri, match="id:3 takes a text"):
        expand_template("x://{id:3}", {"id": ["a"]})


@pytest.mark.semantics("S2")
@given(st.text())
def test_a_prefix_survives_and_a_simple_value_never_leaves_its_segment(value: str) -> None:
    uri = expand_template("mcp-server+my-docs+x-note://k/{id}/end", {"id": value})
    parsed = parse_data_source_uri(uri)
    assert parsed.uri_prefix == "mcp-server+my-docs+x-note"
    assert parsed.original_uri.startswith("x-note://k/")
    assert parsed.original_uri.count("/") == 4
    assert uri.isascii()


@given(st.text(alphabet="{}+*:,?a1-%.=/ é", max_size=20))
def test_a_template_is_refused_or_expanded_in_full(template: str) -> None:
    try:
        names = template_variables(template)
    except InvalidUri:
        return
    expanded = expand_template(template, dict.fromkeys(names, "v"))
    assert "{" not in expanded
    assert "}" not in expanded


@pytest.mark.parametrize("template", ["x:{v}" + "{v}" * 100, "x:{" + "v," * 100 + "v}", "x:{+l,l}", "x:{?l*}"])
def test_what_a_template_may_expand_to_is_bounded(template: str) -> None:
    values = {"v": "x" * 1000} if "v" in template else {"l": ["x" * 500] * 200}
    with pytest.raises(InvalidUri, match="65536 characters"):
        expand_template(template, values)
