"""References: what they resolve to, what is refused, and that no value of one is ever printed."""

import copy
import os
import pickle
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbfs.config.interpolation import SECRET_FILE_MAX, Interpolated, Interpolator, UnresolvedReference
from bbfs.config.toml import load_config
from bbfs.model.errors import ConfigError

SECRET = "s3cr3t-value"


def resolve(text: str, base: str = "/", **environ: str) -> str:
    return Interpolator(environ, base).resolve(text)


def test_env_file_and_escape(tmp_path: Path):
    (tmp_path / "token").write_text("tok\n\n")
    assert resolve("a ${env:X}${env:EMPTY} b", X="${env:Y}", EMPTY="") == "a ${env:Y} b"  # values are not looked into
    assert resolve("Bearer ${file:token}", str(tmp_path)) == "Bearer tok\n"
    assert resolve(f"${{file:{tmp_path}/token}}") == "tok\n"
    assert resolve("${file:~/token}", HOME=str(tmp_path)) == "tok\n"
    assert resolve("${env:X:-d} ${env:EMPTY:-d} ${env:NONE:-a:-b}", X="x", EMPTY="") == "x d a:-b"
    assert resolve("$${env:X} $$ $X ${env:X}", X="x") == "${env:X} $$ $X x"
    assert resolve("plain $ }{") == "plain $ }{"


@pytest.mark.semantics("S30")
def test_a_credential_is_a_file_of_the_service(tmp_path: Path):
    (tmp_path / "kb.token").write_text("tok\n")
    assert resolve("Bearer ${credential:kb.token}", "/nowhere", CREDENTIALS_DIRECTORY=str(tmp_path)) == "Bearer tok"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${credential:nope}", "${credential:nope}: No such file or directory"),
        ("${credential:}", "${credential:} does not name a credential: expected"),
        ("${credential:..}", "${credential:..} does not name a credential"),
        ("${credential:../token}", "${credential:../token} does not name a credential"),
    ],
)
def test_a_credential_is_nothing_else(tmp_path: Path, text: str, message: str):
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "given").mkdir()
    with pytest.raises(UnresolvedReference) as caught:
        resolve(text, CREDENTIALS_DIRECTORY=str(tmp_path / "given"))
    assert message in str(caught.value)


def test_without_a_service_manager_there_are_no_credentials():
    with pytest.raises(UnresolvedReference, match=r"no credentials; systemd .* LoadCredential=kb:PATH"):
        resolve("${credential:kb}")


@pytest.mark.parametrize(
    ("content", "value"), [(b"a\r\n", "a"), (b"a", "a"), (b"", ""), (b"\n", ""), ("é\n".encode(), "é")]
)
def test_one_newline_at_the_end_of_a_file_is_dropped(tmp_path: Path, content: bytes, value: str):
    (tmp_path / "f").write_bytes(content)
    assert resolve("${file:f}", str(tmp_path)) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${env:UNSET}", "environment variable UNSET is not set"),
        ("${env:}", "${env:} does not name an environment variable: expected"),
        ("${env:A B}", "${env:A B} does not name an environment variable: expected"),
        (
            "${HOME}",
            "unknown reference ${HOME}: expected ${env:NAME}, ${file:PATH}, ${credential:NAME} or "
            "${keyring:SERVICE/USERNAME} (write $${ for a literal ${)",
        ),
        ("${HOME}", "; did you mean ${env:HOME}?"),
        ("${}", "unknown reference ${}"),
        ("${vault:x}", "unknown reference ${vault:x}"),
        ("${keyring:github}", "${keyring:github} does not name an entry of the keyring: expected"),
        ("${keyring:/me}", "${keyring:/me} does not name an entry of the keyring"),
        ("${keyring:github/}", "${keyring:github/} does not name an entry of the keyring"),
        ("${env:X", "'${' without '}'"),
        ("${env:${env:X}}", "'${' without '}'"),
        ("${file:}", "${file:} does not name a file"),
        ("${file:nope}", "${file:nope}: No such file or directory"),
        ("${file:folder}", "${file:folder}: not a regular file"),
        ("${file:pipe}", "${file:pipe}: not a regular file"),
        ("${file:/dev/zero}", "${file:/dev/zero}: not a regular file"),
        ("${file:binary}", "${file:binary}: not UTF-8 text"),
        ("${file:large}", f"${{file:large}}: larger than {SECRET_FILE_MAX} bytes"),
    ],
)
def test_what_cannot_be_resolved_is_named(tmp_path: Path, text: str, message: str):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(SECRET.encode() + b"\xff")
    (tmp_path / "large").write_bytes(b"x" * (SECRET_FILE_MAX + 1))
    with pytest.raises(UnresolvedReference) as caught:
        resolve(text, str(tmp_path), X=SECRET)
    assert message in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_an_interpolated_string_is_a_string_with_a_repr_of_its_own():
    text = resolve("Bearer ${env:T}", T=SECRET)
    assert text == f"Bearer {SECRET}"
    assert repr(text) == "'Bearer ${env:T}'"
    assert repr({"a": [text]}) == "{'a': ['Bearer ${env:T}']}"
    for copied in (copy.deepcopy(text), pickle.loads(pickle.dumps(text))):
        assert copied == text
        assert repr(copied) == repr(text)
    assert repr(Interpolated(SECRET)) == "'${…}'"


TEMPLATE = """
[[sources]]
name = "stdio"
auth = {{ token = "{0}" }}
config = {{ nested = {{ list = ["x{0}"] }} }}
mcpConfig = {{ command = "{0}", args = ["--token={0}"], env = {{ T = "{0}" }}, cwd = "sub/{0}" }}
[[sources]]
name = "http"
mcpConfig = {{ url = "http://{0}/", headers = {{ Authorization = "Bearer {0}" }} }}
[[sources]]
name = "folder"
type = "filesystem"
config.root = "~/{0}"
{1}
"""
secrets = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12).map(
    lambda text: f"⟪{text}⟫"
)
faults = st.sampled_from(
    ["", "timeout = -1", 'tile = "x"', 'config.x = "${env:UNSET}"', 'uriPrefix = "x"', 'name = "http"']
)


@given(secret=secrets, reference=st.sampled_from(["${env:SECRET}", "${file:secret}"]), fault=faults)
@pytest.mark.semantics("S30")
def test_no_secret_in_error_or_repr(tmp_path_factory: pytest.TempPathFactory, secret: str, reference: str, fault: str):
    folder = tmp_path_factory.mktemp("config")
    path = folder / "config.toml"
    path.write_text(TEMPLATE.format(reference, fault))
    (folder / "secret").write_bytes(secret.encode())
    marks = [mark for mark in ("⟪", secret) if mark not in str(path)]
    try:
        config = load_config(str(path), environ={"SECRET": secret, "HOME": "/h"})
    except ConfigError as error:
        shown = (
            "".join(traceback.format_exception(error)) + repr(error) + str(error.__context__) + repr(error.__context__)
        )
    else:
        shown = repr(config)
        assert config.sources[0].auth["token"] == secret
    assert not [mark for mark in marks if mark in shown]
