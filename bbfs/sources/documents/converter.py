"""Which resources are documents, and their texts by the worker processes."""

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec

from bbfs.model.errors import NotSupported, ProtocolViolation, TooLarge
from bbfs.model.values import Content, DocumentBounds, ResourceMetadata
from bbfs.runtime.extras import needs
from bbfs.sources.bounded.workers import WorkerPool

MEMORY = 384 << 20
"""Address space of a worker that reads documents (bytes): the tree of a page or of a sheet takes most of it."""
TEXT_SUFFIX = ".md"
"""Ends the name of the text of a document, after the document's own name."""
_EXTENSIONS: Mapping[str, str] = {
    "pdf": "pdf",
    "docx": "word",
    "pptx": "powerpoint",
    "xlsx": "excel",
    "epub": "epub",
    "html": "html",
    "htm": "html",
    "xhtml": "html",
    "odt": "opendocument",
    "ott": "opendocument",
    "fodt": "opendocument",
    "ods": "opendocument",
    "ots": "opendocument",
    "fods": "opendocument",
    "odp": "opendocument",
    "otp": "opendocument",
    "fodp": "opendocument",
    "ipynb": "notebook",
    "doc": "word 97",
    "xls": "excel 97",
    "ppt": "powerpoint 97",
    "pps": "powerpoint 97",
    "msg": "outlook",
    "rtf": "rich text",
    "eml": "mail",
    "mbox": "mail",
    **dict.fromkeys(("jpg", "jpeg", "png", "gif", "webp", "tif", "tiff", "heic", "heif", "avif"), "picture"),
    "srt": "subtitles",
    "vtt": "subtitles",
}
_OFFICE = "application/vnd.openxmlformats-officedocument."
_OPEN_DOCUMENT = "application/vnd.oasis.opendocument."
_MIME_TYPES: Mapping[str, str] = {
    "application/pdf": "pdf",
    f"{_OFFICE}wordprocessingml.document": "word",
    f"{_OFFICE}presentationml.presentation": "powerpoint",
    f"{_OFFICE}spreadsheetml.sheet": "excel",
    "application/epub+zip": "epub",
    "text/html": "html",
    "application/xhtml+xml": "html",
    f"{_OPEN_DOCUMENT}text": "opendocument",
    f"{_OPEN_DOCUMENT}spreadsheet": "opendocument",
    f"{_OPEN_DOCUMENT}presentation": "opendocument",
    "application/x-ipynb+json": "notebook",
    "application/msword": "word 97",
    "application/vnd.ms-excel": "excel 97",
    "application/vnd.ms-powerpoint": "powerpoint 97",
    "application/vnd.ms-outlook": "outlook",
    "application/rtf": "rich text",
    "text/rtf": "rich text",
    "message/rfc822": "mail",
    "application/mbox": "mail",
    **{f"image/{form}": "picture" for form in ("jpeg", "png", "gif", "webp", "tiff", "heic", "heif", "avif")},
    "application/x-subrip": "subtitles",
    "text/vtt": "subtitles",
}
_MODULES: Mapping[str, tuple[str, ...]] = {
    "pdf": ("pypdf",),
    "word": ("mammoth", "bs4", "markdownify"),
    "powerpoint": ("pptx",),
    "excel": ("openpyxl",),
    "epub": ("bs4", "markdownify"),
    "html": ("bs4", "markdownify"),
    "notebook": ("bs4", "markdownify"),
    "opendocument": (),
    "word 97": ("olefile",),
    "excel 97": ("olefile", "xlrd"),
    "powerpoint 97": ("olefile",),
    "outlook": ("olefile", "bs4", "markdownify"),
    "mail": ("bs4", "markdownify"),
    "picture": (),
    "rich text": (),
    "subtitles": (),
}
"""The modules of the extra that read each kind of document, in a worker process."""
PICTURE = "picture"
"""The kind whose texts are in no listing and in no index: a walk would load each picture for a few words."""
_INDEXED_BY_THEIR_BYTES = ("html", "subtitles", PICTURE)


def kind_of(metadata: ResourceMetadata) -> str | None:
    """Return the kind of document of a resource, by its MIME type or else its name, or None for another resource."""
    if metadata.kind != "resource" or metadata.on_open:
        return None
    mime_type = (metadata.mime_type or "").partition(";")[0].strip().lower()
    name = metadata.native_uri if "." not in metadata.name else metadata.name
    return _MIME_TYPES.get(mime_type) or _EXTENSIONS.get(name.rpartition(".")[2].lower())


def is_document_name(name: str) -> bool:
    """Return whether the extension of a name says that it is a document."""
    return name.rpartition(".")[2].lower() in _EXTENSIONS


@cache
def _is_installed(kind: str) -> bool:
    return all(map(find_spec, _MODULES[kind]))


class DocumentReader:
    """The conversion of documents to text, in a pool of worker processes of its own."""

    def __init__(self, bounds: DocumentBounds | None = None) -> None:
        self.bounds = DocumentBounds() if bounds is None else bounds
        self._workers = WorkerPool(memory=MEMORY)

    @staticmethod
    def kind_of_binary(metadata: ResourceMetadata) -> str | None:
        """Return the kind of a document whose bytes do not show its words, if it can be read as text, else None."""
        kind = kind_of(metadata)
        return kind if kind is not None and kind not in _INDEXED_BY_THEIR_BYTES and _is_installed(kind) else None

    async def text(self, content: Content, kind: str, *, owner: str, what: str) -> bytes:
        """Return the text of a document, as Markdown in UTF-8.

        kind: by `kind_of`. owner: the source, which has one conversion at a time. what: begins the texts of errors.
        Raise TooLarge, ProtocolViolation, NotSupported where the extra is not installed, and what a read raises.
        """
        bounds = self.bounds
        if not _is_installed(kind):
            raise NotSupported(f"{what}: its text {needs('documents')}")
        if content.size > bounds.max_size:
            raise TooLarge(f"{what}: more than {bounds.max_size} bytes are not read as text ([documents] max_size)")
        data = content.read(0, content.size)
        while data is None or len(data) < content.size:
            more = await content.read_waiting(len(data or b""), content.size - len(data or b""))
            if not more:
                raise ProtocolViolation(f"{what}: has fewer bytes than its size")
            data = (data or b"") + more
        return await self._workers.run(
            "document",
            data,
            {"kind": kind, "max_unpacked": bounds.max_unpacked, "max_text": bounds.max_text},
            owner=owner,
            what=what,
            seconds=bounds.seconds,
            max_result=bounds.max_text,
        )
