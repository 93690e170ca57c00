"""Configuration: bbfs's own file, the files of MCP hosts, and sources named on the command line.

Everything ends as frozen `DataSource` values with all references resolved. Whatever cannot be used is a ConfigError
that says where it is and what would help; nothing here starts or reaches a source.
"""

from bbfs.config.arguments import source_from_dir_argument, source_from_mcp_argument
from bbfs.config.hosts.files import import_mcp_hosts
from bbfs.config.naming import give_way, merge
from bbfs.config.toml import Config, MountOptions, default_config_path, load_config
from bbfs.config.urls import source_from_url_argument

__all__ = [
    "Config",
    "MountOptions",
    "default_config_path",
    "give_way",
    "import_mcp_hosts",
    "load_config",
    "merge",
    "source_from_dir_argument",
    "source_from_mcp_argument",
    "source_from_url_argument",
]
