"""What an agent finds of forty facts in eight sources, and what that costs it, in four ways to reach them.

Method: `facts.toml` has the questions, `company.py` makes the sources, `ways.py` the ways with their policies. The
agent is scripted: for each way a fixed policy, which knows the words of the question and what it was given to read. A
question is answered when the text of the answer is in something that the agent was given; it gives up after 20 calls.
Characters are those that a host puts before its model: all of a result, a command's output up to 30 000. The opening
(descriptions of tools, instructions, the first look at each source) is counted once a way. bbfs has indexed the sources
before; how long that took is said. With `--agent COMMAND` a program plays instead of the script, see `model.py`.

    python benchmarks/agents/play.py [--ways NAME,…] [--agent COMMAND] [--transcripts DIR] [--write FILE] [--guard]
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import trio
from company import ALCHEMY, HERE, Company, Fact, facts, opened
from harness import Mount, State, config_text
from model import CALLS, Game, Model
from ways import Commands, Served, Servers, Shell, Way, connected, words_of

INDEXED_WITHIN = 600.0
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
GOALS = HERE / "goals.toml"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Answer:
    """How one question went."""

    source: str
    question: str
    found: bool
    calls: int
    characters: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Played:
    """How a way went."""

    way: str
    opening: int
    answers: Sequence[Answer]

    def found(self) -> int:
        return sum(answer.found for answer in self.answers)

    def a_question(self) -> float:
        """Mean characters that a question costs."""
        return statistics.mean(answer.characters for answer in self.answers)


async def ask(way: Way, fact: Fact, agent: Model | None, transcript: Path | None) -> Answer:
    """Let the agent look for a fact. A model has answered when it says so, the script when it was given the answer."""
    began = time.perf_counter()
    game = await (scripted(way, fact) if agent is None else agent.play(way, fact.question))
    seconds = time.perf_counter() - began
    told = game.answer or ""
    found = fact.answer.casefold() in told.casefold()
    if game.failure:
        print(f"{way.name}: {fact.question} {game.failure}", file=sys.stderr)
    if transcript is not None:
        said = [] if agent is None else [game.failure or told]
        write(transcript, fact, [*game.read, *said], found)
    return Answer(fact.source, fact.question, found, len(game.read), sum(map(len, game.read)), seconds)


async def scripted(way: Way, fact: Fact) -> Game:
    """Play a policy until it was given the answer."""
    game = Game()
    async with aclosing(way.policy(words_of(fact.question))) as reading:
        async for text in reading:
            game.read.append(text)
            if fact.answer.casefold() in text.casefold():
                game.answer = text
            if game.answer is not None or len(game.read) >= CALLS:
                break
    return game


def write(transcript: Path, fact: Fact, read: Sequence[str], found: bool) -> None:
    transcript.parent.mkdir(parents=True, exist_ok=True)
    heading = f"{fact.question}\nanswer: {fact.answer}\nfound: {found}\n"
    texts = (f"\n----- {number} -----\n{text}\n" for number, text in enumerate(read, 1))
    transcript.write_text(heading + "".join(texts))


async def play(way: Way, agent: Model | None, transcripts: Path | None) -> Played:
    answers: list[Answer] = []
    for number, fact in enumerate(facts(), 1):
        file = None if transcripts is None else transcripts / way.name / f"{number:02}.txt"
        answers.append(await ask(way, fact, agent, file))
    return Played(way.name, len(way.opening), answers)


Opening = Callable[[Company, State, Path], AbstractAsyncContextManager[Way]]


@asynccontextmanager
async def servers(company: Company, state: State, directory: Path) -> AsyncGenerator[Way]:
    async with AsyncExitStack() as ending:
        clients = {
            name: await connected(ending, command, company.environs.get(name, {}), directory / f"{name}.err")
            for name, command in company.hosts.items()
        }
        way = Servers(company, clients)
        await way.open()
        yield way


@asynccontextmanager
async def mounted(company: Company, state: State) -> AsyncGenerator[Mount]:
    mount = await trio.to_thread.run_sync(lambda: Mount(company.sources, state=state, python=sys.executable))
    try:
        yield mount
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(mount.stop)


@asynccontextmanager
async def shell(company: Company, state: State, directory: Path) -> AsyncGenerator[Way]:
    async with mounted(company, state) as mount:
        way = Shell(mount.path, mount.environ())
        way.opening = await way.run("ls")
        yield way


@asynccontextmanager
async def commands(company: Company, state: State, directory: Path) -> AsyncGenerator[Way]:
    async with mounted(company, state) as mount:
        environ = mount.environ()
        way = Commands(directory, environ | {"PATH": f"{Path(sys.executable).parent}:{environ['PATH']}"})
        way.opening = await way.run("bbfs sources")
        yield way


@asynccontextmanager
async def served(company: Company, state: State, directory: Path) -> AsyncGenerator[Way]:
    async with AsyncExitStack() as ending:
        command = [sys.executable, "-m", "bbfs", "serve", "--config", str(config_of(state))]
        way = Served(await connected(ending, command, state.environ(), directory / "serve.err"))
        await way.open()
        yield way


WAYS: dict[str, Opening] = {"servers": servers, "mount": shell, "commands": commands, "serve": served}


def config_of(state: State) -> Path:
    """Return the file of the sources. It lies beside those of the mounts: relative paths begin at its directory, so
    the same source in another directory is another one, with an index of its own.
    """
    return state.home / "company.toml"


def indexed(state: State, company: Company) -> float:
    """Configure the sources, and index them. Return the seconds that took."""
    config = config_of(state)
    config.write_text(config_text(company.sources, {}))
    config.chmod(0o600)
    began = time.perf_counter()
    command = [sys.executable, "-m", "bbfs", "index", "--config", str(config)]
    subprocess.run(command, env=state.environ(), check=True, timeout=INDEXED_WITHIN, stdout=sys.stderr)
    return time.perf_counter() - began


async def ended_by_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(*ENDING) as signals:
        async for _ in signals:
            scope.cancel()


async def all_of(names: Sequence[str], agent: Model | None, transcripts: Path | None) -> tuple[float, list[Played]]:
    """Play, and end all that was started, also on a signal."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ended_by_signal, nursery.cancel_scope)
        results = await all_ways(names, agent, transcripts)
        nursery.cancel_scope.cancel()
        return results
    raise SystemExit("ended by a signal")


async def all_ways(names: Sequence[str], agent: Model | None, transcripts: Path | None) -> tuple[float, list[Played]]:
    played: list[Played] = []
    with ExitStack() as ending:
        state = State()
        ending.callback(state.remove)
        directory = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="bbfs-agents-")))
        company = ending.enter_context(opened(directory))
        seconds = await trio.to_thread.run_sync(indexed, state, company)
        for name in names:
            async with WAYS[name](company, state, directory) as way:
                played.append(await play(way, agent, transcripts))
    return seconds, played


def table(seconds: float, played: Sequence[Played]) -> str:
    """The results as Markdown."""
    sources = list(dict.fromkeys(fact.source for fact in facts()))
    lines = [
        f"Indexing all sources took {seconds:.0f} s.",
        "",
        "| way | found | calls a question | characters a question | opening, characters | seconds a question, median |",
        "|---|---|---|---|---|---|",
    ]
    for each in played:
        calls = statistics.mean(answer.calls for answer in each.answers)
        took = statistics.median(answer.seconds for answer in each.answers)
        count = f"{each.found()} of {len(each.answers)}"
        paid = f"{each.a_question():,.0f} | {each.opening:,}".replace(",", " ")
        lines.append(f"| {each.way} | {count} | {calls:.1f} | {paid} | {took:.2f} |")
    lines += ["", f"| found in | {' | '.join(sources)} |", "|---" * (len(sources) + 1) + "|"]
    for each in played:
        of = [[answer.found for answer in each.answers if answer.source == source] for source in sources]
        lines.append(f"| {each.way} | {' | '.join(f'{sum(found)} of {len(found)}' for found in of)} |")
    return "\n".join(lines) + "\n"


def misses(played: Sequence[Played]) -> list[str]:
    """What a way costs or finds beyond its goals."""
    goals = tomllib.loads(GOALS.read_text())
    said: list[str] = []
    for each in played:
        goal = goals.get(each.way)
        if goal is None:
            continue
        if each.found() < goal["found"]:
            said.append(f"{each.way}: found {each.found()}, and the goal is {goal['found']}")
        for what, number in (("opening", each.opening), ("characters", each.a_question())):
            if number > goal[what]:
                said.append(f"{each.way}: {what} {number:.0f}, and the goal is {goal[what]}")
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description="What agents find, and what it costs them")
    parser.add_argument("--ways", default=",".join(WAYS), help="of " + ", ".join(WAYS))
    parser.add_argument("--agent", help="a command that plays instead of the script")
    parser.add_argument("--transcripts", type=Path, help="a directory for what the agent was given to read")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", type=Path, help="a page with the place for the tables")
    parser.add_argument("--guard", action="store_true", help="end with 1 if a goal of goals.toml is missed")
    given = parser.parse_args()
    agent = None if given.agent is None else Model(given.agent)
    ways = given.ways.split(",")
    if "servers" in ways and not ALCHEMY.exists():
        print(f"play: without a server for each source: {ALCHEMY} is not installed (make agents)", file=sys.stderr)
        ways.remove("servers")
    seconds, played = trio.run(all_of, ways, agent, given.transcripts)
    text = table(seconds, played)
    print(text, end="")
    if given.write is not None:
        before, rest = given.write.read_text().split(BEGIN)
        given.write.write_text(f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}")
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(each) for each in played], indent=1))
    missed = misses(played) if given.guard else []
    for line in missed:
        print(line, file=sys.stderr)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
