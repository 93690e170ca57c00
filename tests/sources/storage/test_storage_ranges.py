"""Contents that stay where they are: what is asked for, by how many, and what is kept."""

import pytest
import trio
from trio.testing import MockClock

from bbfs.model.errors import DeadlineExceeded, Outdated, ProtocolViolation, Unreachable
from bbfs.sources.content.ranges import Blocks, RangedContent

DATA = bytes(range(250)) * 4
BLOCK = 100


class Far:
    """Where the bytes are. Each request takes a second."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.failure: Exception | None = None
        self.missing = 0

    async def fetch(self, offset: int, length: int) -> bytes:
        self.asked.append((offset, length))
        await trio.sleep(1)
        if self.failure is not None:
            raise self.failure
        return DATA[offset : offset + length - self.missing]

    def content(self, *, first: bytes = b"", blocks: Blocks | None = None, timeout: float = 30.0) -> RangedContent:
        blocks = Blocks() if blocks is None else blocks
        return RangedContent(self.fetch, len(DATA), "v", "far", timeout, blocks, first, BLOCK)


@pytest.mark.semantics("S15")
async def test_reads_in_order_ask_for_more_and_more_and_others_for_what_they_need(autojump_clock: MockClock) -> None:
    far = Far()
    content = far.content(first=DATA[:BLOCK])
    for offset in range(0, len(DATA), 50):
        assert await content.read_waiting(offset, 50) == DATA[offset : offset + 50]
    assert far.asked == [(100, 200), (300, 400), (700, 300)]
    far.asked.clear()
    content = far.content()
    for offset in (950, 210, 640):
        assert await content.read_waiting(offset, 70) == DATA[offset : offset + 70]
        assert content.read(offset, 70) == DATA[offset : offset + 70]
    assert far.asked == [(900, 100), (200, 100), (600, 100), (700, 200)]
    assert content.read(0, 10) is None


def test_a_size_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="more than any file can have"):
        RangedContent(Far().fetch, 1 << 63, "v", "far", 30.0, Blocks())


@pytest.mark.semantics("S16")
async def test_one_request_serves_all_who_wait_even_if_the_first_gives_up(autojump_clock: MockClock) -> None:
    far = Far()
    content = far.content()
    got: list[bytes] = []

    async def read() -> None:
        got.append(await content.read_waiting(500, 5))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        nursery.start_soon(read)
    assert len(far.asked) == 1
    assert got == [DATA[500:505]] * 2

    async def give_up() -> None:
        with trio.move_on_after(0.5):
            await content.read_waiting(800, 5)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(give_up)
        await trio.testing.wait_all_tasks_blocked()
        assert await content.read_waiting(800, 5) == DATA[800:805]
    assert far.asked[1:] == [(800, 100), (800, 100)]


@pytest.mark.semantics("S13", "S23")
async def test_what_goes_wrong_is_told_and_another_version_for_good(autojump_clock: MockClock) -> None:
    far = Far()
    content = far.content(first=DATA[:BLOCK])
    far.failure = Unreachable("gone")
    with pytest.raises(Unreachable):
        await content.read_waiting(500, 5)
    far.failure = None
    far.missing = 1
    with pytest.raises(ProtocolViolation):
        await content.read_waiting(500, 5)
    far.missing = 0
    assert await content.read_waiting(500, 5) == DATA[500:505]
    far.failure = Outdated("another")
    with pytest.raises(Outdated):
        await content.read_waiting(900, 5)
    far.failure = None
    with pytest.raises(Outdated):
        await content.read_waiting(900, 5)
    assert await content.read_waiting(0, 5) == DATA[:5]


@pytest.mark.semantics("S22")
async def test_a_read_ends_at_its_deadline(autojump_clock: MockClock) -> None:
    content = Far().content(timeout=0.7)
    with pytest.raises(DeadlineExceeded):
        await content.read_waiting(500, 5)


async def test_all_open_contents_share_one_bound(autojump_clock: MockClock) -> None:
    far, blocks = Far(), Blocks(limit=4)
    contents = [far.content(blocks=blocks) for _ in range(3)]
    for _ in range(2):
        for content in contents:
            assert await content.read_waiting(0, len(DATA)) == DATA
            assert len(blocks) <= 4
    for content in contents:
        content.close()
        content.close()
    assert not len(blocks)
