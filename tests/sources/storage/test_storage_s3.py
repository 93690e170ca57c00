"""Object stores that speak S3: a real server, odd keys, versions, bounds, errors, stalls."""

import os
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from datetime import datetime
from typing import Any

import pytest
import trio
from botocore.credentials import Credentials
from hostile_storage import ENDLESS_S3, S3_PAGES, HostileS3, s3_page
from object_stores import KEY, SECRET, Relay, S3Server, opened
from programs import wait_until

from bbfs.model.errors import (
    BbfsError,
    ConfigError,
    DeadlineExceeded,
    Denied,
    IsADirectory,
    LoginRequired,
    NotADirectory,
    NotFound,
    Outdated,
    ProtocolViolation,
    Unreachable,
)
from bbfs.model.values import WAITS_FOR_SOURCE, DataSource, Policy
from bbfs.sources import Services
from bbfs.sources.storage.handler import StorageHandler
from bbfs.sources.storage.s3.answers import error_of, facts_of, page_of
from bbfs.sources.storage.s3.signing import Account
from bbfs.testing import list_all, read_whole

ODD_KEYS = (
    "plain.txt",
    "deep/er/file.md",
    "twice//slashed",
    "/leading",
    "dot/./in/it",
    "dots/../../etc/passwd",
    "percent%20and%2Fmore",
    "sp ace+plus",
    "ünï/ço∂é",
    "query?&=#;",
    "back\\slash",
    "A",
    "a",
    "k" * 1000 + ".bin",
    "tab\tand\u200bzero",
    "..",
    "...",
)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    server = S3Server()
    with closing(server):
        for name in ("odd", "both", "big", "many"):
            server.make_bucket(name)
        for key in ODD_KEYS:
            server.put("odd", key, f"content of {key}".encode())
        yield server


def source(url: str, endpoint: str, *, auth: bool = True, timeout: float = 20.0, **config: Any) -> DataSource:
    options = {"endpoint": endpoint, **config.pop("options", {})}
    return DataSource(
        "store", "store", "storage", "bb", "bb-storage+store+s3",
        policy=Policy(timeout=timeout),
        config={"url": url, "options": options, **config},
        auth={"accessKey": KEY, "secretKey": SECRET} if auth else {},
    )  # fmt: skip


@pytest.mark.semantics("S3", "S4")
async def test_every_key_is_listed_and_read_whatever_it_looks_like(server: S3Server) -> None:
    async with opened(source("s3://odd", server.url)) as handler:
        found: dict[str, bytes] = {}
        for entry in await list_all(handler):
            assert not re.search(r"/\.{1,2}(/|\Z)|[^:]//", entry.native_uri), entry.native_uri
            if entry.kind == "resource":
                loaded = await handler.load(entry.native_uri)
                found[entry.native_uri] = await read_whole(loaded.parts[0].content)
        assert sorted(found.values()) == sorted(f"content of {key}".encode() for key in ODD_KEYS)


async def test_a_url_with_a_prefix_shows_the_directories_that_lead_to_it(server: S3Server) -> None:
    async with opened(source("s3://odd/deep/er/", server.url)) as handler:
        entries = [(entry.kind, entry.native_uri) for entry in await list_all(handler)]
        assert entries == [
            ("directory", "s3://odd/"),
            ("directory", "s3://odd/deep/"),
            ("directory", "s3://odd/deep/er/"),
            ("resource", "s3://odd/deep/er/file.md"),
        ]
        for outside in ("s3://odd/plain.txt", "s3://other/deep/er/file.md", "s3://odd/deep/er/%2E%2E/%2E%2E/plain.txt"):
            with pytest.raises(NotFound):
                await handler.load(outside)


async def test_an_endpoint_may_have_a_path(server: S3Server) -> None:
    async with opened(source("s3://deep", f"{server.url}/odd/")) as handler:
        loaded = await handler.load("s3://deep/er/file.md")
        assert await read_whole(loaded.parts[0].content) == b"content of deep/er/file.md"


@pytest.mark.semantics("S5")
async def test_an_object_that_others_go_on_from_is_the_content_of_their_directory(server: S3Server) -> None:
    for key, data in (("a", b"own"), ("a/b", b"below"), ("a/", b""), ("m/", b"marker"), ("m/x", b"1"), ("empty/", b"")):
        server.put("both", key, data)
    async with opened(source("s3://both", server.url)) as handler:
        top = await handler.list_directory(("both",))
        assert [(e.kind, e.native_uri) for e in top.resources] == [
            ("directory", "s3://both/a/"),
            ("directory", "s3://both/empty/"),
            ("directory", "s3://both/m/"),
        ]
        inside = await handler.list_directory(("both", "a"))
        assert [e.native_uri for e in inside.resources] == ["s3://both/a", "s3://both/a/b"]
        marked = await handler.list_directory(("both", "m"))
        assert [e.native_uri for e in marked.resources] == ["s3://both/m/%2F", "s3://both/m/x"]
        loaded = await handler.load("s3://both/m/%2F")
        assert await read_whole(loaded.parts[0].content) == b"marker"
        assert not (await handler.list_directory(("both", "empty"))).resources
        with pytest.raises(IsADirectory):
            await handler.load("s3://both/a/")
        with pytest.raises(NotADirectory):
            await handler.list_directory(("both", "a", "b"))
        with pytest.raises(NotFound):
            await handler.list_directory(("both", "nothing"))


async def test_what_the_store_says_of_an_object_is_in_its_metadata(server: S3Server) -> None:
    headers = {
        "content-type": "text/html; charset=utf-8", "x-amz-meta-author": "me", "x-amz-storage-class": "STANDARD_IA",
        "cache-control": "no-store", "content-encoding": "gzip",
    }  # fmt: skip
    etag = server.put("both", "page", b"not gzip at all", headers).strip('"')
    async with opened(source("s3://both", server.url)) as handler:
        listed = {e.native_uri: e for e in (await handler.list_directory(("both",))).resources}["s3://both/page"]
        assert (listed.size, listed.etag, listed.properties) == (15, etag, {"storage_class": "STANDARD_IA"})
        stat = await handler.stat("s3://both/page")
        loaded = await handler.load("s3://both/page")
        assert loaded.metadata == stat
        assert stat.mime_type == "text/html; charset=utf-8"
        assert (stat.size, stat.etag, stat.modified_ns) == (listed.size, listed.etag, listed.modified_ns)
        assert stat.properties is not None
        assert stat.properties["user_metadata"] == {"author": "me"}
        assert stat.properties["storage_class"] == "STANDARD_IA"
        assert stat.properties["content_encoding"] == "gzip"
        assert await read_whole(loaded.parts[0].content) == b"not gzip at all"
    server.delete("both", "page")


@pytest.mark.semantics("S15")
async def test_a_large_object_is_read_in_ranges_and_nothing_else(server: S3Server) -> None:
    data = os.urandom(20 << 20)
    server.put("big", "big.bin", data)
    relay = Relay(server.port)
    with closing(relay):
        async with opened(source("s3://big", relay.url)) as handler:
            content = (await handler.load("s3://big/big.bin")).parts[0].content
            assert getattr(content, WAITS_FOR_SOURCE)
            assert content.size == len(data)
            for offset, length in ((0, 100), (15 << 20, 4096), (len(data) - 7, 100), ((3 << 20) - 5, 10)):
                expected = data[offset : offset + length]
                assert await content.read_waiting(offset, length) == expected
                assert content.read(offset, length) == expected
            assert relay.sent < 7 << 20
            whole = (await handler.load("s3://big/big.bin")).parts[0].content
            assert await read_whole(whole) == data

            async def one(offset: int) -> None:
                assert await whole.read_waiting(offset, 1000) == data[offset : offset + 1000]

            before = relay.sent
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(one, 100)
            assert relay.sent - before < 2 << 20


@pytest.mark.semantics("S13")
async def test_an_object_that_is_replaced_while_it_is_read_is_never_mixed(server: S3Server) -> None:
    server.put("big", "changing", b"1" * (4 << 20))
    async with opened(source("s3://big", server.url, max_memory=1 << 20)) as handler:
        content = (await handler.load("s3://big/changing")).parts[0].content
        assert await content.read_waiting(0, 10) == b"1" * 10
        server.put("big", "changing", b"2" * (4 << 20))
        for _ in range(2):
            with pytest.raises(Outdated):
                await content.read_waiting(3 << 20, 10)
        anew = (await handler.load("s3://big/changing")).parts[0].content
        assert await anew.read_waiting(3 << 20, 10) == b"2" * 10
        assert anew.version != content.version
        server.delete("big", "changing")
        with pytest.raises(NotFound):
            await anew.read_waiting(2 << 20, 10)


@pytest.mark.semantics("S25")
async def test_a_listing_comes_by_pages_and_ends_at_its_limit(server: S3Server) -> None:
    with trio.fail_after(60):
        for number in range(250):  # of which a page has a hundred
            server.put("many", f"d/{number:05}", b"")
        async with opened(source("s3://many", server.url)) as handler:
            listing = await handler.list_directory(("many", "d"))
            assert len(listing.resources) == 250
            assert listing.problem is None
        async with opened(source("s3://many", server.url, list_limit=200)) as handler:
            listing = await handler.list_directory(("many", "d"))
            assert len(listing.resources) == 200
            assert listing.problem is not None
            assert "200 names" in listing.problem


@pytest.mark.semantics("S23", "S30")
async def test_each_refusal_is_its_own_error_and_tells_no_secret() -> None:
    server = S3Server("strict")
    with closing(server):
        # The first user is made with the root's rights, which a strict server grants to nobody: so not checked yet.
        server.client.post("/moto-api/reset-auth", content=b"8").raise_for_status()
        server.make_bucket("strict")
        server.put("strict", "x", b"data")
        server.form(Action="CreateUser", UserName="may", Version="2010-05-08")
        server.form(Action="CreateUser", UserName="maynot", Version="2010-05-08")
        may = re.findall(
            "<(?:AccessKeyId|SecretAccessKey)>([^<]+)", server.form(Action="CreateAccessKey", UserName="may")
        )
        maynot = re.findall(
            "<(?:AccessKeyId|SecretAccessKey)>([^<]+)", server.form(Action="CreateAccessKey", UserName="maynot")
        )
        policy = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}'
        server.form(Action="PutUserPolicy", UserName="may", PolicyName="all", PolicyDocument=policy)
        server.client.post("/moto-api/reset-auth", content=b"0").raise_for_status()
        for keys, kind in (
            (may, None),
            (maynot, Denied),
            ((may[0], "wrong" + may[1]), LoginRequired),
            (("AKIANOBODY0000000000", "nothing"), LoginRequired),
        ):
            made = source("s3://strict", server.url)
            made = DataSource(
                "store", "store", "storage", "bb", "bb-storage+store+s3",
                config=made.config, auth={"access_key": keys[0], "secret_key": keys[1]},
            )  # fmt: skip
            async with opened(made) as handler:
                if kind is None:
                    listing = await handler.list_directory(("strict",))
                    assert [e.native_uri for e in listing.resources] == ["s3://strict/x"]
                    assert await read_whole((await handler.load("s3://strict/x")).parts[0].content) == b"data"
                    with pytest.raises(NotFound):
                        await handler.load("s3://strict/y")
                    continue
                for ask in (handler.list_directory(("strict",)), handler.load("s3://strict/x")):
                    with pytest.raises(kind) as caught:
                        await ask
                    told = str(caught.value) + repr(handler.source) + str(handler.state)
                    assert keys[0] not in told
                    assert keys[1] not in told


@pytest.mark.semantics("S23")
async def test_no_bucket_no_server_and_no_answer_differ(server: S3Server) -> None:
    async with opened(source("s3://no-such-bucket", server.url)) as handler:
        with pytest.raises(NotFound):
            await handler.list_directory(("no-such-bucket",))
    relay = Relay(server.port)
    with closing(relay):
        async with opened(source("s3://odd", relay.url, timeout=4.0)) as handler:
            assert (await handler.list_directory(("odd",))).resources
            relay.stall()

            async def wait_in_vain(ask: Callable[[], Awaitable[object]]) -> None:
                with pytest.raises(DeadlineExceeded):
                    await ask()

            with trio.fail_after(60):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(wait_in_vain, lambda: handler.list_directory(("odd",)))
                    nursery.start_soon(wait_in_vain, lambda: handler.stat("s3://odd/a"))
                    nursery.start_soon(wait_in_vain, lambda: handler.load("s3://odd/a"))
            assert handler.state.state == "down"
            relay.flow()
            assert (await handler.load("s3://odd/a")).parts[0].content.size == 12
            assert handler.state.state == "up"
            relay.close()
            with pytest.raises(Unreachable):
                await handler.list_directory(("odd",))


@pytest.mark.semantics("S22")
async def test_whoever_gives_up_takes_the_request_from_the_server(server: S3Server) -> None:
    relay = Relay(server.port)
    with closing(relay):
        async with opened(source("s3://odd", relay.url)) as handler:
            relay.stall()
            with trio.move_on_after(0.3) as scope:
                await handler.load("s3://odd/a")
            assert scope.cancelled_caught
            await trio.to_thread.run_sync(wait_until, lambda: not relay.open, "its connection is closed")


def test_signatures_are_those_of_the_published_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """From "Signature Calculations for the Authorization Header" of the Amazon S3 API reference."""
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: datetime(2013, 5, 24))
    keys = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    account = Account("https://s3.amazonaws.com", "us-east-1", None, keys, keys.get_frozen_credentials())
    bucket = "https://examplebucket.s3.amazonaws.com"
    ranged = account.signed("GET", f"{bucket}/test.txt", {"range": "bytes=0-9"})
    assert ranged["Authorization"].endswith(
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )
    listed = account.signed("GET", f"{bucket}/?max-keys=2&prefix=J", {})
    assert listed["Authorization"].endswith(
        "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
    )
    assert "wJalr" not in repr(account)


@pytest.mark.parametrize("hostile", [name for name in S3_PAGES if not name.startswith("a size")])
@pytest.mark.semantics("S23")
async def test_a_listing_that_is_none_is_an_error(hostile: str) -> None:
    with pytest.raises(ProtocolViolation):
        await page_of(S3_PAGES[hostile]())


async def test_an_ordinary_listing_is_far_from_the_bounds() -> None:
    key = "%E2%82%AC" * 341  # 1023 bytes, each encoded as three
    entry = f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00Z</LastModified>"
    entry += f"<ETag>&quot;{'0' * 32}&quot;</ETag><Size>12345</Size><StorageClass>STANDARD</StorageClass>"
    entry += "<Owner><ID>i</ID></Owner></Contents>"
    page = await page_of(s3_page(b"<EncodingType>url</EncodingType>" + entry.encode() * 1000))
    assert len(page.objects) == 1000
    assert page.objects[0][0] == "\u20ac" * 341


@pytest.mark.parametrize("hostile", ENDLESS_S3)
@pytest.mark.semantics("S25")
async def test_a_listing_that_never_ends_is_cut_and_says_so(hostile: str) -> None:
    server = HostileS3(ENDLESS_S3[hostile])
    with trio.fail_after(60), closing(server):
        async with opened(source("s3://b", server.url, list_limit=3000)) as handler:
            listing = await handler.list_directory(("b", "d"))
    assert listing.problem is not None
    assert len(listing.resources) <= 3000
    assert server.asked <= 20


@pytest.mark.semantics("S25")
async def test_the_names_of_a_listing_have_a_bound_in_bytes() -> None:
    server = HostileS3(ENDLESS_S3["long names for ever"])
    with trio.fail_after(60), closing(server):
        async with opened(source("s3://b", server.url)) as handler:
            listing = await handler.list_directory(("b", "d"))
    assert sum(len(each.native_uri) for each in listing.resources) <= 16 << 20
    assert listing.problem is not None
    assert "URIs" in listing.problem


@pytest.mark.semantics("S25")
async def test_the_other_texts_of_a_listing_have_a_bound_in_bytes() -> None:
    fact = "\U0001f600" * 254
    facts = f"<Size>1</Size><StorageClass>{fact}</StorageClass>"

    def page(number: int) -> bytes:
        keys = (f"d/{number}-{n}" for n in range(1000))
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{number}</NextContinuationToken>"
        return s3_page("".join((more, *(f"<Contents><Key>{key}</Key>{facts}</Contents>" for key in keys))).encode())

    server = HostileS3(page)
    with trio.fail_after(60), closing(server):
        async with opened(source("s3://b", server.url, list_limit=30_000)) as handler:
            listing = await handler.list_directory(("b", "d"))
    assert 0 < len(listing.resources) <= (16 << 20) // (254 * 4)
    assert listing.problem is not None
    assert "texts" in listing.problem


async def test_long_facts_of_an_object_are_left_out() -> None:
    long = "x" * 256
    facts = f"<ETag>{long}</ETag><StorageClass>{long}</StorageClass>"
    ((_, found),) = (await page_of(s3_page(f"<Contents><Key>k</Key><Size>1</Size>{facts}</Contents>".encode()))).objects
    assert (found.etag, found.properties) == (None, None)
    told = facts_of(200, {"content-length": "1", "etag": long, "content-type": long, "x-amz-storage-class": long})
    assert (told.etag, told.mime_type) == (None, None)
    assert not told.properties


def test_an_error_tells_the_region_but_no_signature() -> None:
    body = b"<Error><Code>SignatureDoesNotMatch</Code><Message>StringToSign AKIA</Message></Error>"
    error = error_of(403, {}, body, "s3://b/k")
    assert type(error) is LoginRequired
    assert "AKIA" not in str(error)
    error = error_of(301, {"x-amz-bucket-region": "eu-west-1"}, b"", "s3://b/k")
    assert "eu-west-1" in str(error)


@pytest.mark.parametrize(
    ("config", "auth", "said"),
    [
        ({"url": "bucket"}, {}, "SCHEME"),
        ({"url": "s4://x"}, {}, "unknown scheme"),
        ({"url": "http://x"}, {}, 'type = "url"'),
        ({"url": "s3://user:geheim@bucket"}, {}, "auth"),
        ({"url": "s3://"}, {}, "s3://NAME"),
        ({"url": "s3://b", "options": {"endpont": "x"}}, {}, "endpoint"),
        ({"url": "s3://b", "options": {"endpoint": "http://u:geheim@h"}}, {}, "endpoint"),
        ({"url": "s3://b", "option": {}}, {}, "options"),
        ({"url": "s3://b"}, {"secretkey": "geheim"}, "secret_key"),
        ({"url": "s3://b"}, {"access_key": "geheim"}, "belong together"),
        ({"url": "s3://b", "options": {"anonymous": True}}, {"access_key": "geheim", "secret_key": "x"}, "anonymous"),
        ({"url": "s3://b", "options": {"anonymous": True, "profile": "p"}}, {}, "anonymous"),
        ({"url": "s3://b/../c"}, {}, "no name"),
        ({"url": "github://x"}, {}, "OWNER"),
        ({"url": "sftp://h:port/x"}, {}, "port"),
        ({"url": "az://c"}, {}, "account"),
    ],
)
@pytest.mark.semantics("S30")
def test_a_configuration_that_cannot_be_used_says_why(config: dict[str, Any], auth: dict[str, str], said: str) -> None:
    made = DataSource("store", "store", "storage", "bb", "bb-storage+store+s3", config=config, auth=auth)
    with pytest.raises(ConfigError) as caught:
        StorageHandler(made, Services())
    assert said in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert isinstance(caught.value, BbfsError)


@pytest.mark.parametrize(
    "odd", ["<Size>x</Size>", "", "<LastModified>x</LastModified>", "<ETag/>", "<Key/>", "<Size>-1</Size>"]
)
async def test_one_odd_object_takes_no_other_away(odd: str) -> None:
    good = "<Contents><Key>good</Key><Size>1</Size></Contents>"
    found = (await page_of(s3_page(f"<Contents><Key>odd</Key>{odd}</Contents>{good}".encode()))).objects
    assert [(key, each.size) for key, each in found if key != "odd"][-1] == ("good", 1)
    assert len(found) == 2


@pytest.mark.parametrize("hostile", [name for name in S3_PAGES if name.startswith("a size")])
async def test_an_impossible_size_counts_as_none(hostile: str) -> None:
    assert {each.size for _, each in (await page_of(S3_PAGES[hostile]())).objects} == {None}
