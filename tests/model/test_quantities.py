"""Sizes and durations as people read them."""

import pytest

from bbfs.model.quantities import duration_text, size_text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (99.4 * 1024, "99.4 KiB"),
        (1000 << 10, "1000 KiB"),
        (48 << 20, "48 MiB"),
        (5 << 50, "5120 TiB"),
    ],
)
def test_a_size_has_three_digits_that_matter_and_a_unit(size: float, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.9, "0 s"),
        (42, "42 s"),
        (307, "5 min 7 s"),
        (3600, "1 h"),
        (11_520, "3 h 12 min"),
        (176_400, "2 d 1 h"),
        (86_400, "1 d"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
