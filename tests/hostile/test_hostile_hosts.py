"""Hostile files of MCP hosts, as a project that somebody else wrote may have one: `bbfs discover` ends soon."""

import sys
from pathlib import Path

import pytest
from programs import Program

SIZE = 1 << 20
"""Bytes of a file."""
PIECES = {
    "comments that never close": "/* ",
    "closed comments": "/*/",
    "texts that never close": '"\\',
    "lists and commas": "[,",
    "slashes": "/ ",
    "comments and texts": '/* "',
}


@pytest.mark.parametrize("piece", PIECES.values(), ids=PIECES)
def test_a_hostile_file_of_a_host_holds_nothing_up(piece: str, tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(piece * (SIZE // len(piece)))
    script = 'cd -- "$0" && HOME=$0 exec "$1" -m bbfs discover'
    done = Program("sh", "-c", script, tmp_path, sys.executable).wait(60)
    assert done.status in (0, 1, 2)
    assert b"Traceback" not in done.err
