"""A server that follows Notion's REST API, version 2025-09-03, for tests: `python notion.py [ANSWER_SIZE]`.

It needs nothing but the standard library, prints its URL as first line, and has a small workspace whose objects have
the shapes in `notion_shapes.json`, which are those of the API's published types. Answers have at most ANSWER_SIZE
objects, so that paging shows. Pages and blocks are written as the API documents it, within its limits. What a test
wants otherwise is posted to `/control`, as a JSON object with one of

    {"fail": {"path": REGEX, "status": 429, "headers": {"retry-after": "1"}, "times": 1, "code": "rate_limited"}}
    {"mend": true}                                   no more failures
    {"hang": REGEX} and {"go_on": true}              do not answer, and answer after all
    {"cursor": TEXT}                                 the cursor of all answers that are not the last
    {"incomplete": true}                             the last answer of a search or query says that it is not all
    {"edit": ID, "change": {…}}                      fields of an object
    {"of": ID, "title": TEXT}                        another title of a page
    {"page": {"name": …, "title": …, "in": ID}}      a page more, in another one
    {"put": ID, "blocks": [SHAPE, …]}                other blocks in a page
    {"rewrite": ID, "with": TEXT}                    another text of a block

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
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

TOKEN = "ntn_the_secret"
VERSION = "2025-09-03"
PLACING_VERSION = "2026-03-11"
"""Has `position` in the place of `after` where blocks are appended."""
MOST, DEEPEST, LONGEST_TEXT = 100, 2, 2000
WITH_CHILDREN = (
    "paragraph",
    "bulleted_list_item",
    "numbered_list_item",
    "quote",
    "to_do",
    "toggle",
    "table",
    "callout",
)
METHODS = ("GET", "POST", "PATCH", "DELETE")
SETTABLE = (
    "title", "rich_text", "number", "select", "multi_select", "status", "date", "people", "checkbox", "url", "email",
    "phone_number", "relation", "files",
)  # fmt: skip
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


def invalid(where: str, what: str) -> "Answer":
    return Answer(400, "validation_error", f"body failed validation: body.{where} should be {what}")


def rich_of(asked: Any, where: str) -> list[dict[str, Any]]:
    """Rich text as the API answers it, of that of a request."""
    if not isinstance(asked, list) or len(asked) > MOST:
        raise invalid(f"{where}.length", f"≤ `{MOST}`")
    found: list[dict[str, Any]] = []
    for each in asked:
        shape = deepcopy(SHAPES["text"])
        annotations = each.get("annotations", {})
        if set(annotations) - set(shape["annotations"]):
            raise invalid(f"{where}.annotations", "known annotations")
        shape["annotations"].update(annotations)
        kind = each.get("type", "text")
        if kind == "equation":
            shape.pop("text")
            shape.update(type=kind, equation=each[kind], plain_text=each[kind]["expression"])
        elif set(each[kind]) <= {"content", "link"} and len(each[kind]["content"]) <= LONGEST_TEXT:
            shape["text"] = {"link": None, **each[kind]}
            shape["plain_text"] = each[kind]["content"]
            shape["href"] = (each[kind].get("link") or {}).get("url")
        else:
            raise invalid(f"{where}.text.content.length", f"≤ `{LONGEST_TEXT}`")
        found.append(shape)
    return found


def data_of(kind: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The data of a block of a type as the API answers it, of that of a request."""
    data = {key: value for key, value in asked.items() if key != "children"}
    for key in ("rich_text", "caption"):
        if key in data:
            data[key] = rich_of(data[key], f"{kind}.{key}")
    if "cells" in data:
        data["cells"] = [rich_of(cell, f"{kind}.cells") for cell in data["cells"]]
    if "list_start_index" in data:
        raise invalid(f"{kind}.list_start_index", "not present")
    return data


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
        self.answers = self.edits = 0

    def control(self, asked: dict[str, Any]) -> dict[str, Any]:
        w = self.workspace
        if "fail" in asked:
            defaults = {"times": 1, "status": 500, "code": "internal_server_error", "methods": METHODS}
            self.failures.append({**defaults, **asked["fail"]})
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
        if "put" in asked:
            w.put_blocks(asked["put"], asked["blocks"])
        if "rewrite" in asked:
            block = w.blocks[asked["rewrite"]]
            block[block["type"]]["rich_text"] = rich(asked["with"])
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
        self._serve(json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}"))

    def do_PATCH(self) -> None:
        self.do_POST()

    def do_DELETE(self) -> None:
        self.do_POST()

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
            if failure["times"] > 0 and re.search(failure["path"], path) and self.command in failure["methods"]:
                failure["times"] -= 1
                raise Answer(failure["status"], failure["code"], headers=failure.get("headers"))
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            raise Answer(401, "unauthorized", "API token is invalid.")
        placing = self.command == "PATCH" and path.endswith("/children")
        if self.headers.get("notion-version") not in ((VERSION, PLACING_VERSION) if placing else (VERSION,)):
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
            ("PATCH", r"/v1/blocks/([^/]+)/children", lambda own: self._append(own, body)),
            ("PATCH", r"/v1/blocks/([^/]+)", lambda own: self._update(own, body)),
            ("DELETE", r"/v1/blocks/([^/]+)", lambda own: self._remove(own)),
            ("PATCH", r"/v1/pages/([^/]+)", lambda own: self._change(own, body)),
            ("POST", r"/v1/pages", lambda: self._make(body)),
        )
        for method, pattern, answer in routes:
            match = re.fullmatch(pattern, path)
            if match and method == self.command:
                with self.server.lock:
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
        found = [w.blocks[block] if block in w.blocks else w.child(block) for block in w.below[own]]
        return self._page([block for block in found if not self._in_trash(block)], query)

    def _in_trash(self, block: dict[str, Any]) -> bool:
        page = self.server.workspace.objects.get(block["id"])
        return page is not None and page["in_trash"] and not block["in_trash"]

    def _rows(self, text: str, body: Any) -> dict[str, Any]:
        source = self._object("data_source", text)
        objects = self.server.workspace.objects.values()
        rows = [o for o in objects if o["parent"].get("data_source_id") == source["id"] and not o["in_trash"]]
        if "filter" in body:
            column, title = body["filter"]["property"], body["filter"]["title"]["equals"]
            rows = [row for row in rows if column in row["properties"] and _title(row) == title]
        return self._page(rows, body, "page_or_data_source")

    def _property(self, text: str, key: str, query: dict[str, str]) -> dict[str, Any]:
        own = self._id(text)
        pieces = self.server.workspace.long_values.get((own, key))
        if pieces is None:
            raise Answer(404, "object_not_found", "Could not find property")
        return self._page([{**SHAPES["property_item"], "id": key, **piece} for piece in pieces], query, "property_item")

    # -- changes -----------------------------------------------------------------------------------------------------

    def _append(self, text: str, body: Any) -> dict[str, Any]:
        w, own = self.server.workspace, self._id(text)
        if own not in w.objects and own not in w.blocks:
            raise Answer(404, "object_not_found", f"Could not find block with ID: {own}.")
        if "after" in body and self.headers.get("notion-version") != VERSION:
            raise invalid("after", "not present")
        there = w.below.setdefault(own, [])
        position = body.get("position", {"type": "end"})
        if position["type"] == "after_block":
            block = self._id(position["after_block"]["id"])
            if block not in there:
                raise Answer(400, "validation_error", f"Block {block} is no child of {own}.")
            at = there.index(block) + 1
        else:
            at = {"start": 0, "end": len(there)}[position["type"]]
        made = self._made(own, body["children"], 0)
        there[at:at] = made
        self._edited_now(own)
        return {**SHAPES["list"], "results": [w.blocks[block] for block in made]}

    def _made(self, above: str, children: Any, depth: int) -> list[str]:
        """Make blocks, but do not say yet that they are below another one. Return their ids."""
        w = self.server.workspace
        if not isinstance(children, list) or len(children) > MOST:
            raise invalid("children.length", f"≤ `{MOST}`")
        if children and depth > DEEPEST:
            raise invalid("children", "not present")
        made: list[str] = []
        for asked in children:
            kind = asked["type"]
            if set(asked) != {"object", "type", kind}:
                raise invalid("children", f"a block with the keys object, type, {kind}")
            inner = asked[kind].get("children", [])
            if inner and kind not in WITH_CHILDREN:
                raise invalid(f"children.{kind}.children", "not present")
            if kind == "table":
                width = asked[kind]["table_width"]
                if not inner or any(len(row["table_row"]["cells"]) != width for row in inner):
                    raise invalid("children.table.children", f"rows of {width} cells")
            block = deepcopy(SHAPES["block"])
            block.pop("paragraph")
            own = str(uuid4())
            is_page = above in w.objects
            parent = {"type": "page_id", "page_id": above} if is_page else {"type": "block_id", "block_id": above}
            block.update(id=own, type=kind, has_children=bool(inner), parent=parent)
            data = data_of(kind, asked[kind])
            block[kind] = {**data, "color": "default"} if "rich_text" in data and kind != "code" else data
            w.blocks[own] = block
            w.below[own] = self._made(own, inner, depth + 1)
            made.append(own)
        return made

    def _edited_now(self, own: str) -> None:
        """Set the times of the page of a block, to the minute, and whether the block has children."""
        w = self.server.workspace
        while own in w.blocks and own not in w.objects:
            w.blocks[own]["has_children"] = bool(w.below.get(own))
            parent = w.blocks[own]["parent"]
            own = parent[parent["type"]]
        self.server.edits += 1
        w.objects[own]["last_edited_time"] = (
            f"2026-04-01T{self.server.edits // 60:02}:{self.server.edits % 60:02}:00.000Z"
        )

    def _update(self, text: str, body: Any) -> dict[str, Any]:
        block = self._block(text)
        kind = block["type"]
        if set(body) != {kind}:
            raise Answer(400, "validation_error", f"body.{kind} should be defined")
        if "table_width" in body[kind] or "children" in body[kind]:
            raise invalid(f"{kind}.table_width", "not present")
        block[kind] = {**block[kind], **data_of(kind, body[kind])}
        self._edited_now(block["id"])
        return block

    def _remove(self, text: str) -> dict[str, Any]:
        w, block = self.server.workspace, self._block(text)
        parent = block["parent"][block["parent"]["type"]]
        if block["id"] in w.objects or block["id"] not in w.below[parent]:
            raise Answer(400, "validation_error", "Can't edit block that is archived.")
        w.below[parent].remove(block["id"])
        block["in_trash"] = block["archived"] = True
        self._edited_now(parent)
        return block

    def _change(self, text: str, body: Any) -> dict[str, Any]:
        w, page = self.server.workspace, self._object("page", text)
        if page["in_trash"]:
            raise Answer(400, "validation_error", "Can't edit page that is in the trash.")
        values = {
            name: self._value(page["properties"], name, asked) for name, asked in body.get("properties", {}).items()
        }
        page["properties"].update(values)
        page["in_trash"] = page["archived"] = bool(body.get("in_trash"))
        if page["id"] in w.blocks:
            w.blocks[page["id"]]["child_page"] = w.child(page["id"])["child_page"]
        self._edited_now(page["id"])
        return page

    def _value(self, columns: Any, name: str, asked: Any) -> dict[str, Any]:
        """A value of a row as the API answers it. columns: values or columns by name, which have their types."""
        column = columns.get(name)
        if column is None:
            raise Answer(400, "validation_error", f"{name} is not a property that exists.")
        kind = column["type"]
        if kind not in SETTABLE or set(asked) != {kind}:
            raise Answer(400, "validation_error", f"{name} is expected to be {kind}.")
        value: Any = asked[kind]
        if kind in ("title", "rich_text"):
            value = rich_of(value, name)
        if kind in ("select", "status") and value is not None:
            if kind == "status" and value["name"] not in ("In progress", "Done"):
                raise Answer(400, "validation_error", f'Status option "{value["name"]}" does not exist.')
            value = {"id": value["name"][:3], "color": "blue", **value}
        if kind == "multi_select":
            value = [{"id": option["name"], "color": "blue", **option} for option in value or ()]
        if kind == "people":
            users = {user["id"]: user for user in SHAPES["values"]["Who"]["people"]}
            value = [users.get(str(UUID(user["id"])), user) for user in value or ()]
        if kind == "date" and value is not None:
            value = {"time_zone": None, **value}
        return {"id": column["id"], "type": kind, kind: value}

    def _make(self, body: Any) -> dict[str, Any]:
        w = self.server.workspace
        kind = body["parent"]["type"]
        above = self._object(kind.removesuffix("_id"), body["parent"][kind])
        own = str(uuid4())
        page = deepcopy(SHAPES["page"])
        parent = {"type": kind, kind: above["id"]}
        if kind == "data_source_id":
            parent["database_id"] = above["parent"]["database_id"]
            types = {name: column["type"] for name, column in above["properties"].items()}
            lists = ("multi_select", "rich_text", "title", "relation", "people")
            unset: dict[str, Any] = {**{kind: [] for kind in lists}, "checkbox": False}
            page["properties"] = {
                name: {"id": column["id"], "type": types[name], types[name]: unset.get(types[name])}
                for name, column in above["properties"].items()
            }
        columns = page["properties"]
        columns.update({name: self._value(columns, name, asked) for name, asked in body["properties"].items()})
        page.update(id=own, url=f"https://www.notion.so/{UUID(own).hex}", parent=parent)
        page["created_time"] = "2026-04-01T00:00:00.000Z"
        w.objects[own] = page
        w.below[own] = self._made(own, body.get("children", []), 0)
        if kind == "page_id":
            w.below[above["id"]].append(own)
            w.blocks[own] = {**w.child(own), "parent": {"type": kind, kind: above["id"]}}
        self._edited_now(own)
        return page

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
