"""The conformance suite over a REST API by its OpenAPI document."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import ClassVar

from web_site import WebSite

from bbfs.model.values import DataSource
from bbfs.sources import Handler, Services
from bbfs.sources.api.handler import ApiHandler
from bbfs.testing import SourceConformance

DOCUMENT = """
openapi: 3.0.3
info: {title: Files, version: "1"}
servers:
  - url: http://127.0.0.1:{port}/files
    variables: {port: {default: "80"}}
paths:
  /list.json: {get: {responses: {"200": {content: {application/json: {}}}}}}
  /text: {get: {responses: {"200": {content: {text/plain: {}}}}}}
  /empty: {get: {responses: {"200": {content: {text/plain: {}}}}}}
  /a%20b: {get: {responses: {}}}
  /large: {get: {responses: {}}}
  /deep/{name}: {get: {responses: {}}}
"""


class TestApi(SourceConformance):
    """What is known has the server's port in it, so each handler says it anew."""

    known: ClassVar = {}
    unknown: ClassVar = ()
    content: ClassVar = {
        "list.json": b'[1.10, {"a": [] }]',
        "text": "tëxt\n".encode(),
        "empty": b"",
        "a%20b": b"space",
        "large": bytes(range(256)) * 5000,
    }

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        site = WebSite(directory)
        try:
            for name, data in self.content.items():
                site.write(name.replace("%20", " "), data, content_type="application/json" if "json" in name else None)
            cls = type(self)
            cls.known = {f"{site.url}/files/{name}": data for name, data in self.content.items()}
            cls.unknown = tuple(f"{site.url}/{name}" for name in ("files/deep/nothing", "files/other", "text", "files"))
            document = directory / "openapi.yaml"
            document.write_text(DOCUMENT)
            config = {
                "document": str(document),
                "server_variables": {"port": site.url.rpartition(":")[2]},
                "allow_private": True,
            }
            async with aclosing(
                ApiHandler(DataSource("a", "a", "api", "bb", "bb-api+a", config=config), Services())
            ) as handler:
                yield handler
        finally:
            site.stop()
