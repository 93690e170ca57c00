"""Web pages on a real mount, from a real server: the tree, the bytes, what is sent again, errors, and what may hang."""

import gzip
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Mounts, folder
from programs import Program, errno_of, run, shell, wait_until
from web_site import WebSite

BYTES = {"content_type": "application/octet-stream", "accept_ranges": "bytes"}


@pytest.fixture
def site(mounted: Mounts, tmp_path: Path) -> Iterator[WebSite]:
    """Ends before the mounts do."""
    site = WebSite(tmp_path)
    yield site
    site.stop()


def pages(name: str = "web", *, ttl: Any = None, timeout: float = 10, **config: Any) -> dict[str, Any]:
    table = {"name": name, "type": "url", "timeout": timeout, "config": {"allow_private": True, **config}}
    return table if ttl is None else {**table, "ttl": ttl}


def xattr(path: Path, name: str) -> str:
    return run("getfattr", "--only-values", "-n", name, path).text


@pytest.mark.semantics("S2", "S5", "S11")
def test_a_site_as_a_tree(mounted: Mounts, site: WebSite) -> None:
    site.write(
        "guide/intro.html", "<h1>Hello</h1><p>w\xf6rld</p>".encode("latin-1"), content_type="text/html; charset=latin-1"
    )
    site.write("llms.txt", "# Site\n- [Intro](guide/intro.html): Where to begin\n")
    entries = "".join(f"<url><loc>{site.url}/{path}</loc></url>" for path in ("guide/", "guide/intro.html", "a.txt"))
    packed = gzip.compress(f"<urlset>{entries}</urlset>".encode())
    site.write("sitemap.xml.gz", packed)
    site.write("a.txt", "alpha\n")
    site.write("guide/index.html", "<p>ello", content_type="text/html")
    urls = [f"{site.url}/echo?b=2&a=1"]
    source = pages(urls=urls, llms_txt=f"{site.url}/llms.txt", sitemap=f"{site.url}/sitemap.xml.gz", markdown=True)
    mount = mounted(source)
    root = mount / f"bb-url+web/http/{site.host}"
    listed = shell("find . -type f | sort", directory=root).text.split()
    assert listed == [
        *("./a.txt", "./echo?b=2&a=1", "./echo?b=2&a=1.md"),
        *("./guide/index.html", "./guide/index.html.md", "./guide/intro.html", "./guide/intro.html.md", "./llms.txt"),
    ]
    assert not {each["path"] for each in site.requests()} - {"/llms.txt", "/sitemap.xml.gz"}
    assert run("cat", root / "guide/intro.html").out == (site.root / "guide/intro.html").read_bytes()
    assert run("cat", root / "guide/intro.html.md").text == "# Hello\n\nw\xf6rld\n"
    for name, value in {
        "user.mime_type": "text/html",
        "user.bbfs.charset": "latin-1",
        "user.bbfs.title": "Intro",
        "user.bbfs.description": "Where to begin",
        "user.xdg.origin.url": f"{site.url}/guide/intro.html",
        "user.bbfs.uri": f"bb-url+web+{site.url}/guide/intro.html",
    }.items():
        assert xattr(root / "guide/intro.html", name) == value
    assert xattr(root / "guide/intro.html.md", "user.bbfs.rendered_from") == f"{site.url}/guide/intro.html"
    assert json.loads(run("cat", root / "echo?b=2&a=1").text)["path"] == "/echo?b=2&a=1"
    assert sorted(run("grep", "-rl", "ello", root).text.split()) == [
        f"{root}/guide/{name}" for name in ("index.html", "index.html.md", "intro.html", "intro.html.md")
    ]


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


@pytest.mark.semantics("S10")
def test_the_time_of_a_page_is_what_its_server_says(mounted: Mounts, site: WebSite) -> None:
    url = site.write("page", "x")
    os.utime(site.root / "page", (1_000_000_000, 1_000_000_000))
    site.write("sitemap.xml", f"<urlset><url><loc>{url}</loc><lastmod>2020-01-01</lastmod></url></urlset>")
    mount = mounted(pages(sitemap=f"{site.url}/sitemap.xml", ttl={"listing": 0.2, "content": 60}))
    path = mount / f"bb-url+web/http/{site.host}/page"
    assert run("find", path, "-printf", "%TY").text in ("2020", "2001")
    assert run("cat", path).text == "x"

    def listings() -> int:
        run("ls", path.parent)
        return len(site.requests("/sitemap.xml"))

    for number in range(2, 5):
        wait_until(lambda number=number: listings() >= number, "it is listed again")
        assert run("stat", "-c", "%Y", path).text.strip() == "1000000000"
    assert len(site.requests("/page")) == 1


@pytest.mark.semantics("S20", "S22")
def test_a_server_that_hangs_or_is_gone_harms_nobody_else(mounted: Mounts, site: WebSite, tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    good = WebSite(tmp_path / "good")
    try:
        large = site.write("large", os.urandom(9_000_000), **BYTES)
        small = site.write("small", "kept")
        other = good.write("page", "fine")
        mount = mounted(pages("bad", urls=[large, small], timeout=1, ttl={"content": 0.2}), pages("good", urls=[other]))
        bad, fine = mount / f"bb-url+bad/http/{site.host}", mount / f"bb-url+good/http/{good.host}/page"
        assert run("cat", bad / "small").text == "kept"
        assert run("cat", fine).text == "fine"
        program = Program("tail", "-c", "1000", bad / "large")
        site.stall()
        stalled = Program("cat", bad / "large")
        assert run("cat", fine).text == "fine"

        def is_stale() -> bool:
            assert run("cat", bad / "small").text == "kept"
            return run("getfattr", "-n", "user.bbfs.cache", "--only-values", bad / "small").text == "stale"

        wait_until(is_stale, "what is kept of a server that hangs has expired, and is served")
        assert stalled.wait().status != 0
        program.wait()
        site.go_on()
        assert errno_of("len(open(sys.argv[1], 'rb').read())", fine) == "OK 4"
    finally:
        good.stop()


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
    urls = [site.write(f"large{number}", os.urandom(4_000_000), **BYTES) for number in range(16)]
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "file").write_bytes(os.urandom(20_000_000))
    mount = mounted(pages(urls=urls, timeout=10), folder("local", tmp_path / "local"))
    go = tmp_path / "go"
    os.mkfifo(go)
    paths = [mount / f"bb-url+web/http/{site.host}/large{number}" for number in range(16)]
    readers = programs("python3", "-c", f"import os, sys\n{READERS}", go, *paths)
    out = readers.process.stdout
    assert out is not None
    assert out.readline() == b"open\n"
    site.stall()
    go.write_bytes(b"")
    assert out.readline() == b"reading\n"
    run("cmp", mount / "bb-filesystem+local+file/file", tmp_path / "local" / "file")
    assert readers.running, "it waited for them"
    assert readers.wait(40).text.strip() == "16"
    site.go_on()
