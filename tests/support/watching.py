"""A program that watches directories and files by inotify(7): `python watching.py PATH…`.

It prints `watching` once it does, and then a line for each event: the events, the path as it was given, and the name.
"""

import ctypes
import os
import struct
import sys

EVENTS = {
    0x2: "MODIFY", 0x4: "ATTRIB", 0x8: "CLOSE_WRITE", 0x40: "MOVED_FROM", 0x80: "MOVED_TO", 0x100: "CREATE",
    0x200: "DELETE", 0x400: "DELETE_SELF", 0x800: "MOVE_SELF", 0x2000: "UNMOUNT", 0x4000: "OVERFLOW",
}  # fmt: skip
DIRECTORY = 0x40000000
FORM = struct.Struct("iIII")


def main(paths: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    instance = libc.inotify_init1(os.O_CLOEXEC)
    watched: dict[int, str] = {}
    for path in paths:
        number = libc.inotify_add_watch(instance, os.fsencode(path), sum(EVENTS))
        if number < 0:
            raise OSError(ctypes.get_errno(), path)
        watched[number] = path
    print("watching", flush=True)
    while True:
        found = os.read(instance, 1 << 16)
        at = 0
        while at < len(found):
            number, bits, _, length = FORM.unpack_from(found, at)
            name = found[at + FORM.size : at + FORM.size + length].rstrip(b"\0").decode()
            at += FORM.size + length
            said = [word for bit, word in EVENTS.items() if bits & bit] + ["DIRECTORY"] * bool(bits & DIRECTORY)
            if len(said) > 0:
                print(",".join(said), watched[number], name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
