"""Archives: hostile names and bombs, damage, versions, ranges, encodings."""

import bz2
import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from backports import zstd
from fakes import data_source

from bbfs.model.errors import (
    BbfsError,
    ConfigError,
    DeadlineExceeded,
    Denied,
    NotFound,
    NotSupported,
    Outdated,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)
from bbfs.sources import Services
from bbfs.sources.content.spool import Spool
from bbfs.sources.storage.archives.members import stays_inside
from bbfs.sources.storage.archives.tar import TarMember
from bbfs.sources.storage.handler import StorageHandler
from bbfs.testing import list_all, read_whole

COMPRESSIONS: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}


def handler_of(
    path: Path, *, timeout: float = 20.0, spool: Callable[[], Spool] = Spool, **config: Any
) -> StorageHandler:
    scheme = "zip" if ".zip" in path.name else "tar"
    source = data_source(f"bb-storage+arc+{scheme}", timeout=timeout, config={"url": f"{scheme}://{path}", **config})
    return StorageHandler(source, Services(spool=spool))


async def shown(handler: StorageHandler) -> dict[str, bytes | str]:
    """What the archive shows: URIs below it, with the bytes of files and the targets of links."""
    found: dict[str, bytes | str] = {}
    prefix = f"{handler.source.scheme}:/"
    for entry in await list_all(handler):
        if entry.kind == "resource":
            content = (await handler.load(entry.native_uri)).parts[0].content
            found[entry.native_uri.removeprefix(prefix)] = await read_whole(content)
            assert content.size == entry.size
            content.close()
        elif entry.kind == "symlink":
            found[entry.native_uri.removeprefix(prefix)] = f"-> {entry.target}"
    return found


def tar_of(*members: tuple[str, bytes | None], **special: tuple[bytes, str]) -> bytes:
    """A tar archive. special: name (`_` for a slash) to type and link target."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.mtime = 1_700_000_000
            if data is None:
                info.type = tarfile.DIRTYPE
            info.size = len(data or b"")
            archive.addfile(info, io.BytesIO(data or b""))
        for name, (kind, target) in special.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            archive.addfile(info)
    return file.getvalue()


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.semantics("S3", "S4")
async def test_hostile_names_of_a_tar_stay_inside(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"hostile.tar{suffix}"
    data = tar_of(
        ("../../etc/passwd", b"up"),
        ("/abs/olute", b"root"),
        ("./plain", b"old"),
        ("plain", b"new"),
        ("back\\slash", b"back"),
        ("dir", None),
        ("file", b"file"),
        ("file/below", b"below"),
        ("x" * 300 + ".txt", b"long"),
        ("caf\u00e9", b"nfc"),
        ("ctl\x01\n", b"control"),
        ("", b"nameless"),
        device=(tarfile.CHRTYPE, ""),
        pipe=(tarfile.FIFOTYPE, ""),
        inside=(tarfile.SYMTYPE, "dir/../plain"),
        escapes=(tarfile.SYMTYPE, "../../../etc/passwd"),
        absolute=(tarfile.SYMTYPE, "/etc/passwd"),
        hard=(tarfile.LNKTYPE, "plain"),
        harder=(tarfile.LNKTYPE, "/etc/passwd"),
    )
    path.write_bytes(COMPRESSIONS[suffix](data))
    handler = handler_of(path)
    assert await shown(handler) == {
        "/%2E%2E/%2E%2E/etc/passwd": b"up",
        "/abs/olute": b"root",
        "/plain": b"new",
        "/back%5Cslash": b"back",
        "/file": b"file",
        "/file/below": b"below",
        "/" + "x" * 300 + ".txt": b"long",
        "/caf%C3%A9": b"nfc",
        "/ctl%01%0A": b"control",
        "/inside": "-> dir/../plain",
        "/hard": b"new",
    }
    listing = await handler.list_directory(())
    assert listing.problem is not None
    assert "1 members are covered" in listing.problem
    assert "and 3 more" in listing.problem  # six are left out: nameless, device, pipe, two links, a hard link
    with pytest.raises(Denied):
        await handler.load("tar://inside")
    assert {entry.modified_ns for entry in listing.resources if entry.name == "plain"} == {1_700_000_000 * 10**9}


def raw_zip(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)


def special(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, mode << 16
    return info


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.semantics("S3", "S4", "S5")
async def test_hostile_names_of_a_zip_stay_inside(tmp_path: Path) -> None:
    path = tmp_path / "hostile.zip"
    raw_zip(
        path,
        ("../../etc/passwd", b"up"),
        ("/abs", b"root"),
        ("back\\slash", b"back"),
        ("twice", b"first"),
        ("twice", b"second"),
        ("a", b"own"),
        ("a/b", b"below"),
        ("empty/", b""),
        (special("link", stat.S_IFLNK | 0o777), b"a/b"),
        (special("escape", stat.S_IFLNK | 0o777), b"../../x"),
        (special("device", stat.S_IFBLK | 0o600), b""),
        ("/".join("d" * 300), b"deep"),
    )
    handler = handler_of(path)
    assert await shown(handler) == {
        "/%2E%2E/%2E%2E/etc/passwd": b"up",
        "/abs": b"root",
        "/back%5Cslash": b"back",
        "/twice": b"second",
        "/a": b"own",
        "/a/b": b"below",
        "/link": "-> a/b",
    }
    top = await handler.list_directory(())
    kinds = {entry.native_uri.removeprefix("zip:/"): entry.kind for entry in top.resources}
    assert kinds["/a/"] == kinds["/empty/"] == "directory"
    assert "/a" not in kinds
    assert top.problem is not None
    assert "256 directories" in top.problem


async def test_names_are_in_the_encoding_that_the_archive_says_or_the_options_do(tmp_path: Path) -> None:
    path = tmp_path / "names.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("flag-\u00fc", "x1", "x2", "x3"):
            archive.writestr(name, b"")
    raw = path.read_bytes()
    # Names as other programs write them: code page 437 (0x81 is ü), UTF-8 without the flag, Shift JIS.
    for old, new in ((b"x1", b"\x81a"), (b"x2", b"\xc3\xbc"), (b"x3", b"\x83\x5c")):
        raw = raw.replace(old, new)
    path.write_bytes(raw)
    names = {entry.name for entry in (await handler_of(path).list_directory(())).resources}
    assert names == {"flag-\u00fc", "\u00fca", "\u00fc", b"\x83\x5c".decode("cp437")}
    sjis = handler_of(path, options={"encoding": "shift_jis"})
    assert "\u30bd" in {entry.name for entry in (await sjis.list_directory(())).resources}
    nothing = handler_of(path, options={"encoding": "klingon"})
    with pytest.raises(ProtocolViolation):
        await nothing.list_directory(())


@pytest.mark.semantics("S23")
async def test_what_cannot_be_read_of_a_zip_says_why(tmp_path: Path) -> None:
    path = tmp_path / "locked.zip"
    raw_zip(path, ("secret", b"x" * 100), ("odd", b"y" * 100), ("sound", b"z"), ("torn", b"w" * 1000))
    raw = bytearray(path.read_bytes())
    for name, offset, change in ((b"secret", 8, (1,)), (b"odd", 10, (97, 0))):
        # The same change in the directory; its fields begin two bytes later than those of a local header.
        for signature, further in ((b"PK\1\2", 2), (b"PK\3\4", 0)):
            at = -1
            while (at := raw.find(signature, at + 1)) >= 0:
                begin = at + (46 if further else 30)
                if raw[begin : begin + len(name)] == name:
                    where = at + offset - 2 + further
                    raw[where : where + len(change)] = bytes(change)
    begin = raw.index(b"torn") + 4
    raw[begin : begin + 5] = bytes(5)
    path.write_bytes(raw)
    handler = handler_of(path)
    for name, kind, said in (
        ("secret", NotSupported, "encrypted"),
        ("odd", NotSupported, "compression"),
        ("torn", ProtocolViolation, "damaged"),
    ):
        with pytest.raises(kind) as caught:
            await handler.load(f"zip://{name}")
        assert said in str(caught.value)
    assert (await handler.load("zip://sound")).parts[0].content.size == 1
    assert (await handler.stat("zip://secret")).properties is not None


@pytest.mark.parametrize("name", ["bad.zip", "bad.tar", "bad.tar.gz", "bad.tar.bz2", "bad.tar.xz", "bad.tar.zst"])
@pytest.mark.parametrize("damage", ["empty", "noise", "cut"])
@pytest.mark.semantics("S23")
async def test_a_damaged_archive_is_an_error_or_says_what_is_missing(tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / name
    good = tar_of(("first", os.urandom(50_000)), ("second", os.urandom(50_000)))
    if name.endswith(".zip"):
        raw_zip(path, ("first", os.urandom(50_000)))
        good = path.read_bytes()
    else:
        good = COMPRESSIONS[path.suffix if path.suffix != ".tar" else ""](good)
    magic = good[:6]
    data = {"empty": b"", "noise": magic + os.urandom(2000), "cut": good[: len(good) * 2 // 3]}[damage]
    path.write_bytes(data)
    handler = handler_of(path)
    try:
        listing = await handler.list_directory(())
    except (ProtocolViolation, TooLarge):
        assert damage != "cut" or name not in ("bad.tar", "bad.tar.gz")
        return
    assert listing.problem is not None
    assert "damaged" in listing.problem


@pytest.mark.semantics("S15")
async def test_a_bomb_is_bounded_by_what_it_says_and_by_what_comes(tmp_path: Path) -> None:
    limit = 1 << 20

    def spool() -> Spool:
        return Spool(None, limit, "[cache] disk")

    path = tmp_path / "bomb.zip"
    raw_zip(path, ("bomb", bytes(50 << 20)), ("small", b"small"))
    handler = handler_of(path, spool=spool)
    with pytest.raises(TooLarge, match="disk"):
        await handler.load("zip://bomb")
    assert await read_whole((await handler.load("zip://small")).parts[0].content) == b"small"
    # One that says to be small: no more than that is read, and its checksum is wrong then.
    raw = bytearray(path.read_bytes())
    at = raw.index(b"PK\1\2")
    struct.pack_into("<I", raw, at + 24, 100)
    path.write_bytes(raw)
    with pytest.raises(ProtocolViolation):
        await handler.load("zip://bomb")
    # Compressed tar: what does not fit is not kept, and a member is reached by what is before it.
    tar = tmp_path / "bomb.tar.gz"
    tar.write_bytes(gzip.compress(tar_of(("bomb", bytes(20 << 20)), ("small", b"small"))))
    handler = handler_of(tar, spool=spool)
    assert await read_whole((await handler.load("tar://small")).parts[0].content) == b"small"
    with pytest.raises(TooLarge):
        await handler.load("tar://bomb")


def write_zeros(path: Path, size: int) -> None:
    """A compressed archive with one member of so many bytes."""
    with gzip.open(path, "wb", compresslevel=1) as file, tarfile.open(fileobj=file, mode="w|") as archive:
        info = tarfile.TarInfo("zeros")
        info.size = size
        with open("/dev/zero", "rb") as zeros:
            archive.addfile(info, zeros)


@pytest.mark.semantics("S22")
async def test_a_bomb_that_takes_long_ends_at_the_deadline(tmp_path: Path) -> None:
    path = tmp_path / "long.tar.gz"
    write_zeros(path, 400 << 20)
    handler = handler_of(path, timeout=0.02)
    with pytest.raises(DeadlineExceeded):
        await handler.list_directory(())
    with trio.fail_after(60):  # the thread has ended: it is the only one that there may be
        async with handler.backend.threads.limiter:  # type: ignore[attr-defined]
            pass


async def test_headers_that_say_absurd_sizes_take_no_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 8 << 30
    path = tmp_path / "absurd.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    with pytest.raises((TooLarge, ProtocolViolation)):
        await handler_of(path).list_directory(())


@pytest.mark.parametrize("said", [{"mtime": "1e300"}, {"mtime": "-1e20"}, {"size": "99999999999999999999"}])
@pytest.mark.semantics("S9", "S10")
async def test_a_member_with_absurd_numbers_harms_no_other(tmp_path: Path, said: dict[str, str]) -> None:
    path = tmp_path / "absurd.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, headers in (("first", {}), ("absurd", said)):
            info = tarfile.TarInfo(name)
            info.pax_headers, info.size = headers, 3
            archive.addfile(info, io.BytesIO(b"abc"))
    handler = handler_of(path)
    listing = await handler.list_directory(())
    assert {each.name for each in listing.resources} == {"first", "absurd"}
    content = (await handler.load("tar://first")).parts[0].content
    assert await read_whole(content) == b"abc"


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.semantics("S9")
async def test_a_large_member_that_is_cut_off_is_an_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"cut.tar{suffix}"
    whole = tar_of(("first", b"abc"), ("cut", bytes(3 << 20)))
    path.write_bytes(COMPRESSIONS[suffix](whole[: 2 << 20]))
    handler = handler_of(path, max_memory=1 << 20)
    assert "damaged" in ((await handler.list_directory(())).problem or "")
    with pytest.raises(ProtocolViolation, match="ends before a member that it has"):
        await handler.load("tar://cut")


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tar.gz"])
@pytest.mark.semantics("S13", "S15")
async def test_a_large_member_is_read_in_ranges(tmp_path: Path, suffix: str) -> None:
    data = os.urandom(3 << 20)
    path = tmp_path / f"large{suffix}"
    if suffix == ".zip":
        raw_zip(path, ("before", b"1"), ("large", data), method=zipfile.ZIP_STORED)
    else:
        path.write_bytes(
            COMPRESSIONS[path.suffix if path.suffix != ".tar" else ""](tar_of(("b", b"1"), ("large", data)))
        )
    handler = handler_of(path, max_memory=1 << 20)
    content = (await handler.load(f"{handler.source.scheme}://large")).parts[0].content
    assert content.size == len(data)
    for offset, length in ((0, 10), (2 << 20, 4096), (len(data) - 5, 50), (len(data), 1)):
        assert await content.read_waiting(offset, length) == data[offset : offset + length]
    assert await read_whole(content) == data
    if suffix != ".tar.gz":
        path.write_bytes(b"!" + path.read_bytes()[1:])
        with pytest.raises(Outdated):
            await content.read_waiting(0, 10)


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tar.gz"])
async def test_another_version_of_an_archive_is_read_anew_and_the_same_is_not(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"archive{suffix}"

    def write(name: str, data: bytes) -> None:
        new = tmp_path / "new"
        if suffix == ".zip":
            raw_zip(new, (name, data))
        else:
            new.write_bytes(COMPRESSIONS[path.suffix if path.suffix != ".tar" else ""](tar_of((name, data))))
        new.rename(path)

    write("one", b"1" * 9)
    handler = handler_of(path)
    uri = f"{handler.source.scheme}://"
    first = await handler.stat(f"{uri}one")
    archive = handler.backend.archive  # type: ignore[attr-defined]
    content = (await handler.load(f"{uri}one")).parts[0].content
    assert (await handler.stat(f"{uri}one")) == first
    assert handler.backend.archive is archive  # type: ignore[attr-defined]
    write("one", b"2" * 9)
    second = await handler.stat(f"{uri}one")
    assert second.etag != first.etag
    assert await read_whole((await handler.load(f"{uri}one")).parts[0].content) == b"2" * 9
    assert await read_whole(content) == b"1" * 9
    write("two", b"")
    with pytest.raises(NotFound):
        await handler.load(f"{uri}one")
    path.unlink()
    with pytest.raises(Unreachable):
        await handler.list_directory(())
    assert handler.state.state == "down"


async def test_a_sparse_file_has_its_zeros(tmp_path: Path) -> None:
    hole = tmp_path / "hole"
    hole.write_bytes(b"begin" + bytes(1 << 20) + b"end")
    os.truncate(hole, 2 << 20)
    await trio.run_process(["fallocate", "--dig-holes", str(hole)])
    for kind in ("gnu", "posix"):
        for option, suffix in (("", ""), ("z", ".gz")):
            path = tmp_path / f"{kind}.tar{suffix}"
            done = await trio.run_process(
                ["tar", f"-c{option}Sf", str(path), f"--format={kind}", "-C", str(tmp_path), "hole"]
            )
            assert done.returncode == 0
            handler = handler_of(path)
            content = (await handler.load("tar://hole")).parts[0].content
            packed = handler.backend.archive.members.find(("hole",))[1]  # type: ignore[attr-defined]
            assert TarMember.unpacked(packed).sparse
            assert await read_whole(content) == hole.read_bytes()


def test_only_links_that_stay_inside_are_shown() -> None:
    assert stays_inside(("a", "b"), "../c")
    assert stays_inside(("a",), "b/./c//d")
    assert not stays_inside(("a", "b"), "../../c")
    assert not stays_inside(("a",), "..")
    assert not stays_inside(("a",), "/a")
    assert not stays_inside(("a",), "")
    assert not stays_inside(("a",), "b/../../a/b")
    assert not stays_inside(("a", "b"), "c/../d"), "c may be a link"


def test_an_archive_that_is_missing_is_told_at_the_mount(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert handler_of(tmp_path / "a.tar").state.state == "down"
    assert "the file is not there" in caplog.text


@pytest.mark.semantics("S29")
def test_an_archive_on_the_mount_itself_is_refused(tmp_path: Path) -> None:
    source = data_source("bb-storage+a+zip", config={"url": f"zip://{tmp_path}/in/x.zip"})
    with pytest.raises(ConfigError, match="mount point"):
        StorageHandler(source, Services(mount_point=str(tmp_path)))


@pytest.mark.parametrize("url", ["zip://", "zip:///", "tar://x\0y"])
def test_an_archive_needs_a_path(url: str) -> None:
    with pytest.raises(BbfsError):
        StorageHandler(
            data_source("bb-storage+a+zip", config={"url": url, "options": {"x": 1}}),
            Services(),
        )
