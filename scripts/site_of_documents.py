"""Make a site of the documents, or check one: scripts/site_of_documents.py stage|check DIRECTORY

`stage` writes what zensical builds: the pages, its configuration, and llms.txt (https://llmstxt.org). The documents
stay the plain files that they are; their links to files which are no pages lead to a copy. `check` follows every link
of a site that is built, to pages and anchors, and refuses whatever a browser would load from elsewhere.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
SECTIONS: Mapping[str, Sequence[str]] = {
    "Start": ("README.md", "docs/installing.md", "docs/tour.md", "docs/tools-tour.md"),
    "Guides": (
        "docs/writing.md",
        "docs/scratch.md",
        "docs/search.md",
        "docs/documents.md",
        "docs/serve.md",
        "docs/knowledge.md",
        "docs/operations.md",
        "systemd/README.md",
    ),
    "Sources": ("docs/sources.md", *(f"docs/sources/{name}.md" for name in (
        "filesystem", "mcp", "tools", "maps", "database", "storage", "url", "api", "notion", "vector_search", "memory",
        "own",
    ))),
    "Reference": ("docs/commands.md", "CHANGELOG.md"),
    "Promises": ("docs/semantics.md",),
    "Security": ("docs/security.md", "SECURITY.md"),
    "Benchmarks": (
        "docs/benchmarks.md",
        "docs/benchmarks/results.md",
        "docs/benchmarks/agents.md",
        "docs/benchmarks/maps.md",
        "docs/benchmarks/by-hand.md",
    ),
    "Project": ("docs/architecture.md", "CONTRIBUTING.md", "docs/pyfuse3.md"),
}  # fmt: skip
"""The pages of each section, as files of the repository. The first one is the first page of the site."""
FIRST = "README.md"
_STYLE = """\
.md-grid { max-width: 84rem; }
.md-typeset th code, .md-typeset td:first-child code { white-space: nowrap; }
.md-typeset thead:not(:has(th:not(:empty))) { display: none; }
"""
"""Room for the tables of options, whole names in them, and no head where a table has none."""
_LINK = re.compile(r"""(?<=\]\()[^)\s]+(?=\))|(?<=src=")[^"]+|(?<=srcset=")[^"]+""")
_FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_markdown = MarkdownIt("commonmark").enable("table")


def main() -> None:
    match sys.argv[1:]:
        case ["stage", directory]:
            stage(Path(directory))
        case ["check", directory]:
            problems = check(Path(directory))
            print("\n".join(problems) or "site: every link leads somewhere, and nothing is loaded from elsewhere")
            sys.exit(bool(problems))
        case _:
            sys.exit(__doc__)


def pages() -> list[str]:
    """Return the files of the repository that are pages."""
    return [page for section in SECTIONS.values() for page in section]


def address(file: str) -> str:
    """Return where a file of the repository is in the site, before its end becomes `.html`."""
    return "index.md" if file == FIRST else file.removeprefix("docs/")


def title(file: str) -> str:
    """Return the first heading of a page."""
    return next(line[2:].strip() for line in (ROOT / file).read_text().splitlines() if line.startswith("# "))


def stage(directory: Path) -> None:
    """Write all that zensical needs."""
    shutil.rmtree(directory, ignore_errors=True)
    docs = directory / "docs"
    for file in pages():
        text = (ROOT / file).read_text()
        for name, wanted in (
            (address(file), staged(text, file)),
            (address(file) + ".txt", linked(text, file, ".md.txt")),
        ):
            (docs / name).parent.mkdir(parents=True, exist_ok=True)
            (docs / name).write_text(wanted)
        for target in targets(text, file):
            if target not in pages() and (ROOT / target).is_file():
                (docs / address(target)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / target, docs / address(target))
    (docs / "llms.txt").write_text(llms())
    (docs / "extra.css").write_text(_STYLE)
    (directory / "mkdocs.yml").write_text(json.dumps(configuration(), indent=1))  # YAML has all of JSON


def configuration() -> dict[str, object]:
    """Return the configuration of zensical. Fonts are those of the reader's system, so none is loaded."""
    return {
        "site_name": "bbfs",
        "site_description": "MCP servers and other data sources as a file system",
        "use_directory_urls": False,
        "extra_css": ["extra.css"],
        "nav": [
            {section: [{title(file): address(file)} for file in files]} for section, files in SECTIONS.items()
        ],
        "theme": {
            "name": "material",
            "font": False,
            "features": ["navigation.tabs", "navigation.sections", "navigation.top", "content.code.copy"],
            "palette": [
                {"media": f"(prefers-color-scheme: {scheme})", "scheme": name, "toggle": {"icon": icon, "name": other}}
                for scheme, name, icon, other in (
                    ("light", "default", "lucide/sun", "Dark"),
                    ("dark", "slate", "lucide/moon", "Light"),
                )
            ],
        },
        "markdown_extensions": [
            "tables",
            "sane_lists",
            {"toc": {"permalink": True}},
            {"pymdownx.highlight": {"use_pygments": True}},
            "pymdownx.superfences",
        ],
    }  # fmt: skip


def targets(text: str, file: str) -> Iterator[str]:
    """Yield the files of the repository that the links of a page lead to."""
    for link in _LINK.findall(_FENCE.sub("", text)):
        if "://" not in link and not link.startswith("#"):
            yield os.path.normpath(Path(file).parent / link.partition("#")[0])


def linked(text: str, file: str, end: str) -> str:
    """Return the text of a page with the links of the site. end: what `.md` becomes in them."""

    def moved(found: re.Match[str]) -> str:
        link, hash_, anchor = found[0].partition("#")
        if "://" in link or not link:
            return found[0]
        target = os.path.normpath(Path(file).parent / link)
        there = os.path.relpath(address(target), Path(address(file)).parent)
        return (there.removesuffix(".md") + end if target in pages() else there) + hash_ + anchor

    return _LINK.sub(moved, text)


def staged(text: str, file: str) -> str:
    """Return a page as zensical reads it as GitHub does.

    zensical has another Markdown, in which lists nest by four spaces. So lists and tables are HTML here; what it needs
    to know (headings for its navigation, blocks of code) stays Markdown.
    """
    html = linked(text, file, ".html").splitlines()
    lines = linked(text, file, ".md").splitlines()
    tokens = _markdown.parse("\n".join(html))
    for index, token in reversed([*enumerate(tokens)]):
        if token.level == 0 and token.map and token.type in ("bullet_list_open", "ordered_list_open", "table_open"):
            end = next(at for at in range(index, len(tokens)) if tokens[at].level == 0 and tokens[at].nesting == -1)
            rendered = _markdown.renderer.render(tokens[index : end + 1], _markdown.options, {})
            lines[token.map[0] : token.map[1]] = ["", *rendered.splitlines(), ""]
    return "\n".join(lines) + "\n"


def llms() -> str:
    """Return llms.txt: the pages as plain Markdown, by section."""
    lines = [
        "# bbfs",
        "",
        "> MCP servers, databases, object stores, web sites, REST APIs and folders as a file system.",
        "",
    ]
    for section, files in SECTIONS.items():
        lines += [f"## {section}", "", *(f"- [{title(file)}]({address(file)}.txt)" for file in files), ""]
    return "\n".join(lines)


class _Page(HTMLParser):
    """What a page of HTML links to, loads, and can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(given.get("href", ""))
        else:
            self.loads += [given[name] for name in ("src", "srcset") if name in given]


def check(site: Path) -> list[str]:
    """Return what is wrong with a site: links that lead nowhere, and what a browser would load from elsewhere."""
    parsed = {path.resolve(): _Page(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}
    problems: list[str] = []
    for path, page in parsed.items():
        where = path.relative_to(site.resolve())
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                problems += [f"{where}: loads {link}"] if link in page.loads and parts.scheme != "data" else []
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchors = parsed[target].anchors if target in parsed else set()
            if not target.exists() or (parts.fragment and target in parsed and unquote(parts.fragment) not in anchors):
                problems.append(f"{where}: {link} leads nowhere")
    for path in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        problems += [
            f"{path.name}: loads {each}"
            for each in re.findall(r"url\([\"']?((?:https?:)?//[^)\"']+)", path.read_text())
        ]
    return problems


if __name__ == "__main__":
    main()
