"""Object stores through obstore: Google Cloud Storage and Azure Blob Storage.

obstore finds credentials as the tools of these clouds do: variables of the environment, files of their command line
programs, and the metadata services of machines. If there are none, requests are not signed.

obstore takes keys for paths. It refuses a key with an empty name, `.` or `..` in it, and a listing of its directory;
the error says so.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

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
    NotFound,
    NotSupported,
    Outdated,
    ProtocolViolation,
    Unreachable,
)
from bbfs.model.values import Content, WriteOperation
from bbfs.model.versions import Expected
from bbfs.sources.http.statuses import STORAGE_ERRORS
from bbfs.sources.storage.addresses import Names
from bbfs.sources.storage.backend import Collected, LibraryBackend, ListedItems, StoredItem, file_of, short
from bbfs.sources.storage.options import Configured
from bbfs.sources.storage.web_objects import stated, strong_etag

T = TypeVar("T")
_ERRORS: dict[str, type[BbfsError]] = {
    "FileNotFoundError": NotFound,
    "PermissionDeniedError": Denied,
    "UnauthenticatedError": LoginRequired,
    "PreconditionError": Outdated,
    "AlreadyExistsError": Exists,
    "NotSupportedError": NotSupported,
}
_STATUSES = STORAGE_ERRORS | {407: LoginRequired}
_STATUS = re.compile(r"status code: (\d{3})")
_LAST_OF_CHAIN = ("/computemetadata/", "/metadata/identity", "api-version=2019-08-01&resource=")
"""Parts of requests to the metadata services, which are asked when nothing else gives credentials."""
_NO_TOKEN = ("token request", "get-access-token", "credential error")
_LOGINS = {
    "gs": "run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS or auth.service_account",
    "az": "run 'az login', or set AZURE_STORAGE_ACCOUNT_KEY, another variable of Azure, or auth",
}
IN_PARTS = 5 << 20
"""Bytes above which obstore sends an object in parts, which no condition goes with."""
_PAUSE = 60.0
"""Seconds until credentials are looked for again after there were none."""


class ObjectBackend(LibraryBackend):
    """One bucket or container, from one prefix on."""

    def __init__(self, configured: Configured) -> None:
        super().__init__(configured, configured.source.policy.concurrency)
        try:
            stores, self._obstore = import_module("obstore.store"), import_module("obstore")
            self._failures = (import_module("obstore.exceptions").BaseError, OSError, ValueError, TypeError)
        except ImportError:
            raise self._missing("obstore") from None
        auth, anonymous = configured.auth.model_dump(exclude_none=True), configured.options.anonymous
        if auth and anonymous:
            raise self._unusable("anonymous requests take no auth")
        try:
            self._store = _store(stores, configured, is_signed=not anonymous)
            self._unsigned = None if auth or anonymous else _store(stores, configured, is_signed=False)
        except ConfigError:
            raise
        except self._failures:  # its text may quote a secret
            named = sorted(name for name in os.environ if name.startswith(("GOOGLE_", "AZURE_")))
            raise self._unusable(f"unusable credentials, in {', '.join(auth or named) or 'a file'}") from None
        self._unsigned_until = 0.0

    async def aclose(self) -> None:
        """Do nothing: the connections end with the store."""

    async def list(self, path: Names) -> ListedItems:
        """Return a whole directory: obstore asks for all pages."""
        prefix = "/".join((*self._prefix, *path))
        listed, is_there = await self._call(path, self._listed, path, prefix)
        own = await self._own(path) if prefix else ()
        if path and not listed and not is_there:
            raise NotADirectory(self._what(path)) if own else NotFound(self._what(path))
        return ListedItems((*own, *listed.items), listed.problem)

    def _listed(self, store: Any, path: Names, prefix: str) -> tuple[Collected, bool]:
        """Return the entries of a directory, and if the store has any object there. Runs in a thread."""
        found = self._obstore.list_with_delimiter(store, prefix or None)
        listed = self._collected(path)
        for meta in found["objects"]:
            name = self._last(meta["path"])
            if name is not None and meta["path"] != prefix and not listed.add(described((*path, name), meta)):
                break
        for directory in found["common_prefixes"]:
            name = self._last(directory)
            if name is not None and not listed.add(StoredItem((*path, name), "directory")):
                break
        return listed, bool(found["objects"])

    async def _own(self, path: Names) -> tuple[StoredItem, ...]:
        """Return the object that has the name of a directory, if there is one."""
        try:
            return (await self.stat(path, is_directory=False),)
        except (NotFound, Denied, IsADirectory):
            return ()

    @staticmethod
    def _last(path: str) -> str | None:
        return path.rstrip("/").rpartition("/")[2] or None

    async def stat(self, path: Names, *, is_directory: bool) -> StoredItem:
        if is_directory:
            await self.list(path)
            return StoredItem(path, "directory")
        return await self._call(path, self._object, path)

    def _object(self, store: Any, path: Names) -> StoredItem:
        result = self._obstore.get(store, self._key(path), options={"head": True})
        return described(path, result.meta, result.attributes)

    # -- writing -----------------------------------------------------------------------------------------------------

    def operations(self, path: Names, *, is_directory: bool) -> Collection[WriteOperation]:
        """Return what can be written. Directories follow from keys."""
        return () if is_directory else ("create", "replace", "remove", "rename")

    async def put(self, path: Names, content: Content, expected: Expected, mime_type: str | None) -> StoredItem:
        """Store an object. A large object is sent in parts and appears with the last part. Its version is the version
        in the answer. The store compares the replaced object, except when the new object is sent in parts.
        """
        mode: Any = None
        if content.size <= IN_PARTS and expected.exists is False:
            mode = "create"
        elif content.size <= IN_PARTS and expected.etag is not None:
            old = await self.stat(path, is_directory=False)
            if old.etag != expected.etag:
                raise Conflict(f"{self._what(path)}: somebody else has changed it")
            generation = (old.properties or {}).get("version_id")  # by which Google's store compares
            mode = {"e_tag": f'"{old.etag}"', **({"version": generation} if generation is not None else {})}
        try:
            etag = await self._call(path, self._put, path, content, mode, mime_type)
        except (Exists, Outdated) as error:
            raise Conflict(str(error)) from None
        return stated(await self.stat(path, is_directory=False), etag, content.size)

    def _put(self, store: Any, path: Names, content: Content, mode: Any, mime_type: str | None) -> str | None:
        """Store a content, and return the ETag of the answer. Runs in a thread."""
        attributes = {"Content-Type": mime_type} if mime_type is not None else None
        with file_of(content) as file:
            said = self._obstore.put(store, self._key(path), file, attributes=attributes, mode=mode)
        return strong_etag({"etag": said["e_tag"] or ""})

    async def delete(self, path: Names, expected: Expected) -> None:
        if expected.exists is None:  # otherwise it was looked for just before
            await self.stat(path, is_directory=False)  # not all stores say if there was one
        await self._call(path, self._obstore.delete, self._key(path))

    async def move(self, path: Names, to: Names, *, replace: bool, is_directory: bool) -> StoredItem:
        """Copy an object at the store, then remove the old object."""
        old, replaced = await self.stat(path, is_directory=False), None
        if replace:
            with suppress(NotFound):
                replaced = await self.stat(to, is_directory=False)
        await self._call(path, self._obstore.copy, self._key(path), self._key(to), overwrite=replace)
        copied = await self._require_copied(old, replaced, path, to)
        await self.delete(path, Expected(exists=True))
        return stated(copied, None, old.size)  # obstore does not pass on the version in the answer

    def _read(self, store: Any, path: Names, item: StoredItem, offset: int, length: int) -> bytes:
        options: dict[str, Any] = {"range": (offset, offset + length)}
        if item.etag is not None and not item.etag.startswith("W/"):
            options["if_match"] = f'"{item.etag}"'  # a weak one matches nothing (RFC 9110, section 13.1.1)
        result = self._obstore.get(store, self._key(path), options=options)
        now = described(path, result.meta)
        if (now.size, now.etag, now.modified_ns) != (item.size, item.etag, item.modified_ns):
            raise Outdated(f"{self._what(path)}: was replaced while it was open")
        data = bytes(result.bytes())
        if len(data) != length:
            raise ProtocolViolation(f"{self._what(path)}: {len(data)} bytes came of {length} asked for")
        return data

    def _with_store(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        if self._unsigned is not None and time.monotonic() < self._unsigned_until:
            return function(self._unsigned, *arguments, **named)
        try:
            return function(self._store, *arguments, **named)
        except self._failures as error:
            text = str(error).lower()
            if self._unsigned is None or not any(part in text for part in _LAST_OF_CHAIN):
                raise
        self._unsigned_until = time.monotonic() + _PAUSE
        return function(self._unsigned, *arguments, **named)

    def _key(self, path: Names) -> str:
        names = (*self._prefix, *path)
        if not names:
            raise IsADirectory(f"{self._what(path)}: is no object")
        self._require_usable(names, path)
        return "/".join(names)

    def _translated(self, error: Exception, what: str) -> BbfsError:
        found = _translated(error, what)
        if isinstance(found, Denied | LoginRequired) and time.monotonic() < self._unsigned_until:
            return type(found)(f"{found}: no credentials were found; {_LOGINS[self._place.scheme]}")
        return found


def _translated(error: Exception, what: str) -> BbfsError:
    """Return bbfs's error for an error of obstore, whose text may have URLs with secrets and pages of a server in
    it."""
    text = str(error).lower()
    if any(part in text for part in _NO_TOKEN):
        return LoginRequired(f"{what}: the credentials cannot be used; {_LOGINS[what.partition(':')[0]]}")
    if "authenticationfailed" in text or "failed to authenticate" in text:  # Azure says 403 to that as well
        return LoginRequired(what)
    for kind in type(error).__mro__:
        if kind.__name__ in _ERRORS:
            return _ERRORS[kind.__name__](what)
        if kind.__name__ == "InvalidPathError":
            return ProtocolViolation(
                f"{what}: there are keys with empty names, '.' or '..', which cannot be listed here"
            )
    if isinstance(error, ValueError):
        return NotFound(f"{what}: no name that can be asked for")
    if "kind: timeout" in text or "timedout" in text:
        return DeadlineExceeded(f"{what}: the server did not answer in time")
    status = _STATUS.search(text)
    if status is not None and int(status[1]) in _STATUSES:
        return _STATUSES[int(status[1])](f"{what}: status {status[1]}")
    if "error sending request" in text or "kind: connect" in text or (status is not None and status[1] >= "500"):
        return Unreachable(f"{what}: the server cannot be reached, or failed")
    return ProtocolViolation(f"{what}: the server answered what cannot be used ({type(error).__name__})")


def _store(stores: Any, configured: Configured, *, is_signed: bool) -> Any:
    place, options, auth = configured.place, configured.options, configured.auth
    timeout = timedelta(seconds=configured.source.policy.timeout)
    client: dict[str, Any] = {"timeout": timeout, "connect_timeout": timeout}
    common = {"client_options": client, "retry_config": {"max_retries": 0, "retry_timeout": timeout}}
    endpoint = options.endpoint
    if endpoint is not None and endpoint.startswith("http:"):
        client["allow_http"] = True
    if place.scheme == "gs":
        config = {"service_account_key": auth.service_account, "base_url": endpoint}
        config["skip_signature"] = None if is_signed else True
        return stores.GCSStore(place.authority, config=_given(config), **common)
    account = options.account or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    if account is None:
        where = f"sources[{configured.source.id}].config.options.account"
        raise ConfigError(f"{where}: the name of the storage account is missing, as is AZURE_STORAGE_ACCOUNT_NAME")
    config = {"account_name": account, "account_key": auth.access_key, "endpoint": endpoint}
    config |= {"sas_key": auth.sas_token, "token": auth.token, "use_azure_cli": _has_azure_cli() or None}
    config["skip_signature"] = None if is_signed else True
    return stores.AzureStore(place.authority, config=_given(config), **common)


def _has_azure_cli() -> bool:
    """Return whether a user has logged in by `az login`. obstore asks it before a metadata service."""
    directory = Path(os.environ.get("AZURE_CONFIG_DIR", "~/.azure")).expanduser()
    return (directory / "azureProfile.json").is_file() and shutil.which("az") is not None


def _given(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if value is not None}


def described(path: Names, meta: Any, attributes: dict[str, str] | None = None) -> StoredItem:
    modified = meta["last_modified"]
    said = {key.lower().replace("-", "_"): value for key, value in (attributes or {}).items()}
    mime_type = short(said.pop("content_type", None))
    known = {"content_disposition", "content_encoding", "content_language", "cache_control", "storage_class"}
    properties: dict[str, Any] = {key: fact for key in known if (fact := short(said.pop(key, None)))}
    if said:
        properties["user_metadata"] = said
    if version := short(meta["version"]):
        properties["version_id"] = version
    if mime_type is not None:
        properties["stored_type"] = mime_type
    is_generic = mime_type in (None, "application/octet-stream", "binary/octet-stream")
    return StoredItem(
        path,
        "resource",
        meta["size"],
        int(modified.timestamp()) * 1_000_000_000,
        short((meta["e_tag"] or "").strip('"')),  # some stores leave the quotes out of listings
        None if is_generic else mime_type,
        properties or None,
    )
