"""Configuration: bbfs's own file, the files of MCP hosts, and sources named on the command line.

All of them become frozen `DataSource` values with their references resolved. An unusable part raises a ConfigError with
its place and a remedy. No module here starts or reaches a source.
"""

from bbfs.config.command_line.arguments import source_from_dir_argument, source_from_mcp_argument
from bbfs.config.command_line.assignments import Assignment, assignment, header, tools, with_options
from bbfs.config.command_line.urls import source_from_url_argument
from bbfs.config.hosts.files import NoServers, RefusedServer, import_mcp_hosts
from bbfs.config.naming import give_way, merge
from bbfs.config.toml import Config, MountOptions, default_config_path, load_config

__all__ = [
    "Assignment",
    "Config",
    "MountOptions",
    "NoServers",
    "RefusedServer",
    "assignment",
    "default_config_path",
    "give_way",
    "header",
    "import_mcp_hosts",
    "load_config",
    "merge",
    "source_from_dir_argument",
    "source_from_mcp_argument",
    "source_from_url_argument",
    "tools",
    "with_options",
]
