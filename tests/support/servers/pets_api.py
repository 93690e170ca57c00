"""A REST API with an OpenAPI 3.1 document of its own, made by FastAPI: `python pets_api.py --log FILE --mode FILE`.

Prints the URL it is at. Each request becomes a line of JSON in the log: path, query, headers, status. What stands in
the mode file comes over every request: a status to answer, or `hang`.
"""

import argparse
import json
import socket
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import anyio
import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException, Query, Request, Response
from fastapi.security import APIKeyCookie, APIKeyHeader, APIKeyQuery, HTTPBasic, HTTPBasicCredentials, HTTPBearer

PETS = [{"id": number, "name": f"pet {number}", "kind": "cat" if number % 3 else "dog"} for number in range(1, 26)]
TOKEN, KEY, USER, PASSWORD = "t0ken-of-bearer", "k3y&of=api", "ann", "pass:w0rd"
PHOTO = bytes(range(256)) * 20
BODY = b'{ "price": 1.10,\n  "big": 12345678901234567890 }'
ETAG, MODIFIED = '"v1"', "Wed, 21 Oct 2015 07:28:00 GMT"

app = FastAPI(title="Pets", version="1.2", summary="An API to be mounted")


class Kind(StrEnum):
    cat = "cat"
    dog = "dog"
    odd = "a b"


@app.get("/pets", summary="All pets", tags=["pets"])
def pets(offset: int = 0, limit: int = 10) -> list[dict[str, Any]]:
    return PETS[offset : offset + limit]


@app.get("/pets/findByKind", operation_id="findByKind")
def find(kind: Kind, name: str | None = None) -> list[dict[str, Any]]:
    return [pet for pet in PETS if pet["kind"] == kind.value and name in (None, pet["name"])]


@app.get("/pets/{pet_id}", summary="One pet", operation_id="getPet", tags=["pets", "one"])
def pet(pet_id: int, verbose: bool = False) -> dict[str, Any]:
    """A pet by its number."""
    if not 0 < pet_id <= len(PETS):
        raise HTTPException(404, "no such pet")
    return PETS[pet_id - 1] | ({"verbose": True} if verbose else {})


@app.get("/pets/{pet_id}/photos")
def photos(pet_id: int, size: str | None = None) -> list[str]:
    return [f"{pet_id}-a b.bin", f"{pet_id}-2.bin"]


@app.get("/pets/{pet_id}/photos/{photo}", response_class=Response)
def photo(pet_id: int, photo: str) -> Response:
    return Response(PHOTO, media_type="application/octet-stream")


@app.get("/orders/")
def orders(cursor: str | None = None, limit: int = 4) -> dict[str, Any]:
    start = int((cursor or "after-0").removeprefix("after-"))
    end = start + limit
    rows = [{"order_id": f"o{number}"} for number in range(start, min(end, 10))]
    return {"orders": rows, "meta": {"next_cursor": f"after-{end}" if end < 10 else None}}


@app.get("/orders/{order_id}/")
def order(order_id: str, fields: Annotated[list[str] | None, Query()] = None) -> dict[str, Any]:
    return {"order": order_id, "fields": fields}


@app.get("/events")
def events(page: int = 1) -> dict[str, Any]:
    return {"events": [page * 10 + number for number in range(3)] if page <= 4 else []}


@app.get("/linked")
def linked(request: Request, response: Response, page: int = 1) -> list[int]:
    if page < 30:
        following = request.url.include_query_params(page=page + 1)
        response.headers["link"] = f'<{following}>; rel="next", <{request.url}>; rel="self"'
    return [page]


@app.get("/elsewhere")
def elsewhere(response: Response, page: int = 1) -> list[int]:
    response.headers["link"] = '<http://example.com/elsewhere?page=2>; rel="next"'
    return [page]


@app.get("/zero")
def zero(page: int | None = None) -> list[int]:
    """Pages that begin with 0, which nothing says."""
    return [(page or 0) * 10 + number for number in range(2)] if (page or 0) < 3 else []


@app.get("/one")
def one(page: int | None = None) -> list[int]:
    """Pages that begin with 1, which nothing says; beyond the last there is nothing at all."""
    if (page or 1) > 3:
        raise HTTPException(404, "no such page")
    return [(page or 1) * 10]


@app.get("/limited")
def limited(page: int = 1) -> list[int]:
    if page > 2:
        raise HTTPException(422, "only the first 2 pages can be had")
    return [page]


@app.get("/deaf")
def deaf(request: Request, page: int = 1) -> list[str]:
    """Takes no notice of the page."""
    return ["always the same"]


@app.get("/circle")
def circle(cursor: str = "a") -> dict[str, Any]:
    return {"items": [cursor], "next_cursor": {"a": "b", "b": "c", "c": "b"}[cursor]}


@app.get("/echo")
def echo(cursor: str = "c0") -> dict[str, Any]:
    """Says which page this is, not which is next."""
    return {"items": [1, 2], "cursor": cursor}


@app.get("/broken")
def broken(page: int = 1) -> Any:
    return [page] if page == 1 else {"sorry": "no list"}


@app.get("/large")
def large(page: int = 1) -> list[str]:
    return ["x" * 1000] * 1000


@app.get("/kinds/{kind}")
def kind(kind: Kind) -> str:
    return kind.value


@app.get("/plain", response_class=Response)
def plain(request: Request) -> Response:
    headers = {"etag": ETAG, "last-modified": MODIFIED}
    return Response(BODY, media_type="application/json", headers=headers)


@app.get("/needs-header")
def needs_header(x_tenant: Annotated[str, Header()]) -> str:
    return x_tenant


@app.get("/status/{code}")
def status(code: int) -> Response:
    return Response(f"status {code}", code, {"retry-after": "3600"} if code == 429 else {}, "text/plain")


@app.get("/hang")
async def hang() -> str:
    await anyio.sleep_forever()
    return ""


def _refuse() -> None:
    raise HTTPException(401, "who are you?")


@app.get("/secure/bearer")
def bearer(given: Annotated[Any, Depends(HTTPBearer(auto_error=False))]) -> str:
    return "bearer" if given is not None and given.credentials == TOKEN else _refuse() or ""


@app.get("/secure/basic")
def basic(given: Annotated[HTTPBasicCredentials, Depends(HTTPBasic(auto_error=False))]) -> str:
    return "basic" if given is not None and (given.username, given.password) == (USER, PASSWORD) else _refuse() or ""


@app.get("/secure/header")
def in_header(given: Annotated[str, Depends(APIKeyHeader(name="X-Key", auto_error=False))]) -> str:
    return "header" if given == KEY else _refuse() or ""


@app.get("/secure/query")
def in_query(
    request: Request, given: Annotated[str, Depends(APIKeyQuery(name="api_key", auto_error=False))], page: int = 1
) -> dict[str, Any]:
    if given != KEY:
        raise HTTPException(403, f"not with {given}")
    following = str(request.url.include_query_params(page=page + 1)) if page < 3 else None
    return {"data": [page], "next": following}


@app.get("/secure/query/refused")
def refused(given: Annotated[str, Depends(APIKeyQuery(name="api_key", auto_error=False))]) -> str:
    raise HTTPException(418, f"the key {given} is a teapot's")


@app.get("/secure/cookie")
def in_cookie(given: Annotated[str, Depends(APIKeyCookie(name="session", auto_error=False))]) -> str:
    return "cookie" if given == KEY else _refuse() or ""


def serve(app: FastAPI, log: Path, mode: Path) -> None:
    """Serve an application until a signal ends this process."""

    def wanted() -> str:
        return mode.read_text() if mode.exists() else ""

    def note(entry: dict[str, Any]) -> None:
        with log.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    @app.middleware("http")
    async def noted(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        over_all = wanted()
        if over_all == "hang":
            await anyio.sleep_forever()
        response = Response("broken", int(over_all), media_type="text/plain") if over_all else await answer(request)
        entry = {
            "method": request.method,
            "path": request.url.path,
            "query": request.url.query,
            "headers": dict(request.headers),
            "status": response.status_code,
        }
        note(entry)
        return response

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)  # whoever connects before the server runs waits for it
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        server.run(sockets=[listening])


def main(app: FastAPI) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--mode", type=Path, required=True)
    given = parser.parse_args()
    serve(app, given.log, given.mode)


if __name__ == "__main__":
    main(app)
