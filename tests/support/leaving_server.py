"""A store over HTTP that leaves requests without an answer: it closes the connection when they come."""

import hashlib
import socket
import struct
from http.server import BaseHTTPRequestHandler

from http_server import Answers, HttpServer


class LeavingServer(HttpServer):
    """Objects by path, with ETags, conditions, S3's copies and WebDAV's descriptions. Connections are kept.

    left: methods of the next requests without an answer, in turn. stores: whether such a request is obeyed before.
    resets: whether its connection is reset, else it is closed. asked: method and path of each request.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.left: list[str] = []
        self.stores = self.resets = False
        self.asked: list[tuple[str, str]] = []
        self.connections = 0
        outer = self

        class Leaving(Answers):
            def setup(self) -> None:
                super().setup()
                outer.connections += 1

            def answer(self) -> None:
                given = self.body()
                outer.asked.append((self.command, self.path))
                is_left = outer.left[:1] == [self.command]
                if is_left:
                    outer.left.pop(0)
                status, body = 500, b""
                if not is_left or outer.stores:
                    status, body = outer.obeyed(self, given)
                if is_left:
                    if outer.resets:
                        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        self.connection.close()
                    self.close_connection = True
                    return
                is_there = status < 300 and self.path in outer.objects
                self.reply(status, body, {"etag": f'"{etag(outer.objects[self.path])}"'} if is_there else {})

        super().__init__(Leaving)

    def obeyed(self, request: BaseHTTPRequestHandler, given: bytes) -> tuple[int, bytes]:
        """Do what a request asks for. Return the status and the body of the answer."""
        there = self.objects.get(request.path)
        wanted = request.headers.get("if-match")
        if wanted is not None and (there is None or wanted.strip('"') != etag(there)):
            return 412, b""
        if request.headers.get("if-none-match") == "*" and there is not None:
            return 412, b""
        if request.command == "DELETE":
            self.objects.pop(request.path, None)
            return 204, b""
        path, _, query = request.path.partition("?")
        if request.command == "POST" and query.startswith("uploads"):
            return 200, b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
        if request.command == "POST":
            parts = sorted(each for each in self.objects if each.startswith(f"{path}?partNumber="))
            self.objects[path] = b"".join(map(self.objects.pop, parts))
            return (
                200,
                f'<CompleteMultipartUploadResult><ETag>"{len(parts)}"</ETag></CompleteMultipartUploadResult>'.encode(),
            )
        if request.command == "PUT":
            origin = request.headers.get("x-amz-copy-source")
            self.objects[request.path] = given if origin is None else self.objects[origin]
            new = etag(self.objects[request.path])
            return 200, b"" if origin is None else f'<CopyObjectResult><ETag>"{new}"</ETag></CopyObjectResult>'.encode()
        if there is None:
            return 404, b""
        return (207, _described(request.path, there)) if request.command == "PROPFIND" else (200, there)


def _described(path: str, data: bytes) -> bytes:
    """Return the answer to a PROPFIND of one object (RFC 4918, section 9.1)."""
    facts = f'<getcontentlength>{len(data)}</getcontentlength><getetag>"{etag(data)}"</getetag><resourcetype/>'
    stat = f"<propstat><prop>{facts}</prop><status>HTTP/1.1 200 OK</status></propstat>"
    return f'<multistatus xmlns="DAV:"><response><href>{path}</href>{stat}</response></multistatus>'.encode()


def etag(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()
