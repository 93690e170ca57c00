"""The texts of documents on a real mount (S38)."""

import errno
import os
import tarfile
from io import BytesIO
from pathlib import Path

import office_documents as made
import pytest
from harness import Mounts, folder
from made_pictures import png
from programs import run

BY_NAME, LISTED = "bb-filesystem+notes+file", "bb-filesystem+listed+file"


@pytest.mark.semantics("S38", "S9", "S14", "S23")
def test_programs_read_the_texts_of_documents(mounted: Mounts, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "report.pdf").write_bytes(made.pdf("Renew the certificate"))
    (root / "notes.docx").write_bytes(made.word("Certificates last ninety days"))
    (root / "slides.pptx").write_bytes(made.powerpoint("Plan", "renew in May"))
    (root / "costs.xlsx").write_bytes(made.excel("Costs", ("what", "sum"), ("certificate", 0)))
    (root / "book.epub").write_bytes(made.epub("<h1>Trust</h1><p>A chain of certificates</p>"))
    (root / "seal.png").write_bytes(png((b"tEXt", b"Title\0Certificate")))
    (root / "bomb.docx").write_bytes(made.word("a", more={"x": bytes(2 << 20)}))
    tables = {"documents": {"max_unpacked": "1MiB"}}
    mount = mounted(folder("notes", root), folder("listed", root, text="listed"), tables=tables)
    mount.expected += ["unpacks to more than"]
    here = mount / BY_NAME
    text = "## Page 1\n\nRenew the certificate\n"
    assert run("stat", "-c", "%s", here / "report.pdf.md").text == f"{len(text)}\n"
    assert run("cat", here / "report.pdf.md").text == text
    assert "certificate | 0" in run("cat", here / "costs.xlsx.md").text
    assert "Certificate" in run("cat", here / "seal.png.md").text  # and is in no listing, as below
    names = ("book.epub.md", "notes.docx.md", "slides.pptx.md")
    assert run("grep", "-ciE", "certificates|may", *(here / name for name in names)).text.count(":1\n") == 3

    listed = ["bomb.docx", "book.epub", "costs.xlsx", "notes.docx", "report.pdf", "seal.png", "slides.pptx"]
    assert run("ls", here).text.split() == listed
    with tarfile.open(fileobj=BytesIO(run("tar", "-cC", here, ".").out)) as archive:
        assert sorted(archive.getnames()) == [".", *(f"./{name}" for name in listed)]
    found = run("grep", "-rliE", "--include=*.md", "certificate", mount / LISTED, status=2)  # the bomb has no text
    assert [Path(line).name for line in sorted(found.text.splitlines())] == [
        "book.epub.md",
        "costs.xlsx.md",
        "notes.docx.md",
        "report.pdf.md",
    ]
    assert os.strerror(errno.EFBIG).encode() in found.err
    assert "max_unpacked" in run("getfattr", "-n", "user.bbfs.error", mount / LISTED / "bomb.docx.md").text

    assert (
        run("getfattr", "--only-values", "-n", "user.xdg.origin.url", here / "report.pdf.md").text
        == "file:./report.pdf"
    )
    mount.bbfs("index", "notes", status=None)  # the bomb fails
    hits = mount.bbfs("search", "-l", "ninety days", here).text.splitlines()
    assert hits[0] == str(here / "notes.docx")
    replaced = tmp_path / "new.pdf"
    replaced.write_bytes(made.pdf("Revoke it at once"))
    replaced.rename(root / "report.pdf")
    run("sh", "-c", 'until grep -q Revoke "$0"; do :; done', here / "report.pdf.md", timeout=30)
    run("cat", here / "gone.pdf.md", status=1)
