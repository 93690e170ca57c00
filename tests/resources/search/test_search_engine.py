"""One search in many sources: merged ranks, sources that fail or hang, and hits that cannot be shown."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest
import trio
from fakes import FlatSource, SearchingSource, TreeSource, World, data_source
from trio.testing import MockClock

from bbfs.model.errors import InvalidUri, NotFound, NotSupported, TooLarge, Unreachable
from bbfs.model.values import Hit, McpServer, SourceState
from bbfs.resources.search.engine import LIMIT, LONGEST_SNIPPET, MOST, SearchAnswer, Way
from bbfs.resources.search.index.entries import Answer


def searching(name: str, *names: str, hits: Sequence[Any] | None = None, **fields: Any) -> SearchingSource:
    """A source with these resources, which finds all of them in this order."""
    found = [Hit(f"x://{each}", snippet=f"of {name}") for each in names] if hits is None else [*hits]
    contents: dict[str, Any] = {f"x://{each}": each.encode() for each in names}
    return SearchingSource(data_source(f"mcp-server+{name}"), contents=contents, hits=found, **fields)


def shown(answer: SearchAnswer) -> list[str]:
    return ["/".join(hit.path) for hit in answer.hits]


class Index:
    """An index that has answers. asked: the sources and the mode of each search. empty: it covers these for nothing."""

    def __init__(self, covered: Collection[str], *hits: tuple[str, Hit], empty: Collection[str] = ()) -> None:
        self._covered = covered
        self._empty = empty
        self._hits = hits
        self.asked: list[tuple[set[str], Way]] = []
        self.limits: list[int] = []
        self.said: tuple[str, ...] = ()
        self.looks = 0
        self.without_meaning: str | None = "it has words only"

    def covers(self, source_id: str) -> bool:
        return source_id in self._covered

    def has_none_of(self, source_id: str) -> bool:
        return source_id in self._empty

    async def look(self) -> None:
        self.looks += 1

    async def search(self, query: str, limit: int, *, sources: Collection[str], mode: Way) -> Answer:
        self.asked.append((set(sources), mode))
        self.limits.append(limit)
        return Answer(self._hits, self.said)


@pytest.mark.semantics("S36")
async def test_ranks_of_all_sources_are_merged_and_nothing_is_loaded(nursery: trio.Nursery) -> None:
    a, b = searching("a", "1", "2", "3"), searching("b", "1", "2")
    async with World(nursery, a, b) as world:
        answer = await world.manager.searches.search("some  words", limit=4)
        assert shown(answer) == [f"mcp-server+{each}" for each in ("a/x/1", "b/x/1", "a/x/2", "b/x/2")]
        assert answer.problems == ()
        assert [hit.score for hit in answer.hits] == [0.166667, 0.166667, 0.142857, 0.142857]
        assert (answer.hits[0].uri, answer.hits[0].title) == ("mcp-server+a+x://1", "1")
        assert (a.searched, b.searched) == (["some words"], ["some words"])
        assert (a.loaded, b.loaded) == ([], [])


@pytest.mark.semantics("S36.1")
async def test_what_an_index_finds_as_well_comes_first_and_once(nursery: trio.Nursery) -> None:
    a, tree = searching("a", "1", "2"), TreeSource(contents={"file:./d/t.md": b"t"})
    index = Index(("a", "tree"), ("a", Hit("x://2")), ("tree", Hit("file:./d/t.md")), ("other", Hit("x://1")))
    async with World(nursery, a, tree) as world:
        world.manager.searches.searchers.append(index)
        index.said = ("no text has 'wrod'",)
        answer = await world.manager.searches.search("word", mode="words")
        assert answer.problems[0] == "no text has 'wrod'"
        assert [hit.found_by for hit in answer.hits] == [("index", "a"), ("a",), ("index",)]
        assert shown(answer) == ["mcp-server+a/x/2", "mcp-server+a/x/1", "bb-scripted+tree+file/d/t.md"]
        assert answer.hits[0].snippet == "of a"
        assert index.asked == [({"a", "tree"}, "words")]
        assert tree.loaded == []
        answer = await world.manager.searches.search("word", below=[("bb-scripted+tree+file", "d")])
        assert shown(answer) == ["bb-scripted+tree+file/d/t.md"]
        assert len(a.searched) == 1
        await world.manager.searches.search("word", below=[("bb-scripted+tree+file",)])
        assert index.limits == [LIMIT, MOST, LIMIT]


@pytest.mark.semantics("S22", "S36.2")
async def test_a_source_that_hangs_costs_its_hits(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    a, hung, down = searching("a", "1"), searching("hung", "1"), searching("down", "1", down=Unreachable("no\nnet"))
    hung.hold(SearchingSource.SEARCHING)
    async with World(nursery, a, hung, down, FlatSource(data_source("mcp-server+mute"))) as world:
        before = trio.current_time()
        answer = await world.manager.searches.search("word", within=3)
        assert trio.current_time() - before == pytest.approx(3)
        assert shown(answer) == ["mcp-server+a/x/1"]
        assert answer.problems == (
            "down: no net",
            "hung: no answer within 3 s",
            "cannot be searched: mute (no search of their own, not indexed)",
        )
        assert (hung.cancelled, hung.under_way) == ([SearchingSource.SEARCHING], 0)


async def test_a_source_that_does_not_answer_after_a_fault_says_the_fault(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    crashed = searching("crashed", "1", state=SourceState("down", "the server exited with status 3: " + "words " * 99))
    crashed.hold(SearchingSource.SEARCHING)
    async with World(nursery, crashed) as world:
        [problem] = (await world.manager.searches.search("word", within=2)).problems
        assert problem.startswith(
            "crashed: no answer within 2 s; before that: the server exited with status 3: words words"
        )
        assert problem.endswith(" words…")
        crashed.release(SearchingSource.SEARCHING)


async def test_a_listing_that_hangs_holds_no_search(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    a, slow = searching("a", "1"), searching("slow", "1")
    slow.hold(SearchingSource.LISTING)
    async with World(nursery, a, slow) as world:
        answer = await world.manager.searches.search("word", within=1)
        assert shown(answer) == ["mcp-server+a/x/1"]
        assert answer.problems == ("slow: no answer within 1 s",)
        slow.release(SearchingSource.LISTING)


@pytest.mark.semantics("S36.1")
async def test_hits_are_below_the_asked_paths_and_exist(nursery: trio.Nursery) -> None:
    gone = searching("a", "d/1", "d/2", "e/1", hits=[Hit("x://gone"), Hit("x://e/1"), Hit("x://d/2")])
    async with World(nursery, gone) as world:
        assert shown(await world.manager.searches.search("word")) == ["mcp-server+a/x/e/1", "mcp-server+a/x/d/2"]
        below = await world.manager.searches.search("word", below=[("mcp-server+a", "x", "d")])
        assert shown(below) == ["mcp-server+a/x/d/2"]
        with pytest.raises(NotFound, match="no such source"):
            await world.manager.searches.search("word", below=[("mcp-server+b",)])


async def test_a_resource_of_a_template_is_found_unlisted(nursery: trio.Nursery) -> None:
    a = searching("a", "listed", hits=[Hit("x://row/7")])
    a.template("x://row/{id}")
    async with World(nursery, a) as world:
        assert shown(await world.manager.searches.search("word")) == ["mcp-server+a/x/row/7"]
        assert a.loaded == []


@pytest.mark.semantics("S36.1")
async def test_a_resource_of_a_template_that_is_a_directory_as_well_is_found(nursery: trio.Nursery) -> None:
    a = searching("a", hits=[Hit("x://pets/7"), Hit("x://pets/7/photos"), Hit("x://pets/7/none/below")])
    for template in ("x://pets/{id}", "x://pets/{id}/photos"):
        a.template(template, mime_type="application/json")
    async with World(nursery, a) as world:
        answer = await world.manager.searches.search("word")
        assert shown(answer) == [f"mcp-server+a/x/pets/7/{name}" for name in ("index.json", "photos")]
        assert a.loaded == []


async def test_a_mode_leaves_out_what_searches_otherwise(nursery: trio.Nursery) -> None:
    words, meaning = searching("words", "1"), searching("meaning", "1", by_meaning=True)
    async with World(nursery, words, meaning) as world:
        assert shown(await world.manager.searches.search("word", mode="words")) == ["mcp-server+words/x/1"]
        answer = await world.manager.searches.search("word", mode="meaning")
        assert shown(answer) == ["mcp-server+meaning/x/1"]
        assert answer.problems == ("not searched: words (by words only)",)
        assert len((await world.manager.searches.search("word")).hits) == 2


@pytest.mark.semantics("S36.3")
async def test_an_index_is_asked_for_words_and_for_meaning_and_both_ranks_count(nursery: trio.Nursery) -> None:
    a = searching("a", "1", "2", hits=[])
    index = Index(("a",), ("a", Hit("x://2")), ("a", Hit("x://1")))
    async with World(nursery, a) as world:
        world.manager.searches.searchers.append(index)
        answer = await world.manager.searches.search("word", mode="meaning")
        assert (answer.hits, index.asked) == ((), [])
        assert answer.problems[0] == "the index, by meaning: it has words only"
        assert [hit.score for hit in (await world.manager.searches.search("word")).hits] == [0.166667, 0.142857]
        index.without_meaning = None
        answer = await world.manager.searches.search("word", mode="meaning")
        assert shown(answer) == ["mcp-server+a/x/2", "mcp-server+a/x/1"]
        assert [hit.score for hit in (await world.manager.searches.search("word")).hits] == [0.283334, 0.242857]
        assert sorted(way for _, way in index.asked) == ["meaning", "meaning", "words", "words"]


async def test_a_source_of_which_nothing_is_indexed_yet_is_named(nursery: trio.Nursery) -> None:
    a, b, c = (searching(name, "1", searches=name == "c") for name in "abc")
    async with World(nursery, a, b, c) as world:
        world.manager.searches.searchers.append(Index(("a", "b", "c"), ("a", Hit("x://1")), empty=("b", "c")))
        answer = await world.manager.searches.search("word")
        assert answer.problems == ("nothing is indexed yet of: b; 'bbfs index b' reads all of it",)


@pytest.mark.semantics("S36")
async def test_a_source_that_cannot_tell_yet_is_asked(nursery: trio.Nursery) -> None:
    a, without = searching("a", "1", searches=None), searching("without", searches=None)
    async with World(nursery, a, without) as world:
        for _ in range(2):
            answer = await world.manager.searches.search("word")
            assert shown(answer) == ["mcp-server+a/x/1"]
            assert answer.problems == ("cannot be searched: without (no search of their own, not indexed)",)
        assert (len(a.searched), len(without.searched)) == (2, 1)


@pytest.mark.semantics("S36")
async def test_a_source_that_has_nothing_to_search_by_is_told_as_one_without_a_search(nursery: trio.Nursery) -> None:
    a, plain = searching("a", "1"), searching("plain", "1", down=NotSupported("no full-text index"))
    async with World(nursery, a, plain) as world:
        for _ in range(2):
            answer = await world.manager.searches.search("word")
            assert answer.problems == ("cannot be searched: plain (no search of their own, not indexed)",)
        assert len(plain.searched) == 2, "it may have one by the next search"


async def test_a_source_whose_search_is_not_granted_is_not_asked(nursery: trio.Nursery) -> None:
    a = searching("a", "1", searches=False)
    async with World(nursery, a) as world:
        answer = await world.manager.searches.search("word")
        assert (answer.hits, a.searched) == ((), [])
        assert answer.problems == ("cannot be searched: a (no search of their own, not indexed)",)


async def test_no_index_is_proposed_for_a_source_that_forbids_it(nursery: trio.Nursery) -> None:
    a = searching("a", "1", searches=False)
    a.source = replace(a.source, index=False)
    async with World(nursery, a) as world:
        answer = await world.manager.searches.search("word")
        reason = "no search of their own, their option index forbids an index"
        assert answer.problems == (f"cannot be searched: a ({reason})",)


@pytest.mark.semantics("S27", "S36.4")
@pytest.mark.parametrize(
    "hit",
    [
        Hit("x://1", math.nan),
        Hit("x://1", math.inf, "a\x1b[31m\ntitle\u202e" + "t" * 10_000, "s" * 1_000_000, "w\0" * 10_000),
    ],
)
async def test_hostile_texts_and_scores_are_bounded(nursery: trio.Nursery, hit: Hit) -> None:
    a, b = searching("a", "1", hits=[hit] * 10_000), searching("b", "1", searches=False)
    async with World(nursery, a, b) as world:
        world.manager.searches.searchers.append(Index("b", *[("b", hit)] * 10_000))
        found = (await world.manager.searches.search("word")).hits
        assert [each.source_id for each in found] == ["a", "b"]
        assert all(math.isfinite(each.score) for each in found)
        for text in (text or "" for each in found for text in (each.title, each.snippet, each.where)):
            assert text.isprintable()
            assert len(text) <= LONGEST_SNIPPET


@pytest.mark.semantics("S27", "S36")
async def test_a_source_has_hits_of_its_own_only_and_not_too_many(nursery: trio.Nursery) -> None:
    names = [str(number) for number in range(MOST * 3)]
    a, b = searching("a", *names), searching("b", "secret", hits=[])
    a.hits[:0] = [Hit("mcp-server+b+x://secret"), Hit("x://secret"), Hit("../secret"), Hit("x" * 100_000), Hit("")]
    async with World(nursery, a, b) as world:
        answer = await world.manager.searches.search("word", limit=MOST)
        assert {hit.source_id for hit in answer.hits} == {"a"}
        assert MOST - 5 <= len(answer.hits) <= MOST


@pytest.mark.semantics("S27", "S36")
@pytest.mark.parametrize("hits", [[None], [Hit(7)], [Hit("x://1", "much")], None])  # type: ignore[arg-type]
async def test_an_answer_of_another_kind_is_a_problem_in_words(
    nursery: trio.Nursery, hits: Any, caplog: pytest.LogCaptureFixture
) -> None:
    a = searching("a", "1")
    a.hits = hits
    async with World(nursery, a) as world:
        answer = await world.manager.searches.search("word")
        assert answer.hits == ()
        assert all(problem.startswith("a: ") for problem in answer.problems)
    caplog.clear()


@pytest.mark.parametrize(
    ("query", "limit", "error"),
    [(" \n", 1, InvalidUri), ("w" * 1001, 1, TooLarge), ("w", 0, InvalidUri), ("w", 201, InvalidUri)],
)
async def test_a_bad_query_is_refused(nursery: trio.Nursery, query: str, limit: int, error: type[Exception]) -> None:
    a = searching("a", "1")
    async with World(nursery, a) as world:
        with pytest.raises(error):
            await world.manager.searches.search(query, limit=limit)
        assert a.searched == []


@pytest.mark.semantics("S36.9")
@pytest.mark.parametrize("apps", [False, True])
async def test_pages_of_apps_are_found_only_where_the_source_says_so(nursery: trio.Nursery, apps: bool) -> None:
    a = searching("a", "1", hits=[Hit("ui://page"), Hit("x://1")])
    a.contents["ui://page"] = b""
    a.source = replace(a.source, mcp=McpServer("stdio", command="s"), apps=apps)
    async with World(nursery, a) as world:
        found = shown(await world.manager.searches.search("word"))
        assert found == [*(["mcp-server+a/ui/page"] if apps else []), "mcp-server+a/x/1"]
