"""`bbfs index` and `bbfs grep` on a real mount, against GNU grep."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from forked_daemon import forked
from harness import Mount, Mounts, folder
from programs import Done, Program, bbfs, run, shell

TEXTS = {
    "guide/install.md": "# Install\n\nRenew the certificate.\nrenew it again\n\nlast line",
    "guide/use.md": "# Use\n\nNothing here.\n",
    "guide/deep/er/notes.txt": "one\ntwo\nthree certificate\nfour\nfive\nsix certificate seven\n",
    "code/main.py": "def main():\n    return 'certificate'\n",
    "code/a b.py": "x = 1\n",
    "-dash.txt": "certificate\n",
    "-": "certificate\n",
    "empty": "",
    "umlaut.txt": "Schlüssel für die Tür\n",
}


@pytest.fixture(scope="module")
def mount(module_mounted: Mounts, tmp_path_factory: pytest.TempPathFactory) -> Mount:
    root = tmp_path_factory.mktemp("texts")
    for name, text in TEXTS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "binary").write_bytes(b"certificate\0\n")
    (root / "latin").write_bytes("certificate f\xfcr\n".encode("latin-1"))
    (root / "link").symlink_to("guide")
    made = module_mounted(folder("notes", root), tables={"mount": {"agents": True}})
    made.bbfs("index", "notes")
    return made


SAME = [
    ["certificate"], ["-i", "CERTIFICATE"], ["-w", "renew"], ["-l", "certificate"], ["-c", "certificate"],
    ["-c", "--include", "*.md", "certificate"], ["-v", "certificate"], ["-F", "main():"], ["-P", r"(?<=the )cert\w+"],
    ["-A", "1", "three"], ["-B", "1", "-A", "2", "certificate", "--include", "*.txt"], ["-C", "1", "two|five"],
    ["--include", "d*", "certificate"], ["--include", "*.md", "--include", "*.py", "e"], ["ren(ew|t) (the|a)"],
    ["Schlüssel"], ["-i", "SCHLÜSSEL"], ["--", "-dash"], ["^$"], ["nowhere at all"], ["zero\ncertificate"],
    ["-rnE", "renew|one"], ["-Hrn", "certificate"], ["-rhn", "certificate"], ["-Rn", "certificate"],
    ["-R", "--include", "*.md", "--exclude-dir", "deep", "certificate"], ["-rsI", "certificate"],
    ["-a", "certificate"], ["-oi", "cert[a-z]+"], ["-bo", "e"], ["-x", "certificate"], ["-L", "certificate"],
    ["-m1", "certificate"], ["-cm", "1", "certificate"], ["-ch", "certificate"], ["-cZ", "certificate"],
    ["-q", "certificate"], ["-q", "nowhere at all"], ["-e", "two", "-e", "four"], ["-G", "main()"],
    ["-G", "r\\(en\\)ew"], ["-1", "three"], ["-A", "0", "certificate", "--include", "notes.txt"],
    ["--color", "certificate"], ["--color=always", "certificate"], ["--colour=always", "-c", "certificate"],
    ["-e", "--color"], ["-ecertificate", "--color"], ["-rne", "certificate", "--color"],
    ["--exclude", "*.md", "certificate"], ["--exclude-dir", "d*", "certificate"],
    ["--include", "*.md", "--exclude", "use*", "e"], ["--exclude", "use*", "--include", "*.md", "e"],
]  # fmt: skip


# The first, while this process has no mount.
def test_without_a_mount_grep_says_so(tmp_path: Path) -> None:
    (tmp_path / "bbfs").mkdir()
    (tmp_path / "bbfs/config.toml").write_text('[[sources]]\nname = "only-here"\ntype = "memory"\n')
    env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = bbfs("grep", "a", "only-here", status=2, env=env)
    assert b"only-here: not at any mount" in done.err
    assert b"nothing is mounted" in bbfs("grep", "a", status=2, env=env).err
    (tmp_path / "bbfs/config.toml").unlink()
    assert b"nothing is mounted" in bbfs("grep", "a", status=2, env=env).err


ALL = """
import json, os, sys, tempfile
from bbfs.cli import main
ended, kept = [], os.dup(1)
for words in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile() as out:
        os.dup2(out.fileno(), 1)
        try:
            main(words)
        except SystemExit as end:
            sys.stdout.flush()
            out.seek(0)
            ended.append([end.code, out.read().decode("latin-1")])
os.dup2(kept, 1)
print(json.dumps(ended))
"""
"""Runs commands of bbfs in one process. Prints how each ended, and what it wrote."""


@pytest.fixture(scope="module")
def found(mount: Mount) -> dict[str, tuple[int, str]]:
    """The status and the output of `bbfs grep` for each of these arguments."""
    lines = [["grep", *arguments, str(mount / "bb-filesystem+notes+file")] for arguments in SAME]
    ended = json.loads(run(sys.executable, "-c", ALL, json.dumps(lines), env=mount.environ()).text)
    return {" ".join(arguments): (status, out) for arguments, (status, out) in zip(SAME, ended, strict=True)}


@pytest.mark.semantics("S37")
@pytest.mark.parametrize("arguments", SAME, ids=" ".join)
def test_the_matches_are_those_of_grep(mount: Mount, found: dict[str, tuple[int, str]], arguments: list[str]) -> None:
    plain = ["-E"] if not {"-F", "-G", "-P"} & {*arguments} else []
    expected = Program("grep", "-rn", *plain, *arguments, mount / "bb-filesystem+notes+file").wait()
    status, out = found[" ".join(arguments)]
    assert status == expected.status
    assert sorted(out.encode("latin-1").splitlines()) == sorted(expected.out.splitlines())


@pytest.mark.semantics("S37.1")
def test_a_change_is_found_and_only_files_that_can_match_are_read(mounted: Mounts, tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}.txt").write_text(f"word{number} text\n")
    mount = mounted(folder("notes", tmp_path, ttl=0))
    here = mount / "bb-filesystem+notes+file"
    said = mount.bbfs("index", "notes").text
    assert said == "notes: 30 documents indexed, 0 unchanged\n"
    assert mount.bbfs("grep", "-l", "word17", "notes").text == f"{here}/17.txt\n"
    (tmp_path / "03.txt").write_text("now word17 as well\n")
    assert {*mount.bbfs("grep", "-l", "word17", here).text.splitlines()} == {f"{here}/17.txt", f"{here}/03.txt"}
    (tmp_path / "05.txt").unlink()
    assert mount.bbfs("index", "notes").text == "notes: 1 document indexed, 28 unchanged, 1 removed\n"
    status = json.loads(mount.bbfs("index", "status", "--json").text)
    assert status["sources"] == [
        {"source": "bb-filesystem+notes", "documents": 29, "bytes": 347, "stale": 0, "unfinished": False}
    ]
    mount.bbfs("index", "clear", "notes")
    assert json.loads(mount.bbfs("index", "status", "--json").text)["sources"] == []


def in_files(mount: Mount, script: str) -> Done:
    """Run a script in the directory of the files, in which `grep` is that of bbfs."""
    grep = f'grep() {{ {shlex.join(forked("-m", "bbfs", "grep"))} "$@"; }}'
    return shell(f'cd "$1"; {grep}; {script}', mount / "bb-filesystem+notes+file", env=mount.environ())


def test_relative_operands_and_files_are_printed_as_typed(mount: Mount) -> None:
    done = in_files(mount, "grep certificate guide code/main.py && cd guide && grep Renew")
    assert done.text.splitlines() == [
        "guide/install.md:3:Renew the certificate.",
        "guide/deep/er/notes.txt:3:three certificate",
        "guide/deep/er/notes.txt:6:six certificate seven",
        "code/main.py:2:    return 'certificate'",
        "install.md:3:Renew the certificate.",
    ]


def test_names_that_begin_with_a_dash_are_printed_as_they_are(mount: Mount) -> None:
    done = in_files(mount, "grep -l certificate -- -dash.txt - < /dev/null")
    assert done.text.splitlines() == ["-dash.txt", "./-"]


def test_what_cannot_be_searched_is_said(mount: Mount, tmp_path: Path) -> None:
    assert b"Unmatched" in mount.bbfs("grep", "a(", status=2).err
    assert b"not inside a bbfs mount" in mount.bbfs("grep", "a", tmp_path, status=2).err
    here = mount / "bb-filesystem+notes+file"
    assert b"No such file" in mount.bbfs("grep", "a", here / "nothing", status=2).err
    assert mount.bbfs("grep", "-s", "a", here / "nothing", status=2).err == b""
    assert mount.bbfs("grep", "-qs", "a", here / "nothing", here, status=0).out == b""
    assert b"Missing argument 'PATTERN'" in mount.bbfs("grep", "-rn", status=2).err
    assert b"No such option" in mount.bbfs("grep", "-z", "a", here, status=2).err
