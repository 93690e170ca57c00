"""The values of a configuration, and where its file is. It imports none of the models that check a file."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic.alias_generators import to_camel

from bbfs.config.interpolation import expand_user
from bbfs.model.values import DataSource, DocumentBounds, SharedCache

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json", "journal"]
NO_FILES = ("-", "journal")
"""Places of an audit that are no files: standard output, and the systemd journal."""
DEFAULT_CACHE_BYTES = 256 * 2**20
DEFAULT_DISK_BYTES = 2**30
DEFAULT_INDEX_BYTES = 4 * 2**30
EMBEDDINGS = "embeddings"


@dataclass(frozen=True, slots=True)
class MountOptions:
    """Ownership and access of the mount. None means the mounting user, and no masked bits.

    agents: the file that describes the sources is at the root as `AGENTS.md` too. metrics: host and port at which the
    daemon answers with its metrics. read_only: the kernel refuses every write, whatever the sources grant. audit: where
    the record of changes goes: a path, `-` for standard output, or `journal`. audit_reads: reads are recorded, too.
    inotify: programs that watch the mount get events of what sources change. None: where the kernel mount can write.
    """

    uid: int | None = None
    gid: int | None = None
    umask: int | None = None
    allow_other: bool = False
    agents: bool = False
    metrics: tuple[str, int] | None = None
    read_only: bool = False
    audit: str | None = None
    audit_reads: bool = False
    inotify: bool | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """A whole configuration. path: its file, if any.

    cache_bytes: the memory budget of contents. disk_bytes: their budget on disk; 0 turns that cache off. index_bytes:
    the budget of the local index; 0 turns it off. shared: the cache that machines share. documents: the bounds of those
    read as text. embeddings: options of what makes vectors, where a source names none of its own. lines: for each
    source of the file, by its id, the line (from 1) of each of its keys, such as `config.root`, and of the source
    itself under the empty key. Under the empty id it has those of the embeddings. left_out: why servers of hosts' files
    are no sources, by name.
    """

    sources: tuple[DataSource, ...] = ()
    mount: MountOptions = MountOptions()
    cache_bytes: int = DEFAULT_CACHE_BYTES
    disk_bytes: int = DEFAULT_DISK_BYTES
    index_bytes: int = DEFAULT_INDEX_BYTES
    shared: SharedCache | None = None
    documents: DocumentBounds = field(default_factory=DocumentBounds)
    embeddings: Mapping[str, Any] | None = None
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"
    path: str | None = None
    lines: Mapping[str, Mapping[str, int]] = field(default_factory=dict, repr=False, compare=False)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def located(self, source_id: str, problems: str) -> str:
        """Return a message about options of a source (`sources[ID].config.KEY: …; …`) with file and line.

        source_id: empty for the options of embeddings.
        """
        lines = self.lines.get(source_id)
        if self.path is None or lines is None:
            return problems
        beginning = f"sources[{source_id}]." if source_id else f"{EMBEDDINGS}."
        told: list[str] = []
        for problem in re.split(rf"; (?={re.escape(beginning)})", problems):
            key = problem.removeprefix(beginning).partition(":")[0] if problem.startswith(beginning) else ""
            while key and key not in lines:
                camel = ".".join(map(to_camel, key.split(".")))
                key = camel if camel in lines else key.rpartition(".")[0]
            told.append(f"{self.path}:{lines.get(key, lines[''])}: {problem}")
        return "\n".join(told)


def default_config_path(environ: Mapping[str, str]) -> str:
    """Return `$XDG_CONFIG_HOME/bbfs/config.toml` (XDG Base Directory Specification: ignore a relative value)."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        base = expand_user("~/.config", environ)
    return os.path.join(base, "bbfs", "config.toml")
