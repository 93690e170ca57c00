"""The operations of an OpenAPI document (3.0, 3.1), with their URLs: those of GET, which make the paths. Pure."""

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urljoin, urlsplit

from bbfs.model.errors import InvalidUri, NotFound, ProtocolViolation
from bbfs.model.redaction import shown
from bbfs.model.uri_templates.expand import expand_template
from bbfs.model.uri_templates.patterns import Pattern
from bbfs.sources.api.document import TOKEN, DocumentNode, is_unicode, url_origin
from bbfs.sources.api.options import ApiOptions
from bbfs.sources.api.parameters import Parameter, on_the_wire, parameters, text_of
from bbfs.sources.api.security import Requirement, SecurityScheme, requirements, schemes

log = logging.getLogger(__name__)
LONGEST_URL = 16_384
"""Characters. Servers accept URLs of 8 to 16 KB."""
LISTED_AT_MOST = 100
"""Resources that one operation may list, one for each combination of required query values."""
VARIABLES_IN_A_SEGMENT = 3
MAX_OPERATIONS = 20_000
"""GET operations of a document, with those that are left out."""
_LONGEST_PATH, _LONGEST_VALUE = 2048, 255
"""Characters of a path or a server in a document, and of the value of a server's variable."""
_MAX_TEXT, _LONGEST_DESCRIPTION, _MAX_TAGS = 16 << 20, 16_384, 100
"""Characters of the titles and descriptions of all operations, and of one; tags of one."""
_IN_PATH = "!$&'()*+,;=:@-._~"  # RFC 3986, pchar, without the characters that `quote` never escapes
_SENDABLE = re.compile(r"[!$-;=?-Z\[\]_a-z~]+")  # RFC 3986, without the fragment
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
CONDITIONS = ("if-match", "if-none-match")
"""Header parameters that bbfs gives a value when it writes."""
_STREAMS = frozenset(("text/event-stream", "multipart/x-mixed-replace"))


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, of GET unless `method` says otherwise.

    path: as in the document. base: its URL template without a query. returns: media types of a successful answer.
    links: parameters that take values from its answers, by `operationId` of their operation.
    """

    path: str
    base: str
    in_path: tuple[Parameter, ...]
    in_query: tuple[Parameter, ...]
    regex: re.Pattern[str] = field(repr=False)
    security: tuple[Requirement, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    returns: tuple[str, ...] = ()
    operation_id: str | None = None
    title: str | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()
    deprecated: bool = False
    method: str = "GET"
    links: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    @property
    def required(self) -> tuple[Parameter, ...]:
        """The query parameters that the operation requires."""
        return tuple(parameter for parameter in self.in_query if parameter.required)

    @property
    def query_template(self) -> str | None:
        """The URI template with the query, or None without query parameters."""
        if not self.in_query:
            return None
        return f"{self.base}{{?{','.join(parameter.expression for parameter in self.in_query)}}}"

    @property
    def mime_type(self) -> str | None:
        """The media type of the content, or None if the document does not say."""
        return self.returns[0] if self.returns and "*" not in self.returns[0] else None

    def upto(self, index: int) -> str:
        """Return the base up to the end of a variable's segment."""
        end = -1
        for _ in range(index + 1):
            end = self.base.index("}", end + 1)
        end = self.base.find("/", end)
        return self.base if end == -1 else self.base[:end]

    def resources(self) -> Iterator[str]:
        """Yield the URLs to list: no variable is needed, or the document enumerates its values."""
        if self.in_path:
            return
        choices = [each.values or tuple(filter(None, [text_of(each.default)])) for each in self.required]
        count = 1
        for choice in choices:
            count *= len(choice)
        if not 0 < count <= LISTED_AT_MOST:
            return
        template = self.query_template or self.base
        for values in product(*choices):
            pairs = zip(self.required, values, strict=True)
            yield expand_template(template, {p.variable: [v] if p.exploded else v for p, v in pairs})


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the operation, its values by parameter name, and the URL to send (without secrets)."""

    operation: Operation
    values: Mapping[str, str]
    asked: tuple[str, ...]
    url: str


@dataclass(frozen=True, slots=True)
class OperationIndex:
    """Operations by the keys by which the values of their variables are looked up. Of several, the first one of the
    document.

    templates: by a URI template of theirs. paths: the operations without a required query, by their path. ids: by
    `operationId`. shapes: the operations without a required query, by their shape. answering: the operations whose
    template gives the values of a variable, by its index and the shape of the base up to it.
    """

    templates: dict[str, Operation]
    paths: dict[str, Operation]
    ids: dict[str, Operation]
    shapes: dict[str, list[Operation]]
    answering: dict[tuple[int, str], Operation]

    @classmethod
    def of(cls, operations: Iterable[Operation]) -> "OperationIndex":
        made = cls({}, {}, {}, {}, {})
        for operation in operations:
            for template in (operation.base, operation.query_template):
                if template is not None:
                    made.templates.setdefault(template, operation)
            if operation.operation_id is not None:
                made.ids.setdefault(operation.operation_id, operation)
            if not operation.required:
                made.paths.setdefault(operation.path, operation)
                made.shapes.setdefault(shape(operation.base), []).append(operation)
            whole = operation.base.rstrip("/")
            for index in range(len(operation.in_path)):
                beginning = operation.upto(index)
                if not (operation.required and beginning.rstrip("/") == whole):
                    made.answering.setdefault((index, shape(beginning)), operation)
        return made


@dataclass(frozen=True, slots=True)
class Api:
    """The readable part of an API. operations: most specific paths first, as OpenAPI matches them.

    left_out: operations that have no path, with the reason. by_depth: the operations by the number of slashes in their
    base, which is that of each of their URLs.
    """

    title: str
    version: str
    description: str | None
    operations: tuple[Operation, ...]
    schemes: Mapping[str, SecurityScheme]
    left_out: tuple[str, ...]
    by_depth: Mapping[int, Sequence[Operation]] = field(repr=False)
    index: OperationIndex = field(repr=False)

    def call(self, native_uri: str) -> Call:
        """Return the request for a URL. Raise NotFound if no operation has it."""
        if len(native_uri) > LONGEST_URL:
            raise NotFound(f"{shown(native_uri)}: a URL of {len(native_uri)} characters is too long")
        base, question, query = native_uri.partition("?")
        for operation in self.by_depth.get(base.count("/"), ()):
            found = operation.regex.fullmatch(base)
            if found is None:
                continue
            values = {p.name: _value(p, text) for p, text in zip(operation.in_path, found.groups(), strict=True)}
            if any(part in (".", "..") for value in values.values() for part in value.split("/")):
                raise NotFound(f"{shown(native_uri)}: a value that leads out of its place")
            pairs = parse_qsl(query, keep_blank_values=True)
            asked = tuple(dict.fromkeys(name for name, _ in pairs))
            wrong = _refused(operation, asked)
            if wrong is not None:
                raise NotFound(f"{shown(native_uri)}: {wrong}")
            if not _SENDABLE.fullmatch(native_uri):
                break
            path, query = on_the_wire(base, query, operation.base, (*operation.in_path, *operation.in_query))
            return Call(operation, values, asked, path + question + query)
        raise NotFound(f"{shown(native_uri)}: no operation of the document has this URL")


def _value(parameter: Parameter, text: str) -> str:
    text = text.removeprefix(".") if parameter.style == "." else text
    return unquote(text.partition("=")[2] if parameter.style == ";" else text)


def _refused(operation: Operation, asked: Sequence[str]) -> str | None:
    """Return why an operation does not take a query, or None."""
    unknown = [name for name in asked if name not in {parameter.name for parameter in operation.in_query}]
    lacking = [parameter.name for parameter in operation.required if parameter.name not in asked]
    if unknown:
        return f"GET {shown(operation.path)} has no query parameter {shown(unknown[0])}"
    return f"GET {shown(operation.path)} needs the query parameter {shown(lacking[0])}" if lacking else None


def read(root: DocumentNode, options: ApiOptions, has_credentials: bool = False) -> Api:
    """Read an OpenAPI 3 document. Raise ProtocolViolation if it is none, TooLarge if its references multiply it.

    Operations that cannot be read or expressed as a path go to `Api.left_out`. has_credentials: requests carry secrets,
    which only the document's own server gets, or the one of the option `server`.
    """
    version = root.text("openapi") or str((root.value if isinstance(root.value, dict) else {}).get("openapi", ""))
    if not version.startswith("3."):
        what = "Swagger 2, which is to be converted" if root.get("swagger").value else "no OpenAPI document"
        raise ProtocolViolation(f"{root}: {what}; OpenAPI 3.0 and 3.1 are read")
    if not isinstance(root.get("paths").value, dict):
        raise ProtocolViolation(f"{root}/paths: no object")
    title, description = _about(root)
    secured = Secured.of(root)
    operations: list[Operation] = []
    left_out: list[str] = []
    texts = 0
    for path, item in root.get("paths").raw_items():
        if not path.startswith("/") or not _is_included(path, options):
            continue
        try:
            item = item.followed()
            if not isinstance(item.get("get").value, dict):
                continue
            if len(operations) + len(left_out) >= MAX_OPERATIONS:
                left_out.append(f"all after the first {MAX_OPERATIONS}")
                break
            operation = read_operation(path, item, root, secured, options, has_credentials)
            texts += len(operation.title or "") + len(operation.description or "")
            if texts > _MAX_TEXT:
                operation = replace(operation, title=None, description=None)
            operations.append(operation)
        except (ProtocolViolation, InvalidUri) as error:
            left_out.append(f"GET {shown(path)}: {error}")
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, re.error) as error:
            # What the reading of one operation does not foresee must not take the others away.
            log.warning("GET %s of %s cannot be read", shown(path), root, exc_info=error)
            left_out.append(f"GET {shown(path)}: cannot be read ({type(error).__name__})")
    operations.sort(key=lambda operation: [_openness(part) for part in operation.base.split("/")])
    by_depth: defaultdict[int, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_depth[operation.base.count("/")].append(operation)
    index = OperationIndex.of(operations)
    return Api(title, version, description, tuple(operations), secured.schemes, tuple(left_out), by_depth, index)


@dataclass(frozen=True, slots=True)
class Secured:
    """The security schemes of a document, and the requirements of operations that state no requirements."""

    schemes: Mapping[str, SecurityScheme]
    everywhere: tuple[Requirement, ...]

    @classmethod
    def of(cls, root: DocumentNode) -> "Secured":
        """Read a document, without what cannot be read."""
        known, everywhere = dict[str, SecurityScheme](), tuple[Requirement, ...]()
        with suppress(ProtocolViolation):
            known = schemes(root.get("components"))
        with suppress(ProtocolViolation):
            everywhere = requirements(root.get("security")) or ()
        return cls(known, everywhere)


def _about(root: DocumentNode) -> tuple[str, str | None]:
    """Return title and description of a document, without what cannot be read."""
    title, description = "", None
    with suppress(ProtocolViolation):
        title = (root.get("info").text("title") or "")[:_LONGEST_VALUE]
    with suppress(ProtocolViolation):
        description = (root.get("info").text("description") or "")[:_LONGEST_DESCRIPTION] or None
    return title, description


def _openness(segment: str) -> tuple[int, str]:
    """Sort literal segments first, then partly variable ones, then wholly variable ones."""
    return (0 if "{" not in segment else 2 if segment.startswith("{") and segment.endswith("}") else 1), segment


def read_operation(
    path: str,
    item: DocumentNode,
    root: DocumentNode,
    secured: Secured,
    options: ApiOptions,
    has_credentials: bool,
    method: str = "GET",
) -> Operation:
    """Read one operation. Raise ProtocolViolation and InvalidUri if it has no path."""
    get = item.get(method.lower())
    if len(path) > _LONGEST_PATH:
        raise ProtocolViolation(f"a path of more than {_LONGEST_PATH} characters")
    if "?" in path or "#" in path or not is_unicode(path):
        raise ProtocolViolation("a path with a query or a fragment, or that is no Unicode")
    hidden = [scheme.name for scheme in secured.schemes.values() if scheme.kind == "query"]
    given = (*options.headers, *(CONDITIONS if method != "GET" else ()))
    found = parameters(path, (item.get("parameters"), get.get("parameters")), given, hidden)
    if found.lacking:
        raise ProtocolViolation(f"needs a value for {', '.join(found.lacking)}, which the option headers can give")
    returns, links = _answers(get)
    if returns and _STREAMS.issuperset(returns):
        raise ProtocolViolation(f"answers a stream without end ({returns[0]})")
    server = _server(get, item, root, options, has_credentials)
    base, regex = _template(server, path, found.path)
    security = requirements(get.get("security"))
    tags = get.get("tags").value
    operation = Operation(
        path=path,
        base=base,
        in_path=found.path,
        in_query=found.query,
        regex=regex,
        security=secured.everywhere if security is None else security,
        headers=found.headers,
        returns=returns,
        operation_id=get.text("operationId"),
        title=(get.text("summary") or item.text("summary") or "")[:_LONGEST_DESCRIPTION] or None,
        description=(get.text("description") or item.text("description") or "")[:_LONGEST_DESCRIPTION] or None,
        tags=tuple(tag for tag in tags[:_MAX_TAGS] if isinstance(tag, str)) if isinstance(tags, list) else (),
        deprecated=bool(get.flag("deprecated")),
        method=method,
        links=links,
    )
    for template in (operation.query_template, base if found.path else None):
        if template is not None:
            Pattern(template)
    return operation


def _template(server: str, path: str, in_path: Sequence[Parameter]) -> tuple[str, re.Pattern[str]]:
    """Return the URI template of a path, and the regular expression that matches its URLs in linear time."""
    by_name = {parameter.name: parameter for parameter in in_path}
    base, regex, seen = server, re.escape(server), set[str]()
    for segment in path[1:].split("/"):
        base, regex = base + "/", regex + "/"
        pieces = re.split(r"\{([^{}]*)\}", segment)
        if len(pieces) // 2 > VARIABLES_IN_A_SEGMENT:
            raise ProtocolViolation("too many variables between two slashes")
        for index, piece in enumerate(pieces):
            if index % 2 == 0:
                if "{" in piece or "}" in piece:
                    raise ProtocolViolation("a brace without another")
                literal = quote(piece, safe=_IN_PATH + "%")
                base, regex = base + literal, regex + re.escape(literal)
                continue
            parameter = by_name[piece]
            if not piece or piece in seen:
                raise ProtocolViolation(f"the variable {{{shown(piece)}}} twice, or without a name")
            seen.add(piece)
            base += f"{{{parameter.style}{parameter.expression}}}"
            after = quote(pieces[index + 1], safe=_IN_PATH + "%")
            if index + 2 < len(pieces):
                after += by_name[pieces[index + 2]].style
            regex += _variable(parameter.style, after, is_last=index + 2 >= len(pieces))
    return base, re.compile(regex)


def _variable(style: str, after: str, is_last: bool) -> str:
    """Return the group of a variable. after: the text that follows it in its segment.

    A variable that another one follows ends at the first place where it can, and stays so (an atomic group). That loses
    no match: the next variable may hold all that this variable may.
    """
    begin = re.escape(style)
    if is_last:
        return rf"({begin}[^/?#]+)" if not after else rf"({begin}[^/?#]+?)"
    return rf"(?>({begin}[^/?#]+?)(?={re.escape(after)}))"


def _server(
    get: DocumentNode, item: DocumentNode, root: DocumentNode, options: ApiOptions, has_credentials: bool
) -> str:
    """Return the URL that an operation's path is appended to. Raise ProtocolViolation."""
    if options.server is not None:
        return _usable(options.server, "the option server")
    found = next((each for node in (get, item, root) for _, each in node.get("servers").items()), None)
    place, url = (f"{root}/servers", "/") if found is None else (str(found), found.text("url") or "/")
    if len(url) > _LONGEST_PATH:
        raise ProtocolViolation(f"{place}: a URL of more than {_LONGEST_PATH} characters")
    values = _server_variables(found, options)
    url = re.sub(r"\{([^{}]*)\}", lambda variable: values(variable[1], variable[0]), url)
    try:
        url = url if _HAS_SCHEME.match(url) else urljoin(root.documents.location, url)
    except ValueError:
        raise ProtocolViolation(f"{place}: {shown(url)} is no URL") from None
    url = _usable(url, place)
    own, server = urlsplit(root.documents.location), urlsplit(url)
    if own.scheme == "https" and server.scheme != "https":
        raise ProtocolViolation(f"{place}: {shown(url)} is not https, as the document is; the option server names one")
    if has_credentials and url_origin(own) != url_origin(server):
        raise ProtocolViolation(
            f"{place}: {shown(url)} is another server than the document's, and would get the secrets of auth and "
            f"headers; the option server allows that"
        )
    return url


def _usable(url: str, place: str) -> str:
    """Return the URL of a server without a slash at its end. Raise ProtocolViolation."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_usable, parts = False, urlsplit("")
    if not is_usable:
        raise ProtocolViolation(f"{place}: {shown(url)} is no http or https URL; the option server names one")
    if parts.username is not None or parts.query or parts.fragment or "{" in url or not url.isascii():
        raise ProtocolViolation(f"{place}: a URL with a user name, a query, a fragment, or a variable without a value")
    return quote(url.rstrip("/"), safe=_IN_PATH + "/%[]")


def _server_variables(server: DocumentNode | None, options: ApiOptions) -> Callable[[str, str], str]:
    """Return a function from the name of a variable to its value, or to the second argument."""
    declared = dict(server.get("variables").raw_items()) if server is not None else {}

    def value_of(name: str, otherwise: str) -> str:
        value = options.server_variables.get(name)
        if value is None and name in declared:
            value = text_of(declared[name].get("default").value)
        if value is not None and len(value) > _LONGEST_VALUE:
            raise ProtocolViolation(f"{server}: a variable of more than {_LONGEST_VALUE} characters")
        return otherwise if value is None else value

    return value_of


def _answers(get: DocumentNode) -> tuple[tuple[str, ...], tuple[tuple[str, Mapping[str, Any]], ...]]:
    """Return the media types of a successful answer, JSON first, and the links of answers."""
    responses = {code.upper(): node for code, node in get.get("responses").raw_items()}
    codes = [*sorted(code for code in responses if code.startswith("2")), "DEFAULT"]
    links: list[tuple[str, Mapping[str, Any]]] = []
    for code in codes:
        if code not in responses:
            continue
        try:
            response = responses[code].followed()
            for _, link in response.get("links").items():
                leads_to, given = link.text("operationId") or link.text("operationRef"), link.get("parameters").value
                if leads_to and isinstance(given, dict):
                    links.append((leads_to, given))
            types = [name.partition(";")[0].strip().lower() for name, _ in response.get("content").raw_items()]
            types = [name for name in types if all(map(TOKEN.fullmatch, name.split("/"))) and name.count("/") == 1]
        except ProtocolViolation:
            continue
        if types or code != "DEFAULT":
            return tuple(sorted(dict.fromkeys(types), key=lambda each: not is_json(each))), tuple(links)
    return (), tuple(links)


def shape(base: str) -> str:
    """Return a template without the names of its variables."""
    return re.sub(r"\{[^{}]*\}", "{}", base)


def is_json(media_type: str | None) -> bool:
    """Return whether a media type is JSON (RFC 8259, RFC 6839)."""
    essence = (media_type or "").partition(";")[0].strip().lower()
    return essence == "application/json" or essence.endswith("+json")


def _is_included(path: str, options: ApiOptions) -> bool:
    if options.include and not any(_glob(glob).fullmatch(path) for glob in options.include):
        return False
    return not any(_glob(glob).fullmatch(path) for glob in options.exclude)


def _glob(text: str) -> re.Pattern[str]:
    """Compile a glob: `*` and `?` match within a segment, `**` matches any number of segments."""
    made = {"/**": "(?:/.*)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces: Iterable[str] = re.split(r"(/\*\*|\*\*|\*|\?)", text)
    return re.compile("".join(made.get(piece, re.escape(piece)) for piece in pieces), re.DOTALL)
