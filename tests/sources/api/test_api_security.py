"""Security schemes: what goes with a request, and what is kept out of sight."""

from typing import Any

import pytest

from bbfs.model.errors import ConfigError
from bbfs.sources.api.document import Documents
from bbfs.sources.api.security import Keyring, RequestCredentials, Requirement, check, requirements, schemes

AT = "file:///a.json"
SCHEMES = {
    "bearer": {"type": "http", "scheme": "Bearer"},
    "basic": {"type": "http", "scheme": "basic"},
    "digest": {"type": "http", "scheme": "digest"},
    "oauth": {"type": "oauth2", "flows": {}},
    "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://h"},
    "head": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "app": {"type": "apiKey", "in": "header", "name": "X-App"},
    "query": {"type": "apiKey", "in": "query", "name": "key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "mutual": {"type": "mutualTLS"},
    "odd": {"type": "apiKey"},
}


def node(value: Any) -> Any:
    return Documents(AT, {AT: value}, {}).root


KNOWN = schemes(node({"securitySchemes": SCHEMES}))


def credentials(auth: dict[str, str], *alternatives: Requirement) -> RequestCredentials:
    return Keyring(auth).credentials(alternatives, KNOWN)


@pytest.mark.parametrize(
    ("scheme", "auth", "expected"),
    [
        ("bearer", {"token": "t"}, RequestCredentials({"Authorization": "Bearer t"})),
        ("oauth", {"token": "t"}, RequestCredentials({"Authorization": "Bearer t"})),
        ("oidc", {"token": "t"}, RequestCredentials({"Authorization": "Bearer t"})),
        ("basic", {"username": "ann", "password": "p:w"}, RequestCredentials({"Authorization": "Basic YW5uOnA6dw=="})),
        ("head", {"apiKey": "k"}, RequestCredentials({"X-Key": "k"})),
        ("head", {"api_key": "k"}, RequestCredentials({"X-Key": "k"})),
        ("query", {"apiKey": "k"}, RequestCredentials({}, (("key", "k"),))),
        ("cookie", {"apiKey": "k"}, RequestCredentials({}, (), (("sid", "k"),))),
        ("head", {"apiKey": "k", "head": "own"}, RequestCredentials({"X-Key": "own"})),
        ("digest", {"token": "t", "username": "a", "password": "b", "apiKey": "k"}, RequestCredentials()),
        ("mutual", {"mutual": "x"}, RequestCredentials()),
        ("odd", {"apiKey": "k"}, RequestCredentials()),
        ("nothing", {"apiKey": "k", "nothing": "x"}, RequestCredentials()),
        ("bearer", {"apiKey": "k"}, RequestCredentials()),
    ],
)
def test_each_scheme_has_its_secret(scheme: str, auth: dict[str, str], expected: RequestCredentials) -> None:
    assert credentials(auth, (scheme,)) == expected


def test_the_first_alternative_that_can_be_met_is() -> None:
    auth = {"apiKey": "k", "app": "a", "token": "t"}
    assert credentials(auth, ("head", "app")) == RequestCredentials({"X-Key": "k", "X-App": "a"})
    assert credentials(auth, ("basic",), ("query",), ("bearer",)) == RequestCredentials({}, (("key", "k"),))
    assert credentials(auth, (), ("bearer",)) == RequestCredentials({"Authorization": "Bearer t"})
    assert credentials(auth, ("basic", "head"), ()) == RequestCredentials()
    assert credentials(auth) == RequestCredentials()


def test_requirements_are_alternatives() -> None:
    assert requirements(node([{"a": [], "b": ["x"]}, {}])) == (("a", "b"), ())
    assert requirements(node([])) == ()
    assert requirements(node(None)) is None


def test_keys_that_no_scheme_takes_are_named() -> None:
    auth = {"token": "t", "apiKey": "k", "username": "u", "password": "p", "app": "a", "typo": "x"}
    assert Keyring(auth).unused(KNOWN) == ["typo"]
    assert Keyring(auth).unused({}) == list(auth)


@pytest.mark.parametrize(
    ("auth", "said"),
    [
        ({"token": ""}, "a.auth.token: is empty"),
        ({"token": "se\r\ncret"}, "a line break"),
        ({"apiKey": "secrét"}, "no header can carry"),
        ({"username": "u"}, "go together"),
        ({"username": "u:secret", "password": "p"}, "a colon"),
    ],
)
@pytest.mark.semantics("S30")
def test_secrets_that_cannot_be_sent_are_refused_without_being_told(auth: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        check(auth, "a.auth")
    assert "secr" not in str(caught.value)
    assert "cret" not in str(caught.value)


@pytest.mark.semantics("S30")
def test_no_value_shows_a_secret() -> None:
    found = credentials({"apiKey": "k3y"}, ("head",), ("query",))
    assert "k3y" not in repr(found)
    assert Keyring({"username": "ann", "password": "pw1"}).secrets == {"pw1", "YW5uOnB3MQ=="}
