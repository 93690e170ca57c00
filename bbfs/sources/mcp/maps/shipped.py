"""The maps that come with bbfs: data, one file of TOML for each server, in `data`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Shipped:
    """A map that comes with bbfs.

    servers: the names by which its servers introduce themselves. map: the options of the map. needs: the values that
    the user has to give, each with what it is.
    """

    servers: tuple[str, ...]
    map: Mapping[str, Any]
    needs: Mapping[str, str] = field(default_factory=dict[str, str])

    def is_of(self, server: str) -> bool:
        """Return whether a server introduces itself so. server: its name, with its version after a space."""
        return any(server == name or server.startswith(f"{name} ") for name in self.servers)


@cache
def shipped() -> Mapping[str, Shipped]:
    """Return the maps that come with bbfs, by their names."""
    there = sorted((files("bbfs.sources.mcp.maps") / "data").iterdir(), key=lambda each: each.name)
    read = {each.name.removesuffix(".toml"): tomllib.loads(each.read_text("utf-8")) for each in there}
    return {name: Shipped(tuple(raw["servers"]), raw["map"], raw.get("needs", {})) for name, raw in read.items()}
