"""What the tests with servers of others need."""

import os

import pytest
from thirdparty_servers import AWS_SERVERLESS, EVERYTHING, FETCH, FILESYSTEM, GIT, MEMORY, NODE, THINKING, TIME

from bbfs.fuse import mounting


@pytest.fixture(scope="session")
def thirdparty() -> None:
    """Skip the test where a server is not installed, or nothing can be mounted; in CI that is a failure."""
    servers = (NODE, EVERYTHING, FILESYSTEM, FETCH, GIT, MEMORY, THINKING, TIME, AWS_SERVERLESS)
    lacks = [mounting.missing() or "", *(str(path) for path in servers if not path.exists())]
    if lack := " ".join(filter(None, lacks)):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"run `scripts/install test`: {lack}")
