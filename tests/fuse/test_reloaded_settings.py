"""Which settings of a configuration a running mount does not take over."""

from dataclasses import fields, replace

import pytest

from bbfs.config import Config
from bbfs.fuse.control.reload import not_taken_over

TAKEN_OVER = {"sources", "path", "lines", "left_out"}


@pytest.mark.semantics("S41.1")
@pytest.mark.parametrize("name", [field.name for field in fields(Config) if field.name not in TAKEN_OVER])
def test_each_setting_that_is_not_taken_over_is_said(name: str) -> None:
    [said] = not_taken_over(Config(), replace(Config(), **{name: "another"}))
    assert said.endswith(": applies when it is mounted again")
    assert not_taken_over(Config(), Config()) == []
