"""`${keyring:SERVICE/USERNAME}`: what it resolves to, what is refused, and that its value is a secret."""

import traceback
from collections.abc import Iterator
from pathlib import Path

import keyring
import keyring.backend
import keyring.backends.fail
import keyring.errors
import pytest

from bbfs.config import source_from_mcp_argument
from bbfs.config.interpolation import Interpolated, Interpolator, UnresolvedReference
from bbfs.config.toml import load_config
from bbfs.model.errors import ConfigError

SECRET = "s3cr3t-value"
ENTRIES = {("github", "me"): SECRET, ("https://example.com/mcp", "me@example.com"): "other", ("empty", "me"): ""}


class Entries(keyring.backend.KeyringBackend):
    """A keyring with a few entries."""

    priority = 5  # type: ignore[assignment]

    def get_password(self, service: str, username: str) -> str | None:
        if service == "locked":
            raise keyring.errors.KeyringLocked("Failed to unlock the collection!")
        if service == "broken":
            raise RuntimeError(SECRET)
        return ENTRIES.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        raise AssertionError("nothing is written")


@pytest.fixture(autouse=True)
def entries() -> Iterator[None]:
    before = keyring.get_keyring()
    keyring.set_keyring(Entries())
    yield
    keyring.set_keyring(before)


def resolve(text: str) -> str:
    return Interpolator({}, "/").resolve(text)


@pytest.mark.semantics("S30")
def test_an_entry_is_a_secret():
    text = resolve("Bearer ${keyring:github/me}")
    assert text == f"Bearer {SECRET}"
    assert isinstance(text, Interpolated)
    assert text.secrets == {SECRET}
    assert repr(text) == "'Bearer ${keyring:github/me}'"
    assert resolve("${keyring:https://example.com/mcp/me@example.com}") == "other", (
        "the user is what follows the last /"
    )
    assert resolve("${keyring:empty/me}") == ""


@pytest.mark.semantics("S30")
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            "git hub/you",
            "${keyring:git hub/you}: the keyring has no such entry; make it with `keyring set 'git hub' you`",
        ),
        ("locked/me", "${keyring:locked/me}: the system keyring failed: Failed to unlock the collection!"),
        ("broken/me", "${keyring:broken/me}: the system keyring failed: RuntimeError"),
    ],
)
def test_what_cannot_be_had_is_named(entry: str, message: str):
    with pytest.raises(UnresolvedReference) as caught:
        resolve(f"${{keyring:{entry}}}")
    assert str(caught.value) == message
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_without_a_keyring():
    keyring.set_keyring(keyring.backends.fail.Keyring())
    with pytest.raises(UnresolvedReference, match="this session has no usable system keyring"):
        resolve("${keyring:github/me}")


def test_in_a_file_and_on_the_command_line(tmp_path: Path):
    path = tmp_path / "config.toml"
    text = """
    [[sources]]
    name = "gh"
    mcpConfig = { url = "https://h/mcp", headers = { Authorization = "Bearer ${keyring:github/me}" } }
    """
    path.write_text(text)
    (source,) = load_config(str(path), environ={}).sources
    assert source.mcp is not None
    assert source.mcp.headers["Authorization"] == f"Bearer {SECRET}"
    assert source.mcp.secrets == {SECRET}
    assert SECRET not in repr(source)
    path.write_text(text.replace("github", "gone"))
    with pytest.raises(ConfigError, match=r":4: sources\[0\].mcpConfig.headers.Authorization: \$\{keyring:gone/me\}"):
        load_config(str(path), environ={})
    mcp = source_from_mcp_argument("x=prog ${keyring:github/me}").mcp
    assert mcp is not None
    assert mcp.args == (SECRET,)
