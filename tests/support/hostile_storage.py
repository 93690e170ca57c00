"""Answers of a hostile store: listings, archives and metadata larger, deeper or longer than real ones."""

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


def s3_page(inside: bytes) -> bytes:
    return b"<ListBucketResult>" + inside + b"</ListBucketResult>"


def s3_object(key: str, size: str = "1") -> bytes:
    return f"<Contents><Key>{key}</Key><Size>{size}</Size></Contents>".encode()


S3_PAGES: Mapping[str, Callable[[], bytes]] = {
    "a million elements": lambda: s3_page(b"<a/>" * 1_000_000),
    "a hundred thousand elements, one in another": lambda: b"<a>" * 100_000 + b"</a>" * 100_000,
    "a million attributes": lambda: s3_page(b"<a " + b"".join(b'a%d="" ' % n for n in range(400_000)) + b"/>"),
    "a name of a megabyte": lambda: s3_page(b"<" + b"a" * (1 << 20) + b"/>"),
    "a text of four megabytes": lambda: s3_page(b"<Contents><Key>" + b"k" * (4 << 20) + b"</Key></Contents>"),
    "a comment of four megabytes": lambda: s3_page(b"<!--" + b"x" * (4 << 20) + b"-->"),
    "a comment with half a million tags": lambda: s3_page(b"<!--" + b"<" * 500_000 + b"-->"),
    "entities": lambda: b'<!DOCTYPE a [<!ENTITY b "' + b"c" * 9 + b'">]>' + s3_page(b"&b;"),
    "entities in UTF-16": lambda: (
        '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE a [<!ENTITY b "c">]><ListBucketResult/>'.encode("utf-16")
    ),
    "entities in EBCDIC": lambda: (
        b'<?xml version="1.0" encoding="cp037"?>' + '<!DOCTYPE a [<!ENTITY b "c">]><ListBucketResult/>'.encode("cp037")
    ),
    "a namespace that each name repeats": lambda: (
        b'<ListBucketResult xmlns="' + b"n" * 40_000 + b'">' + b"".join(b"<a%d/>" % n for n in range(40_000))
    ),
    "a size of ten thousand digits": lambda: s3_page(s3_object("a", "9" * 10_000)),
    "a size that no file has": lambda: s3_page(s3_object("a", str(1 << 63))),
    "a size in other digits": lambda: s3_page(s3_object("a", "\u0663")),
    "a token of a hundred kilobytes": lambda: s3_page(
        b"<IsTruncated>true</IsTruncated><NextContinuationToken>" + b"t" * 100_000 + b"</NextContinuationToken>"
    ),
    "no token although it goes on": lambda: s3_page(b"<IsTruncated>true</IsTruncated>"),
    "no XML": lambda: b"{}",
    "nothing": lambda: b"",
    "another document": lambda: b"<Error/>",
    "no end": lambda: b"<ListBucketResult>" + s3_object("a"),
}
"""Pages of a listing that are none, each as a function, since some are large."""


def endless_s3(names: Callable[[int], list[str]], *, token: Callable[[int], str] = str) -> Callable[[int], bytes]:
    """Return the pages of a listing that never ends. names: the keys of a page by its number."""

    def page(number: int) -> bytes:
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token(number)}</NextContinuationToken>"
        return s3_page(more.encode() + b"".join(map(s3_object, names(number))))

    return page


ENDLESS_S3: Mapping[str, Callable[[int], bytes]] = {
    "new names for ever": endless_s3(lambda page: [f"d/{page}-{number}" for number in range(200)]),
    "long names for ever": endless_s3(lambda page: [f"d/{page}-{number}-{'x' * 900}" for number in range(200)]),
    "empty pages": endless_s3(lambda page: []),
    "the same page": endless_s3(lambda page: ["d/same"]),
    "the same token": endless_s3(lambda page: [f"d/{page}"], token=lambda page: "same"),
    "names that are elsewhere": endless_s3(lambda page: [f"e/{page}"]),
}


class HostileS3:
    """A server of one bucket whose every listing is what `page` gives for the number of the request."""

    def __init__(self, page: Callable[[int], bytes]) -> None:
        self.asked = 0
        outer = self

        class Answers(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._answer(404, b"")

            def do_GET(self) -> None:
                if "list-type" not in parse_qs(urlsplit(self.path).query):
                    return self._answer(404, b"")
                outer.asked += 1
                return self._answer(200, page(outer.asked))

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
