"""Four sources that change under a mount: a folder, a SQLite database, an MCP server over stdio and one over HTTP."""

import sqlite3
import threading
from pathlib import Path
from typing import Any

from harness import SourceTable, folder
from scripted import ScriptedServer
from servers import streams

BASE = "docs://a/"


class Source:
    """A source, and the texts that it has. place: their directory in the mount. ending: of their files."""

    name: str
    table: SourceTable
    place: str
    ending = ""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def change(self, name: str, text: str | None) -> str:
        """Have a text, or a name no more (None). Return the event that this is."""
        happened = "DELETE" if text is None else "MODIFY" if name in self.texts else "CREATE"
        if text is None:
            del self.texts[name]
        else:
            self.texts[name] = text
        self.store(name, text)
        return happened

    def store(self, name: str, text: str | None) -> None:
        raise NotImplementedError

    def lists(self) -> int:
        """Return how often a server was asked for its list."""
        return 0

    def announce(self, happened: str, name: str) -> None:
        """Announce the event of a name, if it is a server."""
        if happened == "MODIFY":
            self.tell("notifications/resources/updated", uri=BASE + name)
        else:
            self.tell("notifications/resources/list_changed")

    def tell(self, method: str, **params: str) -> None:
        """Send a notification to a client; only servers do."""


class Folder(Source):
    name, place = "folder", "bb-filesystem+folder+file"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._root, self._new = directory / "folder", directory / "new"
        self._root.mkdir()
        self.table = folder("folder", self._root)

    def store(self, name: str, text: str | None) -> None:
        if text is None:
            (self._root / name).unlink()
        else:  # at once: a name and its content would be two events
            self._new.write_text(text)
            self._new.replace(self._root / name)


class Database(Source):
    """It announces nothing: a program finds what has changed."""

    name, place, ending = "shop", "bb-database+shop+sqlite/main/note/row", ".json"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._shop = sqlite3.connect(directory / "shop.db", isolation_level=None)
        self._shop.execute("CREATE TABLE note (name TEXT PRIMARY KEY, text TEXT)")
        url = f"sqlite:///{directory / 'shop.db'}"
        self.table = {"name": "shop", "type": "database", "ttl": "500ms", "config": {"url": url}}

    def store(self, name: str, text: str | None) -> None:
        if text is None:
            self._shop.execute("DELETE FROM note WHERE name = ?", (name,))
        else:
            self._shop.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (name, text))


class Stdio(Source):
    name, place = "stdio", "mcp-server+stdio/docs/a"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._server = ScriptedServer(directory / "stdio")
        self.table = self._server.source("stdio")

    def lists(self) -> int:
        return self._server.lists()

    def store(self, name: str, text: str | None) -> None:
        if text is None:
            self._server.remove(BASE + name)
        else:
            self._server.add(BASE + name, text)

    def tell(self, method: str, **params: str) -> None:
        self._server.say(method, **params)


class Answers(streams.Handler):
    """The answers of the server over HTTP."""

    texts: dict[str, str]

    def request_of(self, message: Any, method: str) -> None:
        name = message.get("params", {}).get("uri", "").removeprefix(BASE)
        if method == "resources/list":
            listed = [{"uri": BASE + each, "name": each} for each in list(self.texts)]
            self.result(message, {"resources": listed, "resultType": "complete"})
        elif method != "resources/read":
            super().request_of(message, method)
        elif name in self.texts:
            text = {"uri": BASE + name, "text": self.texts[name]}
            self.result(message, {"contents": [text], "resultType": "complete"})
        else:
            self.error(message)


class Http(Source):
    name, place = "http", "mcp-server+http/docs/a"

    def __init__(self) -> None:
        super().__init__()
        self._asked = list[str]()
        streams.say = self._asked.append
        self._server = streams.StreamServer(0, modern=True)
        self._server.RequestHandlerClass = type("Handler", (Answers,), {"texts": self.texts})
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.table = {"name": "http", "mcpConfig": {"url": f"http://127.0.0.1:{self._server.server_port}/mcp"}}

    def lists(self) -> int:
        return self._asked.count("resources/list")

    def store(self, name: str, text: str | None) -> None:
        """Do nothing: the answers are made of the texts."""

    def tell(self, method: str, **params: str) -> None:
        for stream in self._server.streams:
            stream.put((method, params))
