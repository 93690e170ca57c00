"""Write the templates of units in systemd/ from what `bbfs service install` writes. `make docs` runs this."""

from pathlib import Path

from bbfs.cli.commands.service.units import Unit

SYSTEMD = Path(__file__).resolve().parents[1] / "systemd"
_SEEN = {"user": "a user, seen by that user alone", "system": "the machine, seen by all its users"}
TEMPLATES = {
    "bbfs@.service": Unit("user", "%i", "/usr/bin/env bbfs", "%E/bbfs/%i.toml", "%h/bbfs/%i"),
    "bbfs-system@.service": Unit("system", "%i", "/usr/bin/env bbfs", "%E/bbfs/%i.toml", "/mnt/bbfs/%i", "bbfs"),
}
"""The files, each with the unit in it. The name of an instance stands for %i."""


def text(name: str) -> str:
    """Return the content of a template."""
    unit = TEMPLATES[name]
    manager = "systemctl --user" if unit.scope == "user" else "systemctl"
    return (
        f"# A mount of {_SEEN[unit.scope]}:    {manager} enable --now {name.replace('@.service', '@docs')}\n"
        "#\n"
        "# The instance is a name: docs is for docs.toml. README.md beside this file says where each is.\n"
        "# `make docs` writes this file; 'bbfs service install' writes such a unit for one mount.\n\n"
        f"{unit.text()}"
    )


if __name__ == "__main__":
    for each in TEMPLATES:
        (SYSTEMD / each).write_text(text(each))
