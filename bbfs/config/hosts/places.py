"""The paths of the files of MCP hosts on Linux: a user's own, and those of a project."""

import glob
import os
from collections.abc import Mapping
from dataclasses import dataclass

from bbfs.config.interpolation import expand_user

_USER = (
    ("Claude Code", "$CLAUDE_CONFIG_DIR/.claude.json"),
    ("Claude Desktop", "$CONFIG/Claude/claude_desktop_config.json"),
    ("VS Code", "$CONFIG/Code/User/mcp.json"),
    ("VS Code", "$CONFIG/Code/User/settings.json"),
    ("VS Code Insiders", "$CONFIG/Code - Insiders/User/mcp.json"),
    ("VSCodium", "$CONFIG/VSCodium/User/mcp.json"),
    ("Cline", "$CONFIG/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
    ("Cline", "~/.cline/data/settings/cline_mcp_settings.json"),
    ("Roo Code", "$CONFIG/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"),
    ("Kilo Code", "$CONFIG/Code/User/globalStorage/kilocode.kilo-code/settings/mcp_settings.json"),
    ("Kilo Code", "~/.kilocode/cli/global/settings/mcp_settings.json"),
    ("Cursor", "~/.cursor/mcp.json"),
    ("Windsurf", "~/.codeium/windsurf/mcp_config.json"),
    ("Windsurf", "~/.codeium/mcp_config.json"),
    ("Zed", "$CONFIG/zed/settings.json"),
    ("Codex", "$CODEX_HOME/config.toml"),
    ("Gemini CLI", "~/.gemini/settings.json"),
    ("opencode", "$CONFIG/opencode/opencode.json"),
    ("opencode", "$CONFIG/opencode/opencode.jsonc"),
    ("Goose", "$CONFIG/goose/config.yaml"),
    ("Continue", "~/.continue/config.yaml"),
    ("Continue", "~/.continue/config.json"),
    ("Continue", "~/.continue/mcpServers/*.yaml"),
    ("Continue", "~/.continue/mcpServers/*.yml"),
    ("Continue", "~/.continue/mcpServers/*.json"),
    ("LM Studio", "~/.lmstudio/mcp.json"),
    ("LM Studio", "~/.cache/lm-studio/mcp.json"),
    ("Amazon Q", "~/.aws/amazonq/mcp.json"),
    ("Amazon Q", "~/.aws/amazonq/default.json"),
    ("Amazon Q", "~/.aws/amazonq/agents/default.json"),
    ("Amazon Q", "~/.aws/amazonq/cli-agents/*.json"),
    ("Kiro", "~/.kiro/settings/mcp.json"),
)
_PROJECT = (
    ("Claude Code", ".mcp.json"),
    ("VS Code", ".vscode/mcp.json"),
    ("Cursor", ".cursor/mcp.json"),
    ("Zed", ".zed/settings.json"),
    ("Codex", ".codex/config.toml"),
    ("Gemini CLI", ".gemini/settings.json"),
    ("opencode", "opencode.json"),
    ("opencode", "opencode.jsonc"),
    ("opencode", ".opencode/opencode.json"),
    ("opencode", ".opencode/opencode.jsonc"),
    ("Continue", ".continue/mcpServers/*.yaml"),
    ("Continue", ".continue/mcpServers/*.yml"),
    ("Continue", ".continue/mcpServers/*.json"),
    ("Roo Code", ".roo/mcp.json"),
    ("Kilo Code", ".kilocode/mcp.json"),
    ("Amazon Q", ".amazonq/mcp.json"),
    ("Amazon Q", ".amazonq/default.json"),
    ("Amazon Q", ".amazonq/agents/default.json"),
    ("Amazon Q", ".amazonq/cli-agents/*.json"),
    ("Kiro", ".kiro/settings/mcp.json"),
)


@dataclass(frozen=True, slots=True)
class HostFile:
    """A file of an MCP host. is_project: it came with a folder, perhaps from a stranger, and not with this user."""

    host: str
    path: str
    is_project: bool = False


def host_files(environ: Mapping[str, str], cwd: str) -> list[HostFile]:
    """Return the files that exist: those of the user, then those of the project at `cwd`."""
    config = environ.get("XDG_CONFIG_HOME", "")
    variables = {
        "$CONFIG": config if os.path.isabs(config) else expand_user("~/.config", environ),
        "$CLAUDE_CONFIG_DIR": environ.get("CLAUDE_CONFIG_DIR") or expand_user("~", environ),
        "$CODEX_HOME": environ.get("CODEX_HOME") or expand_user("~/.codex", environ),
    }
    found: dict[str, HostFile] = {}
    for host, pattern in _USER:
        beginning, _, rest = pattern.partition("/")
        folder = variables.get(beginning) or expand_user(beginning, environ)
        for path in _existing(folder, rest):
            found.setdefault(os.path.realpath(path), HostFile(host, path))
    for host, pattern in _PROJECT:
        for path in _existing(cwd, pattern):
            found.setdefault(os.path.realpath(path), HostFile(host, path, is_project=True))
    return list(found.values())


def _existing(folder: str, pattern: str) -> list[str]:
    paths = sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))
    return [path for path in paths if os.path.isfile(path)]
