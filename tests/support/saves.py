"""The ways in which programs save: what the matrix of saves runs in every source that is written, and beside it.

Each is run by bash in a directory, with a file `$F` whose content has the word `one`; `$N` is a name of a file that is
not there, `$T/new` a content for it, `$MORE` what may be appended to `$F`, `$T` a directory with things to copy,
`$KEYS` a program that types.
"""

import os
import sys
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from programs import run
from repository import TESTS

VIM = "vim -es -N -u NONE -c 'set {}' -c '%s/one/two/' -c wq \"$F\""
NANO = (
    "\"$PYTHON\" \"$KEYS\" one '\\x1c' Search 'one\\r' with 'two\\r' instance? A Replaced '\\x0f' Write '\\r' "
    "Wrote '\\x18' -- nano -I {} \"$F\""
)
EMACS = (
    'emacs --batch -Q --eval \'(progn (setq {} t) (find-file (getenv "F")) (auto-save-mode 1)'
    ' (while (search-forward "one" nil t) (replace-match "two")) (do-auto-save) (save-buffer))\' 2> "$T/emacs"'
    ' || {{ cat "$T/emacs" >&2; exit 1; }}'
)
EDITORS = {
    "vscode": "f = os.open(p, os.O_WRONLY | os.O_CREAT | os.O_TRUNC); os.write(f, new); os.fsync(f); os.close(f)",
    "gnome": "f = os.open(t, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600); os.write(f, new); os.fsync(f); "
    "os.fchmod(f, 0o644); os.close(f); os.rename(t, p)",
}
GIT = "git -c user.name=n -c user.email=e@x -c gc.auto=0"
PIP = '"$PYTHON" -m pip --disable-pip-version-check install --quiet --no-index --no-deps --no-compile'


@dataclass(frozen=True)
class Pattern:
    """One way to save. check: run in a copy of what the source has. tree: it makes directories. times: it sets them."""

    script: str
    check: str = ""
    tree: bool = False
    times: bool = False


def _traced(editor: str) -> str:
    begin = "import os, sys; p = sys.argv[1]; t = '.goutputstream-X1Y2Z3'; new = sys.stdin.buffer.read()"
    program = f"{begin}; {EDITORS[editor]}"
    return f'sed s/one/two/ "$F" | "$PYTHON" -c "{program}" "$F"'


PATTERNS: Mapping[str, Pattern] = {
    "`>`": Pattern('sed s/one/two/ "$F" > "$T/x"; cat "$T/x" > "$F"'),
    "`>>`": Pattern('printf "$MORE" >> "$F"'),
    "`tee`, `tee -a`": Pattern(
        'sed s/one/two/ "$F" > "$T/x"; tee "$F" < "$T/x" > "$T/y"; printf "$MORE" | tee -a "$F"'
    ),
    "`sed -i`": Pattern('sed -i s/one/two/ "$F"'),
    "`cp` over it": Pattern('sed s/one/two/ "$F" > "$T/x"; cp "$T/x" "$F"'),
    "a new file, `rm`": Pattern('cp "$T/new" "$N"; rm "$F"'),
    "`mv`": Pattern('mv "$F" "$N"'),
    "`mv` of another file over it": Pattern('cp "$T/new" "$N"; mv "$N" "$F"; stat "$F" > "$T/y"'),
    "`cp -a` of a file": Pattern('cp -a "$T/new" "$N"', times=True),
    "`rsync -a` of a file": Pattern(
        'cp -a "$T/new" "$N"; touch -d @1600000000 "$T/new"; rsync -a "$T/new" "$N"', times=True
    ),
    "`rsync --inplace` of a file": Pattern(
        'cp "$T/new" "$N"; touch -d @1600000000 "$T/new"; rsync --inplace "$T/new" "$N"'
    ),
    "a file beside it (`x.tmp`), `mv`": Pattern('sed s/one/two/ "$F" > "$F.tmp"; mv "$F.tmp" "$F"'),
    "vim": Pattern(VIM.format("nobackup")),
    "vim, `backup`, by a rename": Pattern(VIM.format("backup backupcopy=no")),
    "vim, `backup`, by a copy": Pattern(VIM.format("backup backupcopy=yes")),
    "vim, `nowritebackup`": Pattern(VIM.format("nowritebackup")),
    "nano": Pattern(NANO.format("")),
    "nano, with backup and lock": Pattern(NANO.format("-B -G")),
    "emacs": Pattern(EMACS.format("make-backup-files")),
    "emacs, backup by a copy": Pattern(EMACS.format("backup-by-copying")),
    "emacs, `file-precious-flag`": Pattern(EMACS.format("file-precious-flag")),
    "VS Code, as traced": Pattern(_traced("vscode")),
    "GNOME, as traced": Pattern(_traced("gnome")),
    "`cp -a` of a tree": Pattern('mkdir -p cp; cp -a "$T/tree/." cp', tree=True, times=True),
    "`rsync -a`": Pattern('rsync -a "$T/tree/" rs; rsync -a --delete "$T/other/" rs', tree=True, times=True),
    "`rsync -a --inplace`": Pattern('rsync -a "$T/tree/" rs; rsync -a --inplace "$T/other/" rs', tree=True, times=True),
    "`tar x`": Pattern('mkdir -p untarred; tar -xf "$T/tree.tar" -C untarred', tree=True, times=True),
    "`unzip`": Pattern('unzip -q "$T/tree.zip" -d unzipped', tree=True, times=True),
    "`git init`, `add`, `commit`, `checkout`, `gc`": Pattern(
        f'git init -q -b main g; cd g; cp -r "$T/tree" t; {GIT} add .; {GIT} commit -qm one; echo x >> t/a.txt; '
        f"rm t/empty.txt; {GIT} commit -qam two; {GIT} checkout -q HEAD~1; {GIT} checkout -q main; {GIT} gc -q",
        tree=True,
        check='cd g; mkdir -p .git/refs; git fsck --strict; git reset -q; test -z "$(git status --porcelain)"; '
        "git log --format=%s > log; test $(wc -l < log) = 2",
    ),
    "`pip install -t`": Pattern(f'{PIP} -t pip "$T/thing-1.0-py3-none-any.whl"', tree=True),
    "`make`": Pattern(
        'mkdir -p m; cd m; printf "all: b c\\nb: a\\n\\tcp a b\\nc: b\\n\\tcat a b > c\\n" > Makefile; echo 1 > a; '
        "make -s; make -q",
        tree=True,
    ),
    "`sqlite3`": Pattern(
        "mkdir -p s; cd s; sqlite3 d.sqlite 'create table t(a); insert into t values (1),(2);' "
        "'insert into t select a + 2 from t; vacuum'; test $(sqlite3 d.sqlite 'select sum(a) from t') = 10",
        tree=True,
    ),
}


@dataclass(frozen=True)
class Refused:
    """What a program says of a pattern that a source does not take, and why that is so."""

    says: str
    why: str


_FLAT = ("SQLite row", "PostgreSQL row", "MariaDB row", "REST API", "Notion page", "MCP flat")
_KEYED = ("SQLite row", "PostgreSQL row", "MariaDB row", "REST API")
_NO_DIRECTORIES = "The source has no directories there: what is in one is `EOPNOTSUPP`."
_KEY = "The name is part of the content: another one is `EINVAL`."
REFUSED: Mapping[tuple[str, str], Refused] = {
    **{
        (place, pattern): Refused("not supported", _NO_DIRECTORIES)
        for place in _FLAT
        for pattern, found in PATTERNS.items()
        if found.tree
    },
    **{(place, "`sqlite3`"): Refused("unable to open database file", _NO_DIRECTORIES) for place in _FLAT},
    # Of EINVAL, mv makes a sentence of its own.
    **{
        (place, pattern): Refused("mv:", _KEY) for place in _KEYED for pattern in PATTERNS if pattern.startswith("`mv`")
    },
}
"""By place and pattern."""


def material(directory: Path) -> None:
    """Make the things to copy."""
    for tree in ("tree", "other"):
        (directory / tree / "sub/deeper").mkdir(parents=True)
        for name, data in {
            "empty.txt": b"",
            "a.txt": f"{tree}\n".encode() * 1000,
            "large.bin": os.urandom(300_000),
            "sub/b c.txt": f"b c of {tree}\n".encode(),
            "sub/deeper/\u00fc#?%.txt": b"deep\n",
        }.items():
            if tree == "tree" or name != "empty.txt":
                path = directory / tree / name
                path.write_bytes(data)
                os.utime(path, ns=(10**18, 10**18 + (tree == "other") * 10**12 + 123456789))
    run("tar", "-C", directory / "tree", "-cf", directory / "tree.tar", ".")
    with zipfile.ZipFile(directory / "tree.zip", "w") as archive:
        for path in sorted((directory / "tree").rglob("*")):
            archive.write(path, path.relative_to(directory / "tree"))
    with zipfile.ZipFile(directory / "thing-1.0-py3-none-any.whl", "w") as wheel:
        about = "thing-1.0.dist-info"
        wheel.writestr("thing/__init__.py", "from thing.part import NAME\n")
        wheel.writestr("thing/part.py", "NAME = 'thing'\n")
        wheel.writestr("thing/data/x.txt", "data\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        files = [*wheel.namelist(), f"{about}/RECORD"]
        wheel.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in files))


def environ(material: Path, name: str, new_name: str, more: str) -> dict[str, str]:
    """Return what a pattern finds in its environment."""
    dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2020-01-01T00:00:00Z")
    own = {"F": name, "N": new_name, "MORE": more, "T": str(material), "PYTHON": sys.executable}
    keys = {"KEYS": str(TESTS / "support/typed_keys.py"), "HOME": str(material), "GIT_CONFIG_NOSYSTEM": "1"}
    return {**own, **keys, **dates}


QUICK = frozenset(
    {
        *(("memory", pattern) for pattern in PATTERNS if not pattern.startswith(("emacs", "`pip"))),
        ("folder", "nano, with backup and lock"),
        ("S3", "`rsync -a --inplace`"),
        ("WebDAV", "vim, `backup`, by a rename"),
        ("WebDAV", "`cp -a` of a tree"),
        ("SFTP", "`rsync -a`"),
        ("SFTP", "`sed -i`"),
        ("FTP", "`tee`, `tee -a`"),
        ("FTP", "`tar x`"),
        ("SQLite row", "vim, `backup`, by a rename"),
        ("REST API", "vim, `backup`, by a copy"),
        ("REST API", "a file beside it (`x.tmp`), `mv`"),
        ("Notion page", "vim, `backup`, by a rename"),
        ("Notion page", "`sed -i`"),
        ("MCP flat", "GNOME, as traced"),
        ("MCP flat", "`tar x`"),
        ("MCP paths", "`mv` of another file over it"),
    }
)
"""What `make test` runs."""


def table(places: Iterable[str], held: Mapping[tuple[str, str], bool] | None = None) -> str:
    """Return the matrix in Markdown: a row for each pattern, a column for each place. held: what was run."""
    columns, reasons = [*places], list(dict.fromkeys(each.why for each in REFUSED.values()))

    def shown(place: str, pattern: str) -> str:
        if held is not None and not held.get((place, pattern)):
            return "FAILED" if (place, pattern) in held else ""
        refused = REFUSED.get((place, pattern))
        return "yes" if refused is None else f"no ({reasons.index(refused.why) + 1})"

    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {row} | " + " | ".join(shown(place, row) for place in columns) + " |" for row in PATTERNS]
    return "\n".join([*lines, "", *(f"{number}. {why}" for number, why in enumerate(reasons, 1))])
