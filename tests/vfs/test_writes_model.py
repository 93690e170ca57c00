"""Random operations on a writable source and on a plain directory: no difference (S33).

`OPERATIONS=100000 SEED=2 pytest tests/vfs/test_writes_model.py` runs as many, a tenth of them on S3.
"""

import errno
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import World
from object_stores import KEY, SECRET, S3Server
from writable import Program, WritableFlat, WritableTree, writable

from bbfs.model.errors import BbfsError
from bbfs.sources import CanClose, Handler, Services
from bbfs.sources.memory.handler import MemoryHandler
from bbfs.sources.storage.handler import StorageHandler

OPERATIONS = int(os.environ.get("OPERATIONS", "1500"))
SEED = int(os.environ.get("SEED", "1"))
NAMES = ("a", "b.txt", "c~", ".d.swp", "e.tmp")
DIRECTORIES = ("", "p", "q", "p/r")
OPENED = ("hold", "poke", "let")
MEMORY = 64 << 20


class Plain:
    """The reference: a directory of this machine's disk."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: int | None = None

    def hold(self, path: str) -> None:
        if self._held is None:
            self._held = os.open(self._root / path, os.O_RDWR)

    def poke(self, _: str, offset: int, data: bytes) -> None:
        if self._held is not None:
            os.pwrite(self._held, data, offset)

    def let(self, _: str) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def save(self, path: str, data: bytes, flags: int = os.O_TRUNC) -> None:
        with open(os.open(self._root / path, os.O_WRONLY | os.O_CREAT | flags), "wb") as file:
            file.write(data)

    def append(self, path: str, data: bytes) -> None:
        with open(self._root / path, "ab") as file:
            file.write(data)

    def patch(self, path: str, offset: int, data: bytes) -> None:
        with open(self._root / path, "r+b") as file:
            file.seek(offset)
            file.write(data)

    def truncate(self, path: str, size: int) -> None:
        os.truncate(self._root / path, size)

    def unlink(self, path: str) -> None:
        os.unlink(self._root / path)

    def rename(self, path: str, to: str) -> None:
        os.rename(self._root / path, self._root / to)

    def mkdir(self, path: str) -> None:
        os.mkdir(self._root / path)

    def rmdir(self, path: str) -> None:
        os.rmdir(self._root / path)

    def cat(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def ls(self, path: str = "") -> list[str]:
        return sorted(os.listdir(self._root / path))

    def all(self) -> dict[str, bytes]:
        return {
            str(each.relative_to(self._root)): each.read_bytes() for each in self._root.rglob("*") if each.is_file()
        }


class Prefixed:
    """A program whose paths begin below the mount's root."""

    def __init__(self, program: Program, prefix: str) -> None:
        self._program = program
        self._prefix = prefix

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._program, name)

        async def called(path: str = "", *rest: Any) -> Any:
            paths = [self._at(each) if name == "rename" else each for each in rest]
            return await method(self._at(path), *paths)

        return called

    def _at(self, path: str) -> str:
        return f"{self._prefix}/{path}".rstrip("/")


async def outcome(call: Callable[..., Any], *arguments: Any) -> tuple[str, Any]:
    try:
        answer = call(*arguments)
        return "answer", answer if answer is None or isinstance(answer, bytes | list) else await answer
    except BbfsError as error:
        return "errno", errno.errorcode[error.errno]
    except OSError as error:
        return "errno", errno.errorcode[error.errno or 0]


def step(random_: random.Random) -> tuple[Any, ...]:
    def path() -> str:
        return "/".join(filter(None, (random_.choice(DIRECTORIES), random_.choice(NAMES))))

    data = random_.randbytes(random_.choice((0, 1, 10, 5000)))
    kind = random_.choices(
        ("save", "append", "patch", "truncate", "unlink", "rename", "mkdir", "rmdir", "cat", "ls", "create", *OPENED),
        (6, 3, 3, 2, 3, 5, 2, 2, 6, 3, 2, 2, 3, 1),
    )[0]
    if kind in ("save", "append"):
        return kind, path(), data
    if kind == "create":
        return "save", path(), data, os.O_EXCL
    if kind in ("patch", "poke"):
        return kind, path(), random_.randrange(6000), data
    if kind == "truncate":
        return kind, path(), random_.choice((0, 3, 6000))
    if kind == "rename":
        return kind, path(), path()
    if kind in ("mkdir", "rmdir"):
        return kind, random_.choice(DIRECTORIES[1:])
    return (kind, random_.choice(DIRECTORIES)) if kind == "ls" else (kind, path())


def tree(stack: ExitStack) -> tuple[Handler, str]:
    return WritableTree(), "bb-scripted+tree+file"


def flat(stack: ExitStack) -> tuple[Handler, str]:
    source = WritableFlat()
    source.contents = {"test://keep": b""}
    return source, "mcp-server+docs/test"


def memory(stack: ExitStack) -> tuple[Handler, str]:
    config = {"resources": {"keep": ""}}
    return MemoryHandler(replace(writable("bb-memory+pad+memory"), config=config), Services()), "bb-memory+pad+memory"


def s3(stack: ExitStack) -> tuple[Handler, str]:
    server = S3Server()
    stack.enter_context(closing(server))
    server.make_bucket("data")
    server.put("data", "keep", b"")
    config = {"url": "s3://data/", "options": {"endpoint": server.url}}
    source = replace(writable("bb-storage+data+s3"), config=config, auth={"accessKey": KEY, "secretKey": SECRET})
    return StorageHandler(source, Services()), "bb-storage+data+s3/data"


MAKERS = {"tree": tree, "flat": flat, "memory": memory, "s3": s3}


@pytest.mark.semantics("S33")
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.timeout(7200)
async def test_a_source_is_written_as_a_directory_is(kind: str, tmp_path: Path) -> None:
    make, operations = MAKERS[kind], OPERATIONS // 10 if kind == "s3" else OPERATIONS
    random_, done = random.Random(SEED), []
    plain = Plain(tmp_path)
    with ExitStack() as stack:
        source, prefix = make(stack)
        if kind != "tree":
            plain.save("keep", b"")
        async with trio.open_nursery() as nursery, World(nursery, source, memory=MEMORY) as world:
            program = Prefixed(Program(world), prefix)
            for number in range(operations):
                name, *arguments = step(random_)
                expected = await outcome(getattr(plain, name), *arguments)
                found = await outcome(getattr(program, name), *arguments)
                done.append((name, *arguments, expected[1]))
                assert found == expected, (number, [(*each,) for each in done[-12:]])
                if random_.random() < 0.02:
                    world.clock.advance(random_.choice((1, 20, 4000)))
            assert await outcome(program.let) == ("answer", None)
            for relative, data in plain.all().items():
                assert await program.cat(relative) == data
            if isinstance(source, CanClose):
                await source.aclose()
            nursery.cancel_scope.cancel()
