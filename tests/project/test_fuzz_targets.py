"""The targets of `make fuzz` hold for what they begin with, for texts of their words, and for what was found before."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from targets import TARGETS, Target

FOUND = [
    ("cursors", b"[" * 100_000),
    ("mail", b"Content-Type: text/plain; charset=\xff\n\n\xff"),
    ("rich-text", rb"{\rtf1\ansicpg1 a}"),
    (
        "open-documents",  # a name that is not in the encoding that it states
        b"PK\1\2\x14\0\x14\0\0\x08"
        + bytes(18)
        + b"\1"
        + bytes(17)
        + b"\xffPK\5\6"
        + bytes(4)
        + b"\1\0\1\0/"
        + bytes(9),
    ),
    # a record without a space behind one with
    ("tar-headers", bytes(124) + b"00000000033\0".ljust(32, b"\0") + b"x" + bytes(355) + b"14 path=a/b/c\nlinkpath="),
    (
        "metafiles",  # a record that says that it has four billion strings
        struct.pack("<II32x4s64x", 1, 108, b" EMF") + struct.pack("<II28xI", 97, 0xFFFFFFF0, 0xFFFFFFFF) + bytes(400),
    ),
    # the beginnings of templates, none of which ends
    ("host-files", b'{"mcpServers": {"a": {"command": "' + b"${{" * 250_000 + b'"}}}'),
    ("host-files", b'{"mcpServers": {"a": {"command": [], "args": 1}}}'),
    ("host-files", b'{"mcpServers": {"a": {"command": "x", "env_vars": 1, "env_keys": true}}}'),
    ("host-files", b'{"projects": {"/": {"mcpServers": {}, "disabledMcpServers": 1}}}'),
    ("host-files", b'{"projects": {"/": {"mcpServers": {}, "disabledMcpServers": [{}]}}}'),
]
"""Inputs on which a target once failed."""


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_takes_its_seeds(name: str) -> None:
    target = TARGETS[name]
    for data in (*target.seeds, *(word.encode() for word in target.words), b"", b"\0", b"\xff\xfe", b"[" * 4000):
        target.run(data)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@settings(max_examples=30)
@given(data=st.data())
def test_a_target_takes_any_bytes(target: Target, data: st.DataObject) -> None:
    words = st.sampled_from([word.encode() for word in target.words])
    target.run(b"".join(data.draw(st.lists(words | st.sampled_from(target.seeds) | st.binary(max_size=20)))))


@pytest.mark.parametrize(("name", "data"), FOUND)
def test_what_was_found_is_mended(name: str, data: bytes) -> None:
    TARGETS[name].run(data)
