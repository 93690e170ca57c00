"""Requests that change the sources of a running mount."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bbfs.resources.commands.requests import Request


@dataclass(frozen=True, slots=True)
class SourcesChanged:
    """The outcome of a change, as ids of sources. kept: the number of all others. notes: sentences for people."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    kept: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reload(Request[SourcesChanged], name="reload", added=SourcesChanged):
    """Read the configuration again, and have its sources."""


@dataclass(frozen=True)
class AddSources(Request[SourcesChanged], name="addSources", added=SourcesChanged):
    """Add sources until the unmount.

    toml: their tables, as a configuration file has them. directory: where their relative paths begin. environment: the
    values of the variables that they refer to.
    """

    toml: str
    directory: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RemoveSource(Request[SourcesChanged], name="removeSource", added=SourcesChanged):
    """Remove a source, by its name or id."""

    source: str
