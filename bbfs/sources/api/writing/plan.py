"""The operations that bbfs may send to write: the operations that the option `write` names, as far as the document
allows them.

An operation qualifies if GET has the same path at the same server, no parameter lacks a value, and the body is JSON of
the schema that GET answers with. So a file that was read, changed and saved is what the operation takes. Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from bbfs.model.errors import InvalidUri, ProtocolViolation
from bbfs.model.redaction import shown
from bbfs.model.values import WriteOperation
from bbfs.sources.api.document import DocumentNode
from bbfs.sources.api.following import Paging
from bbfs.sources.api.operations import Api, Operation, Secured, is_json, read, read_operation
from bbfs.sources.api.options import WRITING, ApiOptions
from bbfs.sources.api.values import member
from bbfs.sources.api.writing.schemas import Compared, Steps, compared, is_open

MERGE_PATCH = "application/merge-patch+json"
"""RFC 7396."""


@dataclass(frozen=True, slots=True)
class Sending:
    """One operation that may be sent. media_type: of its body. read_only: properties that the body leaves out."""

    operation: Operation
    media_type: str = "application/json"
    read_only: frozenset[Steps] = frozenset()


@dataclass(frozen=True, slots=True)
class Writable:
    """The operations that write the document of one operation of GET.

    post: at the path of the document. create: at the path of the list above it. key: the property of a document that is
    the last variable of its path, for `create`.
    """

    put: Sending | None = None
    patch: Sending | None = None
    post: Sending | None = None
    delete: Sending | None = None
    create: Sending | None = None
    key: str = ""

    @property
    def operations(self) -> tuple[WriteOperation, ...]:
        whole = self.put or self.post
        granted: dict[WriteOperation, Sending | None] = {
            "create": whole or self.create,
            "replace": whole or self.patch,
            "remove": self.delete,
        }
        return tuple(operation for operation, sending in granted.items() if sending is not None)


@dataclass(frozen=True, slots=True)
class Plan:
    """The documents that can be written, by the path of GET.

    sent: the operations as messages name them. refused: the names in the option `write` that cannot be sent, each with
    the reason.
    """

    writable: Mapping[str, Writable] = field(default_factory=dict)
    sent: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


_Found: TypeAlias = tuple[str, str, DocumentNode]
"""Method and path of an operation, and the path's item in the document."""


def read_with_plan(root: DocumentNode, options: ApiOptions, has_credentials: bool = False) -> tuple[Api, Plan]:
    """Read an OpenAPI document, and which of its operations write. Raise as `operations.read`."""
    api = read(root, options, has_credentials)
    return api, _Planner(root, api, options, has_credentials).plan() if options.write else Plan()


class _Planner:
    def __init__(self, root: DocumentNode, api: Api, options: ApiOptions, has_credentials: bool) -> None:
        self._root = root
        self._api = api
        self._options = options
        self._has_credentials = has_credentials
        self._secured = Secured.of(root)
        self._gets = {operation.path: operation for operation in api.operations}
        self._items = {path: item for path, item in root.get("paths").raw_items() if path.startswith("/")}
        self._writable: dict[str, Writable] = {}

    def plan(self) -> Plan:
        named = self._named()
        sent, refused = list[str](), list[str]()
        for name in self._options.write:
            found = named.get(name)
            if found is None:
                refused.append(f"write: {shown(name, 100)}: the document has no such operation")
                continue
            label = f"{found[0]} {shown(found[1], 100)}"
            try:
                self._take(*found)
                sent.append(label)
            except (ProtocolViolation, InvalidUri) as error:
                refused.append(f"write: {label} is not sent: {error}")
        return Plan(self._writable, tuple(dict.fromkeys(sent)), tuple(refused))

    def _named(self) -> dict[str, _Found]:
        """Return the operations that the option names, by their names."""
        wanted, found = frozenset(self._options.write), dict[str, _Found]()
        for method, path, item in self._operations():
            operation_id = item.value[method.lower()].get("operationId")
            for name in (operation_id, f"{method} {path}"):
                if isinstance(name, str) and name in wanted:
                    found.setdefault(name, (method, path, item))
        return found

    def _operations(self) -> Iterator[_Found]:
        for path, node in self._items.items():
            try:
                item = node.followed()
            except ProtocolViolation:
                continue
            if isinstance(item.value, dict):
                for method in WRITING:
                    if isinstance(item.value.get(method.lower()), dict):
                        yield method, path, item

    def _take(self, method: str, path: str, item: DocumentNode) -> None:
        """Take one operation. Raise ProtocolViolation, InvalidUri if it does not qualify."""
        get = self._gets.get(path)
        if get is None:
            raise ProtocolViolation("bbfs reads no GET operation of the same path")
        operation = read_operation(path, item, self._root, self._secured, self._options, self._has_credentials, method)
        if operation.required:
            raise ProtocolViolation(f"it needs the query parameter {shown(operation.required[0].name)}")
        if operation.base != get.base:
            raise ProtocolViolation("its server or the form of its parameters is not that of GET")
        node = item.get(method.lower())
        if method == "DELETE":
            self._require_document(get)
            if node.get("requestBody").flag("required"):
                raise ProtocolViolation("it needs a body")
            self._put(get, "delete", Sending(operation))
            return
        sending, same = self._body(operation, node, get)
        if same.difference is None:
            self._require_document(get)
            self._put(get, method.lower(), replace(sending, read_only=same.read_only))
        elif method == "POST" and (made := self._created(node, operation)) is not None:
            item_get, made_same, key = made
            self._put(item_get, "create", replace(sending, read_only=made_same.read_only), key)
        else:
            raise ProtocolViolation(f"its body is not what GET answers: {same.difference}")

    def _put(self, get: Operation, place: str, sending: Sending, key: str = "") -> None:
        known = self._writable.get(get.path, Writable())
        self._writable[get.path] = replace(known, **{place: sending}, key=key or known.key)

    @staticmethod
    def _require_document(get: Operation) -> None:
        """Raise ProtocolViolation if GET answers no single document."""
        if get.required:
            raise ProtocolViolation(f"GET needs the query parameter {shown(get.required[0].name)}")
        if Paging.of(get.in_query).names:
            raise ProtocolViolation("GET answers a list in pages")

    def _body(self, operation: Operation, node: DocumentNode, get: Operation) -> tuple[Sending, Compared]:
        """Return how to send a body, and how its schema compares with the schema of GET."""
        content = {name.partition(";")[0].strip().lower(): each for name, each in _content(node.get("requestBody"))}
        types = sorted(filter(is_json, content), key=lambda name: name != "application/json")
        if operation.method == "PATCH":
            types = [MERGE_PATCH] if MERGE_PATCH in content else []
        if not types:
            what = MERGE_PATCH if operation.method == "PATCH" else "JSON"
            raise ProtocolViolation(f"its body is no {what}")
        schema = content[types[0]].get("schema")
        answer = self._answer(get)
        if schema.value is None or answer is None:
            raise ProtocolViolation("the document has no schema of its body, or of the answer of GET")
        if operation.method == "PATCH" and is_open(schema):
            same = Compared(None, compared(answer, answer).read_only)
        else:
            same = compared(schema, answer)
        return Sending(operation, types[0]), same

    def _answer(self, get: Operation) -> DocumentNode | None:
        """Return the schema of the JSON that an operation of GET answers, or None."""
        item = self._items[get.path].followed()
        responses = {code.upper(): node for code, node in item.get("get").get("responses").raw_items()}
        for code in [*sorted(code for code in responses if code.startswith("2")), "DEFAULT"]:
            if code in responses:
                for name, each in _content(responses[code].followed()):
                    if is_json(name) and (schema := each.get("schema")).value is not None:
                        return schema
        return None

    def _created(self, node: DocumentNode, post: Operation) -> tuple[Operation, Compared, str] | None:
        """Return the operation of GET for what a POST to a list makes, with its key. Raise ProtocolViolation."""
        above = re.compile(re.escape(post.base.rstrip("/")) + r"/\{[^{}/]*\}/?")
        schemas = [each.get("schema") for name, each in _content(node.get("requestBody")) if is_json(name)]
        for get in self._api.operations:
            answer = self._answer(get) if above.fullmatch(get.base) and not get.required else None
            if answer is None or not schemas or schemas[0].value is None:
                continue
            same = compared(schemas[0], answer)
            if same.difference is None:
                return get, same, _key(get, same)
        return None


def _content(node: DocumentNode) -> Sequence[tuple[str, DocumentNode]]:
    return [(name, each.followed()) for name, each in node.get("content").raw_items()]


def _key(get: Operation, same: Compared) -> str:
    """Return the property of a body that is the last variable of the path. Raise ProtocolViolation without one."""
    parameter = get.in_path[-1]
    types = (same.types or {}).items()
    found = member([{name: "" if kind == "string" else 0 for name, kind in types}], parameter)
    if found is None or (found,) in same.read_only:
        raise ProtocolViolation(
            f"its body has no property for {{{shown(parameter.name)}}}, so the API chooses the names of what it makes"
        )
    return found
