"""A PostgreSQL server that lets everybody in and then answers as a plan says: `python hostile_postgres.py PLAN`.

The plan is a file in JSON with replies by place, as `hostile_sources.Reply` writes them: `startup` answers the first
message of a connection, `query` each statement that asks for rows, `copy` a COPY. Without a reply such a statement has
no rows. It prints its port.
"""

import contextlib
import json
import socketserver
import struct
import sys
from pathlib import Path
from typing import Any

PLAN = json.loads(Path(sys.argv[1]).read_text())
REQUESTS_WITHOUT_LENGTH = {80877103, 80877104}
"""Codes of a request for TLS, and for encryption by GSSAPI ("Message Formats" in PostgreSQL's documentation)."""


def message(kind: bytes, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return kind + struct.pack(">I", len(data) + 4) + data


def welcome() -> bytes:
    settings = {"server_version": "15.0", "client_encoding": "UTF8", "standard_conforming_strings": "on"}
    told = [message(b"S", f"{name}\0{value}\0".encode()) for name, value in settings.items()]
    return message(b"R", bytes(4)) + b"".join(told) + message(b"K", bytes(8))


class Connection(socketserver.StreamRequestHandler):
    in_transaction = False

    def handle(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while (code := struct.unpack(">I", self._read(self._length())[:4])[0]) in REQUESTS_WITHOUT_LENGTH:
                self.wfile.write(b"N")
            if code >> 16 != 3:
                return  # a request to cancel a statement
            self._attack("startup")
            self.wfile.write(welcome() + self._ready())
            while True:
                kind = self._read(1)
                data = self._read(self._length())
                if kind == b"X":
                    return
                self.wfile.write(self._answer(kind, data))

    def _read(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) < size:
            raise EOFError
        return data

    def _length(self) -> int:
        return struct.unpack(">I", self._read(4))[0] - 4

    def _ready(self) -> bytes:
        return message(b"Z", b"T" if self.in_transaction else b"I")

    def _answer(self, kind: bytes, data: bytes) -> bytes:
        if kind == b"Q":
            return self._query(data.rstrip(b"\0").strip())
        if kind == b"E":
            self._attack("query")
        simple = {b"P": message(b"1"), b"B": message(b"2"), b"D": message(b"T", b"\0\0"), b"S": self._ready()}
        return simple.get(kind, message(b"C", b"SELECT 0\0") if kind == b"E" else b"")

    def _query(self, sql: bytes) -> bytes:
        done: list[bytes] = []
        for statement in filter(None, sql.split(b";")):
            word = statement.split()[0].upper()
            if word in (b"SELECT", b"WITH"):
                self._attack("query")
                done.append(message(b"T", b"\0\0"))
            if word == b"COPY":
                self._attack("copy")
                done.append(message(b"H", b"\0\0\0") + message(b"c"))
            self.in_transaction = word == b"BEGIN" or (self.in_transaction and word != b"ROLLBACK")
            done.append(message(b"C", word + b"\0"))
        return b"".join(done) + self._ready()

    def _attack(self, place: str) -> None:
        """Send the reply of a place, if it has one, and wait for the end of the connection."""
        reply: dict[str, Any] | None = PLAN.get(place)
        if reply is None:
            return
        Path(reply["sent"]).touch()
        body = Path(reply["body"]).read_bytes()
        self.wfile.write(Path(reply["begins"]).read_bytes() + body)
        while reply["endless"]:
            self.wfile.write(body)
        while self.rfile.read(1 << 16):
            pass
        raise EOFError


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 100


if __name__ == "__main__":
    with Server(("127.0.0.1", 0), Connection) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
