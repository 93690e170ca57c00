"""`resources/directory/read` and the skills of `bbfs serve` (SEP-2640), as clients on the SDK have them."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import trio
from harness import folder, mcp
from mcp import Client
from mcp.shared.exceptions import MCPError
from served import BOUND, FILES
from trees_server import server_of_trees

from bbfs.knowledge.database.store import Store
from bbfs.knowledge.server.catalogue import PAGE_SIZE
from bbfs.knowledge.server.service import KnowledgeServer
from bbfs.server.listing.directories import PAGE
from bbfs.server_parts.skills import (
    DIRECTORY,
    GET_SKILL,
    LIST_SKILLS,
    READ_DIRECTORY,
    SKILLS,
    DirectoryParams,
    DirectoryResult,
    SkillParams,
    SkillResult,
    SkillsResult,
)

Service = Callable[..., Any]
Listed = list[types.Resource]


async def page(client: Client, uri: str, cursor: str | None = None) -> DirectoryResult:
    request = types.Request[DirectoryParams, str](method=READ_DIRECTORY, params=DirectoryParams(uri=uri, cursor=cursor))
    return await client.session.send_request(request, DirectoryResult)


async def children(client: Client, uri: str) -> Listed:
    """All pages of a directory."""
    found: Listed = []
    cursor: str | None = None
    while True:
        result = await page(client, uri, cursor)
        found += result.resources
        cursor = result.next_cursor
        if cursor is None:
            return found


async def files_below(client: Client, uri: str) -> set[str]:
    found: set[str] = set()
    for child in await children(client, uri):
        found |= await files_below(client, child.uri) if child.mime_type == DIRECTORY else {child.uri}
    return found


async def roots(client: Client) -> list[str]:
    listed = (await client.list_resources()).resources
    return [each.uri for each in listed if each.mime_type == DIRECTORY]


async def test_every_level_of_every_source(service: Service, local: Path, tmp_path: Path) -> None:
    with trio.fail_after(BOUND):
        tables = folder("local", local), mcp("t", server_of_trees(tmp_path))
        async with service(*tables) as served, Client(served) as client:
            assert client.session.server_capabilities is not None
            assert client.session.server_capabilities.extensions == {SKILLS: {"directoryRead": True}}
            found = await roots(client)
            assert found == ["bb-filesystem+local+file:.", "mcp-server+t+other:.", "mcp-server+t+tree:."]
            assert await files_below(client, found[0]) == {f"bb-filesystem+local+file:./{name}" for name in FILES}
            below = set[str]().union(*[await files_below(client, uri) for uri in found])
            numbers = ("00", "01", "02")
            tree = {f"mcp-server+t+tree://root/{a}/{b}/{c}" for a in numbers for b in numbers for c in numbers}
            assert {uri for uri in below if uri.startswith("mcp-")} == {*tree, "mcp-server+t+other://x"}
            source = await children(client, "bb-filesystem+local+file:./src")
            assert [(each.name, each.size) for each in source] == [("config.ts", len(FILES["src/config.ts"]))]


async def test_clients_of_the_handshake_era_see_no_directories(service: Service, local: Path) -> None:
    async with service(folder("local", local)) as served, Client(served, mode="legacy") as client:
        assert await roots(client) == []


async def test_pages_of_a_directory(service: Service, local: Path) -> None:
    for number in range(1100):
        (local / f"src/{number:04}.txt").write_text("x")
    uri, names = "bb-filesystem+local+file:./src", [*(f"{number:04}.txt" for number in range(1100)), "config.ts"]
    table = {**folder("local", local), "ttl": 0}
    async with service(table) as served, Client(served) as client:
        assert [each.name for each in await children(client, uri)] == names
        first = await page(client, uri)
        assert first.next_cursor is not None
        (local / "src/0000.txt").unlink()
        (local / "src/0.txt").write_text("before what was seen")
        (local / "src/0700a.txt").write_text("behind it")
        rest, cursor = list[str](), first.next_cursor
        while cursor is not None:
            found = await page(client, uri, cursor)
            rest, cursor = rest + [each.name for each in found.resources], found.next_cursor
        assert rest == [*names[PAGE:701], "0700a.txt", *names[701:]]
        for wrong in ("nonsense", first.next_cursor + "x"):
            with pytest.raises(MCPError) as caught:
                await page(client, uri, wrong)
            assert caught.value.code == types.INVALID_PARAMS
        with pytest.raises(MCPError):
            await page(client, "bb-filesystem+local+file:./tests", first.next_cursor)


async def test_what_is_no_directory(service: Service, local: Path) -> None:
    files = ("package.json", "none", "package.json/none")
    wrong = [*(f"bb-filesystem+local+file:./{name}" for name in files), "bb-filesystem+none+file:.", "file:.", ""]
    async with service(folder("local", local)) as served:
        for mode in ("legacy", "auto"):
            async with Client(served, mode=mode) as client:
                for uri in wrong:
                    with pytest.raises(MCPError) as caught:
                        await page(client, uri)
                    assert caught.value.code == types.INVALID_PARAMS, uri


async def test_no_other_directory_is_listed(service: Service, tmp_path: Path) -> None:
    """Also of a server behind that reads directories itself."""
    server = server_of_trees(tmp_path, "--width", "100")
    async with service(mcp("t", server)) as served, Client(served) as client:
        found = await children(client, "mcp-server+t+tree://root/07")
        assert [each.uri for each in found][:2] == ["mcp-server+t+tree://root/07/00", "mcp-server+t+tree://root/07/01"]
        assert len(found) == 100
        lines = (tmp_path / "log").read_text().splitlines()
        asked = [line.split()[1] for line in lines if line.startswith(READ_DIRECTORY)]
        assert asked == ["tree://root", "tree://root/07"]


async def skills(client: Client) -> dict[str, dict[str, Any]]:
    """The entries of all skills by URI."""
    listing = types.Request[types.PaginatedRequestParams, str](
        method=LIST_SKILLS, params=types.PaginatedRequestParams()
    )
    return {each["uri"]: each for each in (await client.session.send_request(listing, SkillsResult)).skills}


async def skill(client: Client, uri: str) -> dict[str, Any]:
    request = types.Request[SkillParams, str](method=GET_SKILL, params=SkillParams(uri=uri))
    return (await client.session.send_request(request, SkillResult)).skill


def write_skill(
    root: Path, name: str, *, head: str = "name: {name}\ndescription: How to do it", **files: bytes
) -> Path:
    (root / name).mkdir(parents=True)
    (root / name / "SKILL.md").write_text(f"---\n{head.format(name=name)}\n---\n\nSay hello.\n")
    for file, content in files.items():
        (root / name / file).write_bytes(content)
    return root / name


async def test_skills_are_passed_on(service: Service, tmp_path: Path, local: Path) -> None:
    write_skill(tmp_path / "skills", "pdf", extra=b"print()\n")
    server = server_of_trees(tmp_path, "--skills", tmp_path / "skills")
    async with service(mcp("t", server), folder("local", local)) as served, Client(served) as client:
        (entry,) = (await skills(client)).values()
        uri = "skill://t/pdf/SKILL.md"
        assert (entry["uri"], entry["frontmatter"]) == (uri, {"name": "pdf", "description": "How to do it"})
        assert [each["uri"] for each in entry["resources"]] == [uri, "skill://t/pdf/extra"]
        assert await files_below(client, "skill://t/pdf") == {each["uri"] for each in entry["resources"]}
        for same in (uri, "mcp-server+t+skill://pdf/SKILL.md"):
            (text,) = (await client.read_resource(same)).contents
            assert isinstance(text, types.TextResourceContents)
            assert text.uri == same
            assert await skill(client, same) == entry
        for wrong in (
            "mcp-server+t+skill://none/SKILL.md",
            "bb-filesystem+local+file:./SKILL.md",
            "skill://local/SKILL.md",
            "skill://local/../SKILL.md",
            "skill://x/SKILL.md",
            "skill://t",
        ):
            with pytest.raises(MCPError) as caught:
                await skill(client, wrong)
            assert caught.value.code == types.INVALID_PARAMS


@pytest.mark.semantics("S45.2")
async def test_a_folder_has_skills(service: Service, local: Path) -> None:
    there = write_skill(local / "a b/.agents", "note-taking", extra=b"\xff")
    (there / "words").mkdir()
    (there / "words/ü.md").write_text("Hello\n")
    (there / "link").symlink_to("../../../package.json")
    ttl = {"listing": 0, "content": 0}
    async with service(folder("local", local, ttl=ttl)) as served, Client(served) as client:
        (entry,) = (await skills(client)).values()
        root = "skill://local/a%20b/.agents/note-taking"
        assert entry["uri"] == f"{root}/SKILL.md"
        assert entry["frontmatter"] == {"name": "note-taking", "description": "How to do it"}
        files = {each["uri"].removeprefix(root): (each["digest"], each["size"]) for each in entry["resources"]}
        contents = {"/SKILL.md": (there / "SKILL.md").read_bytes(), "/extra": b"\xff", "/words/%C3%BC.md": b"Hello\n"}
        digests = {name: f"sha256:{sha256(data).hexdigest()}" for name, data in contents.items()}
        assert files == {name: (digests[name], len(data)) for name, data in contents.items()}
        assert await files_below(client, root) == {each["uri"] for each in entry["resources"]}
        (text,) = (await client.read_resource(f"{root}/words/%C3%BC.md")).contents
        assert isinstance(text, types.TextResourceContents)
        assert text.text == "Hello\n"
        (there / "extra").write_bytes(b"other")
        assert (await skill(client, entry["uri"]))["resources"][1]["digest"] == f"sha256:{sha256(b'other').hexdigest()}"


@pytest.mark.semantics("S45.2")
async def test_what_is_no_skill_is_files(service: Service, local: Path) -> None:
    for name, head in {
        "nameless": "description: x",
        "other": "name: another\ndescription: x",
        "silent": "name: silent",
        "Big": "name: Big\ndescription: x",
        "broken": "name: [",
        "deep": "name: deep\ndescription: " + "[" * 5000,
        "bomb": "a: &a [x, x]\nb: &b [*a, *a]\n" + "".join(f"c{n}: &c{n} [*b, *b]\n" for n in range(9)) + "name: 1",
        "list": "- x",
    }.items():
        write_skill(local, name, head=head)
    with (write_skill(local, "large") / "x").open("wb") as large:
        large.truncate((16 << 20) + 1)
    many = write_skill(local, "many")
    for number in range(512):
        (many / f"{number}").touch()
    (local / "linked").symlink_to(write_skill(local, "whole"))
    (local / "whole/inner").mkdir()
    write_skill(local / "whole", "inner-skill")
    async with service(folder("local", local)) as served, Client(served) as client:
        assert set(await skills(client)) == {"skill://local/whole/SKILL.md"}


async def test_a_knowledge_base_reads_directories(knowledge: Store) -> None:
    for number in range(2 * PAGE_SIZE + 1):
        knowledge.put("many", f"d{number}", b"x")
        knowledge.put(f"c/{number}", "x", b"x")
    with trio.fail_after(BOUND):
        async with Client(KnowledgeServer(knowledge, ttl=0, interval=60)) as client:
            listed: set[str] = set()
            cursor: str | None = None
            while True:
                found = await client.list_resources(cursor=cursor)
                listed |= {each.uri for each in found.resources}
                cursor = found.next_cursor
                if cursor is None:
                    break
            below = [await files_below(client, uri) for uri in ("resource://knowledge", "resource://system")]
            assert set[str]().union(*below) == listed
            for wrong in ("resource://knowledge/none", "resource://knowledge/many/document/d1", "resource:", "x"):
                with pytest.raises(MCPError) as caught:
                    await page(client, wrong)
                assert caught.value.code == types.INVALID_PARAMS
