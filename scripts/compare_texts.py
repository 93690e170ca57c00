"""Compare the texts of documents with those of other programs: compare_texts.py DIRECTORY… (make texts FILES=…).

bbfs reads each file below the directories that it reads as text, and so does the program that `PROGRAMS` names for the
kind, if it is installed. The table says, for each kind, which part of the other program's words bbfs has, in the middle
and over all files, and which part of bbfs's words the other has. A word is two letters or more, without regard to case:
programs write numbers, dates and the letters of lists by rules of their own. `--files` prints each file, and
`--below PERCENT` the words that files below so many percent lack. `--most NUMBER` takes so many files of an extension.

Of a mail, these do not count: names of headers, the line of the date (msgconvert takes the date on which the file was
made if the mail has none), an address that msgconvert repeats as a name, an address inside Exchange (`/o=…`), which is
none for people, and the headers of a mail in the mail but the ones that are shown of the mail itself. Pages in mails
are read by pandoc: mshow shows their markup.
"""

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import trio

from bbfs.model.errors import BbfsError
from bbfs.model.values import ResourceMetadata
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.documents.converter import DocumentReader, kind_of

SECONDS = 60
"""For one file and one program."""
_WORD = re.compile(r"[^\W\d_]{2,}")
_MARK = re.compile(
    r"\[-- .{0,200}? --\]|\[image\]|\[pic\]|^--- .* ---$|^no filter or default handler$"
    r"|^(?:- )?Date: .*$|^(?:From|Subject|To|Cc|Reply-To):|</[oO]=[^>]*>|(?<=\b)(?P<twice>\S+@\S+) (?=<(?P=twice)>)",
    re.MULTILINE,
)
"""What the other programs say of their own: where a picture or a part is, and the names of headers."""
_HEADERS = "/: message.rfc822 /{inside=1} inside&&/^$/{inside=0} !inside||/^---|^(From|Subject|To|Cc|Reply-To):/"
_MAIL = f"""echo 'text/html: pandoc --quiet --wrap=none -f html -t plain' >filter; export MBLAZE=$PWD
%s | awk '{_HEADERS}'"""
_PANDOC = ("pandoc", "--quiet", "--wrap=none", "-t", "plain", "FILE")
_OFFICE = 'soffice -env:UserInstallation=file://$PWD/office --headless --convert-to pdf "$0" >/dev/null 2>&1'
_SUBTITLES = """tr -d '\\r' <"$0" | awk 'BEGIN{RS=""} /-->/' | sed -E '/-->/d; s/<[^>]*>|[{][^}]*[}]//g'"""
_PICTURE = (
    *(
        "exiftool",
        "-q",
        "-m",
        "-s3",
        "-sep",
        " ",
        "-XMP-dc:all",
        "-XMP-photoshop:all",
        "-XMP-iptcCore:all",
        "-IPTC:all",
    ),
    *("-PNG:Title", "-PNG:Author", "-PNG:Description", "-PNG:Comment", "-PNG:Copyright", "-PNG:Software"),
    *("-IFD0:ImageDescription", "-IFD0:Make", "-IFD0:Model", "-IFD0:Software", "-IFD0:Artist", "-IFD0:Copyright"),
    *("-ExifIFD:UserComment", "-ExifIFD:LensModel", "-File:Comment", "FILE"),
)
PROGRAMS: dict[str, tuple[str, ...]] = {
    "pdf": ("pdftotext", "-q", "FILE", "-"),
    **dict.fromkeys(("docx", "epub", "html", "ipynb", "odt", "rtf"), _PANDOC),
    **dict.fromkeys(("ods", "odp"), ("odt2txt", "--width=-1", "--encoding=UTF-8", "FILE")),
    "doc": ("antiword", "-w", "0", "-m", "UTF-8.txt", "FILE"),
    "xls": ("xls2csv", "-d", "utf-8", "FILE"),
    "xlsx": ("xlsx2csv", "-a", "FILE"),
    **dict.fromkeys(("ppt", "pptx"), ("sh", "-c", f"{_OFFICE} && pdftotext -q *.pdf -", "FILE")),
    "eml": ("sh", "-c", _MAIL % 'mshow -n "$0"', "FILE"),
    "mbox": ("sh", "-c", _MAIL % 'mmkdir m && mdeliver -M m <"$0" && mlist m | xargs -d "\\n" mshow -n', "FILE"),
    "msg": ("sh", "-c", _MAIL % 'msgconvert --outfile m "$0" && mshow -n ./m', "FILE"),
    **dict.fromkeys(("srt", "vtt"), ("sh", "-c", _SUBTITLES, "FILE")),
    **dict.fromkeys(("jpg", "jpeg", "png", "tif", "tiff", "webp", "gif", "heic"), _PICTURE),
}
"""The program that reads the files of an extension, and its arguments."""
ONCE = ("picture", "subtitles")
"""Kinds in which the same words often stand several times, and bbfs says them once: they count once."""


@dataclass(frozen=True)
class Compared:
    """One file. found: the part of the other's words that bbfs has. known: the part of bbfs's that the other has."""

    path: Path
    found: float
    known: float
    missing: Counter[str]
    problem: str | None = None


def shown_name(command: tuple[str, ...]) -> str:
    """Return the program that a command is about: a shell may start it."""
    return next((name for name in ("soffice", "msgconvert", "mshow", "awk") if name in command[-2]), command[0])


def words(text: str) -> Counter[str]:
    """Return how often each word is in a text."""
    return Counter(_WORD.findall(unicodedata.normalize("NFKC", _MARK.sub(" ", text)).casefold()))


def part(some: Counter[str], whole: Counter[str]) -> float:
    """Return the part of the words of `whole` that are in `some`, in percent."""
    return 100 * (whole & some).total() / whole.total() if whole else 100.0


def other_text(path: Path) -> str | None:
    """Return the text by the other program, or None where it fails or is not installed."""
    command = PROGRAMS.get(path.suffix[1:].lower(), ())
    if not command or shutil.which(command[0]) is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        arguments = [str(path) if each == "FILE" else each for each in command]
        try:
            ended = subprocess.run(arguments, capture_output=True, timeout=SECONDS, cwd=directory, check=False)
        except subprocess.TimeoutExpired:
            return None
    return None if ended.returncode and not ended.stdout else ended.stdout.decode("utf-8", "replace")


async def own_text(reader: DocumentReader, path: Path, kind: str) -> str:
    document = MemoryContent(await trio.Path(path).read_bytes())
    return (await reader.text(document, kind, owner="compared", what=path.name)).decode()


async def compare(paths: list[Path]) -> list[Compared]:
    reader = DocumentReader()
    compared: list[Compared] = []
    for path in paths:
        kind = kind_of(ResourceMetadata(path.as_uri(), path.as_uri(), path.name))
        said = None if kind is None else await trio.to_thread.run_sync(other_text, path)
        if kind is None or said is None or not (theirs := words(said)):
            continue
        try:
            ours = words(await own_text(reader, path, kind))
            if kind in ONCE:
                ours, theirs = Counter(set(ours)), Counter(set(theirs))
        except BbfsError as error:
            compared.append(Compared(path, 0.0, 100.0, theirs, str(error)))
            continue
        compared.append(Compared(path, part(ours, theirs), part(theirs, ours), theirs - ours))
    return compared


def some(paths: list[Path], most: int) -> list[Path]:
    """Return at most so many files of each extension, from the whole list; all of them for 0."""
    kinds: defaultdict[str, list[Path]] = defaultdict(list)
    for path in paths:
        if path.suffix[1:].lower() in PROGRAMS:
            kinds[path.suffix.lower()].append(path)
    steps = ((files, max(1.0, len(files) / most) if most else 1.0) for files in kinds.values())
    return [files[int(at * step)] for files, step in steps for at in range(int(len(files) / step))]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path, nargs="+")
    parser.add_argument("--most", type=int, default=0, help="files of an extension, spread over all; 0: all")
    parser.add_argument("--files", action="store_true", help="a line for each file, too")
    parser.add_argument("--below", type=float, default=0.0, help="print missing words of files below so many percent")
    options = parser.parse_args()
    kinds: defaultdict[str, list[Compared]] = defaultdict(list)
    paths = sorted(each for directory in options.directory for each in directory.rglob("*") if each.is_file())
    for each in trio.run(compare, some(paths, options.most)):
        kinds[each.path.suffix[1:].lower()].append(each)
        if options.files:
            print(f"{each.found:6.1f} {each.known:6.1f} {each.path.name} {each.problem or ''}")
        if each.found < options.below:
            print(f"  {each.path.name}: {dict(each.missing.most_common(15))}")
    print("| files | compared | with | refused | words, median | words, mean | >= 98 % | known to the other |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, files in sorted(kinds.items()):
        read = [each for each in files if each.problem is None] or files
        found = [each.found for each in read]
        most = sum(each >= 98 for each in found)
        known = statistics.median(each.known for each in read)
        middle, mean = statistics.median(found), statistics.mean(found)
        refused = sum(each.problem is not None for each in files)
        columns = (
            kind,
            len(files),
            shown_name(PROGRAMS[kind]),
            refused,
            f"{middle:.1f}",
            f"{mean:.1f}",
            most,
            f"{known:.1f}",
        )
        print("|", " | ".join(map(str, columns)), "|")
    return 0


if __name__ == "__main__":
    sys.exit(main())
