"""Writing to stores: bbfs beside `rclone mount --vfs-cache-mode writes`, s3fs and sshfs.

The places take turns in each round, each in a directory of its own on one server: rclone's for SFTP and WebDAV, moto
for S3. A case ends when the server has all files with all bytes, or none any more: rclone returns from close before,
bbfs after.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

import places
from figures import Missing, Sheet, Unmeasurable
from file_servers import PASSWORD, USER, FileServer, known_hosts
from object_stores import KEY, SECRET, S3Server
from rounds import Bench, Place, Sizes, turn
from writing import CLONE, LARGE, SMALL, UNTAR, Held, Material, command, complete, source_tree

REMOVED = "rm -r of the small files"
CASES = (UNTAR, SMALL, REMOVED, LARGE, CLONE)
GROUPS = {"sftp": "writing to SFTP", "webdav": "writing to WebDAV", "s3": "writing to S3"}
OTHERS = {"sftp": ["sshfs"], "webdav": [], "s3": ["s3fs"]}
"""Programs beside rclone that mount this kind of server."""
ARRIVES_WITHIN = 10.0
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


@dataclass(frozen=True)
class Store:
    """A server. held: what it has of a directory. remote, source: for rclone, for bbfs. others: commands of others."""

    held: Callable[[str], Held]
    remote: dict[str, str]
    source: dict[str, Any]
    below: str
    others: dict[str, Callable[[Path], list[str | Path]]] = field(default_factory=dict)


def secret_file(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def s3(ending: ExitStack, scratch: Path) -> Store:
    server = ending.enter_context(closing(S3Server()))
    server.make_bucket(BUCKET)
    options = f"url={server.url},use_path_request_style,passwd_file="
    options += str(secret_file(scratch / "s3fs.passwd", f"{KEY}:{SECRET}\n"))
    return Store(
        lambda name: of_bucket(server, f"{name}/"),
        {"type": "s3", "provider": "Other", "force_path_style": "true", "endpoint": server.url}
        | {"access_key_id": KEY, "secret_access_key": SECRET},
        {"config": {"url": f"s3://{BUCKET}/", "options": {"endpoint": server.url}}}
        | {"auth": {"accessKey": KEY, "secretKey": SECRET}},
        f"bb-storage+far+s3/{BUCKET}",
        {"s3fs": lambda at: ["s3fs", BUCKET, at, "-f", "-o", options]},
    )


def file_server(kind: str, ending: ExitStack, scratch: Path) -> Store:
    root = scratch / kind
    root.mkdir()
    port = ending.enter_context(closing(FileServer(kind, root, scratch))).port
    obscured = subprocess.run(["rclone", "obscure", PASSWORD], check=True, capture_output=True, text=True).stdout
    remote = {"type": kind, "user": USER, "pass": obscured.strip()}
    config: dict[str, Any] = {"url": f"{kind}://127.0.0.1:{port}/"}
    others: dict[str, Callable[[Path], list[str | Path]]] = {}
    if kind == "sftp":
        remote |= {"host": "127.0.0.1", "port": str(port)}
        hosts = known_hosts(port, scratch)
        config |= {"options": {"known_hosts": hosts}}
        login = secret_file(scratch / "sshfs.passwd", PASSWORD + "\n")
        options = f"port={port},password_stdin,UserKnownHostsFile={hosts}"
        line = f'exec sshfs {USER}@127.0.0.1:/ "$0" -f -o {options} < {login}'
        others["sshfs"] = lambda at: ["sh", "-c", line, at]
    else:
        remote |= {"url": f"http://127.0.0.1:{port}", "vendor": "other"}
    source = {"config": config, "auth": {"username": USER, "password": PASSWORD}}
    return Store(lambda name: of_folder(root / name), remote, source, f"bb-storage+far+{kind}/127.0.0.1:{port}", others)


def rclone(store: Store, config: Path, at: Path) -> list[str | Path]:
    config.write_text("[far]\n" + "".join(f"{key} = {value}\n" for key, value in store.remote.items()))
    bucket = BUCKET if store.remote["type"] == "s3" else ""
    return [
        "rclone",
        "mount",
        f"far:{bucket}",
        at,
        "--vfs-cache-mode",
        "writes",
        "--vfs-write-back",
        "0s",
        "--config",
        config,
    ]


def installed(program: str, command: Callable[[Path], list[str | Path]], at: Path) -> list[str | Path]:
    if shutil.which(program) is None:
        raise Missing("not installed")
    return command(at)


def plan(sheet: Sheet, sizes: Sizes) -> None:
    for kind in sizes.stores:
        sheet.plan(GROUPS[kind], CASES, [*OTHERS[kind], "rclone"], rival=True)
        sheet.plan(GROUPS[kind], CASES, ["bbfs"])


def measure(bench: Bench) -> None:
    sizes = bench.sizes
    material = Material(bench.memory, source_tree(sizes), sizes.stored, sizes.stored_megabytes)
    stored = {**material.stored(bench.memory / "plain"), REMOVED: (0, 0)}
    with ExitStack() as ending:
        there = {kind: mounted(kind, bench, ending) for kind in sizes.stores}
        for number in bench.budget.numbers():
            for kind, (store, found) in there.items():
                measures = {case: partial(seconds, store, material, case, number, stored[case]) for case in CASES}
                turn(bench.sheet, GROUPS[kind], number, measures, found)


def mounted(kind: str, bench: Bench, ending: ExitStack) -> tuple[Store, list[Place]]:
    scratch, mounts = bench.memory / f"{kind}-server", bench.memory / kind
    for directory in (scratch, mounts):
        directory.mkdir()
    store = s3(ending, scratch) if kind == "s3" else file_server(kind, ending, scratch)
    table = {"name": "far", "type": "storage", "capabilities": ["read", "list", "write"], **store.source}
    commands = {
        **{name: (partial(installed, name, command), "") for name, command in store.others.items()},
        "rclone": (partial(rclone, store, scratch / "rclone.conf"), ""),
        "bbfs": (places.bbfs(scratch / "home", [table]), store.below),
    }
    return store, places.Stage(bench.sheet, GROUPS[kind], mounts, ending, bench.rivals).places(CASES, commands)


def seconds(store: Store, material: Material, case: str, number: int, wanted: Held, place: Place) -> float:
    """Return the seconds until the server has all files, or none any more. Raises Unmeasurable."""
    name = f"{place.name}-{number}-{CASES.index(SMALL if case == REMOVED else case)}"
    began = time.perf_counter()
    if case == REMOVED:
        command("rm", "-r", place.tree / name)
    else:
        try:
            (place.tree / name).mkdir(parents=True)
        except OSError as error:
            raise Unmeasurable(f"mkdir: {error}") from None
        material.cases()[case](place.tree / name)
    done = time.perf_counter()
    while not complete(there := store.held(name), wanted):
        if time.perf_counter() - done > ARRIVES_WITHIN:
            raise Unmeasurable(f"files and bytes at the server: {there}, not {wanted}")
        time.sleep(LOOK_EVERY)
    return time.perf_counter() - began
