"""Programs that copy and install trees: afterwards a mount has what a plain directory has, or they have failed."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from judging import Found
from kinds import Ground
from programs import Done, run, shell
from repository import ROOT

HERE = Path(__file__).parent
BOUND = 240
SCRIPTS: Mapping[str, str] = {
    "tar": 'tar -xf "$T/tree.tar"',
    "tar as root, with all": 'tar -xpf "$T/all.tar" --xattrs --acls --same-owner',
    "tar of absolute links": 'tar -xf "$T/links.tar"',
    "tar, unlinking first": 'tar -xf "$T/plain.tar"; tar -xf "$T/plain.tar" --recursive-unlink --unlink-first',
    "tar, keeping newer files": 'tar -xf "$T/plain.tar"; tar -xf "$T/plain.tar" --keep-newer-files',
    "dpkg": 'dpkg -x "$T/tree.deb" .',
    "dpkg of plain files": 'dpkg -x "$T/plain.deb" .',
    "rsync -aHAX": 'rsync -aHAX "$T/tree/" .',
    "rsync -aHAX twice": 'rsync -aHAX "$T/plain/" .; rsync -aHAX "$T/plain/" . ',
    "rsync -a": 'rsync -a "$T/plain/" .',
    "rsync -a --inplace over it": 'cp -r "$T/plain/." .; echo other > a; rsync -a --inplace "$T/plain/" .',
    "rsync -a --delete": 'cp -r "$T/plain/." .; echo x > sub/extra; mkdir more; rsync -a --delete "$T/plain/" .',
    "cp -a": 'cp -a "$T/tree/." .',
    "cp -a of plain files": 'cp -a "$T/plain/." .',
    "cp --preserve=xattr": 'cp --preserve=xattr "$T/tree/a" a',
    "mv from elsewhere": 'cp -r "$T/plain" "$W/moved"; mv "$W/moved" here',
    "mv of directories": 'cp -r "$T/plain" one; mv one two; mkdir three; mv two three/',
    "install": 'install -D -m 750 "$T/plain/a" bin/tool; install -d -m 700 private',
    "cpio": '(cd "$T/plain"; find . | cpio -o --quiet -H newc 2>/dev/null) | cpio -i -d -m --quiet',
    "unzip": 'unzip -q "$T/plain.zip"',
    "git clone": 'git clone -q "$T/repository" cloned; cd cloned; git checkout -q -b other HEAD~1; git fsck --strict; '
    "git status --porcelain; rm -rf .git",
    "pip install -t": '"$PYTHON" -m pip --disable-pip-version-check install -q --no-index --no-deps --no-compile '
    '-t lib "$T"/pip-*.whl; PYTHONPATH=lib "$PYTHON" -S -m pip --version > said; grep -q lib/pip said; rm said',
    "npm install": 'echo {} > package.json; npm install --offline --no-audit --no-fund --loglevel=error '
    '--cache "$W/npm" "$T"/*.tgz; rm -f node_modules/.package-lock.json package*.json',
    "npm install without links": "echo {} > package.json; npm install --offline --no-audit --no-fund --loglevel=error "
    '--no-bin-links --cache "$W/npm" "$T"/*.tgz; rm -f node_modules/.package-lock.json package*.json',
}  # fmt: skip
"""By name: a script for bash. $T: the material. $W: a directory beside the mount."""


def material(directory: Path) -> None:
    """Make the trees and archives that the scripts take."""
    user = "root" if os.geteuid() == 0 else "user"
    shell('sh "$1" "$2"', HERE / "trees.sh", user, directory=directory)
    shell(
        """
        mkdir -p plain/sub
        cp tree/a tree/large tree/none plain/; cp tree/sub/b plain/sub/
        touch -d @1500000000 plain/* plain/sub/* plain/sub plain
        tar -C tree -cf tree.tar --exclude=pipe .
        tar -C tree -cf all.tar --xattrs --acls .
        tar -C tree -cf links.tar absolute sub/up a sub/b
        tar -C plain -cf plain.tar .
        (cd plain; zip -qr ../plain.zip .)
        for kind in tree plain; do
            mkdir -p deb-$kind/DEBIAN; cp -a $kind deb-$kind/usr; rm -f deb-$kind/usr/pipe
            printf '%s\\n' 'Package: x' 'Version: 1' 'Architecture: all' 'Maintainer: x' 'Description: x' \\
                > deb-$kind/DEBIAN/control
            dpkg-deb --build deb-$kind $kind.deb >/dev/null
        done
        git init -q repository; cd repository; cp -r ../plain/. .; ln -s a link
        git add .; git -c user.name=n -c user.email=n@x commit -qm one; rm -r sub; seq 3 > c; git add .
        git -c user.name=n -c user.email=n@x commit -qam two; cd ..
        mkdir -p package/bin; echo '#!/bin/sh' > package/bin/tool; chmod 755 package/bin/tool
        echo '{"name": "thing", "version": "1.0.0", "bin": {"thing": "bin/tool"}}' > package/package.json
        cp plain/large package/; tar -czf thing-1.0.0.tgz package
        """,
        directory=directory,
        timeout=60,
    )
    code = "import pip, sys; print(pip.__version__, next(p for p in sys.path if pip.__file__.startswith(p + '/pip/')))"
    version, installed = run(sys.executable, "-c", code).text.split()
    wheel = 'zip -qr "$1/pip-$2-py3-none-any.whl" pip "pip-$2.dist-info" -x "*.pyc"'
    shell(wheel, directory, version, directory=Path(installed))


def environ(material: Path, beside: Path) -> dict[str, str]:
    own = {"T": str(material), "W": str(beside), "PYTHON": sys.executable, "HOME": str(beside)}
    return own | {
        "PATH": f"{ROOT}/.venv/bin:{beside}:{os.environ['PATH']}",
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C.UTF-8",
    }


def _aspects(case: str, done: Done, wanted: Mapping[str, Any], got: Mapping[str, Any]) -> list[str]:
    """Return each kind of difference once, with an example."""
    told: dict[str, str] = {}
    silently = "" if done.status else "silently "
    for name, there in wanted.items():
        have = got.get(name)
        what = f"hard {there['kind']}" if there.get("names", 1) > 1 else there["kind"]
        if have is None:
            told.setdefault(f"{silently}missing {what}", name)
        elif have["kind"] != there["kind"]:
            told.setdefault(f"{silently}another kind of {what}", f"{name} is a {have['kind']}")
        else:
            for key, value in there.items():
                if have.get(key) != value:
                    loss = silently if key in ("content", "size", "target", "names", "attributes") else ""
                    told.setdefault(f"{loss}other {key} of {what}", f"{name}: {have.get(key)} instead of {value}")
    for name in got.keys() - wanted.keys():
        told.setdefault("extra name", name)
    return [f"{key} ({example})" for key, example in told.items()]


def _manifest(directory: Path) -> dict[str, Any]:
    return json.loads(run(sys.executable, "-I", HERE / "manifest.py", directory, timeout=BOUND).out)


def _stripped(found: dict[str, Any], since: int) -> dict[str, Any]:
    """Return a manifest without the times that no program has set: those of this run."""
    return {name: {k: v for k, v in each.items() if k != "time" or v < since} for name, each in found.items()}


def run_scripts(ground: Ground, plain: Ground, quick: bool = False) -> Found:
    found = Found()
    beside = plain.fresh()
    there = beside / "material"
    there.mkdir()
    material(there)
    npm = ROOT / ".venv/bin/node"
    (beside / "npm").write_text(
        f'#!/bin/sh\nexec "{npm}" "$(dirname "$(readlink -f "{npm}")")/../lib/node_modules/npm/bin/npm-cli.js" "$@"\n'
    )
    (beside / "npm").chmod(0o755)
    for number, (case, script) in enumerate(SCRIPTS.items()):
        if quick and case not in QUICK:
            continue
        ends: list[Done] = []
        trees: list[dict[str, Any]] = []
        for which in (plain, ground):
            own = beside / f"{which.kind}-{number}"
            own.mkdir()
            at = which.fresh()
            try:
                variables = environ(there, own) | {"PATH": environ(there, beside)["PATH"]}
                ends.append(shell(script, directory=at, env=variables, timeout=BOUND, status=None))
                trees.append(_stripped(_manifest(at), 1_600_000_000 * 10**9))
            except AssertionError as error:
                ends.append(Done(-1, b"", str(error).encode()))
                trees.append({})
            run("rm", "-rf", at, timeout=BOUND, status=None)
        assert ends[0].status == 0, (case, ends[0].err[-500:])
        differences = _aspects(case, ends[1], trees[0], trees[1])
        if ends[1].status:
            lines = ends[1].err.decode(errors="replace").strip().splitlines() or [""]
            differences.insert(0, f"status {ends[1].status}: {lines[0][-160:]}")
        found.add(case, *differences)
    return found


QUICK = frozenset({"tar", "tar of absolute links", "dpkg", "rsync -aHAX", "cp -a", "git clone"})
"""What `make test` runs."""
