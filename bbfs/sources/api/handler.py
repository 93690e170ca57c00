"""REST APIs by their OpenAPI documents (`type = "api"`): every GET operation is a path.

Native URIs are the URLs of the API. The listing has the operations that need no value. Operations with variables in
their path, or with a query, are URI templates, and their values come from the API's own lists. An operation that no
path can express is left out, and the listing reports it. bbfs asks only for URLs of operations in the document. It
writes by the operations that the option `write` names.
"""

from codecs import BOM_UTF8
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import trio
from cachetools import LRUCache

from bbfs.model.errors import BbfsError, Conflict, NotFound, NotSupported, ProtocolViolation, Rejected, TooLarge
from bbfs.model.redaction import header_secrets, shown
from bbfs.model.uri import source_uri
from bbfs.model.uri_templates.expand import expand_template
from bbfs.model.values import (
    Completion,
    Content,
    DataSource,
    Hit,
    Listing,
    Loaded,
    Part,
    ResourceMetadata,
    ResourceTemplate,
    SourceState,
    Unchanged,
    WriteOperation,
)
from bbfs.model.versions import Expected
from bbfs.sources import Services
from bbfs.sources.abilities import LONGEST_QUERY
from bbfs.sources.api.loading import DocumentReader
from bbfs.sources.api.operations import Api, Call, Operation
from bbfs.sources.api.options import ApiOptions, ValuesFrom, document_url, refuse_secrets_in_urls
from bbfs.sources.api.pages import BOUNDS, page_of
from bbfs.sources.api.parameters import Parameter
from bbfs.sources.api.requests import Answer, ApiRequests, NotModified
from bbfs.sources.api.search.operation import hits, proposal, search_call
from bbfs.sources.api.security import Keyring, check
from bbfs.sources.api.values import Lister, answers_for, hinted, lister, text_at, values_in, variable_at
from bbfs.sources.api.writing import bodies
from bbfs.sources.api.writing.plan import Plan, Sending, Writable, read_with_plan
from bbfs.sources.bounded.turns import InTurns
from bbfs.sources.health import Health
from bbfs.sources.http.client import WebClient
from bbfs.sources.http.headers import Validators, may_be_kept, media_type, modified_ns, strong_etag, time_to_live
from bbfs.sources.http.redirects import HARMLESS
from bbfs.sources.media_types import content_type_of
from bbfs.sources.options import made_of_references, parse_options

VALIDATORS_KEPT = 10_000
"""Resources with validators to revalidate them."""
_TOLD = 5
"""Omitted operations that the listing names one by one."""
_ANY_WRITE: tuple[WriteOperation, ...] = ("create", "replace", "remove")


class ApiHandler:
    """One API. It keeps the document as last read, and no content of the API.

    Raises ConfigError for options and secrets that cannot be used.
    """

    options = ApiOptions
    offers: Mapping[str, int] = MappingProxyType({})
    detects_conflicts = False
    """Many APIs ignore `If-Match`."""

    def __init__(self, source: DataSource, services: Services) -> None:
        self.source = source
        options = self._options = parse_options(ApiOptions, source)
        check(source.auth, f"sources[{source.id}].auth")
        self._keyring = Keyring(source.auth)
        refuse_secrets_in_urls(source)
        given = [*options.headers.items(), *options.document_headers.items()]
        secrets = {*self._keyring.secrets, *made_of_references(source.config)}
        secrets.update(*(header_secrets({name: value}) for name, value in given if name.lower() not in HARMLESS))
        self._interpret = partial(read_with_plan, options=options, has_credentials=bool(source.auth or options.headers))
        self._client = WebClient(
            source,
            allow_private=options.allow_private,
            max_body=options.max_body,
            per_second=options.per_second,
            secrets=secrets,
            proxy=options.proxy,
        )
        limiter = trio.CapacityLimiter(source.policy.concurrency)
        self._requests = ApiRequests(self._client, services.spool, self._keyring, options, limiter)
        self._reader = DocumentReader(
            document_url(source, options.document),
            self._client,
            options.document_headers,
            services.mount_point,
            limiter,
            services.workers,
            source.id,
            options.max_document,
        )
        self._validators: LRUCache[str, Validators] = LRUCache(VALIDATORS_KEPT)
        self._merged: LRUCache[str, None] = LRUCache(VALIDATORS_KEPT)  # URIs of lists that came in several pages
        self._reading = trio.Lock()
        self._read: Api | None = None
        self._plan = Plan()
        self._granted: LRUCache[str, Collection[WriteOperation]] = LRUCache(VALIDATORS_KEPT)
        self._proposed: str | None = None
        self._document = Health(BbfsError)

    @property
    def state(self) -> SourceState:
        """`down` while the document cannot be read, or after a request without an answer; else `up`."""
        if self._document.state.state == "down":
            return self._document.state
        state = self._client.state
        if self._read is None:
            return state
        api = self._read
        up = "up" if state.state == "idle" else state.state
        return SourceState(up, state.reason, f"OpenAPI {api.version}", api.title or None, api.description)

    @property
    def notes(self) -> list[str]:
        """Return sentences about the operations of the document."""
        if self._read is None:
            return []
        count = len(self._read.operations)
        notes = [f"{count} operation{'s' if count != 1 else ''} of GET. Others have no paths.", self._note_of_writing()]
        if self._read.schemes and not self.source.auth:
            notes.append("Requests have no credentials. The option `auth` of this source gives some.")
        if (line := self.proposed_search) is not None and "`" not in line:
            notes.append(f"A search does not ask this API. The option `{line}` lets it.")
        return notes

    def _note_of_writing(self) -> str:
        if not self._plan.sent:
            return "No operation that writes is sent. The option `write` of this source names those that may be."
        named = ", ".join(f"`{each}`" for each in self._plan.sent[:_TOLD] if "`" not in each)
        more = f" and {len(self._plan.sent) - _TOLD} more" if len(self._plan.sent) > _TOLD else ""
        return f"Operations that write, where `capabilities` grants `write`: {named}{more}. No others are sent."

    async def aclose(self) -> None:
        await self._client.aclose()

    # -- the document ------------------------------------------------------------------------------------------------

    async def list(self) -> Listing:
        """Return the operations that need no value, and templates for the others, from the current document."""
        api = await self._api_now()
        found: dict[str, Operation] = {}
        async for operation in InTurns(reversed(api.operations)):
            found.update(dict.fromkeys(operation.resources(), operation))
        resources = [self._resource(found[uri], uri) async for uri in InTurns(sorted(found))]
        templates = [template async for operation in InTurns(api.operations) for template in _templates(operation)]
        return Listing(tuple(resources), problem=self._problem(api), templates=tuple(templates))

    async def _api_now(self) -> Api:
        async with self._reading:
            with self._document:
                api, plan = await self._reader.read(self._interpret)
            if api is not self._read and not self.searches:
                self._proposed = await trio.to_thread.run_sync(proposal, api, abandon_on_cancel=True)
            if plan is not self._plan:
                self._granted.clear()
            self._read, self._plan = api, plan
            return api

    async def _api(self) -> Api:
        """Return the API as last read from the document."""
        return await self._api_now() if self._read is None else self._read

    def _problem(self, api: Api) -> str | None:
        problems = list(api.left_out[:_TOLD])
        if len(api.left_out) > _TOLD:
            problems.append(f"{len(api.left_out) - _TOLD} more operations are left out")
        problems += self._plan.refused[:_TOLD]
        problems += [f"auth.{shown(key)}: no security scheme of the document takes it" for key in
                     self._keyring.unused(api.schemes)]  # fmt: skip
        return "; ".join(problems) or None

    def _resource(self, operation: Operation, uri: str) -> ResourceMetadata:
        return ResourceMetadata(
            uri=source_uri(self.source.base_prefix, uri),
            native_uri=uri,
            name=uri.rstrip("/").rpartition("/")[2],
            title=operation.title,
            description=operation.description,
            mime_type=operation.mime_type,
            content_type=content_type_of(operation.mime_type),
            properties=_properties(operation),
        )

    # -- contents ----------------------------------------------------------------------------------------------------

    async def load(self, native_uri: str) -> Loaded:
        """Load the answer to a GET; for a list, all pages within the bounds. A list that is cut stays in this process:
        no other could tell that it is cut."""
        loaded = await self._load(native_uri, None)
        assert isinstance(loaded, Loaded)
        return loaded

    async def load_if_changed(self, native_uri: str, version: str) -> Loaded | Unchanged:
        """As `load`, unless the API says that the content is unchanged since `version`."""
        known = self._validators.get(native_uri)
        return await self._load(native_uri, known if known is not None and known.version == version else None)

    async def _load(self, native_uri: str, known: Validators | None) -> Loaded | Unchanged:
        api = await self._api()
        call = api.call(native_uri)
        answer = await self._requests.answer_if_changed(api, call, known.conditions if known is not None else {})
        if isinstance(answer, NotModified):
            return Unchanged(time_to_live(answer.headers))
        self._validators.pop(native_uri, None)
        self._note_pages(native_uri, len(answer.pages) > 1 or answer.truncated is not None)
        validators = Validators.of(answer.headers[0], answer.content.version)
        if validators is not None and not answer.pages:  # the list may change on a later page while the first one stays
            self._validators[native_uri] = validators
        metadata = self._described(call, native_uri, answer)
        part = Part(native_uri, metadata.mime_type, answer.content, metadata.content_type)
        ttls = [ttl for headers in answer.headers if (ttl := time_to_live(headers)) is not None]
        once = answer.truncated is not None or not all(map(may_be_kept, answer.headers))
        return Loaded((part,), min(ttls, default=None), metadata, once)

    def _note_pages(self, native_uri: str, is_merged: bool) -> None:
        """Remember whether the document is put together from pages, so that no operation writes it."""
        if is_merged != (native_uri in self._merged):
            self._granted.pop(native_uri, None)
            self._merged.pop(native_uri, None)
            if is_merged:
                self._merged[native_uri] = None

    def _described(self, call: Call, native_uri: str, answer: Answer) -> ResourceMetadata:
        """Describe a content by the document and the answer. Of several pages, no single page's etag or time counts."""
        headers, single = answer.headers[0], len(answer.pages) <= 1
        mime_type, charset = media_type(headers)
        mime_type = mime_type or call.operation.mime_type
        properties = _properties(call.operation)
        if charset is not None:
            properties["charset"] = charset
        if not single:
            properties |= {"pages": len(answer.pages), "items": sum(len(page.items) for page in answer.pages)}
        if answer.truncated is not None:
            properties |= {"truncated": answer.truncated, "error": f"the list is cut: {answer.truncated}"}
        return replace(
            self._resource(call.operation, native_uri),
            mime_type=mime_type,
            content_type=content_type_of(mime_type),
            modified_ns=modified_ns(headers) if single else None,
            etag=strong_etag(headers) if single else None,
            properties=properties,
        )

    # -- writing -----------------------------------------------------------------------------------------------------

    def writes(self, native_uri: str) -> Collection[WriteOperation]:
        """Return the operations that the option `write` has for a document; all before the OpenAPI document is read."""
        if not self._options.write:
            return ()
        if self._read is None:
            return _ANY_WRITE
        found = self._granted.get(native_uri)
        if found is None:
            try:
                found = self._writable(self._read, native_uri)[1].operations
            except (NotFound, NotSupported):
                found = ()
            self._granted[native_uri] = found
        return found

    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        if content.size > bodies.BOUNDS.size:
            raise TooLarge(f"a document of {content.size} bytes, more than {bodies.BOUNDS.size}")
        api = await self._api()
        is_new = expected.exists is False or (expected.exists is None and not await self._is_there(native_uri))
        call, writable = self._writable(api, native_uri)
        data = await content.read_waiting(0, content.size)
        document = await self._requests.parsed(partial(bodies.parsed, data), len(data))
        sending = writable.put or (writable.create or writable.post if is_new else writable.patch or writable.post)
        if sending is None:
            raise NotSupported(f"{shown(native_uri)}: no operation {'makes' if is_new else 'replaces'} it")
        if sending is writable.create and text_at(document, (writable.key,)) != [*call.values.values()][-1]:
            raise NotSupported(f"{shown(writable.key)} of the document should be the name; else the API chooses one")
        old = None
        if not is_new and (sending.read_only or sending is writable.patch):
            old = await self._replaced(native_uri, expected)
        body = await self._requests.parsed(partial(_body, sending, data, document, old), len(data))
        url = sending.operation.base if sending is writable.create else call.url
        try:
            if body:
                await self._requests.send(api, sending, url, body, _conditions(expected))
        except NotFound as error:
            raise NotSupported(f"{error}; the API makes nothing by this operation") if is_new else error from None
        finally:
            self._validators.pop(native_uri, None)
        if sending is writable.create and not await self._is_there(native_uri):
            raise BbfsError(f"{shown(native_uri)}: the API has made it, and gave it another name")
        return self._resource(call.operation, native_uri)

    async def remove(self, native_uri: str, expected: Expected) -> None:
        api = await self._api()
        call, writable = self._writable(api, native_uri)
        if writable.delete is None:
            raise NotSupported(f"{shown(native_uri)}: no operation removes it")
        try:
            await self._requests.send(api, writable.delete, call.url, b"", _conditions(expected))
        finally:
            self._validators.pop(native_uri, None)

    def _writable(self, api: Api, native_uri: str) -> tuple[Call, Writable]:
        """Return the request for a document, and the operations that write it. Raise NotFound, NotSupported."""
        call = api.call(native_uri)
        writable = self._plan.writable.get(call.operation.path)
        if writable is None or call.asked:
            raise NotSupported(f"{shown(native_uri)}: the option write has no operation for it")
        if native_uri in self._merged:
            raise NotSupported(f"{shown(native_uri)}: a list that comes in several pages")
        return call, writable

    async def _is_there(self, native_uri: str) -> bool:
        try:
            loaded = await self.load(native_uri)
        except NotFound:
            return False
        loaded.parts[0].content.close()
        return True

    async def _replaced(self, native_uri: str, expected: Expected) -> Any:
        """Return the document that is replaced. Raise Conflict if its version is not the expected version."""
        loaded = await self.load(native_uri)
        content, metadata = loaded.parts[0].content, loaded.metadata
        try:
            now = Expected(etag=metadata.etag if metadata is not None else None, version=content.version)
            if expected.etag not in (None, now.etag) or expected.version not in (None, now.version):
                raise Conflict(f"{shown(native_uri)}: somebody else has changed it")
            if content.size > bodies.BOUNDS.size:
                raise TooLarge(f"{shown(native_uri)}: {content.size} bytes, more than {bodies.BOUNDS.size}")
            data = await content.read_waiting(0, content.size)
        finally:
            content.close()
        try:
            return await self._requests.parsed(partial(bodies.parsed, data.removeprefix(BOM_UTF8)), len(data))
        except Rejected as error:
            raise ProtocolViolation(f"{shown(native_uri)}: the document that is replaced: {error}") from None

    # -- the search --------------------------------------------------------------------------------------------------

    @property
    def searches(self) -> bool:
        """Return whether the option `search` names an operation."""
        return self._options.search is not None

    @property
    def proposed_search(self) -> str | None:
        """Return the line that names an operation which looks like a search, if the option names no operation."""
        return self._proposed

    async def search(self, query: str, limit: int) -> Sequence[Hit]:
        """Return the resources among the items of the operation's first answer. Raise BbfsError."""
        option = self._options.search
        if option is None:
            raise NotSupported("the option search names no operation")
        words = " ".join(query[:LONGEST_QUERY].split())
        if not words:
            return ()
        api = await self._api()
        call = search_call(api, option, words, limit)
        page = await self._requests.page(api, call)
        if page is None:
            raise ProtocolViolation(f"GET {shown(call.operation.path)} answers no list of hits")
        return await self._requests.parsed(partial(hits, api, option, call, page, limit), sum(map(len, page.items)))

    # -- the values of variables -------------------------------------------------------------------------------------

    async def complete(self, uri_template: str, variable: str, value: str, context: Mapping[str, str]) -> Completion:
        """Return values of a variable in a path: the configured ones, else the document's, else those from the API's
        list above the path, else the document's examples."""
        api = await self._api()
        found = variable_at(api, uri_template, variable)
        if found is None or not answers_for(api, found[0], uri_template, found[2]):
            return Completion()
        operation, parameter, index = found
        configured = self._configured(operation, parameter)
        if isinstance(configured, tuple):
            return Completion(tuple(text for each in configured if (text := str(each)).startswith(value)))
        if configured is None and parameter.values:
            return Completion(tuple(each for each in parameter.values if each.startswith(value)))
        source = self._lister(api, operation, parameter, index, configured)
        if source is None:
            return Completion(tuple(each for each in parameter.samples if each.startswith(value)))
        uri = _url(source.operation, operation, context)
        answer = await self._requests.answer(api, api.call(uri))
        most = self._options.max_items
        work = partial(_values, answer, parameter, source.field, most)
        values, count = await self._requests.parsed(work, answer.content.size)
        found = tuple(each for each in values if each.startswith(value))
        return Completion(found, more=answer.truncated is not None or count > most, final=True)

    def _configured(self, operation: Operation, parameter: Parameter) -> "tuple[str | int, ...] | ValuesFrom | None":
        values = self._options.values
        return values.get(f"{operation.path}#{parameter.name}", values.get(parameter.name))

    @staticmethod
    def _lister(
        api: Api, operation: Operation, parameter: Parameter, index: int, configured: ValuesFrom | None
    ) -> Lister | None:
        if configured is None:
            return hinted(api, parameter) or lister(api, operation, index)
        found = lister(api, operation, index, configured.path)
        if found is None:
            raise ProtocolViolation(f"values: GET {shown(configured.path)} is no operation that lists anything")
        return Lister(found.operation, tuple(configured.field.split(".")) if configured.field else None)


def _templates(operation: Operation) -> list[ResourceTemplate]:
    """Return the templates of an operation. The template with a query comes first: the other template would match a
    query as part of a value."""
    made = [operation.query_template, operation.base if operation.in_path and not operation.required else None]
    return [
        ResourceTemplate(
            uri_template=template,
            name=operation.operation_id or operation.path,
            title=operation.title,
            description=operation.description,
            mime_type=operation.mime_type,
        )
        for template in made
        if template is not None
    ]


def _body(sending: Sending, data: bytes, document: Any, old: Any) -> bytes:
    """Return the body of a request that writes; nothing if there is nothing to change. Raise Rejected, NotSupported.

    data: the text of `document`. old: the document that it replaces; None for a new one.
    """
    sent = bodies.without(document, sending.read_only, old)
    if sending.operation.method == "PATCH":
        before = bodies.without(old, sending.read_only)
        return b"" if bodies.same(before, sent) else bodies.text_of(bodies.merge_patch(before, sent)).encode()
    return data if sent is document else bodies.text_of(sent).encode()


def _conditions(expected: Expected) -> dict[str, str]:
    """Return the headers that let an API refuse a conflict (RFC 9110, section 13.1). Many ignore them."""
    if expected.exists is False:
        return {"if-none-match": "*"}
    etag = strong_etag({"etag": expected.etag or ""})
    return {} if etag is None else {"if-match": etag}


def _properties(operation: Operation) -> dict[str, Any]:
    """Return further facts of the document about an operation."""
    said = {
        "operation": f"GET {operation.path}",
        "operation_id": operation.operation_id,
        "tags": list(operation.tags) or None,
        "deprecated": operation.deprecated or None,
    }
    return {key: value for key, value in said.items() if value is not None}


def _url(listing: Operation, operation: Operation, context: Mapping[str, str]) -> str:
    """Return the URL of a list, given the values of the preceding variables. Raise ProtocolViolation if one is
    missing."""
    given = {parameter.name: context[parameter.variable] for parameter in operation.in_path
             if parameter.variable in context}  # fmt: skip
    in_order = [context.get(parameter.variable) for parameter in operation.in_path]
    values: dict[str, str] = {}
    for index, parameter in enumerate(listing.in_path):
        value = given.get(parameter.name) or (in_order[index] if index < len(in_order) else None)
        if value is None:
            raise ProtocolViolation(f"GET {shown(listing.path)}: nothing gives {{{shown(parameter.name)}}} a value")
        values[parameter.variable] = value
    return expand_template(listing.base, values)


def _values(answer: Answer, parameter: Parameter, field: Sequence[str] | None, most: int) -> tuple[list[str], int]:
    """Return the values in the first items of a list, and how many items it has. Raise ProtocolViolation if the answer
    is no list of values, TooLarge if it is too large."""
    pages = answer.pages
    if not pages:
        page = (
            page_of(answer.content.read(0, answer.content.size) or b"") if answer.content.size <= BOUNDS.size else None
        )
        if page is None:
            raise ProtocolViolation("the API answers no list of values")
        pages = (page,)
    items: list[Any] = []
    for page in pages:
        items += page.parsed(most - len(items))
    return values_in(items, parameter, field), sum(len(page.items) for page in pages)
