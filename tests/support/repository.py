"""Where the tests find what belongs to the repository."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
DOCS = ROOT / "docs"
SERVERS = Path(__file__).parent / "servers"
"""Servers that tests start as processes of their own."""
