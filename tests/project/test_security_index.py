"""docs/security.md names tests that exist."""

import re

from repository import DOCS, ROOT

_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_test_that_the_threat_model_names_exists() -> None:
    named = _TEST.findall((DOCS / "security.md").read_text())
    assert len(named) > 20
    for path, function in named:
        assert not function or re.search(rf"^(async )?def {function}\(", (ROOT / path).read_text(), re.MULTILINE), (
            function
        )
        assert (ROOT / path).is_file(), path
