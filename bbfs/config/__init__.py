"""Configuration: bbfs's own file, the files of MCP hosts, and sources named on the command line.

All of them become frozen `DataSource` values with their references resolved. An unusable part raises a ConfigError with
its place and a remedy. No module here starts or reaches a source. `toml` loads a file, `hosts.files` one of a host, and
`command_line.assignments` sets options; they import the models that check them, and many commands need none.
"""

from bbfs.config.command_line.arguments import source_from_dir_argument, source_from_mcp_argument
from bbfs.config.command_line.urls import local_file, source_from_url_argument
from bbfs.config.naming import give_way, merge
from bbfs.config.values import Config, MountOptions, default_config_path

__all__ = [
    "Config", "MountOptions", "default_config_path", "give_way", "local_file", "merge", "source_from_dir_argument",
    "source_from_mcp_argument", "source_from_url_argument",
]  # fmt: skip
