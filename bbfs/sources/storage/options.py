"""The options of a storage source: its URL, taken apart, and the options and secrets of its scheme."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import Field

from bbfs.model.errors import ConfigError, NotFound
from bbfs.model.values import DataSource
from bbfs.sources.options import Bytes, SourceOptions, local_path, parse_options, parse_table
from bbfs.sources.storage.addresses import Place, name_of

ELSEWHERE = {
    "file": 'type = "filesystem"',
    "local": 'type = "filesystem"',
    "http": 'type = "url"',
    "https": 'type = "url"',
}
"""Schemes that have a source type of their own."""
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class StorageOptions(SourceOptions):
    """The options of every storage source."""

    url: str
    """The start of the tree, without secrets."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the URL's scheme, see below."""
    max_memory: Bytes = Field(default=8 << 20, ge=1, le=1 << 30)
    """Largest object that is read whole when it is opened. Larger ones are read in ranges."""
    list_limit: int = Field(default=100_000, ge=1, le=1_000_000)
    """Most names of one directory to list. If there are more, the log and `user.bbfs.error` say so."""

    @classmethod
    def tables(cls, config: Mapping[str, Any]) -> Mapping[tuple[str, ...], type[SourceOptions]]:
        known = SCHEMES.get(str(config.get("url", "")).partition("://")[0].lower())
        own = {("config", "options"): known.options, ("auth",): known.auth} if known is not None else {}
        return {("config",): cls, **own}


class S3Options(SourceOptions):
    """Options of S3. The AWS configuration of the environment and of the profile counts for those that are absent."""

    endpoint: str | None = Field(default=None, pattern=r"^https?://[^?#@]+$")
    """URL of another server than Amazon's."""
    region: str | None = Field(default=None, pattern=r"^[a-z0-9-]+$")
    """The region of the bucket."""
    profile: str | None = Field(default=None, min_length=1)
    """The profile in the AWS configuration files."""
    anonymous: bool = False
    """Do not sign requests."""
    path_style: bool | None = None
    """Send the bucket in the path instead of the host's name."""
    requester_pays: bool = False
    """Your account pays for requests and data."""
    refuses_existing: bool = False
    """The store refuses a new object under a taken name (`If-None-Match`), as Amazon's does: bbfs does not look
    before."""


class S3Auth(SourceOptions):
    access_key: str | None = None
    """Id of the access key."""
    secret_key: str | None = None
    """The secret key."""
    session_token: str | None = None
    """The token of temporary credentials."""


class GcsOptions(SourceOptions):
    anonymous: bool = False
    """Do not sign requests."""
    endpoint: str | None = Field(default=None, pattern=r"^https?://[^/?#@]+/?$")
    """URL of another server than Google's."""


class GcsAuth(SourceOptions):
    service_account: str | None = None
    """The JSON text of the key of a service account."""


class AzureOptions(SourceOptions):
    account: str | None = None
    """The storage account. Without it, the account that the environment names."""
    anonymous: bool = False
    """Do not sign requests."""
    endpoint: str | None = Field(default=None, pattern=r"^https?://[^?#@]+$")
    """URL of another server than Microsoft's."""


class AzureAuth(SourceOptions):
    access_key: str | None = None
    """The key of the account."""
    sas_token: str | None = None
    """A shared access signature."""
    token: str | None = None
    """A bearer token."""


class Password(SourceOptions):
    username: str | None = None
    """The user name."""
    password: str | None = None
    """The password."""


class SftpOptions(SourceOptions):
    known_hosts: str | None = None
    """A file with the keys of hosts, beside `~/.ssh/known_hosts`."""
    key_file: str | None = None
    """A private key."""


class SftpAuth(Password):
    passphrase: str | None = None
    """The passphrase of private keys."""


class FtpOptions(SourceOptions):
    tls: bool = False
    """Encrypt the connection (`AUTH TLS`)."""
    encoding: str = "utf-8"
    """The encoding of names."""


class GithubAuth(SourceOptions):
    username: str | None = None
    """The user of the token."""
    token: str | None = None
    """A personal access token."""


class ZipOptions(SourceOptions):
    encoding: str | None = None
    """The encoding of names that the archive does not declare as UTF-8, and that are not valid UTF-8. Without it, code
    page 437."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """The options of a scheme. path_only: its URLs have no authority."""

    options: type[SourceOptions]
    auth: type[SourceOptions]
    path_only: bool = False


SCHEMES: dict[str, Scheme] = {
    "s3": Scheme(S3Options, S3Auth),
    "gs": Scheme(GcsOptions, GcsAuth),
    "az": Scheme(AzureOptions, AzureAuth),
    "webdav": Scheme(SourceOptions, Password),
    "webdavs": Scheme(SourceOptions, Password),
    "sftp": Scheme(SftpOptions, SftpAuth),
    "ftp": Scheme(FtpOptions, Password),
    "github": Scheme(SourceOptions, GithubAuth),
    "memory": Scheme(SourceOptions, SourceOptions),
    "zip": Scheme(ZipOptions, SourceOptions, path_only=True),
    "tar": Scheme(SourceOptions, SourceOptions, path_only=True),
}


@dataclass(frozen=True, slots=True)
class Configured:
    """A configured storage source. file: the path of an archive. auth: holds secrets, so `repr` leaves it out."""

    source: DataSource
    place: Place
    common: StorageOptions
    options: Any
    auth: Any = field(repr=False)
    file: str | None = None


def configure(source: DataSource) -> Configured:
    """Check and return the options of a source. Raises ConfigError, whose text has no value that may be secret."""
    common = parse_options(StorageOptions, source)
    where = f"sources[{source.id}].config.url"
    scheme, found, rest = common.url.partition("://")
    scheme = scheme.lower()
    if not found or not scheme:
        raise ConfigError(f"{where}: expected SCHEME://…, such as s3://bucket/prefix or zip:///path/to.zip")
    known = SCHEMES.get(scheme)
    if known is None:
        if scheme in ELSEWHERE:
            raise ConfigError(f"{where}: {scheme}:// is read by another type of source: {ELSEWHERE[scheme]}")
        raise ConfigError(f"{where}: unknown scheme {scheme!r}; there are: {', '.join(sorted(SCHEMES))}")
    options = parse_table(known.options, common.options, f"sources[{source.id}].config.options")
    auth = parse_table(known.auth, source.auth, f"sources[{source.id}].auth")
    file = None
    if known.path_only:
        file = local_path(source, unquote(rest) if not rest.startswith("./") else unquote(rest[2:]))
        place = Place(scheme, "", tuple(name for name in file.split("/") if name))
        if "\0" in file or not place.prefix:
            raise ConfigError(f"{where}: expected the path of a file: {scheme}:///path/to/archive")
    else:
        place = _remote(scheme, rest, where)
    return Configured(source, place, common, options, auth, file)


def _remote(scheme: str, rest: str, where: str) -> Place:
    authority, _, path = rest.partition("/")
    if "?" in authority or "#" in authority or not authority:
        raise ConfigError(f"{where}: expected {scheme}://NAME/PATH")
    userinfo, at, _ = authority.rpartition("@")
    if scheme == "github":
        if not re.fullmatch(r"[^:@/]+:[^:@/]+(@.+)?", authority):
            raise ConfigError(f"{where}: expected github://OWNER:REPOSITORY@REFERENCE/PATH")
    elif ":" in userinfo:
        raise ConfigError(f"{where}: secrets belong into the table auth, not into the URL")
    elif scheme in ("s3", "gs", "az"):
        if at or not _BUCKET.fullmatch(authority):
            raise ConfigError(f"{where}: {scheme}:// is followed by the name of a bucket")
    else:
        _check_port(f"{scheme}://{authority}", where)
    try:
        names = tuple(name_of(segment) for segment in path.strip("/").split("/") if path.strip("/"))
    except NotFound as error:
        raise ConfigError(f"{where}: {error}") from None
    return Place(scheme, authority, names)


def _check_port(url: str, where: str) -> None:
    with suppress(ValueError):  # reported below, without the value
        parts = urlsplit(url)
        if parts.hostname and (parts.port is None or parts.port > 0):
            return
    raise ConfigError(f"{where}: no host, or a port that is none")
