"""A REST API with an OpenAPI document: `python fleet.py FILE PORT`. FILE: JSON, a list of objects a collection."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException

Things = list[dict[str, Any]]


def collection(app: FastAPI, name: str, things: Things) -> None:
    """Serve a list of objects and each of them. The list has what tells them apart, and not the rest."""
    by_number = {thing["id"]: thing for thing in things}

    async def every() -> Things:
        return [{"id": thing["id"], "name": thing["name"]} for thing in things]

    async def one(number: int) -> dict[str, Any]:
        if number not in by_number:
            raise HTTPException(404)
        return by_number[number]

    routes: dict[str, Callable[..., Any]] = {f"/{name}": every, f"/{name}/{{number}}": one}
    for path, answer in routes.items():
        app.get(path, operation_id=path.strip("/").replace("/{number}", "_one"))(answer)


def main() -> None:
    app = FastAPI(title="Fleet", version="1", summary="Vehicles, drivers and depots")
    for name, things in json.loads(Path(sys.argv[1]).read_text()).items():
        collection(app, name, things)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")


if __name__ == "__main__":
    main()
