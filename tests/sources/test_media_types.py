"""MIME types from names, and what is text."""

import pytest

from bbfs.sources.media_types import content_type_of, mime_type_of_name


@pytest.mark.parametrize(
    ("name", "mime_type", "content_type"),
    [
        ("a.txt", "text/plain", "text"),
        ("a.TXT", "text/plain", "text"),
        ("README.md", "text/markdown", "text"),
        ("config.ts", "text/x-typescript", "text"),
        ("a.json", "application/json", "text"),
        ("a.svg", "image/svg+xml", "text"),
        ("a.yaml", "application/yaml", "text"),
        ("a.png", "image/png", "binary"),
        ("a.tar.gz", "application/gzip", "binary"),
        ("a.txt.xz", "application/x-xz", "binary"),
        ("a.tgz", "application/gzip", "binary"),
        ("a.pdf", "application/pdf", "binary"),
        ("Makefile", None, "unknown"),
        (".bashrc", None, "unknown"),
        (".txt", None, "unknown"),
        ("a.", None, "unknown"),
        ("...", None, "unknown"),
        ("", None, "unknown"),
        ("data:text/html,", None, "unknown"),
        ("http://a.b/c.html?x", None, "unknown"),
        ("new\nline.\udcff", None, "unknown"),
    ],
)
def test_by_name(name: str, mime_type: str | None, content_type: str) -> None:
    assert mime_type_of_name(name) == mime_type
    assert content_type_of(mime_type) == content_type


@pytest.mark.parametrize(
    ("mime_type", "content_type"),
    [
        ("text/html; charset=utf-8", "text"),
        ("Application/JSON", "text"),
        ("application/problem+json", "text"),
        ("application/octet-stream", "binary"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_by_type(mime_type: str | None, content_type: str) -> None:
    assert content_type_of(mime_type) == content_type
