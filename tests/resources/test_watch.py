"""What a watch reports of a source that announces changes."""

import trio
from fakes import Clock, FlatSource, World, data_source
from trio.testing import MockClock

from bbfs.model.values import Change
from bbfs.resources.watch import Watch


class Passing(Clock):
    """The time of trio."""

    def __call__(self) -> float:
        return trio.current_time()


async def test_a_change_before_the_source_reports_any_is_told_though_the_content_was_loaded_just_now(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    source = FlatSource(data_source(content_ttl=1000.0), contents={"x://a": b"old"})
    told: list[Change] = []
    async with World(nursery, source, clock=Passing()) as world:
        await nursery.start(Watch(world.manager, [("mcp-server+docs",)], told.append, lambda problem: None).run)
        assert source.loaded == ["x://a"]
        source.contents["x://a"] = b"newer"
        source.announce("x://a", missed=True)  # the source has agreed to report changes from now on
        await trio.sleep(5)
        assert [change.event for change in told] == ["changed"]
        nursery.cancel_scope.cancel()
