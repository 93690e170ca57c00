"""Credentials, region, endpoint and signatures of Amazon S3, by botocore.

botocore looks for credentials as other AWS programs do: environment, profiles, SSO, web identity, commands, and the
metadata services of containers and machines. That reads files and may use the network, so it runs in a worker thread
under a deadline. Here botocore sends no request for data: the backend does, with headers that botocore has signed.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import trio

from bbfs.model.errors import BbfsError, ConfigError, DeadlineExceeded, LoginRequired, Unreachable
from bbfs.runtime.extras import needs
from bbfs.sources.http.proxies import proxy_of_environment
from bbfs.sources.storage.options import Configured

PAUSE = 60.0
"""Seconds until botocore is asked again after it found no credentials, or could not renew those that still hold."""
_DEFAULT_REGION = "us-east-1"
_CONFIGURATION = ("ProfileNotFound", "PartialCredentialsError", "NoRegionError")
"""Errors of botocore about configuration files; their texts name profiles and settings, but no values."""
_NETWORK = ("ConnectionError", "HTTPClientError", "MetadataRetrievalError")


@dataclass(frozen=True, slots=True)
class Account:
    """The address and the signer of the requests of a source.

    credentials: botocore's, which may know how to renew themselves; None: requests are not signed. keys: the
    credentials' keys, used until the next renewal. proxy: URL of the HTTP proxy that the environment names.
    """

    endpoint: str
    region: str
    proxy: str | None
    credentials: Any = field(default=None, repr=False)
    keys: Any = field(default=None, repr=False)

    def signed(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> dict[str, str]:
        """Return the headers of a request, with its signature, which covers the body."""
        if self.keys is None:
            return dict(headers)
        request = import_module("botocore.awsrequest").AWSRequest(method, url, dict(headers), data=body or None)
        import_module("botocore.auth").S3SigV4Auth(self.keys, "s3", self.region).add_auth(request)
        return dict(request.headers)


class Accounts:
    """Finds and renews the account of one source. Raises ConfigError where botocore is missing. clock: in seconds."""

    def __init__(self, configured: Configured, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        where = f"sources[{configured.source.id}]"
        self._options, self._auth = configured.options, configured.auth
        if (self._auth.access_key is None) != (self._auth.secret_key is None):
            raise ConfigError(f"{where}.auth: access_key and secret_key belong together")
        if self._options.anonymous and (self._auth.access_key or self._options.profile):
            raise ConfigError(f"{where}: anonymous requests take neither access_key nor profile")
        if find_spec("botocore") is None:
            raise ConfigError(f"{where}: type storage, s3: {needs('storage')}: no package botocore")
        logging.getLogger("botocore").setLevel(logging.CRITICAL)  # it logs signatures, tokens and what commands print
        self._timeout = configured.source.policy.timeout
        # A command that prints credentials may hang: it holds this one thread, and no other.
        self._limiter = trio.CapacityLimiter(1)
        self._account: Account | None = None
        self._region: str | None = None  # of the bucket, as the server said
        self._ask_again = 0.0

    @property
    def lacks_credentials(self) -> bool:
        """Return whether requests are unsigned because there are no credentials."""
        return self._account is not None and self._account.credentials is None and not self._options.anonymous

    async def current(self) -> Account:
        """Return the account, with keys that have not expired. Raises BbfsError."""
        if not self._is_current():
            try:
                with trio.fail_after(self._timeout):
                    await trio.to_thread.run_sync(self._look, abandon_on_cancel=True, limiter=self._limiter)
            except (trio.TooSlowError, BbfsError) as error:
                self._ask_again = self._clock() + PAUSE
                if not self._is_current():
                    if isinstance(error, BbfsError):
                        raise
                    raise DeadlineExceeded(f"no credentials for S3 within {self._timeout:g} s") from None
        assert self._account is not None
        return self._account

    def may_move(self, account: Account, region: str) -> bool:
        """Return whether a request of an account is worth another one to this region. A bucket has one region."""
        return region != account.region and self._region in (None, region)

    async def move(self, region: str) -> None:
        """Use another region from now on, and the endpoint of that region. Raises BbfsError."""
        self._region = region
        await trio.to_thread.run_sync(self._move, region, abandon_on_cancel=True, limiter=self._limiter)

    def _move(self, region: str) -> None:
        if self._account is not None and self._account.region != region:
            try:
                endpoint = self._endpoint(self._session(), region)
            except _failures() as error:
                raise self._translated(error) from None
            self._account = replace(self._account, region=region, endpoint=endpoint)

    def _is_current(self) -> bool:
        if self._account is None:
            return False
        is_paused = self._clock() < self._ask_again
        if self._account.credentials is None:
            return is_paused or self._options.anonymous
        ends_within = getattr(self._account.credentials, "refresh_needed", None)
        return ends_within is None or not ends_within() or (is_paused and not ends_within(0))

    def _look(self) -> None:
        """Find the account or renew its keys, in a worker thread."""
        if self._is_current():
            return  # another request waited for the same
        try:
            found = self._account
            if found is None or found.credentials is None:
                found = self._found()
            keys = None if found.credentials is None else found.credentials.get_frozen_credentials()
        except _failures() as error:
            raise self._translated(error) from None
        self._account = replace(found, keys=keys)
        self._ask_again = self._clock() + PAUSE

    def _session(self) -> Any:
        session = import_module("botocore.session").Session(profile=self._options.profile)
        config = import_module("botocore.config").Config
        wait = self._timeout
        once = config(connect_timeout=wait, read_timeout=wait, retries={"total_max_attempts": 1})
        session.set_default_client_config(once)
        # The services that give credentials need a region as well.
        named = os.environ.get("AWS_REGION")  # as other SDKs read it; botocore has AWS_DEFAULT_REGION alone
        region = self._options.region or named or session.get_config_variable("region") or _DEFAULT_REGION
        session.set_config_variable("region", region)
        return session

    def _endpoint(self, session: Any, region: str) -> str:
        if self._options.endpoint is not None:
            return self._options.endpoint
        unsigned = import_module("botocore.config").Config(signature_version=import_module("botocore").UNSIGNED)
        client = session.create_client("s3", region_name=region, config=unsigned)
        endpoint = client.meta.endpoint_url
        client.close()
        return endpoint

    def _found(self) -> Account:
        options, auth, session = self._options, self._auth, self._session()
        region = self._region or session.get_config_variable("region")
        endpoint = self._endpoint(session, region)
        if options.anonymous:
            credentials = None
        elif auth.access_key is not None:
            kind = import_module("botocore.credentials").Credentials
            credentials = kind(auth.access_key, auth.secret_key, auth.session_token)
        else:
            credentials = session.get_credentials()
        return Account(endpoint, region, proxy_of_environment(endpoint), credentials)

    def _translated(self, error: Exception) -> BbfsError:
        """Return bbfs's error for an error of botocore, whose text may have the answer of a server or a command."""
        names = {kind.__name__ for kind in type(error).__mro__}
        if names & set(_CONFIGURATION):
            return ConfigError(f"no credentials for S3: {error}")
        kind = Unreachable if names & set(_NETWORK) else LoginRequired
        profile = f" --profile {self._options.profile}" if self._options.profile else ""
        hint = f"; log in with 'aws sso login{profile}'" if names & {"SSOError", "TokenRetrievalError"} else ""
        return kind(f"no credentials for S3: {type(error).__name__}{hint}")


def _failures() -> tuple[type[Exception], ...]:
    exceptions = import_module("botocore.exceptions")
    return (exceptions.BotoCoreError, exceptions.ClientError, OSError, ValueError, KeyError, RuntimeError)
