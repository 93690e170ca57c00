"""The files that every place of a comparison holds: the same names and bytes on tmpfs, on disk and behind a server."""

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Shape:
    """A tree of `directories` directories with `files` files each, of `size` bytes a file.

    seed: files of different seeds differ in every line, so that no cache can take one for the other.
    """

    directories: int
    files: int
    size: int = 4096
    seed: str = ""

    @property
    def count(self) -> int:
        return self.directories * self.files

    def names(self) -> list[str]:
        """The paths below the tree, in the order of a listing."""
        return [f"d{number // self.files:03}/f{number % self.files:06}.txt" for number in range(self.count)]

    def content(self, name: str) -> str:
        """Lines of hexadecimal digits, `size` bytes in all."""
        line = hashlib.sha256(f"{self.seed}/{name}".encode()).hexdigest() + "\n"
        return (line * (self.size // len(line) + 1))[: self.size]

    def write(self, root: Path) -> None:
        for name in self.names():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.content(name))


def write_list(path: Path, names: list[str]) -> Path:
    """Names as `xargs -0 -a PATH` takes them."""
    path.write_bytes(b"".join(name.encode() + b"\0" for name in names))
    return path
