"""Mail (RFC 5322 with MIME) and mailboxes (mbox, RFC 4155): who wrote what to whom, and what is attached."""

import email
import re
from base64 import b64decode
from collections.abc import Iterator
from email._policybase import Compat32
from email.errors import MessageError
from email.header import decode_header
from email.message import Message

from bbfs.model.errors import TooLarge
from bbfs.sources.documents import html_markdown
from bbfs.sources.documents.decoding import decoded

MOST_PARTS = 1000
"""Parts of a message: each line of a message is compared with the boundaries of all parts around it."""
DEEPEST = 50
"""Parts inside each other; the mails of a mail that was forwarded again and again have some ten."""
MOST_MESSAGES = 50_000
"""Messages of a mailbox."""
LONGEST_PARAMETERS = 1 << 12
"""Characters of a header that describes a part: the parser of its parameters is quadratic."""
LONGEST_HEADER = 1 << 16
"""Characters of a header that is shown; a mail to many people has some thousands."""
_SHOWN = ("From", "To", "Cc", "Bcc", "Reply-To", "Date")
_PART = re.compile(rb"^content-type[ \t]*:", re.IGNORECASE | re.MULTILINE)
_BOUNDARY = re.compile(rb"boundary[*0-9]*[ \t]*=", re.IGNORECASE)
_BEGINNING = re.compile(rb"^From [^\r\n]*\r?\n", re.MULTILINE)
_QUOTED_FROM = re.compile(r"^>(>*From )", re.MULTILINE)


class _RawHeaders(Compat32):
    """Leaves headers as they are: those with bytes that are not ASCII would lose them."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[:LONGEST_PARAMETERS] if name.lower().startswith("content-") else value

    def header_fetch_parse(self, name: str, value: str) -> str:
        return value


_POLICY = _RawHeaders()


def read(document: bytes) -> Iterator[str]:
    """Yield a mail, or the mails of a mailbox, each below a heading with its subject."""
    if not document.startswith(b"From "):
        yield from _message(document)
        return
    beginning = _BEGINNING.match(document)
    at, count = beginning.end() if beginning else 0, 0
    while at < len(document):
        count += 1
        if count > MOST_MESSAGES:
            raise TooLarge(f"has more than {MOST_MESSAGES} messages")
        following = _following(document, at)
        yield from _message(document[at : following[0]], is_in_mailbox=True)
        at = following[1]


def _following(document: bytes, at: int) -> tuple[int, int]:
    """Return where the message that begins at `at` ends, and where the next one begins."""
    search = at
    while (found := _BEGINNING.search(document, search)) is not None:
        before = document[max(at, found.start() - 3) : found.start()]
        if before.endswith((b"\n\n", b"\n\r\n")):  # a line of a text may begin with "From ", too
            return found.start(), found.end()
        search = found.end()
    return len(document), len(document)


def _message(document: bytes, *, is_in_mailbox: bool = False) -> Iterator[str]:
    message = _parsed(document)
    attached: list[str] = []
    yield from _headers(message)
    for text in _texts(message, attached, 0):
        yield _QUOTED_FROM.sub(r"\1", text) if is_in_mailbox else text
    if attached:
        yield f"Attachments:\n\n{''.join(f'- {line}{chr(10)}' for line in attached)}\n"


def _parsed(document: bytes) -> Message:
    if max(len(_PART.findall(document)), len(_BOUNDARY.findall(document))) > MOST_PARTS:
        raise TooLarge(f"has more than {MOST_PARTS} parts")
    return email.message_from_bytes(document, policy=_POLICY)


def _headers(message: Message) -> Iterator[str]:
    yield f"# {_header(message, 'Subject') or '(no subject)'}\n\n"
    lines = [f"- {name}: {value}\n" for name in _SHOWN if (value := _header(message, name))]
    yield "".join(lines) + "\n"


def _header(message: Message, name: str) -> str:
    """Return the value of a header, or of all headers of this name, in one line."""
    values = [str(value)[:LONGEST_HEADER] for value in message.get_all(name, [])[:10]]
    return " ".join(map(decoded_words, values))


def decoded_words(value: str) -> str:
    """Return the value of a header in one line, with its encoded words (RFC 2047) as characters."""
    value = " ".join(value.split())
    end = value.rfind("?=") + 2 if "?=" in value else 0  # behind it, the parser looks for an end from each beginning
    try:
        pieces = [*decode_header(value[:end]), (value[end:], None)]
    except (ValueError, MessageError):  # base64 that is none
        return value
    words = [decoded(piece, charset) if isinstance(piece, bytes) else piece for piece, charset in pieces]
    # Bytes that are not ASCII come as halves of surrogate pairs.
    return " ".join(decoded("".join(words).encode("utf-8", "surrogateescape")).split())


def _texts(part: Message, attached: list[str], depth: int) -> Iterator[str]:
    """Yield the texts of a part and of those in it. attached: gets a line for each part that is shown by its name."""
    if depth > DEEPEST:
        raise TooLarge("nested too deeply")
    kind = part.get_content_type()
    if part.is_multipart():
        parts = [each for each in part.get_payload() if isinstance(each, Message)]
        if kind == "message/rfc822":
            for each in parts:
                inner = _uncoded(part, each)
                yield from _headers(inner)
                yield from _texts(inner, attached, depth + 1)
        elif kind == "message/delivery-status":
            yield from (f"{each.as_string().strip()}\n\n" for each in parts)
        elif kind == "multipart/alternative":
            yield from _texts_of_best(parts, attached, depth)
        else:
            for each in parts:
                yield from _texts(each, attached, depth + 1)
        return
    name, is_text = _filename(part), part.get_content_maintype() == "text"
    if name or part.get_content_disposition() == "attachment" or not is_text:
        attached.append(f"{name or '(no name)'} ({kind}, {_size(part)} bytes)")
    if is_text:
        yield _text(part, kind)


def _uncoded(part: Message, inner: Message) -> Message:
    """Return the mail in a part. Some programs write it in base64, which RFC 2046 (section 5.2.1) forbids."""
    if str(part.get("Content-Transfer-Encoding", "")).strip().lower() != "base64" or inner.is_multipart():
        return inner
    try:
        return _parsed(b64decode(_bytes(inner)))
    except ValueError:
        return inner


def _texts_of_best(parts: list[Message], attached: list[str], depth: int) -> Iterator[str]:
    """Yield the first alternative that has words: it is the plainest (RFC 2046, section 5.1.4)."""
    for number, part in enumerate(parts):
        own: list[str] = []
        texts = list(_texts(part, own, depth + 1))
        if any(text.strip() for text in texts) or number == len(parts) - 1:
            yield from texts
            attached += own
            return


def _text(part: Message, kind: str) -> str:
    data, charset = _bytes(part), part.get_content_charset()
    if kind == "text/html":
        page = decoded(data, charset).encode("utf-8", "replace")
        return html_markdown.job(page, {"charset": "utf-8"}).decode() + "\n"
    return decoded(data, charset).replace("\r\n", "\n").strip("\n") + "\n\n"


def _bytes(part: Message) -> bytes:
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _size(part: Message) -> int:
    return len(_bytes(part))


def _filename(part: Message) -> str:
    try:
        name = part.get_filename()
    except (LookupError, ValueError, TypeError):  # a name in an encoding that is none
        return ""
    return decoded_words(name) if name else ""
