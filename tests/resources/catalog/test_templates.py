"""Templates as directories, on the core: provisional names, what completion lists, what is absent, what is asked."""

import itertools
import json
import time

import pytest
import trio
from fakes import CompletingSource, FlatSource, World, of, settled
from hypothesis import given
from hypothesis import strategies as st

from bbfs.model.errors import IsADirectory, NotADirectory, NotFound, Unreachable
from bbfs.model.uri_templates.patterns import Pattern, Position
from bbfs.model.values import ResourceMetadata, ResourceTemplate
from bbfs.resources.catalog.base import MADE
from bbfs.resources.catalog.record import Record
from bbfs.resources.catalog.templates import MAX_UNLISTED_BYTES, Unlisted
from bbfs.resources.catalog.templates.slashes import slashed
from bbfs.vfs.names import answered

ROOT = "mcp-server+docs"


async def test_an_unlisted_resource_is_opened_by_its_name(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://k/a/doc/one": b"1"}, unlisted={"x://k/a/doc/one"})
    source.template("x://k/{project}/doc/{slug}", mime_type="text/markdown", description="a document")
    async with World(nursery, source) as world:
        kernel = world.kernel
        found = await kernel.walk(f"{ROOT}/x/k/a/doc/one")
        assert (found.kind, found.entry_timeout, found.attr_timeout) == ("file", 0.0, 0.0)
        assert source.loaded == []  # LOOKUP waits for nothing
        assert (await kernel.stat(f"{ROOT}/x/k/a/doc/one")).size == 1
        assert await kernel.cat(f"{ROOT}/x/k/a/doc/one") == b"1"
        assert source.loaded == ["x://k/a/doc/one"]
        assert (await kernel.walk(f"{ROOT}/x/k/a/doc/one")).entry_timeout > 0
        assert await kernel.xattr(f"{ROOT}/x/k/a/doc/one", "user.bbfs.uri_template") == "x://k/{project}/doc/{slug}"
        assert json.loads(await kernel.xattr(f"{ROOT}/x/k/a/doc/one", "user.bbfs.variables")) == {
            "project": "a",
            "slug": "one",
        }
        described = json.loads(await kernel.xattr(f"{ROOT}/x/k/a/doc", "user.bbfs.uri_templates"))
        assert [(each["uriTemplate"], each["variables"]) for each in described] == [
            ("x://k/{project}/doc/{slug}", ["project", "slug"])
        ]


@pytest.mark.semantics("S31.3")
async def test_a_refused_template_makes_names_that_nothing_shows(nursery: trio.Nursery) -> None:
    source = CompletingSource(contents={"x://listed": b"1"}, values={"call": ["write"]})
    source.template("call://{call}", refused=True)
    async with World(nursery, source) as world:
        kernel = world.kernel
        assert await kernel.ls(ROOT) == ["x"]
        assert (await kernel.walk(f"{ROOT}/call/write?text=x")).kind == "file"
        with pytest.raises(NotFound):
            await kernel.walk(f"{ROOT}/call/write")
        assert await kernel.ls(f"{ROOT}/call") == []
        assert world.manager.sources[ROOT].catalog.all_templates() == ()
        assert source.completions == []


@pytest.mark.semantics("S12.4", "S34.2")
async def test_an_absent_name_costs_one_request_in_its_time(nursery: trio.Nursery) -> None:
    source = FlatSource(templates=of("x://k/{slug}"))
    async with World(nursery, source) as world:
        for _ in range(3):
            with pytest.raises(NotFound):
                await world.kernel.stat(f"{ROOT}/x/k/nope")
            with pytest.raises(NotFound):
                await world.kernel.open(f"{ROOT}/x/k/nope")
        assert source.loaded == ["x://k/nope"]
        absent = await world.kernel.lookup((await world.kernel.walk(f"{ROOT}/x/k")).ino, "nope")
        assert absent.ino == 0
        assert 0 < absent.entry_timeout <= 5
        world.clock.advance(6)
        source.contents["x://k/nope"] = b"now"
        source.unlisted.add("x://k/nope")
        assert (await world.kernel.stat(f"{ROOT}/x/k/nope")).size == 3


@pytest.mark.semantics("S18")
async def test_a_changed_listing_ends_an_absence_at_once(nursery: trio.Nursery) -> None:
    source = FlatSource(unlisted={"x://k/nope"}, templates=of("x://k/{slug}"))
    async with World(nursery, source) as world:
        with pytest.raises(NotFound):
            await world.kernel.stat(f"{ROOT}/x/k/nope")
        source.contents["x://k/nope"] = b"now"
        source.announce()
        await settled()
        assert "nope" in world.forgotten()
        assert (await world.kernel.stat(f"{ROOT}/x/k/nope")).size == 3


@pytest.mark.semantics("S34.3")
@pytest.mark.parametrize(
    "name", [".git", "RCS", ".hidden", ".Trash-1000", "autorun.inf", ".gitignore", ".x.swp", "a~", "._a"]
)
async def test_probes_never_reach_a_server(nursery: trio.Nursery, name: str) -> None:
    source = CompletingSource(templates=of("x://k/{slug}", "x://f/{+path}"))
    async with World(nursery, source) as world:
        for place in ("k", "f", "f/a"):
            with pytest.raises(NotFound):
                await world.kernel.stat(f"{ROOT}/x/{place}/{name}")
        assert [uri for uri in source.loaded if name in uri] == []
        source.values["slug"] = [name]  # unless the server itself names it
        source.contents[f"x://k/{name}"] = b"real"
        source.unlisted.add(f"x://k/{name}")
        if name[0] != "#" and not name.startswith("._"):
            assert name in await world.kernel.ls(f"{ROOT}/x/k")
            assert (await world.kernel.stat(f"{ROOT}/x/k/{name}")).size == 4


@pytest.mark.semantics("S34.4")
async def test_completed_values_are_listed_with_the_context_of_earlier_ones(nursery: trio.Nursery) -> None:
    source = CompletingSource(values={"project": ["b", "a c"], "slug": ["two", "one"]})
    source.template("x://k/{project}/doc/{slug}")
    source.contents["x://k/a%20c/doc/one"] = b"1"
    source.unlisted.add("x://k/a%20c/doc/one")
    async with World(nursery, source) as world:
        assert await world.kernel.ls(f"{ROOT}/x/k") == ["a c", "b"]
        assert await world.kernel.ls(f"{ROOT}/x/k/a c") == ["doc"]
        entries = await world.kernel.entries(f"{ROOT}/x/k/a c/doc")
        assert [(name, a.kind, a.attr_timeout) for name, a in entries] == [("one", "file", 0), ("two", "file", 0)]
        assert source.completions == [("project", "", {}), ("slug", "", {"project": "a c"})]
        await world.kernel.ls(f"{ROOT}/x/k/a c/doc")
        assert len(source.completions) == 2  # known for as long as a listing is
        assert source.loaded == []
        assert await world.kernel.cat(f"{ROOT}/x/k/a c/doc/one") == b"1"
        with pytest.raises(NotFound):
            await world.kernel.stat(f"{ROOT}/x/k/a c/doc/two")  # completed, yet the server has it not


async def test_long_completions_are_asked_for_in_parts_and_bounded(nursery: trio.Nursery) -> None:
    names = [f"{letter}{number:02}" for letter in "abc" for number in range(50)]
    source = CompletingSource(values={"slug": names}, page=20, templates=of("x://k/{slug}"))
    async with World(nursery, source) as world:
        assert await world.kernel.ls(f"{ROOT}/x/k") == sorted(names)
        assert len(source.completions) <= 300
        source.values["slug"] = [f"{number:05}" for number in range(30_000)]
        source.announce()
        await settled()
        source.completions.clear()
        listed = await world.kernel.ls(f"{ROOT}/x/k")
        assert 20 <= len(listed) <= 10_000
        assert len(source.completions) <= 300


async def test_a_source_that_has_said_all_is_asked_once(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    source = CompletingSource(values={"slug": [f"a{number}" for number in range(30)]}, page=20, final=True)
    source.template("x://k/{slug}")
    async with World(nursery, source) as world:
        assert len(await world.kernel.ls(f"{ROOT}/x/k")) == 20
        assert source.completions == [("slug", "", {})]
        assert "more values than are shown (20)" in caplog.text


@pytest.mark.parametrize(
    ("templates", "listed", "unlisted", "directories"),
    [
        (["k/{slug}"], "k/listed k/sub/x", "k/other", {"k": ["listed", "other", "sub"]}),
        (["k/{slug}/stats"], "", "k/other/stats", {"k/other": ["stats"]}),
        (["k/{collection}/stats"], "k/collections", "k/docker/stats", {"k": ["collections"]}),
        (["pets/{any}{?kind}", "pets/{id}/name"], "pets/find?kind=cat", "", {"pets": ["find?kind=cat"]}),
        (
            ["pets/{id}{?full}", "pets/{id}", "pets/{id}/name"],
            "",
            "pets/7/index->pets/7 pets/7?full=1 pets/7/name pets/a?b/name->pets/a%3Fb/name",
            {},
        ),
        (
            ["{project}/doc", "search{?q}", "{any}", "all/x/{y}"],
            "",
            "search?q=1 p/doc all/x/y",
            {"all": ["doc", "x"], "p": ["doc", "index"]},
        ),
    ],
    ids=["shared", "after a variable", "stays a file", "listed query", "query is no value", "spelt out is no value"],
)
async def test_listed_resources_and_templates_share_directories(
    nursery: trio.Nursery, templates: list[str], listed: str, unlisted: str, directories: dict[str, list[str]]
) -> None:
    """Each resource is `path` or `path->URI`, and its content is its URI."""
    paths = {path: f"x://{uri or path}" for path, _, uri in (e.partition("->") for e in f"{listed} {unlisted}".split())}
    source = CompletingSource(contents={uri: uri.encode() for uri in paths.values()})
    source.unlisted = {paths[each.partition("->")[0]] for each in unlisted.split()}
    source.values = {"slug": ["listed", "other"]}
    for template in templates:
        source.template(f"x://{template}")
    async with World(nursery, source) as world:
        for path, names in directories.items():
            assert await world.kernel.ls(f"{ROOT}/x/{path}") == names
        for path, uri in paths.items():
            assert await world.kernel.cat(f"{ROOT}/x/{path}") == uri.encode()


@pytest.mark.semantics("S5")
async def test_a_resource_that_a_template_goes_on_from_is_a_directory(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://t/users": b"table", "x://t/users/rows/1": b"row", "x://t/logs": b"logs"})
    source.unlisted = {"x://t/users/rows/1", "x://t/logs"}
    source.template("x://t/{table}", mime_type="text/csv")
    source.template("x://t/{table}/rows/{id}")
    async with World(nursery, source) as world:
        assert await world.kernel.ls(f"{ROOT}/x/t/users") == ["index.txt", "rows"]
        assert await world.kernel.cat(f"{ROOT}/x/t/users/index.txt") == b"table"
        assert await world.kernel.cat(f"{ROOT}/x/t/users/rows/1") == b"row"
        assert await world.kernel.ls(f"{ROOT}/x/t/logs") == ["index.csv", "rows"]
        assert await world.kernel.cat(f"{ROOT}/x/t/logs/index.csv") == b"logs"


@pytest.mark.semantics("S34.5")
async def test_values_with_slashes_are_nested_directories(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://f/a/b/c.txt": b"c", "x://f/README": b"r"})
    source.unlisted = set(source.contents)
    source.template("x://f/{+path}")
    async with World(nursery, source) as world:
        assert await world.kernel.cat(f"{ROOT}/x/f/a/b/c.txt") == b"c"
        assert await world.kernel.cat(f"{ROOT}/x/f/README") == b"r"
        assert (await world.kernel.stat(f"{ROOT}/x/f/a/b/c.txt")).size == 1
        assert (await world.kernel.stat(f"{ROOT}/x/f/README")).kind == "file"
        assert world.handlers[0].loads.most_common(1)[0][1] == 1  # type: ignore[attr-defined]
        with pytest.raises(NotFound):
            await world.kernel.ls(f"{ROOT}/x/f/nope")
        with pytest.raises(NotADirectory):
            await world.kernel.walk(f"{ROOT}/x/f/README/below")


async def test_values_with_slashes_are_completed_a_level_at_a_time(nursery: trio.Nursery) -> None:
    source = CompletingSource(values={"path": ["a/b/c.txt", "a/d", "e"]})
    source.contents = {f"x://f/{path}": b"12" for path in source.values["path"]}
    source.unlisted = set(source.contents)
    source.template("x://f/{+path}")
    async with World(nursery, source) as world:
        assert [(n, a.kind) for n, a in await world.kernel.entries(f"{ROOT}/x/f")] == [
            ("a", "directory"),
            ("e", "file"),
        ]
        assert [(n, a.kind) for n, a in await world.kernel.entries(f"{ROOT}/x/f/a")] == [
            ("b", "directory"),
            ("d", "file"),
        ]
        assert ("path", "a/", {}) in source.completions
        assert await world.kernel.cat(f"{ROOT}/x/f/a/b/c.txt") == b"12"
        assert source.loads["x://f/a"] == 0  # completion has said that it is a directory


async def test_a_query_is_the_last_name(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://s?q=ssl&limit=5": b"found"}, unlisted={"x://s?q=ssl&limit=5"})
    source.template("x://s{?q,limit}")
    async with World(nursery, source) as world:
        assert await world.kernel.cat(f"{ROOT}/x/s?q=ssl&limit=5") == b"found"
        other = await world.kernel.walk(f"{ROOT}/x/s?limit=5&q=ssl")
        assert other.kind == "symlink"
        assert await world.files.readlink(other.ino) == b"s?q=ssl&limit=5"
        assert await world.kernel.ls(f"{ROOT}/x") == []
        with pytest.raises(NotFound):
            await world.kernel.walk(f"{ROOT}/x/s?page=2")


@pytest.mark.semantics("S18")
async def test_an_update_of_an_unlisted_resource_is_told(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://k/a": b"1"}, unlisted={"x://k/a"}, templates=of("x://k/{slug}"))
    async with World(nursery, source) as world:
        assert await world.kernel.cat(f"{ROOT}/x/k/a") == b"1"
        assert source.watched == {"x://k/a"}
        before = (await world.kernel.stat(f"{ROOT}/x/k/a")).ino
        source.contents["x://k/a"] = b"22"
        source.announce("x://k/a")
        assert world.forgotten() == ["a"]
        after = await world.kernel.stat(f"{ROOT}/x/k/a")
        assert (after.ino != before, after.size) == (True, 2)


@pytest.mark.semantics("S18.4")
async def test_after_a_gap_everything_is_asked_for_again(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://k/a": b"1", "x://k/l": b"2"}, unlisted={"x://k/a"}, templates=of("x://k/{slug}"))
    async with World(nursery, source) as world:
        for name in ("a", "l"):
            await world.kernel.cat(f"{ROOT}/x/k/{name}")
        source.announce(missed=True)
        await settled()
        assert set(world.forgotten()) >= {"a", "l"}
        for name in ("a", "l"):
            await world.kernel.cat(f"{ROOT}/x/k/{name}")
        assert source.loads == {"x://k/a": 2, "x://k/l": 2}
        assert len(source.listed) == 2


@pytest.mark.semantics("S7")
async def test_the_version_of_a_forgotten_resource_is_not(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bbfs.resources.catalog.templates.MAX_UNLISTED", 2)
    source = FlatSource(templates=of("x://k/{slug}"))
    names = ["a", "b", "c", "d"]
    for name in names:
        source.contents[f"x://k/{name}"] = b"1"
        source.unlisted.add(f"x://k/{name}")
    async with World(nursery, source) as world:
        await world.kernel.cat(f"{ROOT}/x/k/a")
        source.contents["x://k/a"] = b"2"
        world.clock.advance(60)
        await world.kernel.cat(f"{ROOT}/x/k/a")
        before = (await world.kernel.stat(f"{ROOT}/x/k/a")).ino
        for name in names[1:]:
            await world.kernel.cat(f"{ROOT}/x/k/{name}")
        assert (await world.kernel.stat(f"{ROOT}/x/k/a")).ino == before
        source.contents["x://k/a"] = b"3"
        for name in names[1:]:
            await world.kernel.cat(f"{ROOT}/x/k/{name}")
        assert (await world.kernel.stat(f"{ROOT}/x/k/a")).ino != before


@pytest.mark.semantics("S6", "S20")
async def test_an_outage_is_no_absence(nursery: trio.Nursery) -> None:
    source = CompletingSource(contents={"x://k/listed": b"1"}, values={"slug": ["a"]})
    source.template("x://k/{slug}")
    source.template("x://m/{slug}")
    async with World(nursery, source) as world:
        assert await world.kernel.ls(f"{ROOT}/x") == ["k", "m"]
        source.down = Unreachable("gone")
        assert await world.kernel.ls(f"{ROOT}/x/k") == ["listed"]
        with pytest.raises(Unreachable):
            await world.kernel.ls(f"{ROOT}/x/m")
        with pytest.raises(Unreachable):
            await world.kernel.stat(f"{ROOT}/x/k/other")


async def test_a_template_that_makes_no_paths_is_told_and_harms_no_other(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://k/a": b"1"})
    for template in ("x://{", "x://plain", "x://{+a}/{+b}"):
        source.template(template)
    async with World(nursery, source) as world:
        assert await world.kernel.cat(f"{ROOT}/x/k/a") == b"1"
        assert "x://{" in (world.manager.sources[ROOT].problem or "")


async def test_problems_that_change_at_will_are_short_and_seldom_logged(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    source = CompletingSource(values={"v": [f"{n}" for n in range(200)]}, final=True)
    source.template("x://{d}/{v}" + "y" * 900)
    async with World(nursery, source) as world:
        for listing in range(20):
            source.templates = source.templates[:1]
            for number in range(200):
                source.template(f"x://{listing}-{number}" + "\u00e9" * 900)
            source.announce()
            await settled()
            await world.kernel.ls(f"{ROOT}/x/{listing}")
            problem = world.manager.sources[ROOT].problem or ""
            assert "197 more" in problem
            assert len(problem) < 2000
        warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(warnings) == 2  # of the templates, and of the values
        assert max(map(len, warnings)) < 2000
        world.clock.advance(61)
        source.announce()
        await settled()
        await world.kernel.ls(f"{ROOT}/x")
        assert str(world.manager.sources[ROOT].problem) in caplog.records[-1].getMessage()


async def test_a_lookup_matches_only_templates_below_its_literal_directories(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FlatSource(contents={"x://k/7/a/b": b"1"}, unlisted={"x://k/7/a/b"})
    for number in range(1000):
        source.template(f"x://k/{number}/{{a}}/{{b}}")
    source.template("x://{any}/here")
    matched: list[str] = []
    place = Pattern.place

    def counted(pattern: Pattern, path: tuple[str, ...], *, is_plain: bool = False) -> Position | None:
        matched.append(pattern.uri_template)
        return place(pattern, path, is_plain=is_plain)

    async with World(nursery, source) as world:
        assert await world.kernel.ls(f"{ROOT}/x/k/7") == []
        monkeypatch.setattr(Pattern, "place", counted)
        assert await world.kernel.cat(f"{ROOT}/x/k/7/a/b") == b"1"
        with pytest.raises((NotFound, NotADirectory)):
            await world.kernel.stat(f"{ROOT}/x/k/7/a/b/c/d/e")
        assert set(matched) == {"x://k/7/{a}/{b}", "x://{any}/here"}


async def test_listing_values_matches_few_and_gives_way(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    values, templates = 500, 200
    source = CompletingSource(values={"v": [f"v{number}" for number in range(values)]}, page=values)
    source.template("x://c/{v}")
    for number in range(templates):
        source.template(f"x://c/{{v}}/k{number}/{{w}}")
        source.template(f"x://c/q{number}{{?w}}")
    matched = 0
    place = Pattern.place

    def counted(pattern: Pattern, path: tuple[str, ...], *, is_plain: bool = False) -> Position | None:
        nonlocal matched
        matched += 1
        return place(pattern, path, is_plain=is_plain)

    class Steps(trio.abc.Instrument):
        count = 0

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            self.count += 1

    steps = Steps()
    async with World(nursery, source) as world:
        await world.kernel.ls(f"{ROOT}/x")
        monkeypatch.setattr(Pattern, "place", counted)
        monkeypatch.setattr(time, "perf_counter", itertools.count().__next__)  # each look at it ends a turn
        trio.lowlevel.add_instrument(steps)
        await world.kernel.ls(f"{ROOT}/x/c")
        trio.lowlevel.remove_instrument(steps)
        assert matched < 20 * (values + templates)
        assert steps.count >= values
        assert len(await world.kernel.ls(f"{ROOT}/x/c/v7")) == templates + 1  # its own content


@pytest.mark.parametrize("listed", [(), ("v0", "v0250", "v0251x", "w")])
async def test_records_of_completed_names_are_made_as_a_reader_reaches_them(
    nursery: trio.Nursery, listed: tuple[str, ...]
) -> None:
    """10 000 at once took half a second."""
    values = [f"v{number:04}" for number in range(500)]
    source = CompletingSource(values={"v": values}, page=500, contents={f"x://c/{name}": b"1" for name in listed})
    source.template("x://c/{v}")
    async with World(nursery, source) as world:
        ino, catalog = (await world.kernel.walk(f"{ROOT}/x/c")).ino, world.manager.sources[ROOT].catalog
        handle = await answered(world.core.directories.opendir(ino), world.core.directories.opendir, ino)
        assert len(catalog.all_records()) <= MADE < 400
        assert len(world.core.directories[handle].view) == len({*values, *listed})
        names = [name.decode() for name, _, _ in world.core.directories.readdir(handle, 2)]
        assert names == sorted({*values, *listed})
        assert len(catalog.all_records()) >= 499


async def test_completed_names_are_bounded_by_bytes(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("bbfs.resources.catalog.templates.completion.MAX_NAMES", 150_000)
    source = CompletingSource(values={"a": ["d", "e", "f"], "b": [f"{n}" + "y" * 200 for n in range(50)]})
    source.template("x://c/{a}/{b}")
    async with World(nursery, source) as world:
        for name in ("d", "e", "f", "d"):
            assert 0 < len(await world.kernel.ls(f"{ROOT}/x/c/{name}")) < 50
        assert [context for variable, _, context in source.completions if variable == "b"][-1] == {"a": "d"}
        assert "more values than are shown" in caplog.text


async def test_values_are_bounded_by_bytes(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("bbfs.resources.catalog.templates.completion.MAX_VALUE_BYTES", 10_000)
    source = CompletingSource(values={"v": [f"{n:03}" + "y" * 200 for n in range(1000)]}, page=100)
    source.template("x://c/{v}")
    async with World(nursery, source) as world:
        assert 30 < len(await world.kernel.ls(f"{ROOT}/x/c")) < 60
        assert len(source.completions) == 1
        assert "more values than are shown" in caplog.text


def test_unlisted_records_are_bounded_by_bytes() -> None:
    unlisted = Unlisted(lambda uri, remembered: None)
    for number in range(100):
        uri = f"x://{number}/" + "y" * (MAX_UNLISTED_BYTES // 20)
        unlisted[uri] = Record("mcp-server+docs", ResourceMetadata(uri, uri, "y"), ("x", "y"), 0.0)
    assert 5 <= len(unlisted) <= 10


async def test_several_contents_of_an_unlisted_resource_are_a_directory(nursery: trio.Nursery) -> None:
    from fakes import several

    parts = several(("x://k/a/one", b"1"), ("x://k/a/two", b"22"))
    source = FlatSource(contents={"x://k/a": parts}, unlisted={"x://k/a"}, templates=of("x://k/{slug}"))
    async with World(nursery, source) as world:
        with pytest.raises(IsADirectory):
            await world.kernel.open(f"{ROOT}/x/k/a")
        assert await world.kernel.ls(f"{ROOT}/x/k/a") == ["one", "two"]
        assert await world.kernel.cat(f"{ROOT}/x/k/a/two") == b"22"


async def test_a_load_by_uri_finds_the_template_of_a_resource(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://k/a": b"1"}, unlisted={"x://k/a"})
    source.template("x://k/{slug}", mime_type="text/markdown")
    async with World(nursery, source) as world:
        await world.kernel.ls(ROOT)
        loaded = await world.manager.by_uri.load("mcp-server+docs+x://k/a")
        assert loaded.metadata is not None
        assert (loaded.metadata.uri_template, loaded.metadata.mime_type) == ("x://k/{slug}", "text/markdown")
        await world.kernel.cat(f"{ROOT}/x/k/a")
        assert source.loaded == ["x://k/a"]


@pytest.mark.semantics("S31")
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tool/read?path=", ("read?path=", 1, False)),
        ("tool/read?path=/etc/a b", ("read?path=%2Fetc%2Fa%20b", 1, False)),
        ("tool/read?path=/etc/x&n=3", ("read?path=%2Fetc%2Fx&n=3", 1, True)),
        ("tool/read?path=/etc/x&", ("read?path=%2Fetc%2Fx&", 1, True)),
        ("tool/read?n=3&path=/etc", ("read?n=3&path=%2Fetc", 1, False)),
        ("tool/read?path=/a&path=/b", ("read?path=%2Fa&path=%2Fb", 1, False)),
        ("tool/read?path=https:", ("read?path=https:", 1, False)),
        ("tool/read?path=https:/example.com/x", ("read?path=https:%2F%2Fexample.com%2Fx", 1, False)),
        ("tool/read?path=file:/etc", ("read?path=file:%2F%2F%2Fetc", 1, False)),
        ("tool/read?path=&", None),
        ("tool/read?path=x", None),
        ("tool/read?form=text", None),
        ("tool/read?form=a", ("read?form=a", 1, False)),
        ("tool/read?form=a/b", ("read?form=a%2Fb", 1, False)),
        ("tool/read?form=a/b/c", ("read?form=a%2Fb%2Fc", 1, True)),
        ("tool/read?form=b", None),
        ("tool/read?n=", None),
        ("tool/read?", None),
        ("tool/read/description.md", None),
    ],
)
def test_slashes_that_are_not_escaped(path: str, expected: tuple[str, int, bool] | None) -> None:
    template = ResourceTemplate(
        "tool://read{?path,n,form,zone}",
        "read",
        slashed=("path", "zone"),
        choices=("form=text", "form=text/html", "form=a/b/c"),
    )
    assert slashed(tuple(filter(None, path.split("/"))), template) == expected


@pytest.mark.semantics("S31")
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tool/at?from=Europe", ("at?from=Europe", 1, False)),
        ("tool/at?from=Europe/Berlin&time=9", ("at?from=Europe%2FBerlin&time=9", 1, False)),
        ("tool/at?from=Europe/Berlin&time=9&to=Asia", ("at?from=Europe%2FBerlin&time=9&to=Asia", 1, False)),
        ("tool/at?from=a/b&time=9&to=c/d&n=1", ("at?from=a%2Fb&time=9&to=c%2Fd&n=1", 1, True)),
        ("tool/at?from=UTC&time=9&to=Asia", None),  # a call: what follows is no part of it
        ("tool/at?%66rom=UTC&n=1", None),
        ("tool/at?n=1", None),
        ("tool/at?", None),
    ],
)
def test_a_name_that_lacks_a_needed_argument_leads_on(path: str, expected: tuple[str, int, bool] | None) -> None:
    every = ("from", "time", "to")
    template = ResourceTemplate("tool://at{?from,time,to,n}", "at", slashed=every, needed=every)
    assert slashed(tuple(path.split("/")), template) == expected


NAMES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="/&%\0"), min_size=1, max_size=8)


@pytest.mark.semantics("S31")
@given(st.lists(NAMES.filter(lambda name: name not in (".", "..")), min_size=1, max_size=5))
def test_a_value_with_slashes_is_the_one_that_was_written(names: list[str]) -> None:
    template = ResourceTemplate("tool://read{?path}", "read", slashed=("path",), needed=("path",))
    found = slashed(("tool", "read?path=", *names), template)
    assert found is not None
    place = Pattern("tool://read{?path}").place(("tool", found.name))
    assert place is not None
    assert place.match is not None
    assert place.match.variables == {"path": "/" + "/".join(names)}
