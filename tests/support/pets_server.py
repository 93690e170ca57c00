"""A REST API of a test's own (`tests/support/servers/*_api.py`), in a process of its own."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from programs import started_server
from repository import SERVERS

AUTH = {"token": "t0ken-of-bearer", "username": "ann", "password": "pass:w0rd", "apiKey": "k3y&of=api"}


class PetsServer:
    """A running server, with its OpenAPI document at `document`."""

    def __init__(self, directory: Path, script: str = "pets_api.py") -> None:
        directory.mkdir(exist_ok=True)
        self._log, self._mode = directory / "requests.log", directory / "mode"
        self._log.touch()
        self._errors = (directory / "errors.log").open("wb")
        self._process, self.url = started_server(
            sys.executable, SERVERS / script, "--log", self._log, "--mode", self._mode, errors=self._errors.fileno()
        )

    @property
    def document(self) -> str:
        return f"{self.url}/openapi.json"

    def root(self, name: str = "pets") -> str:
        """The directory of the API on a mount."""
        return f"bb-api+{name}/{self.url.replace('://', '/')}"

    def source(self, name: str = "pets", **options: Any) -> dict[str, Any]:
        """The API as the configuration file has it. options: of the source; `config` for those of its type."""
        config = {"document": self.document, "allow_private": True, **options.pop("config", {})}
        return {"name": name, "type": "api", "config": config, **options}

    def answer_all(self, mode: str) -> None:
        """Answer every request with this status from now on, or never (`hang`); as usual with an empty text."""
        part = self._mode.with_suffix(".part")
        part.write_text(mode)
        os.replace(part, self._mode)

    def requests(self, path: str | None = None) -> list[dict[str, Any]]:
        """The requests that were answered up to now: method, path, query, headers, status."""
        found = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [each for each in found if path in (None, each["path"])]

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=10)
        self._errors.close()
