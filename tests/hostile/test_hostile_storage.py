"""Hostile object stores and archives."""

import gzip
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from harness import SourceTable
from hostile import Case, walk, walk_part
from hostile_archives import EMPTY, bomb, deflated, xz_with_dictionary, zip_of, zstd_frame
from hostile_sources import PATIENCE, Reply, Source, serve
from hostile_storage import (
    DAV_PAGES,
    ENDLESS_S3,
    ESCAPES,
    HOSTILE_TARS,
    LONG_FACT,
    ODD_DAV,
    S3_PAGES,
    dav_entry,
    dav_page,
    s3_page,
    tar_header,
)

MIB = 1 << 20
ZEROS = bytes(64 * MIB)
XML = {"content-type": "application/xml"}
QUICK = {"a page of a million elements"}
MANY_FILES = {"a listing of long names for ever", "a listing of new names for ever"}
"""Listings of which 18 000 or 100 000 files are kept if they come in time: the store is asked for each that is read."""


def bucket(reply: Reply) -> Source:
    """Return the source of a bucket whose every listing is one reply."""

    def source(directory: Path) -> SourceTable:
        url = serve(directory, {"GET /bucket*list-type=2*": reply})
        options = {"endpoint": url, "path_style": True, "anonymous": True}
        config = {"url": "s3://bucket/d/", "options": options}
        return {"name": "hostile", "type": "storage", "config": config, "timeout": PATIENCE}

    return source


def stores() -> Iterator[Case]:
    """Yield listings of a bucket."""
    pages: dict[str, Reply] = {f"a page of {name}": Reply(made, headers=XML) for name, made in S3_PAGES.items()}
    pages |= {
        f"a listing of {name}": Reply(made(1).replace(b">1<", b">@N@<").replace(b"1-", b"@N@-"), headers=XML)
        for name, made in ENDLESS_S3.items()
    }
    facts = f"<Size>1</Size><ETag>{LONG_FACT}</ETag><StorageClass>{LONG_FACT}</StorageClass>"
    long = "".join(f"<Contents><Key>d/@N@-{n}</Key>{facts}</Contents>" for n in range(30))
    more = "<IsTruncated>true</IsTruncated><NextContinuationToken>@N@</NextContinuationToken>"
    pages["a listing of long facts"] = Reply(s3_page((more + long).encode()), headers=XML)
    elements = lambda: s3_page(b"<a/>" * 12 * MIB)  # noqa: E731
    pages |= {
        "a page of elements, gzip": Reply(elements, headers=XML, encodings=["gzip"]),
        "a page of elements for ever": Reply(b"<a/>" * MIB, begins=b"<ListBucketResult>", headers=XML, endless=True),
        "a page of spaces for ever": Reply(b" " * MIB, headers=XML, endless=True),
        "an error of elements for ever": Reply(b"<a/>" * MIB, begins=b"<Error>", status=403, headers=XML, endless=True),
    }  # fmt: skip
    for name, reply in pages.items():
        programs = walk_part if name in MANY_FILES else walk
        yield Case(name, bucket(reply), "bb-storage+hostile+s3", programs, quick=name in QUICK)


def collection(reply: Reply) -> Source:
    """Return the source of a WebDAV server whose every listing is one reply."""

    def source(directory: Path) -> SourceTable:
        url = serve(directory, {"PROPFIND *": reply}).replace("http", "webdav", 1)
        return {"name": "hostile", "type": "storage", "config": {"url": f"{url}/d/"}, "timeout": PATIENCE}

    return source


def collections() -> Iterator[Case]:
    """Yield listings of WebDAV."""
    begins = b'<multistatus xmlns="DAV:">'

    def endless(text: str) -> Reply:
        return Reply(text.encode(), begins, 207, XML, endless=True)

    replies = {name: Reply(made, status=207, headers=XML) for name, made in DAV_PAGES.items()}
    replies |= {f"entries of {name}": Reply(dav_page(*[each] * 99), status=207) for name, each in ODD_DAV.items()}
    replies |= {
        "names for ever": endless("".join(dav_entry("/d/@N@") for _ in range(100))),
        "long names for ever": endless("".join(dav_entry("/d/@N@" + "x" * 8000) for _ in range(100))),
        "long facts for ever": endless(
            dav_entry("/d/@N@.odd", f"<getetag>{LONG_FACT}</getetag><getcontenttype>{LONG_FACT}</getcontenttype>")
        ),
        "one name for ever": endless(dav_entry("/d/a") * 1000),
        "elements for ever": endless("<a/>" * MIB),
        "spaces for ever": endless(" " * MIB),
        "an element for ever": endless("<a>" * MIB),
        "a section for ever": Reply(b"<" * MIB, begins + b"<a><![CDATA[", 207, XML, endless=True),
        "zeros, gzip": Reply(begins + b" " * len(ZEROS), status=207, headers=XML, encodings=["gzip"]),
        "an error for ever": Reply(b"x" * MIB, status=403, headers=XML, endless=True),
        "a redirect to itself": Reply(status=307, headers={"location": "/d/"}),
        "a redirect into this machine": Reply(status=307, headers={"location": "http://127.0.0.1:1/d/"}),
    }
    for name, reply in replies.items():
        quick = name == "names for ever"
        yield Case(f"a WebDAV listing of {name}", collection(reply), "bb-storage+hostile+webdav", quick=quick)


def archive(name: str, write: Callable[[Path], None]) -> Source:
    """Return the source of an archive of that name, which `write` makes."""

    def source(directory: Path) -> SourceTable:
        path = directory / name
        write(path)
        scheme = "zip" if name.endswith(".zip") else "tar"
        config = {"url": f"{scheme}://{path}"}
        return {"name": "hostile", "type": "storage", "config": config, "timeout": PATIENCE}

    return source


def tar(pieces: Callable[[], Iterable[bytes]]) -> Source:
    """Return the source of a tar that is compressed on the way to the disk."""

    def write(path: Path) -> None:
        with gzip.open(path, "wb", compresslevel=1) as file:
            file.writelines(pieces())
            file.write(bytes(1024))

    return archive("hostile.tar.gz", write)


def data(made: Callable[[], bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(made())

    return write


def tars() -> Iterator[Case]:
    """Yield archives of tar, and their compressions."""
    where = "bb-storage+hostile+tar"
    sources: dict[str, Source] = {f"a tar of {name}": tar(made) for name, made in HOSTILE_TARS.items()}
    head = tar_header(b"zeros", 6 << 30)
    for suffix in ("gz", "bz2", "xz", "zst"):
        sources[f"a tar.{suffix} of zeros"] = archive(f"a.tar.{suffix}", lambda path: bomb(path, head))
        sources[f"a tar.{suffix} of empty streams"] = archive(f"a.tar.{suffix}", data(EMPTY[suffix]))
    sources["a tar.xz with a dictionary of four gigabytes"] = archive("a.tar.xz", data(lambda: xz_with_dictionary(40)))
    sources["a tar.xz with a dictionary of 1.5 gigabytes"] = archive("a.tar.xz", data(lambda: xz_with_dictionary(37)))
    sources["a tar.zst with a window of two gigabytes"] = archive("a.tar.zst", data(lambda: zstd_frame(31, 1000)))
    sources["a tar that is a pipe"] = archive("a.tar", os.mkfifo)
    sources["a tar that is a device"] = archive("a.tar", lambda path: path.symlink_to("/dev/zero"))
    links = [tar_header(b"a/b/c/", 0, b"5"), tar_header(b"a/file")]
    links += [tar_header(name.encode(), 0, b"2", target.encode()) for name, target in ESCAPES.items()]
    links += [tar_header(b"hard%d" % n, 0, b"1", b"hard%d" % (n + 1)) for n in range(10_000)]
    sources["links of a tar that lead out"] = tar(lambda: links)
    for name, source in sources.items():
        yield Case(name, source, where, walk, quick=name in QUICK)


def touch(directory: Path) -> Sequence[Sequence[str | Path]]:
    """Return the programs that list an archive, and read one member of it."""
    return [("ls", "-lR", directory), ("cat", directory / "f"), ("cat", directory / "f0")]


def zips() -> Iterator[Case]:
    """Yield archives of zip."""
    zeros = cache(lambda: deflated(ZEROS))
    made: Mapping[str, Callable[[], bytes]] = {
        "a zip of zeros": lambda: zip_of([(b"f%d" % n, 8, zeros(), len(ZEROS)) for n in range(20)]),
        "a zip whose members share one data": lambda: zip_of(
            [(b"f%d" % n, 8, zeros(), len(ZEROS)) for n in range(2000)], overlap=True
        ),
        "a zip of many members": lambda: zip_of([(b"d/f%d" % n, 0, b"", 0) for n in range(400_000)], count=0xFFFF),
        "a zip of long names": lambda: zip_of([(b"%d" % n + b"x" * 60_000, 0, b"", 0) for n in range(800)]),
        "a zip of deep names": lambda: zip_of([(b"%d" % n + b"/d" * 30_000, 0, b"", 0) for n in range(300)]),
        "a zip of dots": lambda: zip_of(
            [
                (name, 0, b"x", 1)
                for name in (b"../a", b"/a", b"a/../../b", b"a\0b", b"a\nb", b"\xff", b"", b"/", b"\\..\\c")
            ]
        ),
        "a zip that says less than it has": lambda: zip_of([(b"f", 8, zeros(), 10)]),
        "a zip that says more than it has": lambda: zip_of([(b"f", 8, deflated(b"x"), 0xFFFFFFF0)]),
        "a zip of damaged streams": lambda: zip_of(
            [(b"f", method, b"\xff" * 1000, 999) for method in (8, 9, 12, 14, 93)]
        ),
        "a zip that has no end": lambda: b"PK\3\4" + bytes(8 * MIB),
        "a zip of many ends": lambda: b"PK\5\6" * 20_000,
    }
    for name, make in made.items():
        yield Case(name, archive("a.zip", data(make)), "bb-storage+hostile+zip", touch)


@pytest.mark.parametrize("case", [*stores(), *collections(), *tars(), *zips()], ids=str)
def test_a_hostile_store_harms_nobody(case: Case, holds: Callable[[Case], None]) -> None:
    holds(case)
