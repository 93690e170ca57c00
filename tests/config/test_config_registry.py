"""Servers as a registry describes them: the command lines and references that become of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from bbfs.config.hosts import registry
from bbfs.config.interpolation import Interpolator
from bbfs.model.errors import ConfigError

ENVIRON = {"PATH": "/nowhere"}
STDIO = {"type": "stdio"}


def package(kind: str, identifier: str, **more: Any) -> dict[str, Any]:
    return {"registryType": kind, "identifier": identifier, "version": "1.2", "transport": STDIO, **more}


def server(*packages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "io.example/weather", "description": "d", "version": "1", "packages": [*packages], **more}


def made(*packages: dict[str, Any], kind: str | None = None, **more: Any) -> registry.Registered:
    return registry.as_source(server(*packages, **more), kind=kind, environ=ENVIRON)


def line(found: registry.Registered) -> str:
    config = found.table["mcpConfig"]
    return " ".join([config["command"], *config["args"]])


KEY = {"name": "API_KEY", "description": "the\nkey", "isRequired": True, "isSecret": True}
LEVEL = {"name": "LEVEL", "default": "info", "choices": ["info", "debug"]}
MOUNT = {
    "type": "named",
    "name": "--mount",
    "value": "type=bind,src={source},dst={target},{other}",
    "variables": {"source": {"isRequired": True}, "target": {"default": "/project"}},
}


@pytest.mark.parametrize(
    ("given", "expected", "wanted"),
    [
        (package("npm", "@x/weather"), "npx -y @x/weather@1.2", []),
        (package("npm", "w", runtimeArguments=[{"type": "named", "name": "--yes"}]), "npx --yes w@1.2", []),
        (
            package("pypi", "w", packageArguments=[{"type": "positional", "valueHint": "city", "isRequired": True}]),
            "uvx w@1.2 ${env:BBFS_WEATHER_CITY}",
            ["BBFS_WEATHER_CITY"],
        ),
        (
            package("oci", "docker.io/x/w", runtimeArguments=[MOUNT], environmentVariables=[KEY, LEVEL]),
            "docker run -i --rm -e API_KEY -e LEVEL --mount"
            " type=bind,src=${env:BBFS_WEATHER_SOURCE},dst=/project,{other} docker.io/x/w:1.2",
            ["API_KEY", "BBFS_WEATHER_SOURCE"],
        ),
        (package("oci", "ghcr.io/x/w@sha256:12", runtimeHint="podman"), "podman run -i --rm ghcr.io/x/w@sha256:12", []),
        (
            package("nuget", "W", packageArguments=[{"type": "positional", "value": "start"}]),
            "dnx W@1.2 --yes -- start",
            [],
        ),
        (
            {"registry_type": "npm", "identifier": "w", "package_arguments": [{"type": "named", "name": "--x"}]},
            "npx -y w --x",
            [],
        ),
    ],
)
def test_a_package_becomes_a_command_line(given: dict[str, Any], expected: str, wanted: list[str]) -> None:
    found = made(given)
    assert line(found) == expected
    assert [each.variable for each in found.wanted] == wanted
    assert (found.table["name"], found.table["accessMethod"]) == ("weather", "mcp")


def test_secrets_become_references_and_what_is_optional_is_told() -> None:
    found = made(package("npm", "w", environmentVariables=[KEY, LEVEL, {"name": "REGION", "choices": ["eu", "us"]}]))
    assert found.table["mcpConfig"]["env"] == {"API_KEY": "${env:API_KEY}", "LEVEL": "info"}
    assert found.lacking(ENVIRON) == [registry.Wanted("API_KEY", "the key")]
    assert found.lacking({"API_KEY": "x"}) == []
    assert found.left_out == (registry.Wanted("REGION", "one of eu, us"),)


def test_a_remote_server_comes_first_and_streamable_http_before_sse() -> None:
    token = {"token": {"isRequired": True, "isSecret": True}}
    bearer = {"name": "Authorization", "value": "Bearer {token}", "variables": token}
    http = {
        "type": "streamable-http",
        "url": "https://{tenant}.example/mcp",
        "variables": {"tenant": {"default": "main"}},
        "headers": [bearer, {"name": "X-Optional"}],
    }
    both: dict[str, Any] = {"remotes": [{"type": "sse", "url": "https://w.example/sse"}, http]}
    found = made(package("npm", "w"), **both)
    assert found.table["mcpConfig"] == {
        "url": "https://main.example/mcp",
        "transport": "http",
        "headers": {"Authorization": "Bearer ${env:BBFS_WEATHER_TOKEN}"},
    }
    assert [each.variable for each in found.left_out] == ["BBFS_WEATHER_X_OPTIONAL"]
    assert found.others == ("npm",)
    public = package("npm", "w", registryBaseUrl="https://registry.npmjs.example/")
    assert line(made(public, kind="npm", **both)) == "npx -y w@1.2"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (package("npm", "--yes"), "its identifier would be an option"),
        (package("npm", "w", runtimeHint="sh"), "does not run such a package by 'sh'"),
        (package("npm", "w", registryBaseUrl="https://npmjs.evil.example"), "where npx does not look"),
        (package("npm", "w", registryBaseUrl="https://[npmjs.example"), "where npx does not look"),
        (package("npm", "w", transport={"type": "sse", "url": "http://localhost"}), "over HTTP that you start"),
        (package("mcpb", "https://x.example/w.mcpb"), "knows no program"),
        (
            package(
                "npm",
                "w",
                environmentVariables=[
                    {"name": "A", "value": "{t}{env:HOME}", "variables": {"t": {"value": "${env:x$"}}},
                ],
            ),
            "or ends with one",
        ),
        (package("npm", "a b"), "packages[0].identifier: "),
        (package("npm", "w", environmentVariables=[{"name": "A=B"}]), "environmentVariables[0].name: "),
        (package("npm", "w", packageArguments=[{"type": "positional", "value": "x"}] * 101), "packageArguments: "),
        (package("npm", "w", packageArguments="x"), "packageArguments: "),
        (package("npm", "w" * 5000), "identifier: "),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_reason(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        made(given)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "value", ["${env:HOME}", "$${env:HOME}", "{a}{b}", "x${", "{a}${file:/etc/passwd}", "{a}{a}{b}", "$$${env:HOME}"]
)
def test_no_text_of_a_stranger_is_a_reference(value: str) -> None:
    variables = {"a": {"default": "$"}, "b": {"default": "{env:HOME}"}}
    argument = {"type": "positional", "value": value, "variables": variables}
    variable = {**argument, "name": "E"}
    found = made(package("npm", "w", packageArguments=[argument], environmentVariables=[variable]))
    resolved = Interpolator({"HOME": "leaked"}, "/").resolve(found.table["mcpConfig"]["args"][-1])
    assert resolved == value.replace("{a}", "$").replace("{b}", "{env:HOME}")
    assert found.table["mcpConfig"]["env"]["E"] == found.table["mcpConfig"]["args"][-1]


def test_variables_without_an_end_are_refused() -> None:
    argument: dict[str, Any] = {"type": "positional", "value": "{a}", "variables": {"a": {"value": "x"}}}
    for _ in range(20):
        argument["variables"] = {"a": {"value": "{a}", "variables": argument["variables"]}}
    with pytest.raises(ConfigError, match="too deeply"):
        made(package("npm", "w", packageArguments=[argument]))
    dollar = {"type": "positional", "value": "${a}", "variables": {"a": {"isRequired": True}}}
    with pytest.raises(ConfigError, match="stands after a"):
        made(package("npm", "w", packageArguments=[dollar]))


def test_files_of_every_form_are_read(tmp_path: Path) -> None:
    official = "io.modelcontextprotocol.registry/official"
    old, new, other = (
        {"name": "io.example/weather", "version": version, "title": version} for version in ("2", "1", "3")
    )
    listed = [
        {"server": old, "_meta": {official: {"isLatest": False, "status": "active"}}},
        {"server": new, "_meta": {official: {"isLatest": True, "status": "deprecated"}}},
        {"server": {**other, "name": "com.other/weather-two"}},
        {"server": {}},
        7,
    ]
    path = tmp_path / "servers.json"
    for document, count in (({"servers": listed, "metadata": {}}, 3), (listed, 3), (listed[0], 1), (old, 1)):
        path.write_text(json.dumps(document))
        assert len(registry.read_servers(str(path))) == count
    path.write_text(json.dumps({"servers": listed}))
    servers = registry.read_servers(str(path))
    for name in ("weather", "io.example/weather"):
        assert registry.named(servers, name, "f")["title"] == "1"
    assert registry.status_of(registry.named(servers, "weather", "f")) == "deprecated"
    with pytest.raises(ConfigError, match=r"no server 'wether'"):
        registry.named(servers, "wether", "f")
    with pytest.raises(ConfigError, match="may be one of"):
        registry.named([*servers, {"name": "z/weather"}], "weather", "f")


@pytest.mark.parametrize("text", ["", "[" * 100_000, "7", '{"name": 1}', "[" + "9" * 5000 + "]", '{"servers": {}}'])
def test_a_file_without_servers_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)):
        registry.read_servers(str(path))
