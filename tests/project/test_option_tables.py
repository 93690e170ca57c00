"""The tables of options in the documents are what the models of the options say (`make docs` writes them)."""

from collections import Counter

import option_tables
import pytest
from pydantic import BaseModel
from repository import DOCS

from bbfs.model.source_types import find, names

PAGES = sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_tables_of_a_page_are_what_the_code_says(page) -> None:
    text = page.read_text()
    assert option_tables.written(text) == text, "run make docs"


def test_every_table_stands_on_one_page() -> None:
    found = Counter(name for page in PAGES for name in option_tables.tables_in(page.read_text()))
    assert found == dict.fromkeys([*option_tables.MODELS, option_tables.SCHEMES_TABLE], 1)


def test_every_type_has_a_page_with_its_options_and_a_line_in_the_index() -> None:
    index = (DOCS / "sources.md").read_text()
    own = [name for name in names() if (found := find(name)) is not None and found.handler.startswith("bbfs.")]
    assert "filesystem" in own
    for name in own:
        assert f"| [`{name}`](sources/{name}.md) |" in index
        assert name in option_tables.tables_in((DOCS / f"sources/{name}.md").read_text())


class Undescribed(BaseModel):
    """A model whose field has no string below it."""

    size: int = 1


def test_an_option_without_a_meaning_is_noticed() -> None:
    with pytest.raises(KeyError, match="size"):
        option_tables.table("new", {"new": Undescribed})


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("filesystem", "| `root` | text | required | The folder."),
        ("filesystem", "| `max_memory` | bytes up to 1 GiB | 1 MiB | Largest file"),
        ("source", "| `timeout` | duration over 0 s | 30 s; `notion`: 2 m | Longest time"),
        ("source", "| `concurrency` | integer from 1 up to 64 | 16 | Requests"),
        ("source", "| `start` | `lazy` or `eager` | `lazy` | MCP:"),
        ("database", "| `search` | `scan` or array |  | Columns"),
        ("write", "| `tool` | text | required | The name of the tool"),
        ("cache", "| `shared_ttl` | duration over 0 s | 1 d | Longest time"),
        ("storage schemes", "| `webdav`, `webdavs` | `auth.password` | text |  | The password."),
    ],
)
def test_a_row_has_the_values_the_default_and_the_meaning(name: str, row: str) -> None:
    assert f"\n{row}" in option_tables.table(name)
