"""Skills of MCP servers (SEP-2640): listed without a read, and every file checked against its manifest."""

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio
from trees_server import asked

from bbfs.model.errors import BbfsError, NotFound, ProtocolViolation
from bbfs.resources.manager import ResourceManager
from bbfs.sources.mcp.skills import MOST_BYTES, MOST_FILES, skill_entry

SOURCE = "mcp-server+t"
MANIFEST = "---\nname: pdf\ndescription: Fill documents\n---\n\nRead `references/FORMS.md`.\n"
FORMS = "# Forms\n"
Trees = Callable[..., AbstractAsyncContextManager[ResourceManager]]


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """A directory with the skill `pdf`."""
    root = tmp_path / "skills"
    (root / "pdf/references").mkdir(parents=True)
    (root / "pdf/SKILL.md").write_text(MANIFEST)
    (root / "pdf/references/FORMS.md").write_text(FORMS)
    return root


async def read(manager: ResourceManager, name: str) -> str:
    loaded = await manager.by_uri.load(f"{SOURCE}+skill://pdf/{name}")
    return (await loaded.parts[0].content.read_waiting(0, 1 << 20)).decode()


@pytest.mark.semantics("S45")
async def test_files_are_listed_by_their_manifest(trees: Trees, log: Path, skills: Path) -> None:
    async with trees("--skills", skills) as manager:
        found = await manager.tree.children((SOURCE, "skill", "pdf"))
        assert {name: node.kind for name, node in found.items()} == {"SKILL.md": "file", "references": "directory"}
        record = (await manager.tree.find((SOURCE, "skill", "pdf", "references", "FORMS.md"))).record
        assert record is not None
        digest = f"sha256:{hashlib.sha256(FORMS.encode()).hexdigest()}"
        assert (record.metadata.size, record.metadata.properties) == (len(FORMS), {"digest": digest})
        manifest = found["SKILL.md"].record
        assert manifest is not None
        assert (manifest.metadata.description, manifest.metadata.mime_type) == ("Fill documents", "text/markdown")
        assert asked(log, "resources/read") == []
        assert (await read(manager, "SKILL.md"), await read(manager, "references/FORMS.md")) == (MANIFEST, FORMS)
        assert asked(log, "resources/read") == ["skill://pdf/SKILL.md", "skill://pdf/references/FORMS.md"]
        assert "skill://pdf" not in asked(log, "resources/directory/read")  # the manifest has all files


@pytest.mark.semantics("S45.1")
async def test_what_differs_from_the_manifest_is_an_error(trees: Trees, skills: Path) -> None:
    async with trees("--skills", skills) as manager:
        await manager.tree.children((SOURCE, "skill", "pdf"))
        for name, content, problem in (
            ("references/FORMS.md", "# Farms\n", "the digest is"),
            ("references/NEW.md", "new", "has no such file"),
            ("SKILL.md", MANIFEST.replace("Fill", "Send"), "the digest is"),
            ("references/FORMS.md", "# Forms\n\n", "9 bytes, and the manifest of the skill says 8"),
        ):
            (skills / "pdf" / name).write_text(content)
            manager.refresh((SOURCE,))
            with pytest.raises(ProtocolViolation, match=problem):
                await read(manager, name)
        (skills / "pdf/SKILL.md").write_text(MANIFEST)
        manager.refresh((SOURCE,))
        assert await read(manager, "SKILL.md") == MANIFEST


async def test_a_skill_that_has_changed_is_asked_for_again(trees: Trees, log: Path, skills: Path) -> None:
    async with trees("--skills", skills, "--current") as manager:
        await manager.tree.children((SOURCE, "skill", "pdf"))
        for name, content in (("references/FORMS.md", "other"), ("references/NEW.md", "new")):
            (skills / "pdf" / name).write_text(content)
            assert await read(manager, name) == content
        assert asked(log, "skills/get") == ["skill://pdf/SKILL.md"] * 2


async def test_another_frontmatter_than_the_listed_one_is_an_error(trees: Trees, skills: Path) -> None:
    async with trees("--skills", skills, "--frontmatter", json.dumps({"allowed-tools": "Bash"})) as manager:
        with pytest.raises(ProtocolViolation, match="the frontmatter differs"):
            await read(manager, "SKILL.md")
        assert await read(manager, "references/FORMS.md") == FORMS


async def test_a_skill_without_a_manifest_is_read_by_its_directories(trees: Trees, log: Path, skills: Path) -> None:
    async with trees("--skills", skills, "--dynamic") as manager:
        found = await manager.tree.children((SOURCE, "skill", "pdf"))
        assert sorted(found) == ["SKILL.md", "references"]
        (skills / "pdf/references/FORMS.md").write_text("made now")
        assert await read(manager, "references/FORMS.md") == "made now"
        (skills / "pdf/SKILL.md").write_text(MANIFEST.replace("Fill", "Send"))
        with pytest.raises(ProtocolViolation, match="the frontmatter differs"):
            await read(manager, "SKILL.md")
        assert asked(log, "resources/directory/read") == ["skill://pdf"]


async def test_the_manifests_are_asked_for_before_the_first_read(trees: Trees, log: Path, skills: Path) -> None:
    """Also where the listing is that of an earlier mount, which has no manifests."""
    async with trees("--skills", skills, "--frontmatter", '{"hooks": "x"}') as manager:
        with pytest.raises(BbfsError, match="the frontmatter differs"):
            await read(manager, "SKILL.md")
        with pytest.raises(NotFound):
            await manager.by_uri.load(f"{SOURCE}+skill://none/SKILL.md")
        assert asked(log, "skills/list") == ["-"]


async def test_reads_that_come_at_once_share_a_listing_of_manifests(trees: Trees, log: Path, skills: Path) -> None:
    async with trees("--skills", skills) as manager, trio.open_nursery() as nursery:
        for name in ("SKILL.md", "references/FORMS.md"):
            nursery.start_soon(read, manager, name)
    assert asked(log, "skills/list") == ["-"]


def entry(**changes: Any) -> Any:
    file = {"uri": "skill://a/pdf/SKILL.md", "digest": "sha256:" + "0" * 64, "size": 3}
    whole = {"uri": file["uri"], "frontmatter": {"name": "pdf", "description": "x"}, "resources": [file]}
    return {**whole, **changes}


def file(uri: str = "skill://a/pdf/SKILL.md", digest: Any = "sha256:" + "0" * 64, size: Any = 3) -> dict[str, Any]:
    return {"uri": uri, "digest": digest, "size": size}


def test_an_entry() -> None:
    other = file("skill://a/pdf/scripts/x.py", size=0)
    skill = skill_entry(entry(resources=[file(), other]))
    assert skill is not None
    assert skill.files is not None
    assert (skill.root, sorted(skill.files)) == ("skill://a/pdf", [file()["uri"], other["uri"]])
    assert skill_entry(skill.as_json()) == skill
    dynamic = skill_entry(entry(resources="dynamic"))
    assert dynamic is not None
    assert dynamic.files is None


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        {},
        entry(uri=7),
        entry(uri="skill://a/pdf/README.md"),
        entry(uri="skill://a/doc/SKILL.md"),
        entry(frontmatter=None),
        entry(frontmatter={"name": "pdf"}),
        entry(frontmatter={"name": "pdf", "description": 7}),
        entry(frontmatter={"name": "pdf", "description": "x" * (1 << 20)}),
        entry(resources=None),
        entry(resources="static"),
        entry(resources=[]),
        entry(resources=[file("skill://a/pdf/x")]),
        entry(resources=[file(), file()]),
        entry(resources=[file(), file("skill://a/other/x")]),
        entry(resources=[file(), file("skill://a/pdf/")]),
        entry(resources=[file(digest="sha256:" + "A" * 64)]),
        entry(resources=[file(digest=None)]),
        entry(resources=[file(size=-1)]),
        entry(resources=[file(size=True)]),
        entry(resources=[file(size="3")]),
        entry(resources=[file(size=MOST_BYTES + 1)]),
        entry(resources=[file(), "x"]),
        entry(resources=[file(), *(file(f"skill://a/pdf/{number}") for number in range(MOST_FILES))]),
    ],
)
def test_an_entry_that_no_host_may_load(raw: Any) -> None:
    assert skill_entry(raw) is None
