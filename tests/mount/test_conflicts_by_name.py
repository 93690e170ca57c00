"""A change by name that meets another version is refused once: the kernel asks no second time for the program (S32)."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from fault_contents import CODECS, record
from harness import Mount, Mounts
from journal_server import Faults, JournalServer, JournalStore, WebDav
from programs import errno_of, run

pytestmark = pytest.mark.semantics("S32.9")
SAVE = "(open(sys.argv[1] + '.tmp', 'w').write('mine'), os.rename(sys.argv[1] + '.tmp', sys.argv[1]))"
NAME = "r0.txt"


class Beside(JournalStore):
    """A store with a file of records, and how another program changes it."""

    def change(self, name: str) -> None:
        self.put(NAME, record(name, 100).encode(), "stranger")


@pytest.fixture
def store() -> Beside:
    made = Beside(CODECS["plain"])
    made.change("s.0")
    return made


@pytest.fixture
def mount(fuse: None, store: Beside) -> Iterator[tuple[Mount, str]]:
    mounts = Mounts()
    with closing(mounts):
        server = JournalServer(WebDav, store, Faults())
        try:
            url = f"webdav://127.0.0.1:{server.port}/"
            table = {"name": "far", "type": "storage", "config": {"url": url}, "ttl": "10m"}
            found = mounts(
                table | {"capabilities": ["read", "list", "write"]}, expected=["somebody else has changed", "pending"]
            )
            yield found, f"bb-storage+far+webdav/127.0.0.1:{server.port}/{NAME}"
        finally:
            server.down()


@pytest.mark.parametrize(
    "change",
    [SAVE, "os.unlink(sys.argv[1])", "os.truncate(sys.argv[1], 0)"],
    ids=["save", "unlink", "truncate"],
)
def test_what_another_program_has_put_there_is_not_replaced(
    mount: tuple[Mount, str], store: Beside, change: str
) -> None:
    mounted, name = mount
    path = mounted / name
    assert run("cat", path).text.startswith("s.0 ")
    store.change("s.1")
    assert errno_of(change, path) == "EBUSY"
    assert store.held[NAME].data.startswith(b"s.1 ")
    assert [*store.held] == [NAME]
    assert run("cat", path).text.startswith("s.1 ")
