"""The command reference and the pages of the manual say what the commands say (`make docs` writes them)."""

import subprocess
from pathlib import Path

import option_tables
import pytest
import reference
import roff
from repository import DOCS

from bbfs.cli import COMMANDS
from bbfs.cli.mount_helper import FLAGS, VALUES


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with all that a package has below `share`."""
    directory = tmp_path_factory.mktemp("share")
    reference.write_share(directory)
    return directory


def shown(page: Path) -> str:
    """Return a page as man(1) shows it. Fail if man or groff says anything about it."""
    command = ["man", "--warnings", "--local-file", str(page)]
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "200", "MANROFFOPT": "-c"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_command_reference_is_what_the_commands_say() -> None:
    assert (DOCS / "commands.md").read_text() == reference.reference(), "run make docs"


def test_every_command_has_a_page() -> None:
    of_commands = {f"bbfs-{name}" for name in COMMANDS} - {"bbfs-unmount"}
    assert {name for name, _ in reference.pages()} == of_commands | {
        "bbfs",
        "bbfs-knowledge",
        "bbfs.toml",
        "mount.bbfs",
    }


def test_man_shows_every_page_without_a_warning(share: Path) -> None:
    pages = sorted(share.glob("man/man*/*"))
    assert len(pages) == len(reference.pages())
    for page in pages:
        assert "\nSEE ALSO\n" in shown(page).replace("\b", "")


def test_a_fault_in_a_page_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "broken.1"
    page.write_text(roff.manual("broken", 1, [roff.Paragraph("text")], version="0", date="") + ".no_such_request\n")
    with pytest.raises(AssertionError, match="no_such_request"):
        shown(page)


def test_a_page_has_what_the_help_of_its_command_has(share: Path) -> None:
    page = shown(share / "man/man1/bbfs-search.1")
    assert "bbfs-search - find resources in all sources" in page
    assert "-n, --limit INTEGER RANGE\n" in page
    assert "    bbfs search -l certificate | xargs -d '\\n' head -n 3\n" in page
    assert "bbfs cache clear [OPTIONS] [SOURCE]" in shown(share / "man/man1/bbfs-cache.1")


def test_the_page_of_the_configuration_has_every_option(share: Path) -> None:
    page = shown(share / "man/man5/bbfs.toml.5")
    assert set(reference.TABLES) == {*option_tables.MODELS, option_tables.SCHEMES_TABLE}
    for title in reference.TABLES.values():
        assert f"\n{title}\n" in page
    for model in option_tables.MODELS.values():
        assert not [key for key in model.model_fields if f"\n       {key}" not in page]
    assert "\n       options.region (s3)\n" in page


def test_the_page_of_the_mount_helper_has_its_options(share: Path) -> None:
    page = shown(share / "man/man8/mount.bbfs.8")
    for option in [*FLAGS, *(f"{name}=" for name in VALUES), "setuid=USER"]:
        assert f"\n       {option}" in page


@pytest.mark.parametrize(("shell", "check"), [("bash", ["bash", "-n"]), ("zsh", None), ("fish", None)])
def test_each_shell_has_a_file_that_asks_bbfs(shell: str, check: list[str] | None, share: Path) -> None:
    file = share / {"bash": "bash-completion/completions/bbfs", "zsh": "zsh/site-functions/_bbfs"}.get(
        shell, "fish/vendor_completions.d/bbfs.fish"
    )
    assert f"_BBFS_COMPLETE={shell}_complete" in file.read_text()
    if check is not None:
        assert subprocess.run([*check, file], timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("markdown", "written"),
    [
        ("`--a-b` and --c-d, well-known", r"\fB\-\-a\-b\fR and \-\-c-d, well-known"),
        ("**bold** [text `a`](b.md#c)", r"\fBbold\fR text \fBa\fR"),
        (roff.plain("*** is **no** bold, `` no code"), "*** is **no** bold, `` no code"),
        (r"a \n … é", r"a \en ... \[u00E9]"),
        (".config", r"\&.config"),
        ("'quoted'", r"\&'quoted'"),
    ],
)
def test_inline_text_becomes_roff(markdown: str, written: str) -> None:
    page = roff.manual("x", 1, [roff.Heading("H"), roff.Paragraph(markdown)], version="0", date="")
    assert page.splitlines()[-1] == written


def test_plain_text_stays_what_it_is_in_markdown() -> None:
    rows = [("-o [NAME.]KEY=A|B", roff.plain("the * of <x>"))]
    assert "| `-o [NAME.]KEY=A\\|B` | the \\* of \\<x> |" in roff.markdown([roff.Terms(rows)], depth=2)
