"""Gathering all values that a source completes a variable with, though it answers few at once."""

from collections.abc import Awaitable, Callable
from math import inf

import trio

from bbfs.model.errors import BbfsError
from bbfs.model.values import Completion

MAX_REQUESTS = 300
"""Completions asked for to list one directory: a source answers at most 100 values each."""
TIME_SHARE = 0.5
"""The part of a source's timeout after which the names found so far have to do."""
MAX_VALUES = 10_000
REQUESTS_AT_ONCE = 8
_USUAL = "0123456789abcdefghijklmnopqrstuvwxyz"
"""What values may go on with, besides what is seen that they do."""


async def all_values(
    complete: Callable[[str], Awaitable[Completion]], prefix: str, timeout: float
) -> tuple[list[str], bool]:
    """The values that begin with `prefix`, and whether these are all. Raises the source's error where it has none.

    complete: asks for the values that begin with a text. timeout: seconds for one request.

    A source answers at most 100. Where it says that there are more, what they go on with is asked for, letter by
    letter, as long as that brings new ones.
    """
    found: dict[str, None] = {}
    asked, cut = 0, False
    failures: list[BbfsError] = []
    places = trio.CapacityLimiter(REQUESTS_AT_ONCE)

    async def ask(start: str, following: list[str]) -> None:
        try:
            async with places:
                got: Completion = await complete(start)
        except BbfsError as error:
            failures.append(error)
            return
        new = [value for value in got.values if value not in found]
        found.update(dict.fromkeys(new))
        if got.more and not got.final and (new or all(value.startswith(start) for value in got.values)):
            seen = {value[len(start)] for value in found if value.startswith(start) and len(value) > len(start)}
            following.extend(start + letter for letter in sorted(seen | set(_USUAL)))
        elif got.more:
            nonlocal cut
            cut = True

    wave, enough = [prefix], trio.current_time() + TIME_SHARE * timeout
    while wave:
        asked += len(wave)
        following: list[str] = []
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = enough if found else inf
            for start in wave:
                nursery.start_soon(ask, start, following)
        cut = cut or nursery.cancel_scope.cancelled_caught
        if failures and not found:
            raise type(failures[0])(*failures[0].args)
        cut = cut or bool(failures)
        wave = following
        if len(found) >= MAX_VALUES or trio.current_time() >= enough:
            cut, wave = cut or bool(wave), []
        elif asked + len(wave) > MAX_REQUESTS:
            cut, wave = True, wave[: MAX_REQUESTS - asked]
    return [value for value in found if value.startswith(prefix)][:MAX_VALUES], not cut
