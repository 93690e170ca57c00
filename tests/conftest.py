"""Shared by all tests: how properties are tested."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A shared machine may stop a test for seconds at any point: only the test's own bound counts.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path leaves room for that of a Unix socket (107 bytes, unix(7)); `tmp_path` may not."""
    with tempfile.TemporaryDirectory(prefix="bbfs-") as directory:
        yield Path(directory)
