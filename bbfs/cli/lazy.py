"""The modules that a command imports at their first use: `lazy.trio.run(…)`.

Together they take more than a second. Help and completion need none, and a command that asks a mount needs few.
"""

import gc
import sys
import threading
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ctypes
    import difflib
    import shlex
    import shutil
    import subprocess

    import platformdirs
    import tomlkit
    import trio

    from bbfs import config
    from bbfs.cli.commands import questions
    from bbfs.cli.commands.configuring import adding
    from bbfs.cli.commands.searching import grep_run
    from bbfs.cli.commands.service import systemd, units
    from bbfs.cli.operands import control_client, direct, file_writing, mounted, operand
    from bbfs.config import editing, toml
    from bbfs.config import problems as config_problems
    from bbfs.config.command_line import assignments
    from bbfs.config.command_line import targets as source_tables
    from bbfs.config.hosts import files as host_files
    from bbfs.config.hosts import places as host_places
    from bbfs.config.hosts import registry
    from bbfs.fuse import daemon, mounting, neighbours, places
    from bbfs.fuse.control import address as control_address
    from bbfs.fuse.control import link
    from bbfs.fuse.scratch import processes, session
    from bbfs.fuse.status import document as status
    from bbfs.model import source_types, uri_paths
    from bbfs.resources import open as opening
    from bbfs.resources.cache import disk as disk_cache
    from bbfs.resources.cache.shared import connection as shared_cache
    from bbfs.resources.commands import answers
    from bbfs.resources.commands.requests import reading, writing
    from bbfs.resources.loading import shared_tier
    from bbfs.resources.search.index import store as index_store
    from bbfs.resources.writing import pending
    from bbfs.server import run as server
    from bbfs.sources import options as source_options
    from bbfs.sources import unfinished
    from bbfs.sources.bounded import json as bounded_json
    from bbfs.sources.bounded import workers
    from bbfs.sources.content import fd
    from bbfs.sources.content import memory as memory_content
    from bbfs.sources.http import addresses
    from bbfs.sources.mcp import arguments as tool_arguments
    from bbfs.sources.mcp import discovery
    from bbfs.sources.mcp.login import browser as login
    from bbfs.sources.mcp.login import token_store

_OWN_NAMES = (
    "ctypes", "difflib", "shlex", "shutil", "subprocess", "platformdirs", "tomlkit", "trio",
    "bbfs.cli.commands.questions", "bbfs.cli.commands.configuring.adding", "bbfs.cli.commands.searching.grep_run",
    "bbfs.cli.commands.service.systemd", "bbfs.cli.commands.service.units", "bbfs.cli.operands.control_client",
    "bbfs.cli.operands.direct", "bbfs.cli.operands.file_writing", "bbfs.cli.operands.mounted",
    "bbfs.cli.operands.operand", "bbfs.config", "bbfs.config.command_line.assignments", "bbfs.config.editing",
    "bbfs.config.hosts.registry", "bbfs.config.toml", "bbfs.fuse.control.link", "bbfs.fuse.daemon",
    "bbfs.fuse.mounting", "bbfs.fuse.neighbours", "bbfs.fuse.places", "bbfs.fuse.scratch.processes",
    "bbfs.fuse.scratch.session", "bbfs.model.source_types", "bbfs.model.uri_paths",
    "bbfs.resources.commands.answers", "bbfs.resources.commands.requests.reading",
    "bbfs.resources.commands.requests.writing", "bbfs.resources.loading.shared_tier",
    "bbfs.resources.writing.pending", "bbfs.sources.bounded.workers", "bbfs.sources.content.fd",
    "bbfs.sources.http.addresses", "bbfs.sources.mcp.discovery", "bbfs.sources.mcp.login.token_store",
    "bbfs.sources.unfinished",
)  # fmt: skip
"""The modules that commands call by their own names."""
MODULES = {module.rpartition(".")[2]: module for module in _OWN_NAMES} | {
    "source_tables": "bbfs.config.command_line.targets",
    "host_files": "bbfs.config.hosts.files",
    "host_places": "bbfs.config.hosts.places",
    "config_problems": "bbfs.config.problems",
    "control_address": "bbfs.fuse.control.address",
    "status": "bbfs.fuse.status.document",
    "disk_cache": "bbfs.resources.cache.disk",
    "shared_cache": "bbfs.resources.cache.shared.connection",
    "opening": "bbfs.resources.open",
    "index_store": "bbfs.resources.search.index.store",
    "server": "bbfs.server.run",
    "bounded_json": "bbfs.sources.bounded.json",
    "memory_content": "bbfs.sources.content.memory",
    "tool_arguments": "bbfs.sources.mcp.arguments",
    "login": "bbfs.sources.mcp.login.browser",
    "source_options": "bbfs.sources.options",
}
"""The module of each name. A type checker reads the imports above."""
_importing = threading.RLock()
"""Held by the one thread that imports: where two import modules of a circle, Python lets one see a part of a module."""


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = imported(MODULES[name])
    return found


def imported(module: str) -> ModuleType:
    """Import a module, without a search for garbage meanwhile.

    Imports make many objects that stay and no garbage. The searches among them take a tenth of a command.
    """
    with _importing:
        if module in sys.modules:
            return import_module(module)  # waits for a thread that imports it by a statement
        was_on = gc.isenabled()
        gc.disable()
        try:
            return import_module(module)
        finally:
            gc.freeze()
            if was_on:
                gc.enable()
