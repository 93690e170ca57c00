"""Archives that no program writes: bounds on their structure, links that lead out, and every decoder's memory."""

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from backports import zstd
from hostile_storage import ESCAPES, GOOD_TAR, HOSTILE_TARS, SAFE, pax_record, tar_extension, tar_header
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from targets import Whole

from bbfs.model.errors import BbfsError, DeadlineExceeded, ProtocolViolation, TooLarge
from bbfs.model.values import DataSource, Policy
from bbfs.sources import Services
from bbfs.sources.storage.archives import compression, members
from bbfs.sources.storage.archives.tar_headers import TarHeader, read_headers
from bbfs.sources.storage.archives.zip_directory import read_directory
from bbfs.sources.storage.handler import StorageHandler
from bbfs.testing import read_whole

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=150).filter(
    lambda name: name not in (".", "..")
)


def handler_of(path: Path, timeout: float = 30.0) -> StorageHandler:
    scheme = "zip" if path.suffix == ".zip" else "tar"
    config = {"url": f"{scheme}://{path}"}
    source = DataSource("a", "a", "storage", "bb", f"bb-storage+a+{scheme}", policy=Policy(timeout), config=config)
    return StorageHandler(source, Services())


def headers_of(data: bytes) -> list[TarHeader]:
    return list(read_headers(Whole(data)))


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@given(
    found=st.lists(
        st.tuples(NAMES, NAMES, st.integers(0, 2000), st.integers(-(10**11), 10**11)), min_size=1, max_size=8
    )
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_headers_are_read_as_tarfile_reads_them(kind: int, found: list[tuple[str, str, int, int]]) -> None:
    file = io.BytesIO()
    types = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, b"Z")
    with tarfile.open(fileobj=file, mode="w", format=kind) as archive:
        for number, (name, target, size, modified) in enumerate(found):
            info = tarfile.TarInfo(name)
            info.type, info.mtime = types[number % len(types)], modified
            if info.type in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = target
            if info.type in (tarfile.REGTYPE, b"Z"):
                info.size = size
            try:
                archive.addfile(info, io.BytesIO(bytes(size)))
            except ValueError:
                pass  # this format has no room for it
    with tarfile.open(fileobj=io.BytesIO(file.getvalue())) as archive:
        expected = [
            (info.name, info.linkname, info.offset_data, info.size, int(info.mtime * 1_000_000_000)) for info in archive
        ]
    ours = [
        (each.name.rstrip("/"), each.target, each.offset, each.size, each.modified_ns)
        for each in headers_of(file.getvalue())
    ]
    assert [(name.rstrip("/"), *rest) for name, *rest in expected] == ours


def test_global_headers_say_little() -> None:
    """Each member reads again what the global headers say."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"GNU.sparse.map": "1,1," * 9999}):
        pass
    with pytest.raises(ValueError, match="global headers"):
        headers_of(file.getvalue())


@given(data=st.binary(max_size=3000), cut=st.integers(0, 3000))
def test_any_bytes_are_headers_or_a_damaged_archive(data: bytes, cut: int) -> None:
    good = tar_extension(pax_record(b"path", b"x" * 200)) + GOOD_TAR
    for tried in (data, good[: cut % len(good)], good[: cut % len(good)] + data, tar_extension(data) + GOOD_TAR):
        try:
            headers_of(tried)
        except ValueError:
            pass


@given(data=st.binary(max_size=300))
def test_any_bytes_are_a_directory_or_a_damaged_archive(data: bytes) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("name", b"data")
    whole = file.getvalue()
    for tried in (data, data + whole, whole[: len(data)], whole[: -len(data) or None] + data):

        def read(offset: int, length: int, tried: bytes = tried) -> bytes:
            if offset < 0 or offset + length > len(tried):
                raise ProtocolViolation("beyond the end")
            return tried[offset : offset + length]

        try:
            list(read_directory(read, len(tried), None))
        except (ValueError, struct.error, ProtocolViolation):
            pass


@pytest.mark.parametrize("hostile", HOSTILE_TARS)
@pytest.mark.semantics("S23", "S27")
async def test_a_hostile_tar_is_an_error_or_says_what_it_leaves_out(tmp_path: Path, hostile: str) -> None:
    path = tmp_path / "hostile.tar.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for piece in HOSTILE_TARS[hostile]():
            file.write(piece)
        file.write(bytes(1024))
    handler = handler_of(path)
    with trio.fail_after(60):
        try:
            listing = await handler.list_directory(())
        except (ProtocolViolation, TooLarge):
            return
    archive = handler.backend.archive  # type: ignore[attr-defined]
    assert len(archive.members) <= members.MAX_NODES
    for entry in listing.resources[:3]:
        if entry.kind == "resource":
            try:
                content = (await handler.load(entry.native_uri)).parts[0].content
            except BbfsError:
                continue
            assert content.size == entry.size


def write_archive(path: Path, links: dict[str, str]) -> None:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a/b/c/file", b"")
            archive.writestr("a/file", b"")
            for name, target in links.items():
                info = zipfile.ZipInfo(name)
                info.create_system, info.external_attr = 3, 0o120777 << 16
                archive.writestr(info, target)
        return
    data = tar_header(b"a/b/c/", 0, b"5") + tar_header(b"a/file")
    data += b"".join(tar_header(name.encode(), 0, b"2", target.encode()) for name, target in links.items())
    path.write_bytes(data + bytes(1024))


@pytest.mark.parametrize("suffix", [".tar", ".zip"])
@pytest.mark.semantics("S29")
async def test_no_link_leads_out_by_way_of_others(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"links{suffix}"
    for links in (dict(ESCAPES), dict(reversed(list(ESCAPES.items())))):
        write_archive(path, links)
        handler = handler_of(path)
        shown = set()
        for directory in ((), ("a", "b", "c")):
            listing = await handler.list_directory(directory)
            shown |= {each.native_uri.partition("://")[2] for each in listing.resources if each.kind == "symlink"}
        assert shown == SAFE
        assert "leads out" in ((await handler.list_directory(())).problem or "")


def _zip_with(method: int, data: bytes, size: int, crc: int) -> bytes:
    local = struct.pack("<4sHHHHHLLLHH", b"PK\3\4", 20, 0, method, 0, 0x5821, crc, len(data), size, 1, 0) + b"f" + data
    entry = struct.pack(
        "<4sHHHHHHLLLHHHHHLL", b"PK\1\2", 20, 20, 0, method, 0, 0x5821, crc, len(data), size, 1, 0, 0, 0, 0, 0, 0
    )
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(entry) + 1, len(local), 0)
    return local + entry + b"f" + end


def _lzma_with_dictionary(size: int, data: bytes) -> bytes:
    """The data of a zip member in LZMA that says to need a dictionary of so many bytes."""
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": 1 << 16}]
    raw = lzma.compress(data, lzma.FORMAT_RAW, filters=filters)
    return struct.pack("<HHBL", 9 << 8, 5, 93, size) + raw


@pytest.mark.parametrize("method", [0, 8, 12, 14, 93])
async def test_every_method_of_a_zip_is_read_and_checked(tmp_path: Path, method: int) -> None:
    data = b"content " * 100_000
    plain = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = {
        0: data,
        8: plain.compress(data) + plain.flush(),
        12: bz2.compress(data),
        14: _lzma_with_dictionary(1 << 16, data),
        93: zstd.compress(data),
    }[method]
    path = tmp_path / "a.zip"
    path.write_bytes(_zip_with(method, packed, len(data), zlib.crc32(data)))
    content = (await handler_of(path).load("zip://f")).parts[0].content
    assert await read_whole(content) == data
    for size, crc in ((len(data), 1), (len(data) - 1, zlib.crc32(data)), (len(data) + 1, zlib.crc32(data))):
        path.write_bytes(_zip_with(method, packed, size, crc))
        with pytest.raises(ProtocolViolation):
            await handler_of(path).load("zip://f")


async def test_a_dictionary_beyond_the_bound_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    data = b"x" * 1000
    path.write_bytes(_zip_with(14, _lzma_with_dictionary(1 << 30, data), len(data), zlib.crc32(data)))
    with pytest.raises(ProtocolViolation, match=r"[Mm]emory"):
        await handler_of(path).load("zip://f")
    xz = tmp_path / "a.tar.xz"
    xz.write_bytes(lzma.compress(GOOD_TAR, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 512 << 20}]))
    with pytest.raises(ProtocolViolation, match=r"[Mm]emory"):
        await handler_of(xz).list_directory(())
    level: dict[int, int] = {
        zstd.CompressionParameter.window_log: 29,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
    }
    window = tmp_path / "a.tar.zst"
    compressor = zstd.ZstdCompressor(options=level)
    window.write_bytes(compressor.compress(GOOD_TAR * 10) + compressor.flush())
    with pytest.raises(ProtocolViolation):
        await handler_of(window).list_directory(())


class Endless(io.RawIOBase):
    """A file that repeats a piece, and counts how much of it was read."""

    def __init__(self, piece: bytes, most: int) -> None:
        self._piece = piece
        self._left = most

    def read(self, size: int = -1) -> bytes:
        if not self._left:
            raise DeadlineExceeded("as the patience of a request would")
        self._left -= 1
        return self._piece


@pytest.mark.parametrize("name", ["gz", "bz2", "xz", "zst"])
def test_empty_streams_and_zeros_for_ever_end_with_the_request(name: str) -> None:
    make: dict[str, Any] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd.compress}
    for piece in (make[name](b"") * 100, make[name](b"") + bytes(4096)):
        stream = compression.decompressed(Endless(piece, 50), name)
        with pytest.raises((DeadlineExceeded, zlib.error)):  # zeros have to be followed by a stream
            stream.read(1)


@pytest.mark.parametrize("name", ["gz", "deflate", "bz2", "xz", "zst"])
def test_one_step_of_a_decoder_yields_no_more_than_asked_for(name: str) -> None:
    def bomb() -> Iterator[bytes]:
        for _ in range(64):
            yield bytes(1 << 20)

    compressors: dict[str, Any] = {
        "gz": zlib.compressobj(9, zlib.DEFLATED, 31),
        "deflate": zlib.compressobj(9, zlib.DEFLATED, -15),
        "bz2": bz2.BZ2Compressor(),
        "xz": lzma.LZMACompressor(),
        "zst": zstd.ZstdCompressor(),
    }
    compressor = compressors[name]
    packed = b"".join([*map(compressor.compress, bomb()), compressor.flush()])
    stream = compression.Decompressed(io.BytesIO(packed), compression.decoder_of(name), is_one=True)  # type: ignore[arg-type]
    total = 0
    while piece := stream.read(1 << 16):
        assert len(piece) <= 1 << 16
        total += len(piece)
    assert total == 64 << 20


@pytest.mark.parametrize(
    "key", [b"mtime", b"size", b"GNU.sparse.size", b"GNU.sparse.map", b"GNU.sparse.offset", b"path"]
)
@pytest.mark.parametrize("value", [b"", b"x", b"nan", b"1e999", b"9" * 5000, b"1,2,3", b"\x00", b"\xff", b"\xc2\xb2"])
async def test_one_odd_member_of_a_tar_takes_no_other_away(tmp_path: Path, key: bytes, value: bytes) -> None:
    records = pax_record(key, value)
    if key == b"GNU.sparse.offset":
        records = pax_record(b"GNU.sparse.size", b"3") + records + pax_record(b"GNU.sparse.numbytes", b"3")
    body = b"abc" + bytes(509)
    odd = tar_extension(records) + tar_header(b"odd", 3) + body
    path = tmp_path / "odd.tar"
    path.write_bytes(tar_header(b"a", 3) + body + odd + tar_header(b"z", 3) + body + bytes(1024))
    listing = await handler_of(path).list_directory(())
    found = {each.native_uri.rpartition("/")[2]: each.native_uri for each in listing.resources}
    for name in ("a", "z"):
        assert await read_whole((await handler_of(path).load(found[name])).parts[0].content) == b"abc"
    assert len(found) == 3 or "odd" in (listing.problem or "")
    assert "damaged" not in (listing.problem or "")


async def test_a_tar_with_an_odd_time_has_the_member(tmp_path: Path) -> None:
    block = bytearray(tar_header(b"odd"))
    block[136:148] = b"yesterday\0\0\0"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    path = tmp_path / "odd.tar"
    path.write_bytes(bytes(block) + tar_header(b"z") + bytes(1024))
    listing = await handler_of(path).list_directory(())
    assert [(each.name, each.modified_ns) for each in listing.resources] == [
        ("odd", None),
        ("z", 1_700_000_000 * 10**9),
    ]
    assert listing.problem is None


@pytest.mark.parametrize("name", ["x", "é", "a/../b", "..", "/", "\x01", "\n", "a" * 5000, "a/" * 300 + "b"])
@pytest.mark.parametrize("offset", [None, (1 << 64) - 1])
async def test_one_odd_member_of_a_zip_takes_no_other_away(tmp_path: Path, name: str, offset: int | None) -> None:
    path = tmp_path / "odd.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("good", b"abc")
        archive.writestr(name, b"abc")
        if offset is not None:
            odd = archive.infolist()[1]
            odd.header_offset = offset
    path.write_bytes(b"#!/bin/sh\n" + path.read_bytes())
    handler = handler_of(path)
    good = next(each for each in (await handler.list_directory(())).resources if each.name == "good")
    assert await read_whole((await handler.load(good.native_uri)).parts[0].content) == b"abc"
