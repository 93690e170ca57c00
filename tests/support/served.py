"""What the sources of these tests hold."""

BOUND = 60.0
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))
FILES = {
    "src/config.ts": b"export const answer = 42;\r\n",
    "tests/config.test.ts": "// prüft config.ts\n".encode(),
    "package.json": b'{"name": "demo"}\n',
    "pictures/logo.png": PNG,
    "data.bin": bytes(range(256)),
    "empty.txt": b"",
}
