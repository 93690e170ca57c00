"""Durations, sizes and file modes as people write them in a configuration file, and times as bbfs writes them."""

import math
import re
from datetime import UTC, datetime, timedelta

_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE | re.ASCII)
_DURATION = re.compile(rf"\s*(?:{_DURATION_PART.pattern}\s*)+", re.IGNORECASE | re.ASCII)
_LONGEST = 100 * 365 * 86400.0

_SIZE_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE | re.ASCII)

_DURATION_FORMS = 'expected seconds as a number, or a text like "500ms", "30s", "5m", "1h30m", "2d"'
_SIZE_FORMS = 'expected bytes as an integer, or a text like "64KiB", "256MiB", "1.5GiB", "100MB"'


def parse_duration(value: object) -> float:
    """Return the seconds of a number or of a text with units. Raise ValueError, whose text never holds the value."""
    if isinstance(value, str):
        if not _DURATION.fullmatch(value):
            raise ValueError(_DURATION_FORMS)
        seconds = 0.0
        for number, unit in _DURATION_PART.findall(value):
            if unit.lower() not in _DURATION_UNITS:
                raise ValueError(_DURATION_FORMS)
            seconds += float(number) * _DURATION_UNITS[unit.lower()]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) if abs(value) <= _LONGEST else math.inf
    else:
        raise ValueError(_DURATION_FORMS)
    if math.isnan(seconds) or seconds < 0:
        raise ValueError("a duration is not negative")
    if seconds > _LONGEST:
        raise ValueError("a duration is at most 100 years")
    return seconds


def parse_size(value: object) -> int:
    """Return the bytes of an integer or of a text with a unit (KiB is 1024, kB is 1000). Raise ValueError."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if not match or match[2].upper() not in _SIZE_UNITS:
            raise ValueError(_SIZE_FORMS)
        whole, _, part = match[1].partition(".")
        size = int(whole + part) * _SIZE_UNITS[match[2].upper()] // 10 ** len(part)
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        raise ValueError(_SIZE_FORMS)
    if not 0 <= size < 2**63:
        raise ValueError("a size is between 0 and 2^63 - 1 bytes")
    return size


def parse_umask(value: object) -> int:
    """Return the bits of an octal text such as "022". Raise ValueError.

    A number is refused: `umask = 22` would silently mean 026, as TOML's plain numbers are decimal.
    """
    if isinstance(value, str) and re.fullmatch(r"(?:0o)?[0-7]{1,4}", value, re.ASCII):
        bits = int(value, 8)
        if bits <= 0o777:
            return bits
    raise ValueError('expected octal digits in quotes, such as "022" or "077"')


def timestamp(ns: int) -> str:
    """Return nanoseconds since the epoch as ISO 8601 in UTC, or as `@SECONDS` outside the years 1 to 9999 (date(1))."""
    try:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=ns // 1_000_000_000)
    except OverflowError:
        return f"@{ns // 1_000_000_000}"
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 source`, `2 sources`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size_text(size: float) -> str:
    """Return bytes with a unit of 1024: `512 B`, `1.5 KiB`, `48 MiB`."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.0f} {units[0]}" if units[0] == "B" or size >= 99.5 else f"{size:.3g} {units[0]}"


def duration_text(seconds: float) -> str:
    """Return seconds in the two largest units that they have: `42 s`, `5 min 7 s`, `3 h 12 min`, `2 d 1 h`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    parts = [
        f"{number} {unit}" for number, unit in ((days, "d"), (hour, "h"), (minute, "min"), (second, "s")) if number
    ]
    return " ".join(parts[:2]) or "0 s"


def latency_text(seconds: float | None) -> str:
    """Return how long a request takes, such as `1.2 ms`; `-` if no request has ended."""
    return "-" if seconds is None else f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
