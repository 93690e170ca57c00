"""The extras of bbfs: what an error says where one is missing, with the command that installs it.

The command belongs to the program that installed bbfs: pip, pipx, uv, or `make` in a checkout. Each leaves its mark in
the environment.
"""

import shlex
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def needs(extra: str) -> str:
    """Return the end of a message: "needs the extra 'web' (pip install 'bbfs[web]')"."""
    return f"needs the extra {extra!r} ({install_command(extra)})"


def install_command(extra: str) -> str:
    """Return the shell command that adds an extra to the environment in which this process runs."""
    prefix, wanted = Path(sys.prefix), f"bbfs[{extra}]"
    checkout = Path(__file__).resolve().parents[2]
    if prefix == checkout / ".venv" and (checkout / "Makefile").is_file():
        words = ["make", "-C", str(checkout), "install"]  # with all extras
    elif (prefix / "pipx_metadata.json").is_file():
        words = ["pipx", "inject", prefix.name, wanted]
    elif (received := _as_received(prefix / "uv-receipt.toml", extra)) is not None:
        words = ["uv", "tool", "install", *received]
    elif runs_from_cache():
        words = ["uvx", "--from", wanted, "bbfs"]  # nothing may be added there
    elif _installer() == "uv":
        words = ["uv", "pip", "install", "--python", str(prefix), wanted]
    elif (pip := shutil.which("pip")) is not None and Path(pip).parent == Path(sys.executable).parent:
        words = ["pip", "install", wanted]
    else:
        words = [sys.executable, "-m", "pip", "install", wanted]
    return shlex.join(words)


def runs_from_cache() -> bool:
    """Return whether this process runs in uv's cache, where `uvx` has put it, and uv may remove it at any time."""
    prefix = Path(sys.prefix)
    return prefix.parent.name.startswith("archive-v") and (prefix.parent.parent / "CACHEDIR.TAG").is_file()


def _as_received(receipt: Path, extra: str) -> list[str] | None:
    """Return the arguments of `uv tool install` for all that a receipt names and one more extra.

    The command replaces the environment. One without them would remove the other extras and the packages of `--with`,
    and might take another Python, for which the chosen folders have no wheels. None without a receipt of bbfs: there is
    none, it is another tool's (`uv tool install other --with bbfs`), or this function cannot read it.
    """
    tomllib = import_module("tomllib")  # at its first use, like the metadata below: most processes lack no extra
    try:
        tool: dict[str, Any] = tomllib.loads(receipt.read_text())["tool"]
        return _arguments(tool, extra) if tool["requirements"][0]["name"] == "bbfs" else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _arguments(tool: dict[str, Any], extra: str) -> list[str]:
    own, *others = tool["requirements"]
    extras = ",".join(sorted({*own.get("extras", ()), extra}))
    words = [f"bbfs[{extras}]{_place(own)}"]
    for other in others:
        words += ["--with", f"{other['name']}{other.get('specifier', '')}{_place(other)}"]
    if "python" in tool:
        words += ["--python", str(tool["python"])]
    for folder in tool.get("options", {}).get("find-links", ()):
        words += ["--find-links", str(folder)]
    return words


def _place(requirement: dict[str, Any]) -> str:
    """Return where a requirement of a receipt is from, unless an index has it (PEP 508)."""
    for key in ("path", "directory", "editable"):
        if key in requirement:
            return f" @ {Path(requirement[key]).absolute().as_uri()}"
    if "git" in requirement:
        return f" @ git+{requirement['git']}"
    return f" @ {requirement['url']}" if "url" in requirement else ""


def _installer() -> str | None:
    """Return which program installed bbfs, as it wrote into the metadata; None if it wrote nothing."""
    metadata = import_module("importlib.metadata")
    try:
        text: str | None = metadata.distribution("bbfs").read_text("INSTALLER")
    except metadata.PackageNotFoundError:
        return None
    return None if text is None else text.strip()
