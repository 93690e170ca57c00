"""Storage through obstore and fsspec: real servers for WebDAV, SFTP and FTP, and what stands in for the others."""

import base64
import io
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha1
from pathlib import Path
from typing import Any, ClassVar

import paramiko
import pytest
import trio
from fakes import World, data_source
from file_servers import PASSWORD, SCHEMES, USER, FileServer, known_hosts
from fsspec.implementations.github import GithubFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from hostile_storage import ENDLESS_FTP, ODD_FTP, HostileFtp
from http_server import Answers, HttpServer
from object_stores import Relay, S3Server, opened

from bbfs.model.errors import (
    BbfsError,
    ConfigError,
    Conflict,
    DeadlineExceeded,
    Denied,
    Exists,
    IsADirectory,
    LoginRequired,
    NotADirectory,
    NotEmpty,
    NotFound,
    Outdated,
    ProtocolViolation,
    Unreachable,
)
from bbfs.model.values import Capabilities, DataSource, Policy
from bbfs.model.versions import Expected
from bbfs.resources.commands.answers import ask
from bbfs.resources.commands.table import Put
from bbfs.sources import Services
from bbfs.sources.content.buffer import Buffer, BufferSpace
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.storage import objects
from bbfs.sources.storage.handler import StorageHandler
from bbfs.testing import list_all, read_whole

LARGE = os.urandom(3 << 20)
FILES = {
    "plain.txt": b"plain\n",
    "deep/er/sp ace.md": b"# deep\n",
    "deep/ünï#?.bin": b"\0\xff",
    "empty": b"",
    "large": LARGE,
}


@pytest.fixture(scope="module", params=SCHEMES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int, Path]]:
    """A server of a folder by one protocol: the scheme, the port, the folder."""
    root, home = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("home")
    for name, data in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    with closing(FileServer(request.param, root, home)) as server:
        yield request.param, server.port, root


def source(
    scheme: str, place: str, *, timeout: float = 10.0, password: str | None = PASSWORD, **config: Any
) -> DataSource:
    auth = {"username": USER, "password": password} if password is not None else {}
    return data_source(
        f"bb-storage+far+{scheme}", timeout=timeout, config={"url": f"{scheme}://{place}", **config}, auth=auth
    )


def source_of(server: tuple[str, int, Path], port: int | None = None, path: str = "/", **given: Any) -> DataSource:
    scheme, own_port, root = server
    port = port or own_port
    if scheme == "sftp":
        given.setdefault("options", {"known_hosts": known_hosts(own_port, root.parent)})
        if port != own_port:
            text = Path(given["options"]["known_hosts"]).read_text().replace(str(own_port), str(port))
            file = root.parent / f"known_hosts-{port}"
            file.write_text(text)
            given["options"] = {"known_hosts": str(file)}
    return source(scheme, f"127.0.0.1:{port}{path}", **given)


@pytest.fixture
async def remote(server: tuple[str, int, Path]) -> AsyncIterator[tuple[StorageHandler, str, Path]]:
    """A handler of a folder of its own at the server, its native URI, and the folder."""
    folder = server[2] / "written"
    folder.mkdir()
    try:
        async with opened(source_of(server, path="/written")) as handler:
            yield handler, f"{server[0]}://127.0.0.1:{server[1]}/written/", folder
    finally:
        shutil.rmtree(folder)


@pytest.mark.semantics("S32", "S33")
async def test_files_are_made_replaced_renamed_removed(
    remote: tuple[StorageHandler, str, Path], tmp_path: Path
) -> None:
    handler, begin, folder = remote
    uri, moved = f"{begin}a%20%C3%BC.txt", f"{begin}c.txt"
    assert {*handler.writes(uri)} >= {"create", "replace", "remove", "rename", "make_directory", "remove_directory"}
    assert {*handler.writes(handler.beginning)} == {"make_directory"}
    told = await handler.write(uri, MemoryContent(b"one"), Expected(exists=False))
    assert (told.native_uri, told.size, (folder / "a \u00fc.txt").read_bytes()) == (uri, 3, b"one")
    assert await handler.stat(uri) == told
    if handler.detects_existing:
        with pytest.raises(Conflict):
            await handler.write(uri, MemoryContent(b"other"), Expected(exists=False))
    again = await handler.write(uri, MemoryContent(b""), Expected(exists=True, etag=told.etag))
    assert (again.size, (folder / "a \u00fc.txt").read_bytes()) == (0, b"")
    await handler.rename(uri, moved, replace=False)
    large = Buffer(BufferSpace(tmp_path))
    large.write(0, LARGE)
    await handler.write(moved, large.snapshot(), Expected(exists=True))
    assert (folder / "c.txt").read_bytes() == LARGE
    await handler.write(uri, MemoryContent(b"two"), Expected(exists=False))
    with pytest.raises(Exists):
        await handler.rename(uri, moved, replace=False)
    await handler.rename(uri, moved, replace=True)
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == {"c.txt": b"two"}
    with pytest.raises(NotFound):
        await handler.rename(uri, moved, replace=True)
    if "set_time" in handler.writes(moved):
        timed = await handler.set_time(moved, 1_500_000_000_123_456_789)
        assert timed.modified_ns == 1_500_000_000 * 10**9
        assert (folder / "c.txt").stat().st_mtime == 1_500_000_000
    await handler.remove(moved, Expected(exists=True))
    with pytest.raises(NotFound):
        await handler.remove(moved, Expected(exists=True))
    with pytest.raises(NotFound):
        await handler.write(f"{begin}nothing/a", MemoryContent(b"x"), Expected(exists=False))
    assert not [*folder.iterdir()]


@pytest.mark.semantics("S32", "S33")
async def test_directories_are_made_renamed_and_removed(remote: tuple[StorageHandler, str, Path]) -> None:
    handler, begin, folder = remote
    made = await handler.make_directory(f"{begin}d")
    assert (made.kind, made.native_uri, (folder / "d").is_dir()) == ("directory", f"{begin}d/", True)
    with pytest.raises(Exists):
        await handler.make_directory(f"{begin}d")
    await handler.write(f"{begin}d/a", MemoryContent(b"a"), Expected(exists=False))
    for native_uri in (f"{begin}d", f"{begin}d/"):
        with pytest.raises(NotEmpty):
            await handler.remove_directory(native_uri)
    with pytest.raises(IsADirectory):
        await handler.remove(f"{begin}d", Expected())
    await handler.make_directory(f"{begin}e")
    renamed = await handler.rename(f"{begin}d/", f"{begin}e", replace=True)
    assert (renamed.kind, (folder / "e/a").read_bytes(), (folder / "d").exists()) == ("directory", b"a", False)
    await handler.make_directory(f"{begin}d")
    with pytest.raises(NotEmpty):
        await handler.rename(f"{begin}d/", f"{begin}e", replace=True)
    await handler.remove_directory(f"{begin}d")
    with pytest.raises(NotFound):
        await handler.remove_directory(f"{begin}d")
    assert [each.name for each in folder.iterdir()] == ["e"]


@pytest.mark.semantics("S32")
async def test_a_resource_may_be_new_with_its_directories(server: tuple[str, int, Path]) -> None:
    """As `bbfs put` writes it without a mount: the root, a directory that is there, and one that is not."""
    begin = f"bb-storage+far+{server[0]}://127.0.0.1:{server[1]}"
    made = replace(source_of(server), capabilities=Capabilities(write=True))
    async with opened(made) as handler, trio.open_nursery() as nursery, World(nursery, handler) as world:
        for path in ("new", "deep/new", "made/too/new"):
            await ask(world.manager, Put(uri=f"{begin}/{path}", data=b"x", expected=Expected(exists=False)))
            assert (server[2] / path).read_bytes() == b"x"
            (server[2] / path).unlink()
        shutil.rmtree(server[2] / "made")
        nursery.cancel_scope.cancel()


@pytest.mark.semantics("S15")
async def test_what_the_server_has_is_listed_and_read(server: tuple[str, int, Path]) -> None:
    async with opened(source_of(server, max_memory=1 << 20)) as handler:
        found: dict[str, bytes] = {}
        for entry in await list_all(handler):
            if entry.kind == "resource":
                content = (await handler.load(entry.native_uri)).parts[0].content
                assert content.size == entry.size
                found[entry.native_uri] = await read_whole(content)
                assert await content.read_waiting(1, 2) == found[entry.native_uri][1:3]
                stat = await handler.stat(entry.native_uri)
                assert (stat.size, stat.modified_ns) == (entry.size, entry.modified_ns)
        assert sorted(found.values()) == sorted(FILES.values())
        place = f"{server[0]}://127.0.0.1:{server[1]}"
        assert found[f"{place}/deep/%C3%BCn%C3%AF%23%3F.bin"] == b"\0\xff"


@pytest.mark.semantics("S23")
async def test_what_is_not_there_or_no_file_is_told_apart(server: tuple[str, int, Path]) -> None:
    async with opened(source_of(server, path="/deep")) as handler:
        place = f"{server[0]}://127.0.0.1:{server[1]}"
        for uri in (f"{place}/deep/nothing", f"{place}/plain.txt", f"{place}/deep/%2E%2E/plain.txt", "s3://x/y"):
            with pytest.raises(NotFound):
                await handler.load(uri)
        with pytest.raises((IsADirectory, NotFound)):
            await handler.load(f"{place}/deep/er")
        with pytest.raises((NotFound, NotADirectory)):
            await handler.list_directory((f"127.0.0.1:{server[1]}", "deep", "nothing"))


@pytest.mark.semantics("S16")
async def test_requests_at_once_do_not_disturb_each_other(server: tuple[str, int, Path]) -> None:
    async with opened(source_of(server)) as handler:
        entries = [entry for entry in await list_all(handler) if entry.kind == "resource"]

        async def read(native_uri: str, size: int | None) -> None:
            assert (await handler.stat(native_uri)).size == size
            content = (await handler.load(native_uri)).parts[0].content
            assert len(await read_whole(content)) == size

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for entry in 4 * entries:
                    nursery.start_soon(read, entry.native_uri, entry.size)


@pytest.mark.parametrize("server", ["sftp"], indirect=True)
async def test_a_server_may_allow_few_sessions(server: tuple[str, int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, open_sftp, lock = 2, paramiko.SSHClient.open_sftp, threading.Lock()

    def refuse_third(client: paramiko.SSHClient) -> paramiko.SFTPClient:
        nonlocal allowed
        with lock:
            if not allowed:
                raise paramiko.ChannelException(1, "administratively prohibited")
            allowed -= 1
        return open_sftp(client)

    monkeypatch.setattr(paramiko.SSHClient, "open_sftp", refuse_third)
    await test_requests_at_once_do_not_disturb_each_other(server)
    assert not allowed


@pytest.mark.semantics("S13")
async def test_a_file_that_changes_while_it_is_read_is_never_mixed(server: tuple[str, int, Path]) -> None:
    place, file = f"{server[0]}://127.0.0.1:{server[1]}", server[2] / "changing"
    file.write_bytes(b"1" * (3 << 20))
    os.utime(file, (1_700_000_000, 1_700_000_000))
    async with opened(source_of(server, max_memory=1 << 20)) as handler:
        content = (await handler.load(f"{place}/changing")).parts[0].content
        assert await content.read_waiting(0, 4) == b"1111"
        file.write_bytes(b"2" * (3 << 20))
        with pytest.raises(Outdated):
            await content.read_waiting(2 << 20, 4)
        anew = (await handler.load(f"{place}/changing")).parts[0].content
        assert await anew.read_waiting(2 << 20, 4) == b"2222"
    file.unlink()


@pytest.mark.semantics("S23", "S30")
async def test_a_wrong_password_wants_a_login_and_is_not_told(server: tuple[str, int, Path]) -> None:
    async with opened(source_of(server, password="wrong-geheim")) as handler:
        with pytest.raises(LoginRequired) as caught:
            await handler.list_directory((f"127.0.0.1:{server[1]}",))
        assert handler.state.state == "down"
        assert "geheim" not in str(caught.value) + str(handler.state) + repr(handler.source)


@pytest.mark.parametrize("server", ["webdav", "sftp"], indirect=True)  # FTP has connections for data past the relay
@pytest.mark.semantics("S22", "S23")
async def test_a_server_that_stalls_or_is_gone_is_told_apart_and_comes_back(server: tuple[str, int, Path]) -> None:
    relay = Relay(server[1])
    with closing(relay):
        place = (f"127.0.0.1:{relay.port}",)
        async with opened(source_of(server, relay.port, timeout=4.0)) as handler:
            assert (await handler.list_directory(place)).resources
            relay.stall()
            with trio.fail_after(30), pytest.raises(DeadlineExceeded):
                await handler.list_directory(place)
            relay.flow()
            assert (await handler.list_directory(place)).resources
            relay.close()
            with trio.fail_after(30), pytest.raises(Unreachable):
                await handler.list_directory(place)


@pytest.mark.parametrize("server", ["sftp"], indirect=True)
@pytest.mark.semantics("S30")
async def test_a_host_that_nobody_knows_is_refused(server: tuple[str, int, Path]) -> None:
    async with opened(source_of(server, options={})) as handler:
        with pytest.raises(Denied, match="known_hosts"):
            await handler.list_directory((f"127.0.0.1:{server[1]}",))


@pytest.mark.parametrize("server", ["sftp"], indirect=True)
async def test_links_of_an_sftp_server_are_shown_where_they_stay_inside(server: tuple[str, int, Path]) -> None:

    class Links:
        """What a server with links answers; the server of the other tests has none."""

        targets: ClassVar = {"in": "er/sp ace.md", "out": "../plain.txt", "abs": "/etc/passwd"}

        @property
        def ftp(self) -> "Links":
            return self

        def readlink(self, path: str) -> str:
            return self.targets[path.rpartition("/")[2]]

        def entries(self, path: str) -> list[dict[str, Any]]:
            return [{"name": f"{path}/{name}", "type": "link", "size": 1} for name in self.targets]

        def close(self) -> None:
            """There is no connection."""

    async with opened(source_of(server, path="/deep")) as handler:
        handler.backend.connection = Links()  # type: ignore[attr-defined]
        listing = await handler.list_directory((f"127.0.0.1:{server[1]}", "deep"))
        assert [(entry.name, entry.kind, entry.target) for entry in listing.resources] == [
            ("in", "symlink", "er/sp ace.md")
        ]
        assert listing.problem is not None
        assert "out, abs" in listing.problem


@pytest.mark.semantics("S5", "S13", "S23")
async def test_a_bucket_of_google_is_a_storage() -> None:
    """Google's XML API is that of S3, so the server for S3 stands in; without a key, everything is public."""
    s3 = S3Server()
    public = {"x-amz-acl": "public-read", "content-type": "text/x-test"}
    with closing(s3):
        s3.client.put("/public", headers=public).raise_for_status()
        for key, data in (("a", b"own"), ("a/b", b"below"), ("large", LARGE), ("empty", b"")):
            s3.put("public", key, data, public)
        options = {"endpoint": s3.url}
        async with opened(source("gs", "public", password=None, options=options, max_memory=1 << 20)) as handler:
            found: dict[str, bytes] = {}
            for entry in await list_all(handler):
                if entry.kind == "resource":
                    loaded = await handler.load(entry.native_uri)
                    found[entry.native_uri] = await read_whole(loaded.parts[0].content)
                    assert loaded.metadata is not None
                    assert (loaded.metadata.etag, loaded.metadata.size) == (entry.etag, entry.size)
                    assert loaded.metadata.mime_type == "text/x-test"
            assert found == {
                "gs://public/a": b"own", "gs://public/a/b": b"below",
                "gs://public/large": LARGE, "gs://public/empty": b"",
            }  # fmt: skip
            content = (await handler.load("gs://public/large")).parts[0].content
            s3.put("public", "large", LARGE[::-1], public)
            with pytest.raises(Outdated):
                await content.read_waiting(2 << 20, 10)
            with pytest.raises(NotFound):
                await handler.load("gs://public/nothing")
            s3.put("public", "odd//key", b"", public)
            with pytest.raises(ProtocolViolation, match="empty names"):
                await handler.list_directory(("public", "odd"))
        s3.make_bucket("private")
        s3.put("private", "key", b"data")
        async with opened(source("gs", "private", password=None, options=options)) as handler:
            with pytest.raises(Denied):
                await handler.load("gs://private/key")
        async with opened(source("gs", "no-such", password=None, options=options)) as handler:
            with pytest.raises(NotFound):
                await handler.list_directory(("no-such",))


class GitHub(Answers):
    """As much of GitHub's REST API as a tree and its files need."""

    files: ClassVar = {"README.md": b"# readme\n", "src/main.c": b"int main;\n"}
    limited = False

    def answer(self) -> None:
        path = self.path.partition("?")[0]
        if self.limited or self.headers.get("authorization", "").startswith("Basic d3Jvbmc6"):
            self.send(403 if self.limited else 401, {"message": "no"})
        elif path == "/repos/me/repo/git/trees/main":
            sub = {"path": "src", "type": "tree", "mode": "040000", "sha": "feed"}
            self.send(200, {"tree": [sub, self.entry("README.md", "README.md")]})
        elif path == "/repos/me/repo/git/trees/feed":
            self.send(200, {"tree": [self.entry("main.c", "src/main.c")]})
        elif (name := path.removeprefix("/repos/me/repo/contents/")) in self.files:
            content = base64.b64encode(self.files[name]).decode()
            self.send(200, {"content": content, "encoding": "base64", "size": len(self.files[name])})
        else:
            self.send(404, {"message": "Not Found"})

    def entry(self, name: str, path: str) -> dict[str, Any]:
        return {
            "path": name, "type": "blob", "mode": "100644", "size": len(self.files[path]),
            "sha": sha1(b"blob %d\0" % len(self.files[path]) + self.files[path]).hexdigest(),
        }  # fmt: skip

    def send(self, status: int, document: Any) -> None:
        self.reply(status, json.dumps(document).encode(), {"content-type": "application/json"})


@pytest.mark.semantics("S23", "S30")
async def test_a_tree_of_github_is_a_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    server = HttpServer(GitHub)
    for name in ("url", "content_url"):
        there = getattr(GithubFileSystem, name).replace("https://api.github.com", server.url)
        monkeypatch.setattr(GithubFileSystem, name, there)
    place = "me:repo@main"
    with closing(server):
        async with opened(source("github", place + "/", password=None)) as handler:
            entries = {e.native_uri.removeprefix(f"github://{place}"): e for e in await list_all(handler)}
            assert {name: e.kind for name, e in entries.items()} == {
                "/": "directory", "/src/": "directory", "/README.md": "resource", "/src/main.c": "resource",
            }  # fmt: skip
            assert entries["/README.md"].etag == sha1(b"blob 9\0# readme\n").hexdigest()
            for name, data in GitHub.files.items():
                loaded = await handler.load(f"github://{place}/{name}")
                assert await read_whole(loaded.parts[0].content) == data
                assert loaded.metadata == entries[f"/{name}"]
            with pytest.raises(NotFound):
                await handler.load(f"github://{place}/src/none")
            monkeypatch.setattr(GitHub, "limited", True)
            with pytest.raises(Denied):
                await handler.list_directory((place,))
        monkeypatch.setattr(GitHub, "limited", False)
        made = replace(source("github", place + "/", password=None), auth={"username": "wrong", "token": "geheim"})
        async with opened(made) as handler:
            with pytest.raises(LoginRequired) as caught:
                await handler.list_directory((place,))
            assert "geheim" not in str(caught.value)


async def test_the_memory_of_fsspec_is_a_storage() -> None:
    memory = MemoryFileSystem()
    memory.pipe({"/kept/a.txt": b"alpha", "/kept/d/b": b"beta", "/other": b"x"})
    async with opened(source("memory", "kept", password=None)) as handler:
        found = {e.native_uri: e.kind for e in await list_all(handler)}
        assert found == {
            "memory://kept/": "directory", "memory://kept/a.txt": "resource",
            "memory://kept/d/": "directory", "memory://kept/d/b": "resource",
        }  # fmt: skip
        loaded = await handler.load("memory://kept/d/b")
        assert await read_whole(loaded.parts[0].content) == b"beta"
    memory.rm("/kept", recursive=True)
    memory.rm("/other")


@pytest.mark.parametrize(
    ("url", "package", "options"),
    [("sftp://h/", "paramiko", {}), ("ftp://h/", "fsspec", {}), ("github://o:r@main/", "requests", {}),
     ("gs://b/", "obstore", {}), ("az://c/", "obstore", {"account": "a"})],
)  # fmt: skip
@pytest.mark.semantics("S23")
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, package: str, options: dict[str, Any]
) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    config = {"url": url, "options": options}
    with pytest.raises(ConfigError, match=f"needs .*package {package}"):
        StorageHandler(data_source("bb-storage+x+y", config=config), Services())


class Cloud(Answers):
    """A bucket of Google and a container of Azure without objects, and the services that give tokens for them."""

    asked: ClassVar[list[tuple[str, str | None]]] = []
    token_status = 200

    def answer(self) -> None:
        is_token = "token" in self.path
        self.asked.append((self.path.partition("?")[0], self.headers.get("authorization")))
        name = "EnumerationResults" if "comp=list" in self.path else "ListBucketResult"
        body = f"<{name}><Blobs/><IsTruncated>false</IsTruncated></{name}>".encode()
        if is_token:
            body = b'{"access_token": "geheim", "expires_in": 3600, "expires_on": "4000000000", "token_type": "Bearer"}'
        self.reply(self.token_status if is_token else 200, body)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The clouds' own services on this machine, and no credentials of its user. Returns the URL."""
    for name in [name for name in os.environ if name.startswith(("GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    Cloud.asked.clear()
    with closing(HttpServer(Cloud)) as server:
        for name in ("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP"):
            monkeypatch.setenv(name, server.host)
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.url}/token")
        yield server.url


CLOUDS = [("gs", {}), ("az", {"account": "me"})]


def test_facts_of_an_object_that_are_too_long_are_left_out() -> None:
    meta = {"last_modified": datetime.now(UTC), "version": "v" * 256, "e_tag": "e" * 256, "size": 1}
    names = ("Content-Type", "Cache-Control", "Content-Language", "Storage-Class")
    item = objects.described(("a",), meta, dict.fromkeys(names, "x" * 256))
    assert (item.etag, item.mime_type, item.properties) == (None, None, None)
    item = objects.described(("a",), {**meta, "version": "v"}, {"Storage-Class": "COLD", "author": "me" * 200})
    assert item.properties == {"version_id": "v", "storage_class": "COLD", "user_metadata": {"author": "me" * 200}}


@pytest.mark.parametrize(("scheme", "options"), CLOUDS)
async def test_the_identity_of_the_machine_is_used(cloud: str, scheme: str, options: dict[str, Any]) -> None:
    async with opened(source(scheme, "place", password=None, options={**options, "endpoint": cloud})) as handler:
        assert not (await handler.list_directory(("place",))).resources
    assert [authorization for _, authorization in Cloud.asked] == [None, "Bearer geheim"]


@pytest.mark.parametrize(("scheme", "options"), CLOUDS)
@pytest.mark.parametrize("anonymous", [False, True])
async def test_without_credentials_requests_are_not_signed(
    cloud: str, monkeypatch: pytest.MonkeyPatch, scheme: str, options: dict[str, Any], anonymous: bool
) -> None:
    monkeypatch.setattr(Cloud, "token_status", 404)
    given = {**options, "endpoint": cloud, "anonymous": anonymous}
    async with opened(source(scheme, "place", password=None, options=given)) as handler:
        assert not (await handler.list_directory(("place",))).resources
        looked = len(Cloud.asked)
        assert (looked == 1) == anonymous
        assert not (await handler.list_directory(("place",))).resources
    assert len(Cloud.asked) == looked + 1  # credentials are not looked for again at once
    assert not any(authorization for _, authorization in Cloud.asked)


async def test_the_key_of_a_service_account_may_be_named_by_the_environment(
    cloud: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = io.StringIO()
    paramiko.RSAKey.generate(2048).write_private_key(key)
    account = {"type": "service_account", "client_email": "me@example", "private_key_id": "1"}
    (tmp_path / "key.json").write_text(json.dumps({**account, "private_key": key.getvalue()}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    async with opened(source("gs", "place", password=None, options={"endpoint": cloud})) as handler:
        assert not (await handler.list_directory(("place",))).resources
    assert [str(authorization)[:9] for _, authorization in Cloud.asked] == ["Bearer ey"]


async def test_account_and_key_of_azure_may_be_in_the_environment(cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "me")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "Z2VoZWlt")
    async with opened(source("az", "place", password=None, options={"endpoint": cloud})) as handler:
        assert not (await handler.list_directory(("place",))).resources
    assert [str(authorization)[:13] for _, authorization in Cloud.asked] == ["SharedKey me:"]


@pytest.mark.semantics("S23", "S30")
async def test_unusable_credentials_say_how_to_log_in(
    cloud: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file")
    with pytest.raises(ConfigError, match="GOOGLE_APPLICATION_CREDENTIALS"):
        StorageHandler(source("gs", "place", password=None, options={"endpoint": cloud}), Services())
    (tmp_path / ".azure").mkdir()
    (tmp_path / ".azure/azureProfile.json").write_text("{}")
    program = tmp_path / "az"
    program.write_text("#!/bin/sh\necho geheim >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    made = source("az", "place", password=None, options={"endpoint": cloud, "account": "me"})
    async with opened(made) as handler:
        with pytest.raises(LoginRequired, match="az login") as caught:
            await handler.list_directory(("place",))
    assert "geheim" not in str(caught.value)


@pytest.mark.semantics("S30")
def test_a_secret_that_a_library_refuses_is_not_told() -> None:
    for url, auth, options in (
        ("gs://bucket/", {"serviceAccount": '{"private_key": "geheim"}'}, {}),
        ("az://container/", {"access_key": "geheim!"}, {"account": "a"}),
    ):
        config = {"url": url, "options": options}
        with pytest.raises(BbfsError) as caught:
            StorageHandler(data_source("bb-storage+x+y", config=config, auth=auth), Services())
        assert "geheim" not in str(caught.value)
        assert caught.value.__cause__ is None


def ftp_source(port: int, **given: Any) -> DataSource:
    policy = Policy(timeout=given.pop("timeout", 20.0))
    config = {"url": f"ftp://127.0.0.1:{port}/", **given}
    return DataSource("s", "s", "storage", "bb", "bb-storage+s+ftp", policy=policy, config=config)


@pytest.mark.parametrize("name", ENDLESS_FTP)
@pytest.mark.semantics("S25")
async def test_a_listing_of_ftp_that_never_ends_is_cut(name: str) -> None:
    server = HostileFtp(ENDLESS_FTP[name])
    with closing(server):
        async with opened(ftp_source(server.port, list_limit=1000)) as handler:
            with trio.fail_after(30):
                try:
                    listing = await handler.list_directory((f"127.0.0.1:{server.port}",))
                except BbfsError:
                    return
            assert len(listing.resources) <= 1000
            assert listing.problem is not None or len(listing.resources) <= 1


@pytest.mark.parametrize("name", ODD_FTP)
@pytest.mark.semantics("S23")
async def test_an_odd_line_of_ftp_is_an_error_of_bbfs(name: str) -> None:
    server = HostileFtp(lambda: iter([ODD_FTP[name]]))
    with closing(server):
        async with opened(ftp_source(server.port)) as handler:
            try:
                listing = await handler.list_directory((f"127.0.0.1:{server.port}",))
            except BbfsError:
                return
            assert len(listing.resources) <= 1


@pytest.mark.semantics("S22")
async def test_a_thread_ends_with_the_request_that_it_is_for() -> None:
    def slowly() -> Iterator[bytes]:
        while True:
            time.sleep(0.1)
            yield b"220-type=file;size=1; welcome"

    for server in (HostileFtp(slowly), HostileFtp(lambda: iter([]), slowly)):
        with closing(server):
            async with opened(ftp_source(server.port)) as handler:
                threads = handler.backend.threads.limiter  # type: ignore[attr-defined]
                with trio.move_on_after(1), suppress(BbfsError):
                    await handler.list_directory((f"127.0.0.1:{server.port}",))
                with trio.fail_after(60):
                    while threads.borrowed_tokens:  # noqa: ASYNC110 - a thread does not tell
                        await trio.sleep(0.01)
