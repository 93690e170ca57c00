"""The screens of `bbfs top`. Texts of sources and names of files are shown with escapes, and never read as markup."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from rich.text import Text
from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from bbfs.cli import output
from bbfs.cli.commands.state.rows import Row, details, head, reading, source_rows, waiting
from bbfs.model.errors import BbfsError

State = Mapping[str, Any]
_HELP = """\
/      show the sources whose line has a text; Escape shows all
Enter  open the source under the cursor
p      pending writes of this user
l      the log of the mount
r      ask the daemon now
?      this help
q      end; Escape goes back
"""


def plain(text: str, style: str = "") -> Text:
    """Return a text to show, with escapes for what controls a terminal. It is no markup."""
    return Text(output.printable(text), style=style, no_wrap=True, overflow="ellipsis")


def fill(table: DataTable[Text], columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Show rows in a table, and leave the cursor on its row."""
    names = [str(column.label) for column in table.ordered_columns]
    if names != list(columns):
        table.clear(columns=True)
        table.add_columns(*columns)
    at, keys = table.cursor_row, [str(row.key.value) for row in table.ordered_rows]
    key = keys[at] if at < len(keys) else None
    table.clear()
    for row in rows:
        cells = (plain(cell, row.style if number == 1 else "") for number, cell in enumerate(row.cells))
        table.add_row(*cells, key=row.key)
    here = next((number for number, row in enumerate(rows) if row.key == key), min(at, max(0, len(rows) - 1)))
    table.move_cursor(row=here, scroll=False)


class Shown(ModalScreen[None]):
    """Lines over the main screen, until Escape or q. lines: returns them, at each refresh."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", "Back"), Binding("r", "again", "Refresh")]

    def __init__(self, title: str, lines: Callable[[], Sequence[str]], *, at_end: bool = False) -> None:
        super().__init__()
        self._title = title
        self._lines = lines
        self._at_end = at_end

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(plain(self._title, "bold"), markup=False)
            yield Static(id="lines", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.action_again()
        if self._at_end:
            self.query_one(VerticalScroll).scroll_end(animate=False)

    def action_again(self) -> None:
        said = "\n".join(map(output.printable, self._lines()))
        self.query_one("#lines", Static).update(Text(said or "nothing"))


class Top(App[None]):
    """The main screen.

    mount: its path, as shown. state: returns the state of the mount, or raises BbfsError or OSError. pending: returns
    id, path and reason of pending writes. log: returns the last lines of the log. every: seconds between two answers;
    the daemon is asked again only after it has answered.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: auto; }
    #problem { height: auto; color: $error; }
    #filter { display: none; }
    #sources { height: 2fr; }
    #waiting, #reading { height: auto; max-height: 25%; }
    Shown VerticalScroll { border: round $primary; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter"),
        Binding("p", "pending", "Pending"),
        Binding("l", "log", "Log"),
        Binding("r", "again", "Refresh"),
        Binding("question_mark", "help", "Help"),
        Binding("q", "quit", "Quit"),
        Binding("escape", "all", "All", show=False),
    ]

    def __init__(
        self,
        mount: str,
        state: Callable[[], State],
        pending: Callable[[], Sequence[tuple[str, str, str]]],
        log: Callable[[], Sequence[str]],
        every: float,
    ) -> None:
        super().__init__()
        self._mount = mount
        self._ask = state
        self._pending = pending
        self._log_lines = log
        self._every = every
        self._state: State | None = None
        self._wanted = ""
        self._now = asyncio.Event()
        self._head = Static(plain(self._mount, "bold"), id="head", markup=False)
        self._problem = Static(id="problem", markup=False)
        self._field = Input(placeholder="a part of a line", id="filter", compact=True)
        self._sources: DataTable[Text] = DataTable(id="sources", cursor_type="row")
        self._waiting: DataTable[Text] = DataTable(id="waiting", show_cursor=False)
        self._reading: DataTable[Text] = DataTable(id="reading", show_cursor=False)

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._problem
        yield self._field
        yield self._sources
        yield self._waiting
        yield self._reading
        yield Footer()

    def on_mount(self) -> None:
        self._sources.focus()
        self.run_worker(self._keep_asking(), exclusive=True)

    async def _keep_asking(self) -> None:
        while True:
            self._now.clear()
            problem = ""
            try:
                self._state = await asyncio.to_thread(self._ask)
            except (BbfsError, OSError) as error:
                problem = f"no news since {datetime.now():%H:%M:%S}: {output.reason(error)}"
            if not self._sources.is_attached:
                return  # the program ends
            self._problem.update(Text(output.printable(problem)))
            self._problem.display = bool(problem)
            self._draw()
            try:
                await asyncio.wait_for(self._now.wait(), self._every)
            except TimeoutError:
                continue

    def _draw(self) -> None:
        """Show the last state, in the columns for which the terminal is wide enough."""
        state = self._state
        if state is None:
            return
        width = self.size.width
        self._head.update(Text("\n".join(map(output.printable, head(self._mount, state)))))
        columns, rows = source_rows(state, width)
        kept = [row for row in rows if self._wanted.lower() in " ".join(row.cells).lower()]
        fill(self._sources, columns, kept)
        for table, (columns, rows) in ((self._waiting, waiting(state, width)), (self._reading, reading(state, width))):
            table.display = bool(rows)
            fill(table, columns, rows)

    def on_resize(self, _: events.Resize) -> None:
        self._draw()

    # -- keys --------------------------------------------------------------------------------------------------------

    def action_again(self) -> None:
        self._now.set()

    def action_filter(self) -> None:
        self._field.display = True
        self._field.focus()

    def action_all(self) -> None:
        self._field.value, self._field.display = "", False
        self._sources.focus()

    @on(Input.Changed)
    def _filtered(self, changed: Input.Changed) -> None:
        self._wanted = changed.value
        self._draw()

    @on(Input.Submitted)
    def _chosen(self) -> None:
        self._sources.focus()

    @on(DataTable.RowSelected, "#sources")
    def _opened(self, selected: DataTable.RowSelected) -> None:
        name = str(selected.row_key.value)
        self.push_screen(Shown(name, lambda: details(self._state or {}, name)))

    def action_pending(self) -> None:
        def lines() -> list[str]:
            return [line for number, path, why in self._pending() for line in (f"{number}  {path}", f"    {why}")]

        self.push_screen(Shown("pending writes of this user; 'bbfs pending' hands them over or drops them", lines))

    def action_log(self) -> None:
        self.push_screen(Shown("log", self._log_lines, at_end=True))

    def action_help(self) -> None:
        self.push_screen(Shown("keys", _HELP.splitlines))
