"""Writing to stores: bbfs beside `rclone mount --vfs-cache-mode writes`, s3fs and sshfs, in one run.

The places take turns in each round, each in a directory of its own on one server: rclone's for SFTP and WebDAV, moto
for S3. A case ends when the server has all files with all bytes: rclone returns from close before, bbfs after. The
table has the medians of all rounds. A place that cannot do a case has no number.

    python benchmarks/stores.py [sftp webdav s3] [--rounds 3] [--files 300] [--size 64]
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

import writing
from file_servers import PASSWORD, USER, FileServer, known_hosts
from object_stores import KEY, SECRET, S3Server
from writing import WRITE_SMALL, Material, command, serving

Held = tuple[int, int]
"""Files, and their bytes."""
ARRIVES_WITHIN = 30.0
"""Seconds from the end of a case until the server must have all of it."""
LOOK_EVERY = 0.02
BUCKET = "data"


def of_folder(folder: Path) -> Held:
    sizes = [os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names]
    return len(sizes), sum(sizes)


def of_bucket(server: S3Server, prefix: str) -> Held:
    sizes: list[int] = []
    after = ""
    while True:
        query = {"list-type": "2", "prefix": prefix, **({"continuation-token": after} if after else {})}
        page = ElementTree.fromstring(server.client.get(f"/{BUCKET}", params=query).text)
        space = page.tag.partition("}")[0] + "}"
        entries = [
            (e.findtext(f"{space}Key") or "", e.findtext(f"{space}Size") or "0") for e in page.iter(f"{space}Contents")
        ]
        sizes += [int(size) for key, size in entries if not key.endswith("/")]
        after = page.findtext(f"{space}NextContinuationToken") or ""
        if not after:
            return len(sizes), sum(sizes)


def obscured() -> str:
    return subprocess.run(["rclone", "obscure", PASSWORD], check=True, capture_output=True, text=True).stdout.strip()


def rclone(remote: Mapping[str, str], at: Path, home: Path) -> list[str | Path]:
    home.mkdir(exist_ok=True)
    config = home / "rclone.conf"
    config.write_text("[far]\n" + "".join(f"{key} = {value}\n" for key, value in remote.items()))
    cached = ["--vfs-cache-mode", "writes", "--vfs-write-back", "0s", "--cache-dir", home / "cache"]
    return ["rclone", "mount", f"far:{BUCKET if remote['type'] == 's3' else ''}", at, *cached, "--config", config]


def bbfs(source: str, at: Path, scratch: Path) -> list[str | Path]:
    config = scratch / f"{at.name}.toml"
    config.write_text(
        f'[[sources]]\nname = "far"\ntype = "storage"\ncapabilities = ["read", "list", "write"]\n{source}'
    )
    return [sys.executable, "-m", "bbfs", "mount", "--config", config, at]


class Store:
    """A server with the mounts of it. places: the directory of each. held: what the server has of a directory."""

    def __init__(self, kind: str, stack: ExitStack, scratch: Path) -> None:
        self._stack, self._scratch, self._kind = stack, scratch, kind
        self.places: dict[str, Path] = {}
        if kind == "s3":
            server = stack.enter_context(closing(S3Server()))
            server.make_bucket(BUCKET)
            self.held: Callable[[str], Held] = lambda name: of_bucket(server, f"{name}/")
            remote = {"type": "s3", "provider": "Other", "force_path_style": "true", "endpoint": server.url}
            remote |= {"access_key_id": KEY, "secret_access_key": SECRET}
            source = (
                f'config = {{ url = "s3://{BUCKET}/", options = {{ endpoint = "{server.url}" }} }}\n'
                f'auth = {{ accessKey = "{KEY}", secretKey = "{SECRET}" }}\n'
            )
            below = f"bb-storage+far+s3/{BUCKET}"
            secret = scratch / "s3fs.passwd"
            secret.write_text(f"{KEY}:{SECRET}\n")
            secret.chmod(0o600)
            options = f"url={server.url},use_path_request_style,passwd_file={secret}"
            self._start("s3fs", lambda at, _: ["s3fs", BUCKET, at, "-f", "-o", options])
        else:
            root = scratch / kind
            root.mkdir()
            server = stack.enter_context(closing(FileServer(kind, root, scratch)))
            self.held = lambda name: of_folder(root / name)
            port = server.port
            where = {"host": "127.0.0.1", "port": str(port)}
            where = where if kind == "sftp" else {"url": f"http://127.0.0.1:{port}", "vendor": "other"}
            remote = {"type": kind, "user": USER, "pass": obscured(), **where}
            hosts = f', options = {{ known_hosts = "{known_hosts(port, scratch)}" }}' if kind == "sftp" else ""
            source = (
                f'config = {{ url = "{kind}://127.0.0.1:{port}/"{hosts} }}\n'
                f'auth = {{ username = "{USER}", password = "{PASSWORD}" }}\n'
            )
            below = f"bb-storage+far+{kind}/127.0.0.1:{port}"
            if kind == "sftp":
                login = scratch / "sshfs.passwd"
                login.write_text(PASSWORD + "\n")
                options = f"port={port},password_stdin,UserKnownHostsFile={known_hosts(port, scratch)}"
                line = f'exec sshfs {USER}@127.0.0.1:/ "$0" -f -o {options} < {login}'
                self._start("sshfs", lambda at, _: ["sh", "-c", line, at])
        self._start("rclone", lambda at, home: rclone(remote, at, home))
        self._start("bbfs", lambda at, _: bbfs(source, at, scratch), below)

    def _start(self, name: str, words: Callable[[Path, Path], list[str | Path]], below: str = "") -> None:
        program = "python" if name == "bbfs" else name
        if name != "bbfs" and shutil.which(program) is None:
            print(f"{name}: left out, as there is no such program")
            return
        at, home = self._scratch / f"{self._kind}-{name}", self._scratch / f"{self._kind}-{name}-home"
        self._stack.enter_context(serving(words(at, home), at, home))
        self.places[name] = at / below


def cases(material: Material, files: int) -> Mapping[str, Callable[[Path], None]]:
    mebibytes = str(material.size)
    return {
        "untar of a source tree": lambda at: command("tar", "-C", at, "--no-same-owner", "-xf", material.archive),
        f"{files} small files": lambda at: command(sys.executable, "-c", WRITE_SMALL, at / "s", str(files)),
        f"{mebibytes} MiB": lambda at: command(
            "dd", "if=/dev/zero", f"of={at}/large", "bs=1M", f"count={mebibytes}", "status=none"
        ),
        "git clone of a local bare repository": lambda at: command(
            "git", "clone", "-q", "--no-hardlinks", material.bare, at / "clone"
        ),
    }


def seconds(do: Callable[[Path], None], at: Path, held: Callable[[], Held], expected: Held) -> float | None:
    """Return the seconds until the server has the expected files; None if the case failed."""
    began = time.perf_counter()
    try:
        at.mkdir(parents=True)
        do(at)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"{at}: {error}", file=sys.stderr)
        return None
    done = time.perf_counter()
    while (there := held())[0] != expected[0] or there[1] < expected[1]:  # git's configuration differs by the place
        if time.perf_counter() - done > ARRIVES_WITHIN:
            print(f"{at}: the server has {there}, not {expected}", file=sys.stderr)
            return None
        time.sleep(LOOK_EVERY)
    return time.perf_counter() - began


@contextmanager
def scratch_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="bbfs-stores-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="*", default=["sftp", "webdav", "s3"])
    parser.add_argument("--tree", type=Path, default=Path(os.__file__).parent / "asyncio", help="a source tree")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--size", type=int, default=64, help="mebibytes of the large file")
    given = parser.parse_args()
    writing.BOUND = 4 * ARRIVES_WITHIN
    os.environ.pop("AWS_CA_BUNDLE", None)  # rclone 1.60 reaches no S3 server with it
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with scratch_directory() as scratch:
        material = Material(scratch, given.tree.resolve(), given.size)
        wanted: dict[str, Held] = {}
        for number, (case, do) in enumerate(cases(material, given.files).items()):
            at = scratch / "plain" / str(number)
            at.mkdir(parents=True)
            do(at)
            wanted[case] = of_folder(at)
        for kind in given.stores:
            with ExitStack() as stack:
                store = Store(kind, stack, scratch)
                taken: dict[str, dict[str, list[float]]] = {case: {} for case in wanted}
                for turn in range(given.rounds):
                    for number, (case, do) in enumerate(cases(material, given.files).items()):
                        for place, directory in store.places.items():
                            name = f"{place}-{turn}-{number}"
                            took = seconds(do, directory / name, partial(store.held, name), wanted[case])
                            taken[case].setdefault(place, []).extend([] if took is None else [took])
                print(f"\n| {kind} | " + " | ".join(store.places) + " |\n|---" * (len(store.places) + 1) + "|")
                for case, by_place in taken.items():
                    shown = [f"{statistics.median(each):.2f} s" if each else "–" for each in by_place.values()]
                    print(f"| {case} | " + " | ".join(shown) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
