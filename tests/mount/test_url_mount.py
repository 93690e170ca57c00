"""Web pages on a real mount, from a real server: the tree, the bytes, what is sent again, errors, and what may hang."""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Mounts, folder
from programs import Program, run
from web_site import WebSite


@pytest.fixture
def site(mounted: Mounts, tmp_path: Path) -> Iterator[WebSite]:
    """Ends before the mounts do."""
    site = WebSite(tmp_path)
    yield site
    site.stop()


def pages(name: str = "web", *, ttl: Any = None, timeout: float = 10, **config: Any) -> dict[str, Any]:
    table = {"name": name, "type": "url", "timeout": timeout, "config": {"allow_private": True, **config}}
    return table if ttl is None else {**table, "ttl": ttl}


@pytest.mark.semantics("S7", "S17", "S19")
def test_what_has_not_changed_is_not_sent_again_and_stays_the_same_file(mounted: Mounts, site: WebSite) -> None:
    data = os.urandom(200_000)
    url = site.write("page", data)
    path = mounted(pages(urls=[url], ttl={"content": 0.3})) / f"bb-url+web/http/{site.host}/page"
    digest = hashlib.md5(data).hexdigest()
    assert run("md5sum", path).text.split()[0] == digest
    before = run("stat", "-c", "%i %s %Y", path).text
    for _ in range(3):
        asked = len(site.requests("/page"))
        time.sleep(0.35)  # the time to live is what is tested
        assert run("md5sum", path).text.split()[0] == digest
        site.await_requests("/page", asked + 1)
    assert run("stat", "-c", "%i %s %Y", path).text == before
    sent = [each["sent"] for each in site.requests("/page")]
    assert sent[0] == len(data)
    assert not any(sent[1:])
    # The pages of the kernel have outlived all of that: fincore opens the file and reads nothing of it.
    time.sleep(0.35)
    assert int(run("fincore", "-bn", "-o", "RES", path).text) >= len(data)
    site.write("page", b"changed")
    time.sleep(0.35)
    assert run("cat", path).out == b"changed"
    assert run("stat", "-c", "%i", path).text != before.split()[0]


READERS = """
import threading
files = [os.open(path, os.O_RDONLY) for path in sys.argv[2:]]
assert all(len(os.pread(file, 10, 0)) == 10 for file in files)
print("open", flush=True)
open(sys.argv[1]).read()
errors = []
def read(file):
    try:
        while os.read(file, 1 << 20):
            pass
    except OSError as error:
        errors.append(error.errno)
threads = [threading.Thread(target=read, args=(file,)) for file in files]
for thread in threads:
    thread.start()
print("reading", flush=True)
for thread in threads:
    thread.join()
print(len(errors))
"""


@pytest.mark.semantics("S22")
def test_reads_that_wait_in_vain_keep_no_other_source_waiting(
    mounted: Mounts, site: WebSite, programs: type[Program], tmp_path: Path
) -> None:
    """The kernel has few requests under way for what it reads ahead, for the whole mount."""
    urls = [f"{site.url}/held/{number}" for number in range(16)]
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "file").write_bytes(os.urandom(20_000_000))
    mount = mounted(pages(urls=urls, timeout=10), folder("local", tmp_path / "local"))
    go = tmp_path / "go"
    os.mkfifo(go)
    paths = [mount / f"bb-url+web/http/{site.host}/held/{number}" for number in range(16)]
    readers = programs("python3", "-c", f"import os, sys\n{READERS}", go, *paths)
    out = readers.process.stdout
    assert out is not None
    assert out.readline() == b"open\n"
    go.write_bytes(b"")
    assert out.readline() == b"reading\n"
    run("cmp", mount / "bb-filesystem+local+file/file", tmp_path / "local" / "file")
    assert readers.running, "it waited for them"
    assert readers.wait(40).text.strip() == "16"
