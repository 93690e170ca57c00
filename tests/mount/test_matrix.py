"""Everyday tools give on a mount what they give on a plain copy of the same bytes (S14).

Every tool gets a source of its own within one mount, so that it meets files whose content and size nobody asked for
yet; and it runs a second time, on what the first run left in the caches.
"""

import hashlib
import os
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

import pytest
from harness import Mounts, SourceTable, folder
from programs import shell
from scripted import ScriptedServer

pytestmark = [pytest.mark.semantics("S14")]

FILES = "find . -type f -print0 | sort -z"
MODIFIED = 1_700_000_000
"""Of the first file, in seconds since the epoch; each other was modified an hour after the one before."""

# Each is run by bash in the tree; `$OUT` is an empty directory, whose contents count as its output.
TOOLS = {
    "cat": f"{FILES} | xargs -0 cat",
    "cat-parallel": f"""{FILES} | xargs -0 -P4 -n1 bash -c 'cat "$1" > "$OUT/${{1//\\//_}}"' bash""",
    "grep": "grep -rn --binary-files=text needle . | sort; grep -rc needle . | sort",
    "rg": "rg -uu -n --sort path needle .",
    "rg-parallel": "rg -uuu -j4 -c needle . | sort",
    "wc": f"{FILES} | xargs -0 wc -c; {FILES} | xargs -0 wc",
    "head": f"{FILES} | xargs -0 head -c 100; {FILES} | xargs -0 head -n 3",
    "tail": f"{FILES} | xargs -0 tail -c 100; {FILES} | xargs -0 tail -n 3",
    "less": f"{FILES} | xargs -0 -n1 less -f",
    "cp-a": 'cp -a . "$OUT"',
    "cp-sparse": 'cp -r --preserve=timestamps --sparse=always . "$OUT"',
    "rsync": 'rsync -a ./ "$OUT/"',
    "rsync-checksum": 'rsync -ac ./ "$OUT/"; rsync -acn --itemize-changes ./ "$OUT/" | grep "^>" || true',
    "tar": 'tar -cf - . | tar -C "$OUT" -xf -; '
    "tar -cf - . | tar -tvf - | awk '$3 > 0 {print $3, $4, $5, $6, $7}' | sort",
    "tar-sparse": 'tar --sparse -cf - . | tar -C "$OUT" -xf -',
    "zip": 'zip -qr "$OUT/a.zip" . && "$PYTHON" -m zipfile -e "$OUT/a.zip" "$OUT" && rm "$OUT/a.zip"',
    "git-hash-object": "find . -type f | sort | git hash-object --no-filters --stdin-paths",
    "sqlite3-immutable": 'sqlite3 "file:$PWD/data/numbers.db?immutable=1" "select sum(n), max(t) from numbers"',
    "sqlite3-readonly": "sqlite3 -readonly data/numbers.db 'select n, t from numbers where n % 97 = 0 order by t'",
    "mmap": f'{FILES} | xargs -0 "$PYTHON" -c "$MMAP"',
    "sendfile": f'{FILES} | xargs -0 "$PYTHON" -c "$SENDFILE"',
    "copyfile": f'{FILES} | xargs -0 "$PYTHON" -c "$COPYFILE"',
    "dd": "dd if=data/zeros.bin bs=1000 skip=3 count=150 status=none; "
    "dd if=data/random.bin bs=4096 skip=70 status=none; dd if=data/page.txt bs=1 skip=4090 status=none",
    "file": "find . -type f | sort | file -f -",
    "find": "find . -type f -size +1k -printf '%s %p\\n' | sort; find . -type f -empty | sort; "
    "find . -type f \\( -size 0 -o -size 1c -o -size 4096c \\) | sort; find . -type f -printf '%T@ %p\\n' | sort",
    "du-apparent": "find . -type f -print0 | xargs -0 du --apparent-size -B1 | sort",
    "stat": f"{FILES} | xargs -0 stat -c '%s %Y %F %n'",
    "ls": "ls -1AR --quoting-style=literal | sort",
    "sha256sum": f"{FILES} | xargs -0 sha256sum; {FILES} | xargs -0 sort -u",
    "diff": "diff -rq . data || true",
    "read-backwards": f'{FILES} | xargs -0 "$PYTHON" -c "$BACKWARDS"',
}
PROGRAMS = {
    "MMAP": """
import hashlib, mmap, os, sys
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED) if size else b""
        print(name, size, hashlib.sha256(data).hexdigest())
""",
    "SENDFILE": """
import os, sys
for number, name in enumerate(sys.argv[1:]):
    with open(name, "rb") as source, open(f"{os.environ['OUT']}/{number}", "wb") as target:
        size, sent = os.fstat(source.fileno()).st_size, 0
        while done := os.sendfile(target.fileno(), source.fileno(), sent, 1 << 20):
            sent += done
        assert sent == size, (name, sent, size)
""",
    "COPYFILE": """
import os, shutil, sys
for number, name in enumerate(sys.argv[1:]):
    shutil.copyfile(name, f"{os.environ['OUT']}/{number}")
""",
    "BACKWARDS": """
import hashlib, os, sys
for name in sys.argv[1:]:
    descriptor = os.open(name, os.O_RDONLY)
    end = os.lseek(descriptor, 0, os.SEEK_END)
    chunks = [os.pread(descriptor, 7001, start) for start in reversed(range(0, end, 7001))]
    print(name, end, hashlib.sha256(b"".join(reversed(chunks))).hexdigest())
""",
}


@dataclass(frozen=True, slots=True)
class Forest:
    """A mount with one source for every tool, each holding the same as the plain tree."""

    plain: Path
    tree_of: Callable[[str], Path]


def build_tree(root: Path) -> dict[str, bytes]:
    """The plain copy on a disk. Returns the files as {path: content}."""
    random = Random(20261121)
    words = [random.randbytes(4).hex() for _ in range(500)]
    files = {
        "empty.txt": b"",
        "one": b"x",
        "read me.md": "# Märchen\n\nneedle in the title\n".encode(),
        "data/page.txt": b"0123456789abcde\n" * 256,
        "data/page-and-one.txt": b"0123456789abcde\n" * 256 + b"!",
        "data/no-newline.txt": b"first\nneedle at the end",
        "data/random.bin": random.randbytes(300_000),
        "data/zeros.bin": b"begin" + bytes(200_000) + b"needle" + bytes(70_000),
        "data/Ünïcödé.txt": "needle — Grüße, 你好\n".encode(),
        "data/.hidden": b"a hidden needle\n",
    }
    for number in range(60):
        lines = [" ".join(random.choices(words, k=8)) for _ in range(random.randrange(1, 120))]
        lines.insert(len(lines) // 2, f"needle {number}")
        files[f"many/{number % 3}/text-{number:03}.txt"] = ("\n".join(lines) + "\n").encode()
    database = root.with_suffix(".db")
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY, t TEXT)")
        connection.executemany("INSERT INTO numbers VALUES (?, ?)", ((n, f"{n * n} needle") for n in range(5000)))
    connection.close()
    files["data/numbers.db"] = database.read_bytes()
    for number, (name, content) in enumerate(files.items()):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (MODIFIED, MODIFIED + 3600 * number))
    return files


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    root = tmp_path_factory.mktemp("plain") / "tree"
    root.mkdir()
    return root, build_tree(root)


@pytest.fixture(scope="module")
def folders(plain: tuple[Path, dict[str, bytes]], module_mounted: Mounts) -> Forest:
    root, _ = plain
    sources = [folder(name, root, config={"max_memory": 100_000}) for name in TOOLS]
    mount = module_mounted(*sources)
    return Forest(root, lambda name: mount / f"bb-filesystem+{name}+file")


@pytest.fixture(scope="module")
def servers(
    plain: tuple[Path, dict[str, bytes]], module_mounted: Mounts, tmp_path_factory: pytest.TempPathFactory
) -> Forest:
    """MCP servers that give neither sizes nor all MIME types; every third file is sent as a blob."""
    root, files = plain
    scripted = ScriptedServer(tmp_path_factory.mktemp("scripted") / "server")
    scripted.add_tree("tree://host", root, files)
    sources: list[SourceTable] = [scripted.source(name) for name in TOOLS]
    mount = module_mounted(*sources)
    return Forest(root, lambda name: mount / f"mcp-server+{name}" / "tree" / "host")


NOTHING = (hashlib.sha256(b"").hexdigest() + " of 0 bytes", {})


def use(tool: str, tree: Path, out: Path) -> tuple[str, dict[str, object]]:
    """Run a tool in a tree. Returns what it printed, and digests of the files that it made."""
    out.mkdir()
    env = {"OUT": str(out), "PYTHON": sys.executable, "TZ": "UTC", **PROGRAMS}
    done = shell(TOOLS[tool], directory=tree, env=env, timeout=30)
    assert done.err == b""
    return hashlib.sha256(done.out).hexdigest() + f" of {len(done.out)} bytes", digests(out, with_time=tool in TIMED)


@cache
def on_plain(tool: str, plain: Path) -> tuple[str, dict[str, object]]:
    return use(tool, plain, plain.with_name(f"by {tool}"))


TIMED = {"cp-a", "cp-sparse", "rsync", "rsync-checksum", "tar", "tar-sparse"}


def digests(root: Path, *, with_time: bool) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(root))] = (digest, path.stat().st_mtime_ns) if with_time else digest
    return found


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("kind", ["folders", "servers"])
def test_a_tool_gives_on_a_mount_what_it_gives_on_a_plain_copy(
    kind: str, tool: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    forest: Forest = request.getfixturevalue(kind)
    expected = on_plain(tool, forest.plain)
    assert expected != NOTHING
    assert use(tool, forest.tree_of(tool), tmp_path / "cold") == expected
    assert use(tool, forest.tree_of(tool), tmp_path / "warm") == expected
