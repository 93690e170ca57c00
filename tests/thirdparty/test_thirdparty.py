"""Servers of others on a mount: what they list and nothing else, byte for byte what a plain client reads."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import Mount, Mounts
from plain_client import Reference, read_everything
from programs import python, shell
from thirdparty_servers import serve

SERVERS = ("everything-stdio", "everything-http", "everything-sse", "memory", "aws-serverless")
FIRST_LOOK = "first"
COPIES = {
    "tar": 'tar -C "$1" -cf - . | tar -C "$2" -xf -',
    "cp": 'cp -a "$1/." "$2"',
    "rsync": 'rsync -a "$1/" "$2/"',
}
"""Each copies the directory $1 into the empty directory $2."""

# Looks at a file as programs do: its size before anything has read it, then its bytes, its size again, its attributes.
LOOK = """
import hashlib, json
found = {}
for directory, _, names in os.walk(sys.argv[1], onerror=sys.exit):
    for name in names:
        if name == ".about.md" and directory == sys.argv[1]:
            continue  # bbfs describes the source in it
        path = os.path.join(directory, name)
        size = os.stat(path).st_size
        with open(path, "rb") as file:
            data = file.read()
        found[os.path.relpath(path, sys.argv[1])] = {
            "size before": size,
            "size after": os.stat(path).st_size,
            "size read": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "uri": os.getxattr(path, "user.xdg.origin.url").decode(),
            "mime type": os.getxattr(path, "user.mime_type").decode(),
        }
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Served:
    """A mount of one server, and what a plain client reads from it, by path.

    The server is there once for every way of looking at it, so that each begins with nothing known.
    """

    mount: Mount
    references: dict[str, Reference]

    def root(self, look: str) -> Path:
        return self.mount / f"mcp-server+{look}"


@pytest.fixture(scope="module", params=SERVERS)
def served(
    thirdparty: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    with serve(request.param, tmp_path_factory.mktemp("server")) as address, closing(Mounts()) as mounts:
        references = read_everything(address)
        looks = (FIRST_LOOK, *COPIES) if request.param.startswith("everything") else (FIRST_LOOK,)
        yield Served(mounts(*map(address.source, looks)), references)


@pytest.fixture(scope="module")
def looked(served: Served) -> dict[str, Any]:
    """All files of the source that nobody touched before, by path."""
    return json.loads(python(LOOK, served.root(FIRST_LOOK), timeout=60).text)


def test_every_server_lists_something_and_all_of_it_is_readable(served: Served):
    assert served.references
    assert [reference.uri for reference in served.references.values() if reference.data is None] == []


@pytest.mark.semantics("S2", "S6")
def test_the_files_are_the_listed_resources(served: Served, looked: dict[str, Any]):
    assert {path: file["uri"] for path, file in looked.items()} == {
        path: reference.uri for path, reference in served.references.items()
    }


@pytest.mark.semantics("S14")
def test_the_bytes_are_those_that_a_plain_client_reads(served: Served, looked: dict[str, Any]):
    assert {path: file["sha256"] for path, file in looked.items()} == {
        path: hashlib.sha256(reference.data or b"").hexdigest() for path, reference in served.references.items()
    }


@pytest.mark.semantics("S9")
def test_sizes_are_exact_before_and_after_the_first_read(served: Served, looked: dict[str, Any]):
    for path, reference in served.references.items():
        sizes = {looked[path][key] for key in ("size before", "size after", "size read")}
        assert sizes == {len(reference.data or b"")}, path


@pytest.mark.semantics("S11")
def test_the_mime_type_is_the_servers_own(served: Served, looked: dict[str, Any]):
    assert {path: file["mime type"] for path, file in looked.items()} == {
        path: reference.mime_type for path, reference in served.references.items()
    }


@pytest.mark.semantics("S14")
@pytest.mark.parametrize("served", ["everything-stdio", "everything-http", "everything-sse"], indirect=True)
@pytest.mark.parametrize("tool", COPIES)
def test_a_copy_is_identical(served: Served, tool: str, tmp_path: Path):
    shell(COPIES[tool], served.root(tool), tmp_path, timeout=60)
    copied = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    del copied[".about.md"]
    assert copied == {path: reference.data for path, reference in served.references.items()}
