"""Qdrant's REST API over the local mode of its own client, for tests: the client evaluates filters and distances.

It runs in the environment of tests/thirdparty, and prints its URL. `POST /control` makes collections, and sets what is
answered wrong.
"""

import json
import sys
import time
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

warnings.simplefilter("ignore")
from qdrant_client import QdrantClient, models  # noqa: E402 # pyright: ignore[reportMissingImports]

KEY = "qdrant-secret"
client = QdrantClient(":memory:")
requests: list[str] = []
wrong: dict[str, object] = {}


def made(name: str, vectors: dict, points: list) -> None:
    """Make a collection."""
    if "size" in vectors:
        params: object = models.VectorParams(**vectors)
    else:
        params = {vector: models.VectorParams(**about) for vector, about in vectors.items()}
    client.create_collection(name, vectors_config=params)
    client.upsert(name, [models.PointStruct(**point) for point in points])


def plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.model_dump(mode="json", exclude_none=False) if hasattr(value, "model_dump") else value


def result(method: str, path: list[str], body: dict) -> object:
    """Return the result of a request. Raise ValueError for a collection that is not there."""
    match method, path:
        case "GET", ["collections"]:
            return plain(client.get_collections())
        case "GET", ["collections", name]:
            return plain(client.get_collection(name))
    name = path[1]
    with_what = {"with_payload": body.get("with_payload", True), "with_vectors": body.get("with_vector", False)}
    chosen = models.Filter.model_validate(body["filter"]) if "filter" in body else None
    if path[2:] == ["points", "scroll"]:
        points, following = client.scroll(
            name, scroll_filter=chosen, limit=body["limit"], offset=body.get("offset"), **with_what
        )
        return {"points": plain(points), "next_page_offset": following}
    if path[2:] == ["points"]:
        return plain(client.retrieve(name, ids=body["ids"], **with_what))
    found = client.query_points(
        name, query=body["query"], query_filter=chosen, limit=body["limit"], using=body.get("using"), **with_what
    )
    return plain(found)


class Handler(BaseHTTPRequestHandler):
    def _serve(self, method: str) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        path = [unquote(part) for part in self.path.strip("/").split("/")]
        if path == ["control"]:
            for collection in body.get("create", []):
                made(**collection)
            wrong.clear()
            wrong.update(body.get("wrong", {}))
            return self._answer(200, json.dumps(requests).encode())
        requests.append(f"{method} {self.path}")
        if self.headers.get("api-key") != KEY:
            return self._answer(403, b"forbidden")
        for part, given in wrong.items():
            if part in self.path:
                if given == "hang":
                    time.sleep(20)
                return self._answer(200, str(given).encode())
        try:
            found = result(method, path, body)
        except (ValueError, KeyError) as error:
            text = json.dumps({"status": {"error": f"Not found: {error}"}, "time": 0})
            return self._answer(404, text.encode())
        return self._answer(200, json.dumps({"result": found, "status": "ok", "time": 0.001}).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
sys.stdout.close()
server.serve_forever()
