"""Credentials of S3 sources: from the configuration, from AWS profiles, and from services that give temporary ones."""

import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from pathlib import Path

import pytest
import trio
from http_server import Answers, HttpServer
from object_stores import S3Server, opened

from bbfs.model.errors import BbfsError, ConfigError, DeadlineExceeded, Denied, LoginRequired
from bbfs.model.values import DataSource, Policy
from bbfs.sources.storage.handler import StorageHandler
from bbfs.sources.storage.options import configure
from bbfs.sources.storage.s3.answers import region_of
from bbfs.sources.storage.s3.signing import PAUSE, Account, Accounts

PAGE = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
ROLE = "/latest/meta-data/iam/security-credentials/"
SECRET, TOKEN = "wJalrXUtnFEMI-geheim", "token-geheim"


class Loopback(HttpServer):
    """A bucket without objects, and the services that give credentials, on one port. Keeps what it was asked."""

    def __init__(self) -> None:
        loopback = self

        class Handler(Answers):
            def answer(self) -> None:
                self.body()
                loopback.requests.append((self.path, dict(self.headers.items())))
                status, body = loopback.answer(self.path)
                wanted = loopback.region
                if (
                    "list-type" in self.path
                    and wanted
                    and f"/{wanted}/" not in (loopback.signed[-1] or "").replace(" ", "/")
                ):
                    status, body = loopback.refusal, b""
                self.reply(status, body, {"x-amz-bucket-region": wanted} if wanted else None)

        self.requests: list[tuple[str, dict[str, str]]] = []
        self.lifetimes: list[float] = [3600]  # seconds, of the credentials that are given next; the last one for good
        self.given = 0
        self.is_broken = False
        self.region, self.refusal = "", 301  # of the bucket, if it refuses others; the status of that
        self.flows = threading.Event()
        self.flows.set()
        super().__init__(Handler)

    def answer(self, path: str) -> tuple[int, bytes]:
        if path == "/latest/api/token":
            return 200, b"metadata"
        if path == ROLE:
            return 200, b"reader"
        if path.startswith("/federation/credentials"):
            keys = {"accessKeyId": "AKIASSO", "secretAccessKey": SECRET, "sessionToken": TOKEN}
            return 200, json.dumps({"roleCredentials": {**keys, "expiration": int(time.time() + 3600) * 1000}}).encode()
        if not path.startswith(("/credentials", ROLE)):
            return 200, PAGE
        self.flows.wait(20)
        if self.is_broken:
            return 400, TOKEN.encode()
        left = self.lifetimes.pop(0) if len(self.lifetimes) > 1 else self.lifetimes[0]
        expires = datetime.now(UTC) + timedelta(seconds=left)
        self.given += 1
        keys = {"AccessKeyId": f"AKIA{self.given}", "SecretAccessKey": SECRET, "Token": TOKEN, "Code": "Success"}
        return 200, json.dumps({**keys, "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ")}).encode()

    @property
    def signed(self) -> list[str | None]:
        """Key, region and service of the requests to the bucket; None for one that is not signed."""
        asked = [headers for path, headers in self.requests if "list-type" in path]
        found = [re.search(r"Credential=(\w+)/\d+/([\w/-]+)/aws4", each.get("Authorization", "")) for each in asked]
        return [each and f"{each[1]} {each[2]}" for each in found]

    def close(self) -> None:
        self.flows.set()
        super().close()


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    with closing(Loopback()) as server:
        yield server


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Nothing of this machine's AWS configuration counts. Returns what writes another one."""
    for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("HOME", str(tmp_path))

    def write(text: str) -> None:
        (tmp_path / "config").write_text(text)

    return write


def source(
    options: Mapping[str, object] | None = None,
    endpoint: str | None = None,
    auth: Mapping[str, str] | None = None,
    timeout: float = 20.0,
) -> DataSource:
    given = {**(options or {}), **({} if endpoint is None else {"endpoint": endpoint})}
    return DataSource(
        "store", "store", "storage", "bb", "bb-storage+store+s3",
        policy=Policy(timeout=timeout), config={"url": "s3://bucket", "options": given}, auth=dict(auth or {}),
    )  # fmt: skip


async def ask(handler: StorageHandler) -> None:
    assert not (await handler.list_directory(("bucket",))).resources


async def found(**options: str) -> Account:
    return await Accounts(configure(source(options))).current()


async def test_a_profile_gives_keys_and_region(loopback: Loopback, aws: Callable[[str], None], tmp_path: Path) -> None:
    aws("[profile work]\nregion = eu-west-3\n[profile other]\nregion = eu-west-1\n")
    (tmp_path / "credentials").write_text(
        f"[default]\naws_access_key_id = AKIADEFAULT\naws_secret_access_key = {SECRET}\n"
        f"[work]\naws_access_key_id = AKIAWORK\naws_secret_access_key = {SECRET}\n"
    )
    for options in ({"profile": "work"}, {"profile": "work", "region": "us-west-2"}, {}):
        async with opened(source(options, loopback.url)) as handler:
            await ask(handler)
    assert loopback.signed == ["AKIAWORK eu-west-3/s3", "AKIAWORK us-west-2/s3", "AKIADEFAULT us-east-1/s3"]


async def test_what_the_source_is_configured_with_wins(loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "sa-east-1")
    cases: list[tuple[dict[str, object], dict[str, str]]] = [
        ({}, {}),
        ({"region": "eu-west-1"}, {"access_key": "AKIAOWN", "secret_key": "own"}),
        ({"anonymous": True}, {}),
    ]
    for options, auth in cases:
        async with opened(source(options, loopback.url, auth)) as handler:
            await ask(handler)
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    async with opened(source(endpoint=loopback.url)) as handler:
        await ask(handler)
    assert loopback.signed == ["AKIAENV sa-east-1/s3", "AKIAOWN eu-west-1/s3", None, "AKIAENV eu-north-1/s3"]


async def test_without_credentials_requests_are_not_signed(loopback: Loopback) -> None:
    async with opened(source(endpoint=loopback.url)) as handler:
        await ask(handler)
        await ask(handler)
    assert loopback.signed == [None, None]


@pytest.mark.parametrize(("service", "given"), [("container", 2), ("machine", 1)])
async def test_temporary_credentials_are_asked_for_and_renewed(
    loopback: Loopback, monkeypatch: pytest.MonkeyPatch, service: str, given: int
) -> None:
    """A container's that have expired are renewed before they are used; a machine's hold longer than they say."""
    if service == "container":
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{loopback.url}/credentials")
    else:
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", loopback.url)
    loopback.lifetimes = [-60, 800]  # from 900 seconds on, credentials are renewed before they expire
    async with opened(source(endpoint=loopback.url)) as handler:
        await ask(handler)
        assert loopback.given == given
        await ask(handler)
        await ask(handler)
        assert loopback.given == given  # they were looked for a moment ago
        assert loopback.signed == [f"AKIA{given} us-east-1/s3"] * 3
    assert all(headers["X-Amz-Security-Token"] == TOKEN for path, headers in loopback.requests if "list-type" in path)


async def test_keys_that_hold_outlive_a_failed_renewal(loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{loopback.url}/credentials")
    monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
    loopback.lifetimes = [800, 800, 500]  # from 900 seconds on they should be renewed, from 600 on they must be
    now = 1000.0
    accounts = Accounts(configure(source(endpoint=loopback.url)), clock=lambda: now)
    first = await accounts.current()
    assert await accounts.current() is first
    now += PAUSE
    assert (await accounts.current()).keys.access_key == "AKIA3"
    now += PAUSE
    loopback.is_broken = True
    asked = len(loopback.requests)
    for _ in range(3):
        assert (await accounts.current()).keys.access_key == "AKIA3"
    assert 0 < len(loopback.requests) - asked <= 3  # those of one look


@pytest.mark.semantics("S23")
async def test_a_service_that_does_not_answer_is_waited_for_no_longer_than_the_source(
    loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{loopback.url}/credentials")
    loopback.flows.clear()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.sleep(0.01)
            turns += 1

    async with opened(source(endpoint=loopback.url, timeout=2)) as handler, trio.open_nursery() as nursery:
        nursery.start_soon(count)
        with trio.fail_after(30), pytest.raises(DeadlineExceeded):
            await ask(handler)
        assert turns > 3  # the event loop went on
        assert handler.state.state == "down"
        loopback.flows.set()
        with trio.fail_after(60):
            while handler.state.state != "up":
                with trio.move_on_after(5):
                    try:
                        await ask(handler)
                    except DeadlineExceeded:
                        continue  # the thread of the first request still waits
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("way", ["web identity", "role of a profile"])
async def test_what_a_user_has_is_exchanged_for_credentials(
    loopback: Loopback, aws: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    role = "arn:aws:iam::123456789012:role/reader"
    if way == "web identity":
        (tmp_path / "identity").write_text("identity-token")
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "identity"))
        monkeypatch.setenv("AWS_ROLE_ARN", role)
    else:
        aws(
            f"[profile base]\naws_access_key_id = AKIABASE\naws_secret_access_key = {SECRET}\n"
            f"[profile role]\nsource_profile = base\nrole_arn = {role}\n"
        )
        monkeypatch.setenv("AWS_PROFILE", "role")
    with closing(S3Server()) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
        async with opened(source(endpoint=loopback.url)) as handler:
            await ask(handler)
    assert str(loopback.signed[0]).startswith("ASIA")


@pytest.mark.parametrize(
    ("config", "options", "kind", "said"),
    [
        ("", {"profile": "nowhere"}, ConfigError, "nowhere"),
        (f"[default]\ncredential_process = sh -c 'echo {SECRET} >&2; exit 1'\n", {}, LoginRequired, "credentials"),
        (
            "[default]\nsso_start_url = https://a.awsapps.com/start\nsso_region = us-east-1\n"
            "sso_account_id = 123456789012\nsso_role_name = reader\n",
            {},
            LoginRequired,
            "aws sso login",
        ),
        (f"[default]\naws_access_key_id = {SECRET}\n", {}, ConfigError, "aws_secret_access_key"),
    ],
)
@pytest.mark.semantics("S23", "S30")
async def test_credentials_that_cannot_be_had_are_an_error_without_secrets(
    loopback: Loopback,
    aws: Callable[[str], None],
    caplog: pytest.LogCaptureFixture,
    config: str,
    options: dict[str, str],
    kind: type[BbfsError],
    said: str,
) -> None:
    aws(config)
    caplog.set_level(logging.DEBUG)
    async with opened(source(options, loopback.url)) as handler:
        with pytest.raises(kind) as caught:
            await ask(handler)
        assert said in str(caught.value)
        assert SECRET not in str(caught.value) + str(handler.state) + caplog.text
        assert handler.state.state == "down"
    assert not loopback.signed


async def test_a_profile_may_log_in_by_sso(
    loopback: Loopback, aws: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    aws(
        "[profile work]\nregion = eu-west-3\n"
        "sso_session = corp\nsso_account_id = 123456789012\nsso_role_name = reader\n"
        "[sso-session corp]\nsso_start_url = https://a.awsapps.com/start\nsso_region = us-east-1\n"
    )
    expires = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    token = {"startUrl": "https://a.awsapps.com/start", "accessToken": TOKEN, "expiresAt": expires}
    (tmp_path / f"{sha1(b'corp').hexdigest()}.json").write_text(json.dumps(token))
    for kind in ("botocore.credentials.SSOProvider", "botocore.tokens.SSOTokenProvider"):
        monkeypatch.setattr(f"{kind}._SSO_TOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", loopback.url)
    async with opened(source({"profile": "work"}, loopback.url)) as handler:
        await ask(handler)
    assert loopback.signed == ["AKIASSO eu-west-3/s3"]


@pytest.mark.parametrize("status", [301, 307, 400])
async def test_the_region_of_the_bucket_is_found(
    loopback: Loopback, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", loopback.url)
    loopback.region, loopback.refusal = "eu-west-3", status
    auth = {"access_key": "AKIAOWN", "secret_key": SECRET}
    async with opened(source({"region": "us-west-2"}, auth=auth)) as handler:
        await ask(handler)
        await ask(handler)
        assert loopback.signed == ["AKIAOWN us-west-2/s3", "AKIAOWN eu-west-3/s3", "AKIAOWN eu-west-3/s3"]
        loopback.region = "ap-south-1"
        with pytest.raises(BbfsError, match="ap-south-1" if status != 400 else "400"):
            await ask(handler)
        assert len(loopback.signed) == 4  # a bucket has one region


async def test_another_region_has_another_endpoint() -> None:
    accounts = Accounts(configure(source({"region": "us-west-2"})))
    await accounts.current()
    await accounts.move("eu-central-1")
    account = await accounts.current()
    assert (account.region, account.endpoint) == ("eu-central-1", "https://s3.eu-central-1.amazonaws.com")


@pytest.mark.parametrize("region", ["", "x.example/", "eu-west-1\r\n", "e" * 99])
def test_a_region_that_is_none_is_ignored(region: str) -> None:
    assert region_of(301, {"x-amz-bucket-region": region}) is None


@pytest.mark.parametrize(("options", "is_said"), [({}, True), ({"anonymous": True}, False)])
@pytest.mark.semantics("S23")
async def test_a_refusal_says_that_there_were_no_credentials(
    loopback: Loopback, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], is_said: bool
) -> None:
    monkeypatch.setattr(loopback, "answer", lambda path: (403, b"<Error><Code>AccessDenied</Code></Error>"))
    async with opened(source(options, loopback.url)) as handler:
        with pytest.raises(Denied) as caught:
            await ask(handler)
    assert ("no credentials" in str(caught.value)) == is_said


@pytest.mark.semantics("S30")
async def test_no_secret_logged(
    loopback: Loopback, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{loopback.url}/credentials")
    caplog.set_level(logging.DEBUG)
    async with opened(source(endpoint=loopback.url)) as handler:
        await ask(handler)
    _, headers = loopback.requests[-1]
    signature = headers["Authorization"].rpartition("=")[2]
    assert not [secret for secret in (SECRET, TOKEN, signature) if secret in caplog.text]


async def test_endpoints_are_of_the_region_or_environment(loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await found(region="eu-central-1")).endpoint == "https://s3.eu-central-1.amazonaws.com"
    assert (await found(region="cn-north-1")).endpoint == "https://s3.cn-north-1.amazonaws.com.cn"
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert (await found(region="eu-central-1")).proxy == "http://127.0.0.1:9"
    assert (await found(endpoint="https://minio.example")).endpoint == "https://minio.example"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", loopback.url)
    async with opened(source()) as handler:
        await ask(handler)
    monkeypatch.setenv("AWS_ENDPOINT_URL", loopback.url)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    async with opened(source()) as handler:
        await ask(handler)
    assert [path.partition("?")[0] for path, _ in loopback.requests] == ["/bucket/", "/bucket/"]
