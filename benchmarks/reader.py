"""Reads files in ways that no usual program does, and prints the seconds that took, without what it takes to start.

reader.py whole FILE                 all of it, 1 MiB at a time
reader.py often FILE TIMES           all of it, opened as many times
reader.py mmap FILE COUNT            COUNT pieces of 4096 bytes at random aligned offsets, through mmap(2)
reader.py parallel LIST READERS      the files of LIST (NUL-separated), READERS threads, each with its own
reader.py each LIST FIRST SECONDS    the files of LIST from FIRST on, one after the other, for so long; prints each
reader.py again FILE                 all of it, again and again
reader.py evict FILE…                nothing: the kernel is told to forget the pages it has of the files
"""

import json
import mmap
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PIECE = 1 << 20


def whole(path: str) -> None:
    buffer = bytearray(PIECE)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def mapped(path: str, count: int) -> None:
    pages = random.Random(7)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
        last = len(memory) // 4096 - 1
        for _ in range(count):
            offset = pages.randint(0, last) * 4096
            memory[offset : offset + 4096]


def parallel(names: list[str], readers: int) -> None:
    def read(mine: list[str]) -> None:
        for name in mine:
            Path(name).read_bytes()

    with ThreadPoolExecutor(readers) as pool:
        list(pool.map(read, [names[number::readers] for number in range(readers)]))


def listed(path: str) -> list[str]:
    return [name.decode() for name in Path(path).read_bytes().split(b"\0") if name]


def each(names: list[str], seconds: float) -> list[float]:
    """The seconds that each file took."""
    took: list[float] = []
    enough = time.perf_counter() + seconds
    for name in names:
        before = time.perf_counter()
        if before > enough:
            break
        Path(name).read_bytes()
        took.append(time.perf_counter() - before)
    return took


def evict(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    what, *arguments = sys.argv[1:]
    started = time.perf_counter()
    match what:
        case "whole":
            whole(arguments[0])
        case "often":
            for _ in range(int(arguments[1])):
                whole(arguments[0])
        case "mmap":
            mapped(arguments[0], int(arguments[1]))
        case "parallel":
            parallel(listed(arguments[0]), int(arguments[1]))
        case "each":
            print(json.dumps({"each": each(listed(arguments[0])[int(arguments[1]) :], float(arguments[2]))}))
            return
        case "again":
            while True:
                whole(arguments[0])
        case "evict":
            for path in arguments:
                evict(path)
        case _:
            raise SystemExit(__doc__)
    print(json.dumps({"seconds": time.perf_counter() - started}))


if __name__ == "__main__":
    main()
