"""A REST API that is written, made by FastAPI: `python notes_api.py --log FILE --mode FILE`, as `pets_api.py`.

Notes have ETags and conditions. The other documents have none: `plain` is replaced, `patched` takes a merge patch,
`posted` is replaced by a POST to its own path, `chosen` gets its names from the API, `nested` has documents below, and
URLs of `slashed` end with a slash.
"""

import json
from hashlib import blake2b
from typing import Annotated, Any

from fastapi import Body, FastAPI, HTTPException, Request, Response
from pets_api import main
from pydantic import BaseModel, Field

app = FastAPI(title="Notes", version="1", summary="An API to be written")


class Owner(BaseModel):
    name: str
    email: str | None = None


class Note(BaseModel):
    id: str
    text: str
    tags: list[str] = []
    owner: Owner | None = None
    revision: int = Field(default=0, json_schema_extra={"readOnly": True})


class Chosen(BaseModel):
    id: str
    text: str


Plain = dict[str, Any]
NOTES: dict[str, Note] = {"a": Note(id="a", text="one", owner=Owner(name="Ann", email="ann@example.com"), revision=1)}
PLAIN: dict[str, dict[str, Plain]] = {
    "plain": {"a": {"id": "a", "text": "one"}},
    "patched": {"a": {"id": "a", "text": "one", "owner": {"name": "Ann", "email": "ann@example.com"}}},
    "posted": {"a": {"id": "a", "text": "one"}},
    "nested": {"a": {"id": "a", "text": "one"}},
    "slashed": {"a": {"id": "a", "text": "one"}},
}
CHOSEN = {"1": Chosen(id="1", text="one")}
MERGE_PATCH = {"requestBody": {"content": {"application/merge-patch+json": {"schema": {"type": "object"}}}}}


def etag(note: Note) -> str:
    return f'"{blake2b(note.model_dump_json().encode(), digest_size=8).hexdigest()}"'


def found(note_id: str) -> Note:
    if note_id not in NOTES:
        raise HTTPException(404, "no such note")
    return NOTES[note_id]


def require(request: Request, note_id: str) -> None:
    """RFC 9110, section 13.1."""
    there = NOTES.get(note_id)
    match, none_match = request.headers.get("if-match"), request.headers.get("if-none-match")
    if match is not None and (there is None or match not in ("*", etag(there))):
        raise HTTPException(412, "another version")
    if none_match == "*" and there is not None:
        raise HTTPException(412, "it is there")


def stored(note_id: str, note: Note) -> Note:
    revision = NOTES[note_id].revision + 1 if note_id in NOTES else 1
    NOTES[note_id] = note.model_copy(update={"id": note_id, "revision": revision})
    return NOTES[note_id]


@app.get("/notes")
def notes() -> list[Note]:
    return [*NOTES.values()]


@app.get("/notes/{note_id}", operation_id="getNote")
def note(note_id: str, response: Response) -> Note:
    response.headers["etag"] = etag(found(note_id))
    return NOTES[note_id]


@app.put("/notes/{note_id}", operation_id="putNote")
async def put_note(note_id: str, note: Note, request: Request) -> Note:
    require(request, note_id)
    if "revision" in await request.json():
        raise HTTPException(422, "revision is not for you")
    if note.id != note_id:
        raise HTTPException(422, f"the id {note.id} is not the name {note_id}")
    if len(note.tags) > 3:
        raise HTTPException(422, "too many tags, t0ken-of-bearer")
    return stored(note_id, note)


@app.post("/notes", operation_id="postNote", status_code=201)
def post_note(note: Note) -> Note:
    if note.id in NOTES:
        raise HTTPException(409, "it is there")
    return stored(note.id, note)


@app.delete("/notes/{note_id}", operation_id="deleteNote", status_code=204)
def delete_note(note_id: str, request: Request) -> None:
    require(request, note_id)
    found(note_id)
    del NOTES[note_id]


def _in(collection: str, name: str) -> dict[str, Plain]:
    if name not in PLAIN[collection]:
        raise HTTPException(404, "nothing there")
    return PLAIN[collection]


def _document(collection: str) -> None:
    """Make the operations that read the documents of a collection."""

    def names() -> list[Plain]:
        return [*PLAIN[collection].values()]

    def document(name: str) -> Plain:
        return _in(collection, name)[name]

    end = "/" if collection == "slashed" else ""
    app.add_api_route(f"/{collection}{end}", names, name=f"{collection}s")
    app.add_api_route(f"/{collection}/{{name}}{end}", document, name=collection)


for each in PLAIN:
    _document(each)


@app.put("/plain/{name}")
def put_plain(name: str, given: Plain) -> Plain:
    PLAIN["plain"][name] = given
    return given


@app.delete("/plain/{name}")
def delete_plain(name: str) -> None:
    del _in("plain", name)[name]


@app.patch("/patched/{name}", openapi_extra=MERGE_PATCH)
async def patch(name: str, request: Request) -> Plain:
    def merged(old: Any, change: Any) -> Any:
        if not isinstance(change, dict):
            return change
        kept = {**old} if isinstance(old, dict) else {}
        for key, value in change.items():
            kept.pop(key, None) if value is None else kept.update({key: merged(kept.get(key), value)})
        return kept

    document = _in("patched", name)
    assert request.headers["content-type"] == "application/merge-patch+json"
    document[name] = merged(document[name], json.loads(await request.body()))
    return document[name]


@app.post("/posted/{name}")
def post(name: str, given: Plain) -> Plain:
    PLAIN["posted"][name] = given
    return given


@app.get("/chosen")
def all_chosen() -> list[Chosen]:
    return [*CHOSEN.values()]


@app.get("/chosen/{name}")
def chosen(name: str) -> Chosen:
    if name not in CHOSEN:
        raise HTTPException(404, "nothing there")
    return CHOSEN[name]


@app.post("/chosen")
def choose(given: Chosen) -> Chosen:
    name = str(len(CHOSEN) + 1)
    CHOSEN[name] = given.model_copy(update={"id": name})
    return CHOSEN[name]


@app.put("/nested/{name}")
def put_nested(name: str, given: Plain) -> Plain:
    PLAIN["nested"][name] = given
    return given


@app.delete("/nested/{name}")
def delete_nested(name: str) -> None:
    del _in("nested", name)[name]


@app.put("/slashed/{name}/")
def put_slashed(name: str, given: Plain) -> Plain:
    PLAIN["slashed"][name] = given
    return given


@app.get("/nested/{name}/parts")
def parts(name: str) -> list[str]:
    return []


@app.get("/listed")
def listed(page: int = 1) -> list[int]:
    return [page] if page < 3 else []


@app.put("/listed")
def put_listed(given: Annotated[list[int], Body()]) -> list[int]:
    return given


@app.get("/other")
def other() -> Owner:
    return Owner(name="Ann")


@app.put("/other")
def put_other(given: Note) -> Note:
    return given


@app.get("/answers/{status}")
def answers(status: int) -> Plain:
    return {"status": status}


@app.put("/answers/{status}")
def answer(status: int, given: Plain, request: Request) -> Response:
    """The redirect 308 leads to another origin, the others to this one."""
    origin = f"http://localhost:{request.url.port}" if status == 308 else ""
    headers = {"location": f"{origin}/plain/a"} if 300 <= status < 400 else {}
    return Response(f"status {status}, t0ken-of-bearer", status, headers, "text/plain")


@app.delete("/answers/{status}")
def answer_delete(status: int) -> Response:
    return Response(None, status)


if __name__ == "__main__":
    main(app)
