"""The conformance suite over storage: a real S3 server, WebDAV, zip and tar archives."""

import gzip
import io
import tarfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import pytest
from dav_store import DavStore
from object_stores import KEY, SECRET, S3Server

from bbfs.model.errors import NotFound
from bbfs.model.values import DataSource, Policy
from bbfs.sources import CanStat, Handler, Services
from bbfs.sources.storage.backend import StoredItem
from bbfs.sources.storage.handler import StorageHandler
from bbfs.testing import SourceConformance, list_all

NAMES = {"a.txt": b"alpha\n", "empty": b"", "deep/er/b c#.md": b"# beta\n", "large.bin": bytes(range(256)) * 9000}
ENCODED = {"deep/er/b c#.md": "deep/er/b%20c%23.md"}


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    server = S3Server()
    with closing(server):
        server.make_bucket("bucket")
        for name, data in NAMES.items():
            server.put("bucket", f"pre/{name}", data, {"x-amz-meta-of": name.encode().hex()})
        server.put("bucket", "else", b"else")
        yield server


class TestS3(SourceConformance):
    known: ClassVar = {f"s3://bucket/pre/{ENCODED.get(name, name)}": data for name, data in NAMES.items()}
    written: ClassVar = ("s3://bucket/pre/new/a%20b.txt", "s3://bucket/pre/new/c.txt")
    unknown: ClassVar = ("s3://bucket/pre/nothing", "s3://bucket/else", "s3://other/pre/a.txt", "resource://a.txt")
    server: ClassVar[S3Server]

    @pytest.fixture(autouse=True)
    def _serve(self, s3: S3Server) -> None:
        type(self).server = s3

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        config = {"url": "s3://bucket/pre", "options": {"endpoint": self.server.url}, "max_memory": 1 << 20}
        auth = {"accessKey": KEY, "secretKey": SECRET}
        source = DataSource(
            "s", "s", "storage", "bb", "bb-storage+s+s3", policy=Policy(timeout=10), config=config, auth=auth
        )
        async with aclosing(StorageHandler(source, Services())) as made:
            yield made

    @contextmanager
    def another_client(self, handler: Handler, native_uri: str, data: bytes) -> Iterator[None]:
        assert isinstance(handler, StorageHandler)
        key, put, sent = unquote(native_uri.removeprefix("s3://bucket/")), handler.backend.put, list[str]()

        async def replaced(*written: Any) -> StoredItem:
            stored = await put(*written)
            if not sent:
                sent.append(self.server.put("bucket", key, data))
            return stored

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(handler.backend, "put", replaced)
            yield
        assert sent

    async def test_stat_agrees_with_the_listing_and_the_load(self, tmp_path: Path) -> None:
        """As for every source, but that a listing of S3 says less than it says of an object alone."""
        async with self.handler(tmp_path) as handler:
            assert isinstance(handler, CanStat)
            for entry in await list_all(handler):
                stat = await handler.stat(entry.native_uri)
                for said in ("uri", "name", "size", "modified_ns", "etag", "kind", "mime_type"):
                    assert getattr(stat, said) == getattr(entry, said), (entry.native_uri, said)
                if entry.kind == "resource":
                    assert (stat.properties or {})["user_metadata"].keys() == {"of"}
                    assert (await self.load(handler, entry.native_uri)).metadata == stat
            for native_uri in self.unknown:
                with pytest.raises(NotFound):
                    await handler.stat(native_uri)


class TestWebDav(SourceConformance):
    """A server whose answers to a PUT state no version."""

    known: ClassVar = {}
    store: ClassVar[DavStore]

    @pytest.fixture(autouse=True)
    def _serve(self) -> Iterator[None]:
        store = DavStore({f"d/{name}": data for name, data in NAMES.items()}, states_etag=self.states_etag)
        store.directories |= {"d/deep", "d/deep/er"}
        with store.serving():
            own, root = type(self), f"webdav://127.0.0.1:{store.port}/d"
            own.store = store
            own.known = {f"{root}/{ENCODED.get(name, name)}": data for name, data in NAMES.items()}
            own.unknown = (f"{root}/nothing", f"{root}/nothing/a.txt", "resource://a.txt")
            own.written = (f"{root}/deep/a%20b.txt", f"{root}/deep/c.txt")
            yield

    states_etag: ClassVar = False

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        config = {"url": f"webdav://127.0.0.1:{self.store.port}/d"}
        policy = Policy(timeout=10)
        async with aclosing(
            StorageHandler(
                DataSource("w", "w", "storage", "bb", "bb-storage+w+webdav", policy=policy, config=config), Services()
            )
        ) as made:
            yield made

    @contextmanager
    def another_client(self, handler: Handler, native_uri: str, data: bytes) -> Iterator[None]:
        path = unquote(native_uri.partition(f"{self.store.port}/")[2])

        def replace(method: str, changed: str) -> None:
            if (method, changed) == ("PUT", path):
                self.store.after = lambda _method, _path: None
                self.store.put(path, data)

        self.store.after = replace
        yield


class TestWebDavThatStatesVersions(TestWebDav):
    states_etag: ClassVar = True


class _Archive(SourceConformance):
    scheme: ClassVar[str]
    suffix: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.known = {f"{cls.scheme}://{ENCODED.get(name, name)}": data for name, data in NAMES.items()}
        cls.unknown = tuple(f"{cls.scheme}://{name}" for name in ("nothing", "a.txt/below", "etc/passwd"))
        cls.unknown += ("resource://a.txt", "file:./a.txt")

    def write(self, path: Path) -> None:
        raise NotImplementedError

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        path = directory / f"archive{self.suffix}"
        if not path.exists():
            self.write(path)
        config = {"url": f"{self.scheme}://{path}", "max_memory": 1 << 20}
        source = DataSource("a", "a", "storage", "bb", f"bb-storage+a+{self.scheme}", config=config)
        async with aclosing(StorageHandler(source, Services())) as made:
            yield made


class TestZip(_Archive):
    scheme, suffix = "zip", ".zip"

    def write(self, path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in NAMES.items():
                method = zipfile.ZIP_STORED if name == "large.bin" else zipfile.ZIP_DEFLATED
                archive.writestr(zipfile.ZipInfo(name), data, method)


class TestTar(_Archive):
    scheme, suffix = "tar", ".tar"

    def write(self, path: Path) -> None:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name, data in NAMES.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        path.write_bytes(gzip.compress(file.getvalue()) if self.suffix.endswith("gz") else file.getvalue())


class TestCompressedTar(TestTar):
    suffix = ".tar.gz"
