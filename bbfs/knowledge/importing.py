"""The files that an import takes."""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from bbfs.knowledge.database.store import SourceFile
from bbfs.knowledge.documents import MAX_DOCUMENT_BYTES, KnowledgeError


def source_files(paths: Sequence[Path]) -> list[SourceFile]:
    """Return the files to import, as `files_by_source` finds them."""
    return [source_file(source, file) for source, file in files_by_source(paths).items()]


def source_file(source: str, file: Path) -> SourceFile:
    return SourceFile(source, file.name, partial(_read, file))


def files_by_source(paths: Sequence[Path]) -> dict[str, Path]:
    """Return each file given, and of each folder all regular files below it, by its path below the folder, sorted.

    Names that begin with a dot and symbolic links are left out (a link could lead anywhere). Raises KnowledgeError when
    two files have the same path below their folders, or a name that is not UTF-8; OSError when a folder cannot be read.
    """
    found: dict[str, Path] = {}
    for path in paths:
        for source, file in _files(path):
            if source in found:
                raise KnowledgeError(
                    f"{found[source]} and {file} would be one document, {source!r}: import them into two collections"
                )
            found[source] = file
    return dict(sorted(found.items()))


def read_document(file: BinaryIO) -> bytes:
    """Return a content: all of it, or enough for the refusal of a larger one."""
    return file.read(MAX_DOCUMENT_BYTES + 1)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return read_document(file)


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    if not path.is_dir():
        yield _source(Path(path.name), path), path
        return
    for folder, subfolders, names in os.walk(path, onerror=_raise):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in names:
            file = Path(folder, name)
            if not name.startswith(".") and file.is_file() and not file.is_symlink():
                yield _source(file.relative_to(path), file), file


def _source(relative: Path, file: Path) -> str:
    source = relative.as_posix()
    try:
        source.encode()
    except UnicodeEncodeError:
        raise KnowledgeError(f"{os.fsencode(file)!r}: the name is not UTF-8") from None
    return source


def _raise(error: OSError) -> None:
    raise error
