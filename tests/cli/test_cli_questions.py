"""Questions of a server to the user of `bbfs call`, on a terminal."""

import os
import pty
import shlex
import subprocess
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from forked_daemon import forked
from repository import SERVERS

from bbfs.cli.commands.questions import MOST_FIELDS, TerminalAudience
from bbfs.model.calls import UserTime
from bbfs.model.errors import NotSupported

Type = Callable[[str], None]
Process = Callable[..., subprocess.CompletedProcess[bytes]]
FORM = {
    "name": {"type": "string", "title": "Full name", "default": "John Doe"},
    "age": {"type": "integer"},
    "plan": {"type": "string", "oneOf": [{"const": "free", "title": "Free"}, {"const": "paid", "title": "Paid"}]},
    "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}},
    "sure": {"type": "boolean"},
}


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Type]:
    """Types text on the terminal that is standard input."""
    ours, theirs = pty.openpty()
    with FileIO(theirs, "r") as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        yield lambda text: (os.write(ours, text.encode()), None)[1]
    os.close(ours)


def audience(time: UserTime | None = None) -> TerminalAudience:
    return TerminalAudience("shop", time or UserTime(), begin=lambda: None)


async def asked(schema: dict[str, Any], *required: str, message: str = "Who are you?") -> dict[str, Any]:
    form = {"type": "object", "properties": schema, "required": list(required)}
    with trio.fail_after(60):
        return await audience().ask("elicitation/create", {"message": message, "requestedSchema": form})


@pytest.mark.semantics("S31.9")
async def test_a_form_is_answered_field_by_field(typed: Type, capsys: pytest.CaptureFixture[str]) -> None:
    typed("a\n\nold\n42\npaid\na,c\nyes\n")
    content = {"name": "John Doe", "age": 42, "plan": "paid", "tags": ["a", "c"], "sure": True}
    assert await asked(FORM, "age", message="Who\x1b[2Jare you?\nbbfs: trust me") == {
        "action": "accept",
        "content": content,
    }
    said = capsys.readouterr().err
    assert "bbfs: shop asks: Who\\x1b[2Jare you?\n  bbfs: trust me\n" in said, (
        "no line of the server looks like one of bbfs"
    )
    assert "name, Full name (string) [John Doe]: " in said
    assert "plan (free or paid, or nothing): " in said
    assert "should be an integer, not 'old'" in said


async def test_what_may_be_left_out_is(typed: Type) -> None:
    typed("a\n" + "\n" * 5)
    assert await asked(FORM) == {"action": "accept", "content": {"name": "John Doe"}}


@pytest.mark.parametrize(
    ("text", "action"),
    [("d\n", "decline"), ("c\n", "cancel"), ("\n", "cancel"), ("x\n" * 9, "cancel"), ("\x04", "cancel")],
)
async def test_a_question_is_declined_or_cancelled(typed: Type, text: str, action: str) -> None:
    typed(text)
    assert await asked(FORM) == {"action": action}


async def test_the_end_of_the_input_in_a_form_cancels_it(typed: Type) -> None:
    typed("a\n\n\x04")
    assert await asked(FORM, "age") == {"action": "cancel"}


@pytest.mark.semantics("S31.9")
@pytest.mark.parametrize(
    ("text", "action", "visits"), [("o\n", "accept", 1), ("d\n", "decline", 0), ("\n", "cancel", 0)]
)
async def test_a_url_is_shown_and_opened_only_after_a_yes(
    typed: Type,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    action: str,
    visits: int,
) -> None:
    opened: list[str] = []
    monkeypatch.setenv("BROWSER", "true")
    monkeypatch.setattr(webbrowser, "open", opened.append)
    url = "https://trusted.example@evil.example/pay?x=1"
    typed(text)
    with trio.fail_after(60):
        answer = await audience().ask("elicitation/create", {"mode": "url", "message": "Pay", "url": url})
    assert answer == {"action": action}
    assert opened == [url] * visits
    assert f"It wants you to visit evil.example:\n  {url}\n" in capsys.readouterr().err


async def test_what_is_no_question_to_a_user_is_refused(typed: Type) -> None:
    many = {f"f{number}": {"type": "string"} for number in range(MOST_FIELDS + 1)}
    with pytest.raises(NotSupported, match="more than 50 fields"):
        await asked(many)
    with pytest.raises(NotSupported, match="no web address"):
        await audience().ask("elicitation/create", {"mode": "url", "message": "Look", "url": "file:///etc/passwd"})
    with pytest.raises(NotSupported, match="no language model"):
        await audience().ask("sampling/createMessage", {})


async def test_the_deadline_of_the_call_stops_while_the_user_thinks(typed: Type, nursery: trio.Nursery) -> None:
    time, stops = UserTime(), list[bool]()
    with time.counted(stops.append):
        answers: list[dict[str, Any]] = []

        async def ask() -> None:
            answers.append(await audience(time).ask("elicitation/create", {"message": "Sure?"}))

        async with trio.open_nursery() as asking:
            asking.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            assert stops == [True]
            typed("d\n")
    assert (answers, stops) == ([{"action": "decline"}], [True, False])


@pytest.mark.semantics("S31.9")
@pytest.mark.parametrize("era", [(), ("--handshake",)], ids=["modern", "handshake"])
def test_bbfs_call_asks_on_a_terminal_and_only_there(process: Process, tmp_path: Path, era: tuple[str, ...]) -> None:
    server = shlex.join(forked(SERVERS / "everything.py", *era))
    words = ("call", "t", "ask", "--mcp", f"t={server}")
    ours, theirs = pty.openpty()
    child = subprocess.Popen(forked("-m", "bbfs", *words), stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path)
    os.close(theirs)
    os.write(ours, b"a\nGrace\n")
    said = b""
    with suppress(OSError):  # the other end is closed
        while piece := os.read(ours, 4096):
            said += piece
    os.close(ours)
    assert child.wait(60) == 0, said
    assert b"t asks: Who are you?" in said
    assert b"accept: {'name': 'Grace'}" in said
    refused = process(*words)
    assert refused.returncode != 0
    assert b"cannot ask its user questions" in refused.stdout + refused.stderr
