"""A change by name that meets another version is refused once: the kernel asks no second time for the program (S32)."""

from collections.abc import Iterator

import pytest
from fault_contents import CODECS, record
from harness import Mounts
from journal_server import Faults, JournalServer, JournalStore, WebDav
from object_stores import WRITE
from programs import errno_of, run

pytestmark = pytest.mark.semantics("S32.9")
SAVE = "(open(sys.argv[1] + '.tmp', 'w').write('mine'), os.rename(sys.argv[1] + '.tmp', sys.argv[1]))"
NAME = "r0.txt"


def change_beside(store: JournalStore, name: str) -> None:
    """Have another program replace the file by one with a record of a name."""
    store.put(NAME, record(name, 100).encode(), "stranger")


@pytest.fixture
def server() -> Iterator[JournalServer]:
    """To be asked for before `mounted`, so that the mount ends first."""
    server = JournalServer(WebDav, JournalStore(CODECS["plain"]), Faults())
    change_beside(server.store, "s.0")
    yield server
    server.down()


@pytest.mark.parametrize(
    "change",
    [SAVE, "os.unlink(sys.argv[1])", "os.truncate(sys.argv[1], 0)"],
    ids=["save", "unlink", "truncate"],
)
def test_what_another_program_has_put_there_is_not_replaced(
    server: JournalServer, mounted: Mounts, change: str
) -> None:
    config, store = {"url": f"webdav://127.0.0.1:{server.port}/"}, server.store
    table = {"name": "far", "type": "storage", "config": config, "ttl": "10m", "capabilities": WRITE}
    mount = mounted(table, expected=["somebody else has changed", "pending"])
    path = mount / f"bb-storage+far+webdav/127.0.0.1:{server.port}/{NAME}"
    assert run("cat", path).text.startswith("s.0 ")
    change_beside(store, "s.1")
    assert errno_of(change, path) == "EBUSY"
    assert store.held[NAME].data.startswith(b"s.1 ")
    assert [*store.held] == [NAME]
    assert run("cat", path).text.startswith("s.1 ")
