"""A line on the terminal that says what a command waits for, once the wait takes a second."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from bbfs.cli import lazy, output

FIRST = 1.0
EVERY = 0.25
"""Seconds between two looks."""
_ENDS_WITHIN = 0.5
"""Seconds for the thread of the line: a mount that hangs may hold it."""
_ERASE = "\x1b[K"


class Progress:
    """The line that shows the progress of one command. It is shown on standard error, and only if that is a terminal.

    note: returns the text of the current step, or None. It is called in a thread, and may block. first: seconds before
    the line is shown.
    """

    def __init__(self, *, quiet: bool = False, first: float = FIRST) -> None:
        self._first = first
        self.note: Callable[[], str | None] = lambda: None
        self._on = not quiet and sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = False
        self._lock = threading.Lock()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the line while the block runs, and erase it at its end."""
        if not self._on:
            yield
            return
        ended = threading.Event()
        thread = threading.Thread(target=self._run, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            self.end()
            thread.join(_ENDS_WITHIN)

    def _run(self, ended: threading.Event) -> None:
        pause = self._first
        while not ended.wait(pause) and self._on:
            pause = EVERY
            text = self.note()
            if text:
                self._draw(text)

    def _draw(self, text: str) -> None:
        """Write the line and go back to its beginning, so that whatever comes next is written over it."""
        width = max(lazy.shutil.get_terminal_size().columns - 1, 20)
        shown = output.printable(text)
        shown = shown if len(shown) <= width else shown[: width - 1] + "…"
        with self._lock:
            if self._on:
                click.echo(f"\r{click.style(shown, dim=True)}{_ERASE}\r", nl=False, err=True)
                self._drawn = True

    def end(self) -> None:
        """Erase the line, and show it no more: the output of the command says from now on how far it is."""
        with self._lock:
            if self._drawn:
                click.echo(f"\r{_ERASE}", nl=False, err=True)
            self._on = self._drawn = False


def of_sources(sources: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the current work of sources in words. sources: as in the status of a mount."""
    return "; ".join(filter(None, map(_of_source, sources))) or None


def _of_source(source: Mapping[str, Any]) -> str | None:
    listing, name = source.get("listing"), source.get("id")
    if listing is not None and not listing["complete"]:
        pages = output.count(listing["pages"], "page")
        return f"{name}: listing, {pages} and {output.count(listing['resources'], 'resource')} so far"
    if source.get("state") == "connecting":
        return f"{name}: connecting"
    if source.get("in_flight"):
        return f"{name}: {output.count(source['in_flight'], 'request')} under way"
    return None


def amount(size: int) -> str:
    """Return a number of bytes in a unit that people read."""
    number, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if number < 1000:
            break
        number, unit = number / 1000, larger
    return f"{number:.3g} {unit}" if unit != "B" else f"{size} B"
