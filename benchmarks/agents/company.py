"""Eight sources of a company in a port, among whose ordinary texts lie the facts of `facts.toml`.

The ordinary texts are drawn from one vocabulary with a fixed seed. They have the words of the questions too.
"""

import csv
import io
import json
import random
import sqlite3
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "thirdparty"))

from harness import SourceTable, folder, mcp
from object_stores import KEY, SECRET, S3Server
from office_documents import excel, pdf, powerpoint, word
from postgres_server import PASSWORD, PostgresServer
from programs import free_port
from thirdparty_servers import FETCH, FILESYSTEM, MEMORY, NODE

HERE = Path(__file__).parent
RIVALS = HERE.parent / "rivals" / ".venv" / "bin"
ALCHEMY = RIVALS / "mcp-alchemy"
BUCKET = "archive"
STARTS_WITHIN = 30.0
PLACES = (
    "Bergen",
    "Veddel",
    "Moorburg",
    "Rotterdam",
    "quay 3",
    "hall 7",
    "gate 2",
    "gate C",
    "terminal 2",
    "the basin",
)
THINGS = (
    *("crane", "gearbox", "berth", "queue", "valve", "tug", "printer", "certificate", "conveyor", "ventilator"),
    *("invoice", "contract", "sprinkler", "order", "ticket", "licence", "gateway", "weighbridge", "shift", "encoder"),
)
DEEDS = (
    *("was inspected", "was moved", "was closed", "was renewed", "was delivered", "was delayed", "was repaired"),
    *("was painted", "was replaced", "was counted", "was postponed", "was tested", "was restarted", "was damaged"),
)
WHEN = ("on Monday", "in June", "at night", "before the frost", "last quarter", "after the audit", "twice", "by hand")
FIRST = ("Ada", "Bo", "Carla", "Dag", "Edda", "Finn", "Greta", "Hugo", "Ida", "Jan", "Karin", "Lars", "Mia", "Nils")
LAST = ("Berg", "Dahl", "Eriksen", "Falk", "Holm", "Jansen", "Krog", "Lind", "Moe", "Nyberg", "Olsen", "Ravn", "Strand")
MAKERS = ("Terberg", "Kalmar", "MAN")
SHELVES = ("runbooks", "policies", "glossary", "services", "decisions", "teams", "checklists", "meetings")


@dataclass(frozen=True, slots=True)
class Fact:
    """A row of `facts.toml`."""

    source: str
    place: str
    text: str
    question: str
    answer: str
    title: str = ""
    column: str = ""
    row: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Company:
    """sources: for bbfs. hosts: the command of the MCP server that a host without bbfs has for a source.

    entrances: what such a host is told of a source beside its name: the URL where it begins.
    """

    sources: Sequence[SourceTable]
    hosts: Mapping[str, Sequence[str]]
    environs: Mapping[str, Mapping[str, str]]
    entrances: Mapping[str, str]


def facts() -> list[Fact]:
    with (HERE / "facts.toml").open("rb") as file:
        return [Fact(**fact) for fact in tomllib.load(file)["facts"]]


class Writer:
    """Ordinary sentences."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def sentence(self) -> str:
        pick = self.random.choice
        return f"The {pick(THINGS)} of {pick(PLACES)} {pick(DEEDS)} {pick(WHEN)}."

    def text(self, sentences: int = 12) -> str:
        return " ".join(self.sentence() for _ in range(sentences))

    def person(self) -> str:
        return f"{self.random.choice(FIRST)} {self.random.choice(LAST)}"

    def day(self) -> str:
        return f"{self.random.randint(2019, 2026)}-{self.random.randint(1, 12):02}-{self.random.randint(1, 28):02}"

    def around(self, text: str, paragraphs: int = 3) -> list[str]:
        """Paragraphs, one of which is the text."""
        made = [self.text() for _ in range(paragraphs)]
        made.insert(self.random.randrange(paragraphs + 1), text)
        return made


def of(source: str) -> list[Fact]:
    return [fact for fact in facts() if fact.source == source]


def handbook(root: Path) -> SourceTable:
    """A folder of Markdown: 240 ordinary files beside those with facts."""
    writer = Writer("handbook")
    for shelf in SHELVES:
        (root / shelf).mkdir(parents=True)
        for number in range(30):
            thing = writer.random.choice(THINGS)
            text = "\n\n".join(writer.text() for _ in range(3))
            (root / shelf / f"{thing}-{number:02}.md").write_text(f"# {thing.capitalize()} {number}\n\n{text}\n")
    for fact in of("handbook"):
        path = root / fact.place
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            title = path.stem.replace("-", " ").capitalize()
            path.write_text(f"# {title}\n\n" + "\n\n".join(writer.around(fact.text)) + "\n")
        else:
            path.write_text(f"[http]\nport = 8080\n{fact.text}\n")
    return folder("handbook", root, index=True)


def papers(root: Path) -> SourceTable:
    """A folder of Word, PDF, Excel and PowerPoint files."""
    writer = Writer("papers")

    def write(path: Path, paragraphs: list[str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        match path.suffix:
            case ".docx":
                data = word(*paragraphs)
            case ".pdf":
                data = pdf(*(sentence for each in paragraphs for sentence in each.split(". ")))
            case ".xlsx":
                rows = [cell.strip() for each in paragraphs for cell in each.split("|")]
                data = excel("budget", *(tuple(rows[at : at + 2]) for at in range(0, len(rows), 2)))
            case _:
                data = powerpoint(path.stem, "\n".join(paragraphs))
        path.write_bytes(data)

    for number in range(32):
        suffix = (".docx", ".pdf", ".xlsx", ".pptx")[number % 4]
        write(root / f"various/{writer.random.choice(THINGS)}-{number:02}{suffix}", [writer.text(4) for _ in range(4)])
    for fact in of("papers"):
        around = [f"{writer.sentence()} | {1000 * number}" for number in range(6)]
        is_sheet = fact.place.endswith(".xlsx")
        write(root / fact.place, [*around[:3], fact.text, *around[3:]] if is_sheet else writer.around(fact.text))
    return folder("papers", root, index=True)


Tables = dict[str, list[dict[str, Any]]]


def with_facts(source: str, tables: Tables) -> Tables:
    """The tables with the rows of the facts of a source among the others."""
    places = random.Random(source)
    for fact in of(source):
        rows = tables[fact.place]
        template = dict.fromkeys(rows[0], "") if rows else {}
        rows.insert(places.randrange(len(rows)), template | dict(fact.row or {}) | {fact.column: fact.text})
    for rows in tables.values():
        for number, row in enumerate(rows, 1):
            row["id"] = number
    return tables


def order_tables() -> Tables:
    writer = Writer("orders")
    pick = writer.random.choice
    firms = [f"{pick(LAST)} {pick(('Foods', 'Steel', 'Textiles', 'Glass', 'Timber', 'Paper'))}" for _ in range(100)]
    tables: Tables = {
        "customers": [{"id": 0, "name": firm, "city": pick(PLACES), "contact": writer.person()} for firm in firms],
        "products": [
            {"id": 0, "name": f"{pick(THINGS)} part {number}", "sku": f"X-{number:04}", "note": writer.sentence()}
            for number in range(80)
        ],
        "orders": [
            {
                "id": 0,
                "customer": pick(firms),
                "item": f"{pick(THINGS)} part",
                "quantity": writer.random.randint(1, 90),
                "remark": writer.sentence(),
            }
            for _ in range(600)
        ],
    }
    return with_facts("orders", tables)


def plant_tables() -> Tables:
    writer = Writer("plant")
    pick = writer.random.choice
    machines = [f"{pick(('Conveyor', 'Crane', 'Ventilator', 'Pump'))} {pick('ABCDE')}-{number}" for number in range(40)]
    tables: Tables = {
        "machines": [
            {"id": 0, "name": name, "hall": f"hall {number % 9}", "commissioned": writer.day()}
            for number, name in enumerate(machines)
        ],
        "maintenance": [
            {"id": 0, "machine": pick(machines), "done_on": writer.day(), "note": writer.sentence()} for _ in range(400)
        ],
    }
    return with_facts("plant", tables)


def statements(tables: Tables) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """The statements that make the tables, each with its parameters; `?` stands for one."""
    for name, rows in tables.items():
        kinds = {key: "INTEGER" if isinstance(rows[0][key], int) else "TEXT" for key in rows[0]}
        columns = ", ".join(f"{key} {kind}{' PRIMARY KEY' if key == 'id' else ''}" for key, kind in kinds.items())
        yield f"CREATE TABLE {name} ({columns})", []
        marks = ", ".join("?" for _ in kinds)
        yield f"INSERT INTO {name} VALUES ({marks})", [tuple(row[key] for key in kinds) for row in rows]


def orders(file: Path) -> SourceTable:
    with closing(sqlite3.connect(file)) as connection:
        for statement, rows in statements(order_tables()):
            connection.executemany(statement, rows) if rows else connection.execute(statement)
        connection.commit()
    return {"name": "orders", "type": "database", "index": True, "config": {"url": f"sqlite:///{file}"}}


def plant(server: PostgresServer) -> SourceTable:
    database = server.create("plant")
    with server.connect(database) as connection, connection.cursor() as cursor:
        for statement, rows in statements(plant_tables()):
            marked = statement.replace("?", "%s").encode()
            cursor.executemany(marked, rows) if rows else cursor.execute(marked)
    config = {"url": server.url(database)}
    return {"name": "plant", "type": "database", "index": True, "config": config, "auth": {"password": PASSWORD}}


def archive(server: S3Server) -> SourceTable:
    writer = Writer("archive")
    server.make_bucket(BUCKET)
    for number in range(160):
        shelf = ("incidents", "minutes", "logs", "letters")[number % 4]
        server.put(BUCKET, f"{shelf}/{writer.day()[:7]}-{number:03}.txt", writer.text(20).encode())
    for fact in of("archive"):
        if fact.place.endswith(".csv"):
            out = io.StringIO()
            csv.writer(out).writerows([writer.day(), "tide", writer.random.choice(PLACES), "+2.10 m"] for _ in range(9))
            text = out.getvalue() + fact.text + "\n"
        else:
            text = "\n".join(writer.around(fact.text))
        server.put(BUCKET, fact.place, text.encode())
    options = {"endpoint": server.url, "region": "us-east-1", "path_style": True}
    config = {"url": f"s3://{BUCKET}/", "options": options}
    auth = {"access_key": KEY, "secret_key": SECRET}
    return {"name": "archive", "type": "storage", "index": True, "config": config, "auth": auth}


def fleet_file(file: Path) -> None:
    writer = Writer("fleet")
    pick = writer.random.choice
    vehicles = [
        {"id": 0, "name": f"{pick(MAKERS)} {number}", "depot": pick(PLACES), "plate": f"HH-{number}",
         "inspection_due": writer.day(), "note": writer.sentence()}
        for number in range(20, 80)
    ]  # fmt: skip
    drivers = [
        {
            "id": 0,
            "name": writer.person(),
            "depot": pick(PLACES),
            "licence": f"C-{number:05}",
            "note": writer.sentence(),
        }
        for number in range(40)
    ]
    depots = [{"id": 0, "name": place, "opens": "06:00"} for place in ("Altenwerder", "Veddel", "Harburg")]
    tables = with_facts("fleet", {"vehicles": vehicles, "drivers": drivers, "depots": depots})
    file.write_text(json.dumps(tables))


def tickets_file(file: Path) -> None:
    writer = Writer("tickets")
    special = {fact.place: fact for fact in of("tickets")}
    lines: list[str] = []
    for number in range(1, 121):
        fact = special.get(str(number))
        title = fact.title if fact else writer.sentence().rstrip(".")
        text = "\n\n".join(writer.around(fact.text, 2)) if fact else writer.text()
        state = writer.random.choice(("open", "closed"))
        lines.append(json.dumps({"number": number, "title": title, "state": state, "text": text}))
    file.write_text("\n".join(lines))


def people_file(file: Path) -> None:
    """The memory of server-memory: a line of JSON for each entity."""
    writer = Writer("people")
    names = dict.fromkeys(writer.person() for _ in range(60))
    entities = [(name, [writer.sentence()]) for name in names]
    entities += [(fact.place, [writer.sentence(), fact.text]) for fact in of("people")]
    lines = [
        json.dumps({"type": "entity", "name": name, "entityType": "person", "observations": said})
        for name, said in entities
    ]
    file.write_text("\n".join(lines) + "\n")


def _await(url: str) -> None:
    deadline = time.monotonic() + STARTS_WITHIN
    while True:
        try:
            with urlopen(url, timeout=5):
                return
        except URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@contextmanager
def opened(directory: Path) -> Iterator[Company]:
    """The company's sources, made in an empty directory, with their servers while the context lasts."""
    with ExitStack() as ending:
        sources = [handbook(directory / "handbook"), papers(directory / "papers"), orders(directory / "orders.db")]
        directory.chmod(0o755)  # PostgreSQL runs as a user of its own
        (directory / "pg").mkdir()
        postgres = PostgresServer(directory / "pg")
        ending.callback(postgres.kill)
        sources.append(plant(postgres))
        bucket = S3Server()
        ending.callback(bucket.close)
        sources.append(archive(bucket))
        fleet_file(directory / "fleet.json")
        port = free_port()
        api = subprocess.Popen([sys.executable, HERE / "fleet.py", directory / "fleet.json", str(port)])
        ending.callback(api.wait, 20)
        ending.callback(api.terminate)
        document = f"http://127.0.0.1:{port}/openapi.json"
        _await(document)
        config = {"document": document, "allow_private": True}
        sources.append({"name": "fleet", "type": "api", "index": True, "config": config})
        tickets_file(directory / "tickets.jsonl")
        tickets = [sys.executable, str(HERE / "tickets.py"), str(directory / "tickets.jsonl")]
        sources.append(mcp("tickets", tickets, index=True))
        people_file(directory / "people.jsonl")
        people = [str(NODE), str(MEMORY)]
        remembered = {"MEMORY_FILE_PATH": str(directory / "people.jsonl")}
        sources.append(mcp("people", people, env=remembered, index=True))
        fetch = [str(FETCH), "--ignore-robots-txt", "--allow-private-ips"]
        yield Company(
            sources,
            {
                "handbook": [str(NODE), str(FILESYSTEM), str(directory / "handbook")],
                "papers": [str(NODE), str(FILESYSTEM), str(directory / "papers")],
                "orders": [str(ALCHEMY)],
                "plant": [str(ALCHEMY)],
                "archive": fetch,
                "fleet": fetch,
                "tickets": tickets,
                "people": people,
            },
            {
                "orders": {"DB_URL": f"sqlite:///{directory / 'orders.db'}"},
                "plant": {
                    "DB_URL": postgres.url("plant", quote(PASSWORD, safe="")).replace(
                        "postgresql:", "postgresql+psycopg:"
                    )
                },
                "people": remembered,
            },
            {"archive": f"{bucket.url}/{BUCKET}?list-type=2", "fleet": document},
        )
