"""The site of the documents (`make site`): its pages, their links, and the check of what is built."""

from pathlib import Path

import pytest
import site_of_documents as site
from repository import DOCS, ROOT


def built(directory: Path, body: str) -> list[str]:
    """Return what is wrong with a site of two pages, the first of which has this body."""
    (directory / "index.html").write_text(body)
    (directory / "other.html").write_text('<h2 id="part">Part</h2>')
    return site.check(directory)


def test_every_document_is_one_page() -> None:
    documents = {str(page.relative_to(ROOT)) for page in DOCS.rglob("*.md")}
    assert len(documents) > 20
    assert documents <= set(site.pages())
    assert len(site.pages()) == len({*site.pages()}) == len({site.address(page) for page in site.pages()})


def test_llms_txt_has_every_page_with_its_title() -> None:
    text = site.llms()
    assert "## Promises\n\n- [What you can rely on](semantics.md.txt)\n" in text
    assert text.count("](") == len(site.pages())


@pytest.mark.parametrize(
    ("file", "link", "moved"),
    [
        ("README.md", "docs/sources.md#references", "sources.html#references"),
        ("README.md", "systemd/README.md", "systemd/README.html"),
        ("docs/sources/own.md", "../architecture.md", "../architecture.html"),
        ("docs/operations.md", "../CHANGELOG.md", "CHANGELOG.html"),
        ("systemd/README.md", "../docs/operations.md#a", "../operations.html#a"),
        ("systemd/README.md", "bbfs@.service", "bbfs@.service"),
        ("docs/search.md", "#here", "#here"),
        ("docs/search.md", "https://example.com/a.md", "https://example.com/a.md"),
    ],
)
def test_a_link_of_a_document_leads_to_the_page(file: str, link: str, moved: str) -> None:
    assert site.linked(f"A [link]({link}).", file, ".html") == f"A [link]({moved})."


def test_a_picture_is_found_from_the_page() -> None:
    page = '<source srcset="docs/pictures/a.svg"><img src="docs/pictures/b.svg">'
    assert site.linked(page, "README.md", ".html") == page.replace("docs/", "")
    assert [*site.targets(page, "README.md")] == ["docs/pictures/a.svg", "docs/pictures/b.svg"]


def test_lists_nest_as_on_github_and_code_stays_markdown() -> None:
    text = "# A\n\n- **S1** one\n  more\n  - **S1.1** two, [x](tour.md)\n\n```sh\n- no list\n```\n"
    staged = site.staged(text, "docs/semantics.md")
    assert (
        '<li><strong>S1</strong> one\nmore\n<ul>\n<li><strong>S1.1</strong> two, <a href="tour.html">x</a></li>'
        in staged
    )
    assert staged.startswith("# A\n")
    assert "```sh\n- no list\n```" in staged


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ('<a href="other.html#part">x</a><a href="https://example.com">y</a><img src="data:,">', []),
        ('<a href="none.html">x</a>', ["index.html: none.html leads nowhere"]),
        ('<a href="other.html#none">x</a>', ["index.html: other.html#none leads nowhere"]),
        ('<a href="#none">x</a>', ["index.html: #none leads nowhere"]),
        ('<script src="https://example.com/x.js"></script>', ["index.html: loads https://example.com/x.js"]),
        ('<link rel="stylesheet" href="//example.com/x.css">', ["index.html: loads //example.com/x.css"]),
        ('<source srcset="none.svg">', ["index.html: none.svg leads nowhere"]),
        ('<img src="none.svg">', ["index.html: none.svg leads nowhere"]),
    ],
)
def test_the_check_notices(body: str, wrong: list[str], tmp_path: Path) -> None:
    assert built(tmp_path, body) == wrong


def test_the_check_notices_a_font_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text('@font-face { src: url("https://example.com/x.woff2") }')
    assert built(tmp_path, "") == ["a.css: loads https://example.com/x.woff2"]
