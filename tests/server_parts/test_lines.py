"""Lines out of bytes that come in any pieces."""

from hypothesis import given
from hypothesis import strategies as st

from bbfs.server_parts.stdio import LineSplitter, LineTooLong

chunks = st.lists(st.binary(max_size=12) | st.sampled_from([b"\n", b"a\nb", b"\n\n"]))


@given(chunks)
def test_lines_do_not_depend_on_chunks(parts: list[bytes]) -> None:
    splitter = LineSplitter(1 << 20)
    lines = [line for part in parts for line in splitter.feed(part)]
    assert lines == b"".join(parts).split(b"\n")[:-1]


@given(st.lists(st.binary(min_size=1, max_size=5)))
def test_lines_are_bounded(parts: list[bytes]) -> None:
    splitter = LineSplitter(10)
    longest = max(map(len, b"".join(parts).split(b"\n")))
    try:
        for part in parts:
            splitter.feed(part)
    except LineTooLong:
        assert longest > 10
    else:
        assert longest <= 10 + 5
