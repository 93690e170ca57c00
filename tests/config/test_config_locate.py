"""The lines of a TOML text's keys: every path that `tomllib` finds has one, and it is the right one."""

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bbfs.config.key_lines import key_lines
from bbfs.config.problems import KeyPath

DOCUMENT = '''\
# top = 1
top = "a # not [a] comment"   # a comment
"quoted.key" = 1
'literal "key"' = 2
dotted . key."with = sign" = 3

[mount] # [[sources]]
text = """
[sources]
fake = 1 ""\\""""
literal = \'\'\'
fake = \'2\'\'\'\'
umask = "022"

[[ sources ]]
name = "a"
[sources.mcpConfig]
args = [ # ]
  "x", # "
  \'y]\', [1,
    2],
]
env = { A = "}", B . C = {D = [{E = 1}]} }
when = 1979-05-27 07:32:00Z

[[sources]]
name = "b"
[[sources.deep]]
x = 1
[[sources.deep]]
y = inf
[sources.deep.er]
z = +1_000.5e3
[a.b.c]
[a]
'''

PATHS = {
    2: "top", 3: "quoted.key", 4: 'literal "key"', 5: "dotted|dotted/key|dotted/key/with = sign", 7: "mount",
    8: "mount/text", 11: "mount/literal", 13: "mount/umask", 15: "sources|sources/0", 16: "sources/0/name",
    17: "sources/0/mcpConfig", 18: "sources/0/mcpConfig/args", 19: "sources/0/mcpConfig/args/0",
    20: "sources/0/mcpConfig/args/1|sources/0/mcpConfig/args/2|sources/0/mcpConfig/args/2/0",
    21: "sources/0/mcpConfig/args/2/1",
    23: "sources/0/mcpConfig/env|sources/0/mcpConfig/env/A|sources/0/mcpConfig/env/B|sources/0/mcpConfig/env/B/C|"
        "sources/0/mcpConfig/env/B/C/D|sources/0/mcpConfig/env/B/C/D/0|sources/0/mcpConfig/env/B/C/D/0/E",
    24: "sources/0/mcpConfig/when", 26: "sources/1", 27: "sources/1/name", 28: "sources/1/deep|sources/1/deep/0",
    29: "sources/1/deep/0/x", 30: "sources/1/deep/1", 31: "sources/1/deep/1/y", 32: "sources/1/deep/1/er",
    33: "sources/1/deep/1/er/z", 34: "a|a/b|a/b/c",
}  # fmt: skip
LINES: dict[KeyPath, int] = {
    tuple(int(step) if step.isdigit() else step for step in path.split("/")): line
    for line, found in PATHS.items()
    for path in found.split("|")
}


def paths(value: Any, path: KeyPath = ()) -> set[KeyPath]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {path}.union(*(paths(inner, (*path, step)) for step, inner in items)) if items else {path}


def test_every_key_of_a_document_with_all_forms():
    assert key_lines(DOCUMENT) == LINES
    assert paths(tomllib.loads(DOCUMENT)) - {()} == set(LINES)


texts = st.text(alphabet=st.sampled_from("ab\"'\\#[]{}=.,\n\t é"), max_size=8)
strings = texts.flatmap(
    lambda text: st.sampled_from([form(text) for form in (basic, multi_line, literal, multi_line_literal)])
)


def basic(text: str) -> str:
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n"}
    return '"' + "".join(escapes.get(character, character) for character in text) + '"'


def multi_line(text: str) -> str:
    # Up to two quotes may stand unescaped at the end.
    body = text.rstrip('"')
    quotes = min(2, len(text) - len(body))
    return '"""' + basic(text[: len(text) - quotes])[1:-1].replace("\\n", "\n") + '"' * quotes + '"""'


def literal(text: str) -> str:
    return f"'{text}'" if "'" not in text and "\n" not in text else basic(text)


def multi_line_literal(text: str) -> str:
    return f"'''{text}'''" if "'''" not in text and not text.endswith("'''") else basic(text)


scalars = strings | st.sampled_from(["1", "-0.5e3", "true", "07:32:00", "1979-05-27 07:32:00", "nan", "0xff"])
keys = st.sampled_from(["a", "B-c_1", "'li.teral'", '"ba\\tsic]"', "1979"])
blanks = st.sampled_from(["", " ", "\n", " # note, ]\n", "\t"])


@st.composite
def inline(draw: st.DrawFn, depth: int = 2) -> str:
    kind = draw(st.sampled_from(["scalar", "array", "table"])) if depth else "scalar"
    if kind == "array":
        items = [draw(blanks) + draw(inline(depth - 1)) + draw(blanks) for _ in range(draw(st.integers(0, 3)))]
        comma = draw(st.sampled_from(["", ","])) if items else ""
        return f"[{draw(blanks)}{','.join(items)}{comma}{draw(blanks)}]"
    if kind == "table":
        names = draw(st.lists(keys, max_size=3, unique=True))
        return "{" + ", ".join(f"{name} = {draw(inline(depth - 1))}" for name in names) + " }"
    return draw(scalars)


@st.composite
def documents(draw: st.DrawFn) -> str:
    out: list[str] = []
    headers = ["", "[[s]]", "[s.x]", "[[s]] # again", "[ s . x . 'li.t' ]", "[[s.y]]", "[s.y.z]", "[[ s.y ]]", "[t]"]
    for header in headers:
        out.append(header)
        for name in draw(st.lists(keys, max_size=2, unique=True)):
            dotted = f"{name} . k" if draw(st.booleans()) else name
            out.append(f"{draw(st.sampled_from(['', '  ']))}{dotted} ={draw(inline())} # end")
        out.append(draw(st.sampled_from(["", "# [no]", "\t"])))
    return "\n".join(out)


@given(documents())
def test_every_path_that_the_parser_finds_has_a_line(document: str):
    lines = key_lines(document)
    assert paths(tomllib.loads(document)) - {()} == set(lines)
    written = document.split("\n")
    for path, line in lines.items():
        key = path[-1]
        if isinstance(key, str):
            assert key.replace("\t", "\\t") in written[line - 1]
