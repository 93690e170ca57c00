"""A server that follows Notion's REST API, version 2025-09-03, for tests: `python notion.py [ANSWER_SIZE]`.

It needs nothing but the standard library, prints its URL as first line, and has a small workspace whose objects have
the shapes in `notion_shapes.json`, which are those of the API's published types. Answers have at most ANSWER_SIZE
objects, so that paging shows. What a test wants otherwise is posted to `/control`, as a JSON object with one of

    {"fail": {"path": REGEX, "status": 429, "headers": {"retry-after": "1"}, "times": 1, "code": "rate_limited"}}
    {"mend": true}                                   no more failures
    {"hang": REGEX} and {"go_on": true}              do not answer, and answer after all
    {"cursor": TEXT}                                 the cursor of all answers that are not the last
    {"incomplete": true}                             the last answer of a search or query says that it is not all
    {"edit": ID, "change": {…}}                      fields of an object
    {"of": ID, "title": TEXT}                        another title of a page
    {"page": {"name": …, "title": …, "in": ID}}      a page more, in another one

and answered with `{"requests": [[METHOD, PATH, BODY], …]}` since the last time.
"""

import json
import re
import sys
import threading
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import NAMESPACE_URL, UUID, uuid5

TOKEN = "ntn_the_secret"
VERSION = "2025-09-03"
SHAPES: dict[str, Any] = json.loads(Path(__file__).with_name("notion_shapes.json").read_text("utf-8"))
ELSEWHERE = uuid5(NAMESPACE_URL, "a page that nobody shared")


def id_of(name: str) -> str:
    """The id of what a test calls by a name; the server has ids like Notion's."""
    return str(uuid5(NAMESPACE_URL, name))


def _title(found: dict[str, Any]) -> str:
    """The title of a page or a data source."""
    texts = found.get("title") or next(p["title"] for p in found["properties"].values() if p["type"] == "title")
    return "".join(text["plain_text"] for text in texts)


def rich(text: str) -> list[dict[str, Any]]:
    if not text:
        return []
    shape = deepcopy(SHAPES["text"])
    shape["text"]["content"] = shape["plain_text"] = text
    return [shape]


class Workspace:
    """Pages, databases, data sources, and the blocks below each id."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.blocks: dict[str, dict[str, Any]] = {}
        self.below: dict[str, list[str]] = {}
        self.long_values: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self._count = 0

    def page(self, name: str, title: str, parent: dict[str, Any] | None = None, **more: Any) -> str:
        page = deepcopy(SHAPES["page"])
        page.update(id=id_of(name), url=f"https://www.notion.so/{UUID(id_of(name)).hex}", **more)
        if parent is not None:
            page["parent"] = parent
        page["properties"]["title" if "title" in page["properties"] else "Name"]["title"] = rich(title)
        self._count += 1
        page["created_time"] = f"2026-01-05T08:{self._count // 60:02}:{self._count % 60:02}.000Z"
        self.objects[page["id"]] = page
        self.below.setdefault(page["id"], [])
        return page["id"]

    def row(self, name: str, title: str, source: str, database: str, **values: Any) -> str:
        properties = deepcopy(SHAPES["values"]) | values
        parent = {"type": "data_source_id", "data_source_id": source, "database_id": database}
        return self.page(name, title, parent, properties=properties)

    def database(self, name: str, title: str, parent: dict[str, Any], *sources: str) -> str:
        database = deepcopy(SHAPES["database"])
        database.update(id=id_of(name), title=rich(title), parent=parent, url=f"https://www.notion.so/{name}")
        for source in sources:
            found = deepcopy(SHAPES["data_source"])
            found.update(id=id_of(f"{name}/{source}"), title=rich(source), database_parent=parent)
            found["parent"]["database_id"] = database["id"]
            found["description"] = rich(f"what {source} are")
            database["data_sources"].append({"id": found["id"], "name": source})
            self.objects[found["id"]] = found
        self.objects[database["id"]] = database
        return database["id"]

    def put_blocks(self, above: str, blocks: list[dict[str, Any]]) -> list[str]:
        """Blocks as the shapes have them, with `_children`; ids are given here."""
        ids: list[str] = []
        for number, shape in enumerate(blocks):
            block = deepcopy(shape)
            children = block.pop("_children", None)
            block["id"] = block["id"] or id_of(f"{above}/{number}")
            is_page = above in self.objects
            block["parent"] = (
                {"type": "page_id", "page_id": above} if is_page else {"type": "block_id", "block_id": above}
            )
            self.blocks[block["id"]] = block
            ids.append(block["id"])
            if children:
                self.put_blocks(block["id"], children)
        self.below[above] = ids
        return ids

    def child(self, of: str) -> dict[str, Any]:
        """The block that stands for a page or a database where it is."""
        found = self.objects[of]
        kind = "child_page" if found["object"] == "page" else "child_database"
        titles = (
            [*found["properties"].values()] if kind == "child_page" else [{"type": "title", "title": found["title"]}]
        )
        title = next(value["title"] for value in titles if value["type"] == "title")
        block = deepcopy(SHAPES["block"])
        block.pop("paragraph")
        block.update(id=of, type=kind, has_children=bool(self.below.get(of)))
        block.update({kind: {"title": "".join(text["plain_text"] for text in title)}})
        block.update({key: found[key] for key in ("created_time", "last_edited_time")})
        return block


def text_block(text: str, kind: str = "paragraph", children: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    block = deepcopy(SHAPES["block"])
    block.pop("paragraph")
    block.update(type=kind, has_children=bool(children), **{kind: {"rich_text": rich(text), "color": "default"}})
    return block | ({"_children": children} if children else {})


def in_page(name: str) -> dict[str, Any]:
    return {"type": "page_id", "page_id": id_of(name)}


def made() -> Workspace:
    """The workspace: two trees of pages, two databases."""
    w = Workspace()
    handbook = w.page("handbook", "Handbook", icon=SHAPES["icons"][0])
    names = {
        "rules": "Rules",
        "offices": "Offices",
        "twin-1": "Notes",
        "twin-2": "Notes",
        "untitled": "",
        "slash": "a/b",
    }
    for name, title in names.items():
        w.put_blocks(w.page(name, title, in_page("handbook")), [text_block(f"text of {name}")])
    w.page("empty", "Empty", in_page("handbook"))
    w.page("index", "index", in_page("handbook"))
    berlin = w.page("berlin", "Berlin", in_page("offices"))
    w.put_blocks(berlin, [text_block("in Berlin")])
    w.put_blocks(id_of("offices"), [text_block("our offices"), w.child(berlin)])
    tasks = w.database("tasks", "Tasks", in_page("handbook"), "Tasks")
    source = id_of("tasks/Tasks")
    for number in range(1, 8):
        row = w.row(f"task-{number}", f"Task {number}", source, tasks)
        w.put_blocks(row, [text_block(f"what to do for {number}")])
    draft = w.page("draft", "Draft", in_page("task-2"))
    w.put_blocks(draft, [text_block("a draft")])
    w.put_blocks(id_of("task-2"), [w.child(draft)])
    pieces = [{"type": "relation", "relation": {"id": id_of(f"related-{number}")}} for number in range(30)]
    related = {"id": "q", "type": "relation", "relation": [piece["relation"] for piece in pieces[:25]]}
    w.objects[id_of("task-3")]["properties"]["Related"] = related
    w.long_values[id_of("task-3"), "q"] = pieces
    deep = w.page("deep", "Deep", {"type": "block_id", "block_id": id_of("column")})
    w.put_blocks(deep, [text_block("deep down")])
    column = text_block("", "toggle", [w.child(deep)]) | {"id": id_of("column")}
    children = ["rules", "offices", "twin-1", "twin-2", "untitled", "slash", "empty", "index", "tasks"]
    blocks = [*SHAPES["blocks"], text_block("aside", "callout", [column]), *(w.child(id_of(name)) for name in children)]
    blocks.append(w.child(w.page("binned", "Binned", in_page("handbook"), in_trash=True)) | {"in_trash": True})
    w.put_blocks(handbook, blocks)
    w.database("two", "Two sources", {"type": "workspace", "workspace": True}, "Left", "Right")
    w.row("left-1", "Lefty", id_of("two/Left"), id_of("two"))
    lone = w.page("lone", "Lone", {"type": "page_id", "page_id": str(ELSEWHERE)})
    w.put_blocks(lone, [text_block("alone")])
    w.page("gone", "Gone", in_page("handbook"), in_trash=True, archived=True)
    return w


class Answer(Exception):
    """What ends a request otherwise than with an object."""

    def __init__(self, status: int, code: str, message: str = "", headers: dict[str, str] | None = None) -> None:
        self.status, self.headers = status, headers or {}
        self.body = {**SHAPES["error"], "status": status, "code": code, "message": message or code}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer_size: int) -> None:
        super().__init__(("127.0.0.1", 0), Api)
        self.workspace = made()
        self.answer_size = answer_size
        self.failures: list[dict[str, Any]] = []
        self.hanging = ""
        self.cursor = ""
        self.incomplete = False
        self.released = threading.Event()
        self.requests: list[tuple[str, str, Any]] = []
        self.lock = threading.Lock()
        self.answers = 0

    def control(self, asked: dict[str, Any]) -> dict[str, Any]:
        w = self.workspace
        if "fail" in asked:
            self.failures.append({"times": 1, "status": 500, "code": "internal_server_error", **asked["fail"]})
        if "mend" in asked:
            self.failures.clear()
        if "cursor" in asked:
            self.cursor = asked["cursor"]
        if "incomplete" in asked:
            self.incomplete = True
        if "hang" in asked:
            self.hanging, self.released = asked["hang"], threading.Event()
        if "go_on" in asked:
            self.hanging = ""
            self.released.set()
        if "edit" in asked:
            w.objects[asked["edit"]].update(asked["change"])
        if "title" in asked:
            page = w.objects[asked["of"]]
            page["properties"]["title"]["title"] = rich(asked["title"])
            w.blocks[asked["of"]] = w.child(asked["of"]) | {"parent": page["parent"]}
        if "page" in asked:
            page, above = asked["page"], asked["page"]["in"]
            own = w.page(page["name"], page["title"], {"type": "page_id", "page_id": above})
            w.objects[own]["last_edited_time"] = "2026-03-05T00:00:00.000Z"
            w.blocks[own] = {**w.child(own), "parent": {"type": "page_id", "page_id": above}}
            w.below[above].append(own)
            if above in w.blocks:
                w.blocks[above]["has_children"] = True
        requests, self.requests = self.requests, []
        return {"requests": requests}


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one packet
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve(None)

    def do_POST(self) -> None:
        self._serve(json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}"))

    def _serve(self, body: Any) -> None:
        url = urlsplit(self.path)
        if url.path == "/control":
            with self.server.lock:
                self._reply(200, self.server.control(body), {})
            return
        try:
            self.server.requests.append((self.command, url.path, body))
            self._obstruct(url.path)
            answer = self._answer(url.path, dict(parse_qsl(url.query)), body)
        except Answer as refusal:
            self._reply(refusal.status, refusal.body, refusal.headers)
        else:
            self._reply(200, answer, {})

    def _obstruct(self, path: str) -> None:
        if self.server.hanging and re.search(self.server.hanging, path):
            self.server.released.wait(60)
        for failure in self.server.failures:
            if failure["times"] > 0 and re.search(failure["path"], path):
                failure["times"] -= 1
                raise Answer(failure["status"], failure["code"], headers=failure.get("headers"))
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            raise Answer(401, "unauthorized", "API token is invalid.")
        if self.headers.get("notion-version") != VERSION:
            raise Answer(400, "missing_version", "Notion-Version header is missing or of another version")

    def _answer(self, path: str, query: dict[str, str], body: Any) -> dict[str, Any]:
        w = self.server.workspace
        routes = (
            ("GET", r"/v1/(page|database|data_source)s/([^/]+)", lambda kind, own: self._object(kind, own)),
            ("GET", r"/v1/blocks/([^/]+)", lambda own: self._block(own)),
            ("GET", r"/v1/blocks/([^/]+)/children", lambda own: self._children(own, query)),
            ("GET", r"/v1/pages/([^/]+)/properties/([^/]+)", lambda own, key: self._property(own, key, query)),
            ("POST", r"/v1/data_sources/([^/]+)/query", lambda own: self._rows(own, body)),
            ("POST", r"/v1/search", lambda: self._page(self._matching(w, body), body, "page_or_data_source")),
        )
        for method, pattern, answer in routes:
            match = re.fullmatch(pattern, path)
            if match and method == self.command:
                return answer(*match.groups())
        raise Answer(400, "invalid_request_url", "Invalid request URL.")

    @staticmethod
    def _edited(w: Workspace) -> list[dict[str, Any]]:
        found = [o for o in w.objects.values() if o["object"] != "database" and not o["in_trash"]]
        return sorted(found, key=lambda o: (o["last_edited_time"], o["id"]), reverse=True)

    def _matching(self, w: Workspace, asked: Any) -> list[dict[str, Any]]:
        """All that was edited, or what has a word of the query in its title."""
        words = set(str((asked or {}).get("query", "")).lower().split())
        return [o for o in self._edited(w) if not words or words & set(_title(o).lower().split())]

    def _id(self, text: str) -> str:
        try:
            return str(UUID(text))
        except ValueError:
            raise Answer(400, "validation_error", f"path failed validation: {text} should be a valid uuid") from None

    def _object(self, kind: str, text: str) -> dict[str, Any]:
        own = self._id(text)
        found = self.server.workspace.objects.get(own)
        if found is None:
            raise Answer(404, "object_not_found", f"Could not find {kind} with ID: {own}. Is it shared?")
        if found["object"] != kind:
            raise Answer(400, "validation_error", f"Provided ID {own} is a {found['object']}, not a {kind}.")
        return found

    def _block(self, text: str) -> dict[str, Any]:
        found = self.server.workspace.blocks.get(self._id(text))
        if found is None:
            raise Answer(404, "object_not_found", "Could not find block")
        return found

    def _children(self, text: str, query: dict[str, str]) -> dict[str, Any]:
        w, own = self.server.workspace, self._id(text)
        if own not in w.below:
            raise Answer(404, "object_not_found", f"Could not find block with ID: {own}.")
        return self._page([w.blocks[block] if block in w.blocks else w.child(block) for block in w.below[own]], query)

    def _rows(self, text: str, body: Any) -> dict[str, Any]:
        source = self._object("data_source", text)
        objects = self.server.workspace.objects.values()
        rows = [o for o in objects if o["parent"].get("data_source_id") == source["id"] and not o["in_trash"]]
        return self._page(rows, body, "page_or_data_source")

    def _property(self, text: str, key: str, query: dict[str, str]) -> dict[str, Any]:
        own = self._id(text)
        pieces = self.server.workspace.long_values.get((own, key))
        if pieces is None:
            raise Answer(404, "object_not_found", "Could not find property")
        return self._page([{**SHAPES["property_item"], "id": key, **piece} for piece in pieces], query, "property_item")

    def _page(self, found: list[Any], asked: Any, kind: str = "block") -> dict[str, Any]:
        asked = asked or {}
        size = int(asked.get("page_size", 100))
        if not 0 < size <= 100:
            raise Answer(400, "validation_error", "body.page_size should be at most 100")
        begin = int(asked.get("start_cursor", "cursor-0").removeprefix("cursor-"))
        end = begin + min(size, self.server.answer_size)
        more = end < len(found)
        cursor = (self.server.cursor or f"cursor-{end}") if more else None
        listed = {**SHAPES["list"], "results": found[begin:end], "has_more": more, "next_cursor": cursor, "type": kind}
        if self.server.incomplete and kind == "page_or_data_source" and not more:
            listed["request_status"] = {"type": "incomplete", "incomplete_reason": "query_result_limit_reached"}
        return listed | {kind: {}}

    def _reply(self, status: int, answer: Any, headers: dict[str, str]) -> None:
        self.server.answers += 1
        data = json.dumps(answer).replace("{signature}", f"{self.server.answers:064x}").encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()


def main() -> None:
    server = Server(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
