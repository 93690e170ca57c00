"""Answers of a hostile store: listings, archives and metadata larger, deeper or longer than real ones."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, count, repeat
from urllib.parse import parse_qs, urlsplit

from http_server import Answers, HttpServer


def s3_page(inside: bytes) -> bytes:
    return b"<ListBucketResult>" + inside + b"</ListBucketResult>"


def s3_object(key: str, size: str = "1") -> bytes:
    return f"<Contents><Key>{key}</Key><Size>{size}</Size></Contents>".encode()


def hostile_xml(root: str) -> Mapping[str, Callable[[], bytes]]:
    """Return documents that are no listing, each as a function, since some are large. root: of a listing."""
    begin, end = f"<{root}>".encode(), f"</{root}>".encode()
    entities = f'<!DOCTYPE a [<!ENTITY b "c">]><{root}/>'
    return {
        "a hundred thousand elements, one in another": lambda: b"<a>" * 100_000 + b"</a>" * 100_000,
        "a million attributes": lambda: begin + b"<a " + b"".join(b'a%d="" ' % n for n in range(400_000)) + b"/>" + end,
        "a name of a megabyte": lambda: begin + b"<" + b"a" * (1 << 20) + b"/>" + end,
        "a text of four megabytes": lambda: begin + b"<Contents><Key>" + b"k" * (4 << 20) + b"</Key></Contents>" + end,
        "a comment of four megabytes": lambda: begin + b"<!--" + b"x" * (4 << 20) + b"-->" + end,
        "a comment with half a million tags": lambda: begin + b"<!--" + b"<" * 500_000 + b"-->" + end,
        "a section with half a million tags": lambda: begin + b"<a><![CDATA[" + b"<" * 500_000 + b"]]></a>" + end,
        "entities": lambda: b'<!DOCTYPE a [<!ENTITY b "' + b"c" * 9 + b'">]>' + begin + b"&b;" + end,
        "entities in UTF-16": lambda: f'<?xml version="1.0" encoding="utf-16"?>{entities}'.encode("utf-16"),
        "entities in EBCDIC": lambda: b'<?xml version="1.0" encoding="cp037"?>' + entities.encode("cp037"),
        "a namespace that each name repeats": lambda: (
            b"<" + root.encode() + b' xmlns="' + b"n" * 70_000 + b'">' + b"".join(b"<a%d/>" % n for n in range(40_000))
        ),
        "no XML": lambda: b"{}",
        "nothing": lambda: b"",
        "another document": lambda: b"<Error/>",
        "no end": lambda: begin,
    }  # fmt: skip


LONG_FACT = "\U0001f600" + "x" * 15_000
"""An ETag or a type whose one odd character makes each of the others take four bytes."""
S3_PAGES: Mapping[str, Callable[[], bytes]] = {
    **hostile_xml("ListBucketResult"),
    "a million elements": lambda: s3_page(b"<a/>" * 1_000_000),
    "a size of ten thousand digits": lambda: s3_page(s3_object("a", "9" * 10_000)),
    "a size that no file has": lambda: s3_page(s3_object("a", str(1 << 63))),
    "a size in other digits": lambda: s3_page(s3_object("a", "\u0663")),
    "a token of a hundred kilobytes": lambda: s3_page(
        b"<IsTruncated>true</IsTruncated><NextContinuationToken>" + b"t" * 100_000 + b"</NextContinuationToken>"
    ),
    "no token although it goes on": lambda: s3_page(b"<IsTruncated>true</IsTruncated>"),
    "no end after an object": lambda: b"<ListBucketResult>" + s3_object("a"),
}
"""Pages of a listing that are none."""


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


def dav_entry(href: str, properties: str = "<getcontentlength>1</getcontentlength>") -> str:
    prop = f"<prop>{properties}</prop><status>HTTP/1.1 200 OK</status>"
    return f"<response><href>{href}</href><propstat>{prop}</propstat></response>"


def dav_page(*entries: str) -> bytes:
    return f'<?xml version="1.0"?><multistatus xmlns="DAV:">{"".join(entries)}</multistatus>'.encode()


DAV_PAGES: Mapping[str, Callable[[], bytes]] = {
    **hostile_xml("multistatus"),
    "an entry of a million properties": lambda: dav_page(dav_entry("/d/a", "<a/>" * 1_000_000)),
    "an entry of many kinds": lambda: dav_page(
        dav_entry("/d/a", f"<resourcetype>{'<collection/>' * 100_000}</resourcetype>")
    ),
    "paths that are elsewhere": lambda: dav_page(*(dav_entry(f"/e/{number}") for number in range(20_000))),
}
"""Answers to PROPFIND that are none."""
ODD_DAV: Mapping[str, str] = {
    "a size of many digits": dav_entry("/d/a", f"<getcontentlength>{'9' * 9000}</getcontentlength>"),
    "a size below zero": dav_entry("/d/a", "<getcontentlength>-1</getcontentlength>"),
    "a long date": dav_entry("/d/a", f"<getlastmodified>{'Mon, ' * 9000}</getlastmodified>"),
    "a date that never was": dav_entry("/d/a", "<getlastmodified>Sat, 99 Nov 99999 99:99:99 GMT</getlastmodified>"),
    "a path of dots": dav_entry("/d/../../etc/passwd"),
    "encoded dots": dav_entry("/d/%2E%2E"),
    "an encoded slash": dav_entry("/d/a%2Fb"),
    "a zero byte": dav_entry("/d/a%00"),
    "an empty name": dav_entry("/d//"),
    "a path that is no URL": dav_entry("http://[/d/a"),
    "no path": dav_entry(""),
    "another server's path": dav_entry("http://192.0.2.1/d/a"),
    "nothing in it": "<response/>",
    "a member that fails": "<response><href>/d/a</href><status>HTTP/1.1 403 Forbidden</status></response>",
}
"""Entries of which at most one is the name `a`."""


class HostileS3(HttpServer):
    """A server of one bucket whose every listing is what `page` gives for the number of the request."""

    def __init__(self, page: Callable[[int], bytes]) -> None:
        self.asked = 0
        outer = self

        class Pages(Answers):
            def answer(self) -> None:
                if self.command == "HEAD" or "list-type" not in parse_qs(urlsplit(self.path).query):
                    return self.reply(404)
                outer.asked += 1
                return self.reply(200, page(outer.asked))

        super().__init__(Pages)


# -- archives ----------------------------------------------------------------------------------------------------------


def tar_header(name: bytes, size: int = 0, kind: bytes = b"0", target: bytes = b"") -> bytes:
    block = bytearray(512)
    block[: len(name[:100])] = name[:100]
    block[124:136] = b"%011o\0" % size
    block[136:148] = b"%011o\0" % 1_700_000_000
    block[156:157] = kind
    block[157 : 157 + len(target)] = target
    block[257:265] = b"ustar\x0000"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def tar_extension(data: bytes, kind: bytes = b"x") -> bytes:
    return tar_header(b"extension", len(data), kind) + data + bytes(-len(data) % 512)


def pax_record(key: bytes, value: bytes) -> bytes:
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest) + 1
    while len(b"%d" % length) + len(rest) != length:
        length += 1
    return b"%d" % length + rest


def _named(name: bytes) -> bytes:
    return tar_extension(pax_record(b"path", name)) + tar_header(b"x")


def _sparse(parts: int, size: bytes = b"1000000") -> bytes:
    places = b",".join(b"%d,1" % (2 * part) for part in range(parts))
    return tar_extension(pax_record(b"GNU.sparse.size", size) + pax_record(b"GNU.sparse.map", places))


GOOD_TAR = tar_header(b"good", 4) + b"good" + bytes(508)
HOSTILE_TARS: Mapping[str, Callable[[], Iterator[bytes]]] = {
    "global headers without end": lambda: (
        tar_extension(b"".join(pax_record(b"key-%d-%d" % (n, m), b"") for m in range(20_000)), b"g") for n in range(100)
    ),
    "short extended headers without end": lambda: repeat(tar_extension(pax_record(b"a", b"")), 10_000),
    "long names without end": lambda: repeat(tar_extension(b"n" * 1000, b"L"), 10_000),
    "a header of digits": lambda: iter([tar_extension(b"1" * 900_000)]),
    "a header of spaces": lambda: iter([tar_extension(b"1 " * 450_000)]),
    "a header of two gigabytes": lambda: iter([tar_header(b"x", 2 << 30, b"x"), *repeat(bytes(1 << 20), 50)]),
    "records of another length": lambda: iter([tar_extension(b"9999999 path=a\n")]),
    "a size of many digits": lambda: iter([tar_extension(pax_record(b"size", b"9" * 100_000)), tar_header(b"f")]),
    "a negative size": lambda: iter([tar_extension(pax_record(b"size", b"-512")), tar_header(b"f"), GOOD_TAR]),
    "sparse files of many parts": lambda: (_sparse(60_000) + tar_header(b"f%d" % n) for n in range(20)),
    "a sparse map that never ends": lambda: iter(
        [tar_extension(pax_record(b"GNU.sparse.major", b"1")), tar_header(b"f", 8 << 20), b"9999999\n" * (1 << 20)]
    ),
    "a sparse file of zeros alone": lambda: iter([_sparse(1, b"%d" % (1 << 60)), tar_header(b"f", 1)]),
    "names of many components": lambda: (_named(b"a%d/" % n + b"b/" * 250 + b"c") for n in range(3000)),
    "names of too many components": lambda: (_named(b"%d" % n + b"/a" * 2000) for n in range(500)),
    "long names": lambda: (_named(b"%d-" % n + b"x" * 4000) for n in range(20_000)),
    "names that are too long": lambda: (_named(b"%d-" % n + b"x" * 100_000) for n in range(200)),
    "directories": lambda: (tar_header(b"%d/f" % n) for n in range(110_000)),
    "links to links": lambda: chain(
        [tar_header(b"l0", 0, b"2", b".")],
        (tar_header(b"l%d" % n, 0, b"2", b"l%d/l%d" % (n - 1, n - 1)) for n in range(1, 5000)),
    ),
    "a link to itself": lambda: iter([tar_header(b"l", 0, b"2", b"l/../l/.."), GOOD_TAR]),
}
"""Archives as their pieces. Each ends, or has a bound that it runs into."""

ESCAPES: Mapping[str, str] = {
    "a/b/c/up": "../../..",
    "README": "a/b/c/up/../../../etc/hostname",
    "one": "two/../../..",
    "two": "a/b",
    "three": "four",
    "four": "a/b/c/up/..",
    "five": "not-there/../..",
    "six": "%2E%2E/x/../../..",
    "seven": "a/file/../../..",
    "eight": "./../x",
    "circle": "circle/..",
}
"""Links of an archive that has the directory `a/b/c` and the file `a/file`: names and targets."""
SAFE = {"a/b/c/up", "two", "three"}
"""Those that stay inside; `three` leads nowhere, since `four` is left out."""


# -- FTP ---------------------------------------------------------------------------------------------------------------


class HostileFtp:
    """An FTP server. greeting: its first lines. listing: the lines that it sends for a directory."""

    def __init__(
        self, listing: Callable[[], Iterator[bytes]], greeting: Callable[[], Iterator[bytes]] = lambda: iter([b"220 x"])
    ) -> None:
        self._listing, self._greeting = listing, greeting
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._socket.accept()[0],), daemon=True).start()

    def _serve(self, control: socket.socket) -> None:
        data = socket.socket()
        with suppress(OSError), control, control.makefile("rb") as commands:
            self._send(control, self._greeting())
            for command in commands:
                word = command.split()[0].upper()
                if word in (b"EPSV", b"PASV"):
                    data.close()
                    data = socket.create_server(("127.0.0.1", 0))
                    port = data.getsockname()[1]
                    place = b"(127,0,0,1,%d,%d)" % divmod(port, 256) if word == b"PASV" else b"(|||%d|)" % port
                    control.sendall((b"227 " if word == b"PASV" else b"229 ") + place + b"\r\n")
                elif word == b"MLSD":
                    control.sendall(b"150 here\r\n")
                    with data, data.accept()[0] as sending:
                        self._send(sending, self._listing())
                    control.sendall(b"226 done\r\n")
                else:
                    control.sendall({b"USER": b"331 go on\r\n", b"PASS": b"230 in\r\n"}.get(word, b"200 yes\r\n"))
        data.close()

    @staticmethod
    def _send(to: socket.socket, lines: Iterator[bytes]) -> None:
        for line in lines:
            to.sendall(line + b"\r\n")

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


ENDLESS_FTP: Mapping[str, Callable[[], Iterator[bytes]]] = {
    "names": lambda: (b"type=file;size=1; name-%d" % number for number in count()),
    "one name": lambda: repeat(b"type=file;size=1; name"),
    "the directory itself": lambda: repeat(b"type=cdir; ."),
    "names with slashes": lambda: (b"type=file;size=1; ../%d" % number for number in count()),
}
ODD_FTP: Mapping[str, bytes] = {
    "a long line": b"type=file;size=1; " + b"x" * 100_000,
    "a size of many digits": b"type=file;size=" + b"9" * 6000 + b"; name",
    "a size that is none": b"type=file;size=x; name",
    "no facts": b"name",
    "a time without end": b"type=file;size=1;modify=" + b"9" * 7000 + b"; name",
    "other bytes": b"type=file;size=1; \xff\xfe\x00",
}
