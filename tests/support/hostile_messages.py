"""JSON values that cost a parser much, and messages of MCP that hold them: functions that make bytes.

`@ID@` in a message stands for the id of the request, and `@N@` for a new number (`hostile_sources.Reply`).
"""

import json
from collections.abc import Callable, Mapping

Made = Callable[[], bytes]


def many(piece: bytes, size: int) -> bytes:
    """Return a JSON array of about so many bytes. piece: what is in it again and again."""
    return b"[" + b",".join([piece] * max(1, size // (len(piece) + 1))) + b"]"


def members(size: int) -> bytes:
    """Return an object of different members."""
    return b"{" + b",".join(b'"%d":1' % number for number in range(size // 10)) + b"}"


def equal_members(size: int) -> bytes:
    """Return an object of equal members: small when it is parsed, but long under way."""
    return b"{" + b",".join([b'"a":{}'] * (size // 7)) + b"}"


def deep(opening: bytes, closing: bytes, size: int) -> bytes:
    """Return values inside each other."""
    levels = size // (len(opening) + len(closing))
    return opening * levels + b"1" + closing * levels


VALUES: Mapping[str, Callable[[int], bytes]] = {
    "arrays": lambda size: many(b"[]", size),
    "objects": lambda size: many(b"{}", size),
    "texts": lambda size: many(b'""', size),
    "numbers": lambda size: many(b"1", size),
    "long integers": lambda size: many(b"9" * 40, size),
    "fractions": lambda size: many(b"1e1", size),
    "nulls": lambda size: many(b"null", size),
    "short trees": lambda size: many(b"[[[[[[[[[[[[]]]]]]]]]]]]", size),
    "escapes": lambda size: many(b'"\\u0100"', size),
    "members": members,
    "equal members": equal_members,
    "deep arrays": lambda size: deep(b"[", b"]", size),
    "deep objects": lambda size: deep(b'{"a":', b"}", size),
    "one text": lambda size: b'"' + b"x" * size + b'"',
    "one text of escapes": lambda size: b'"' + b"\\u0100" * (size // 6) + b'"',
    "one text of surrogates": lambda size: b'"' + b"\\ud800" * (size // 6) + b'"',
    "one text of backslashes": lambda size: b'"' + b"\\\\" * (size // 2) + b'"',
    "one integer": lambda size: b"9" * size,
    "one fraction": lambda size: b"0." + b"9" * size,
    "one exponent": lambda size: b"1e" + b"9" * size,
    "one key": lambda size: b'{"' + b"k" * size + b'":1}',
    "spaces": lambda size: b" " * size + b"1",
    "line separators": lambda size: b'"' + b"\xe2\x80\xa8" * (size // 3) + b'"',
    "no UTF-8": lambda size: b'"' + b"\xff\xfe" * (size // 2) + b'"',
}
"""Values by name, for about so many bytes. Those of the name `one …` are single values."""

ID = b'{"jsonrpc":"2.0","id":@ID@,'
NOTE = b'{"jsonrpc":"2.0","method":"notifications/%b","params":%b}'
ENTRY = b'{"uri":"hostile://a","name":"a"}'
PLACES: Mapping[str, bytes] = {
    "the result": ID + b'"result":@@}',
    "beside the result": ID + b'"result":{"contents":[{"uri":"hostile://a","text":"x"}]},"more":@@}',
    "before the id": b'{"more":@@,"jsonrpc":"2.0","id":@ID@,"result":{}}',
    "the id": b'{"jsonrpc":"2.0","id":@@,"result":{}}',
    "_meta": ID + b'"result":{"_meta":@@,"contents":[{"uri":"hostile://a","text":"x"}]}}',
    "a part's _meta": ID + b'"result":{"contents":[{"uri":"hostile://a","text":"x","_meta":@@}]}}',
    "the parts": ID + b'"result":{"contents":@@}}',
    "the text": ID + b'"result":{"contents":[{"uri":"hostile://a","text":@@}]}}',
    "the blob": ID + b'"result":{"contents":[{"uri":"hostile://a","blob":@@}]}}',
    "the MIME type": ID + b'"result":{"contents":[{"uri":"hostile://a","text":"x","mimeType":@@}]}}',
    "the URI of a part": ID + b'"result":{"contents":[{"uri":@@,"text":"x"}]}}',
    "the error's data": ID + b'"error":{"code":-32603,"message":"x","data":@@}}',
    "the error's message": ID + b'"error":{"code":-32603,"message":@@}}',
    "the error's code": ID + b'"error":{"code":@@,"message":"x"}}',
    "the entries": ID + b'"result":{"resources":@@}}',
    "an entry's _meta": ID + b'"result":{"resources":[{"uri":"hostile://a","name":"a","_meta":@@}]}}',
    "an entry's name": ID + b'"result":{"resources":[{"uri":"hostile://a","name":@@}]}}',
    "an entry's description": ID + b'"result":{"resources":[{"uri":"hostile://a","name":"a","description":@@}]}}',
    "an entry's URI": ID + b'"result":{"resources":[{"uri":@@,"name":"a"}]}}',
    "an entry's size": ID + b'"result":{"resources":[{"uri":"hostile://a","name":"a","size":@@}]}}',
    "an entry's annotations": ID + b'"result":{"resources":[{"uri":"hostile://a","name":"a","annotations":@@}]}}',
    "the cursor": ID + b'"result":{"resources":[{"uri":"hostile://@N@","name":"a"}],"nextCursor":@@}}',
    "the templates": ID + b'"result":{"resourceTemplates":@@}}',
    "a template": ID + b'"result":{"resourceTemplates":[{"uriTemplate":@@,"name":"t"}]}}',
    "the completion": ID + b'"result":{"completion":{"values":@@,"hasMore":true}}}',
    "the capabilities": ID
    + b'"result":{"protocolVersion":"2025-06-18","capabilities":@@,"serverInfo":{"name":"h","version":"1"}}}',
    "the instructions": ID + b'"result":{"protocolVersion":"2025-06-18","capabilities":{},'
    b'"serverInfo":{"name":"h","version":"1"},"instructions":@@}}',
    "the server's name": ID + b'"result":{"protocolVersion":"2025-06-18","capabilities":{},'
    b'"serverInfo":{"name":@@,"version":"1"}}}',
    "the tools": ID + b'"result":{"tools":@@}}',
    "a tool's schema": ID + b'"result":{"tools":[{"name":"t","inputSchema":@@,"annotations":{"readOnlyHint":true}}]}}',
    "the prompts": ID + b'"result":{"prompts":@@}}',
    "a notification": NOTE % (b"message", b"@@"),
    "an update": NOTE % (b"resources/updated", b"@@"),
    "a ping": b'{"jsonrpc":"2.0","id":"p","method":"ping","params":@@}',
}
"""Messages with a value at one place, `@@`."""


def at(place: str, value: str, size: int) -> Made:
    """Return what makes a message of about so many bytes."""
    return lambda: PLACES[place].replace(b"@@", VALUES[value](size))


def text(value: object) -> bytes:
    return json.dumps(value).encode()


def line(message: bytes | Made) -> Made:
    """Return what makes the line of a message."""
    return lambda: (message if isinstance(message, bytes) else message()) + b"\n"


def event(message: bytes | Made) -> Made:
    """Return what makes the event of a message, for an event stream."""
    return lambda: b"event: message\ndata: " + (message if isinstance(message, bytes) else message()) + b"\n\n"


def page(entries: int, *, uri: str = "hostile://@N@/%d", key: str = "resources", more: str = "") -> Made:
    """Return what makes a page of a listing that goes on. uri: `%d` is the number of an entry. more: its members."""
    of = {"resources": "uri", "resourceTemplates": "uriTemplate"}[key]

    def made() -> bytes:
        listed = ",".join(
            f'{{"{of}":"{uri.replace("%d", str(number))}","name":"n"{more}}}' for number in range(entries)
        )
        return ID + f'"result":{{"{key}":[{listed}],"nextCursor":"@N@"}}}}'.encode()

    return made


STREAMS: Mapping[str, bytes] = {
    "pings": b'{"jsonrpc":"2.0","id":"@N@","method":"ping"}',
    "requests for roots": b'{"jsonrpc":"2.0","id":@N@,"method":"roots/list"}',
    "unknown requests": b'{"jsonrpc":"2.0","id":@N@,"method":"sampling/createMessage","params":{}}',
    "updates": NOTE % (b"resources/updated", b'{"uri":"hostile://@N@"}'),
    "changes of the list": NOTE % (b"resources/list_changed", b"{}"),
    "log messages": NOTE % (b"message", b'{"level":"error","data":"@N@"}'),
    "progress": NOTE % (b"progress", b'{"progressToken":@ID@,"progress":@N@}'),
    "answers to nothing": b'{"jsonrpc":"2.0","id":"@N@","result":{}}',
    "empty objects": b"{}",
    "empty batches": b"[]",
    "nothing": b"",
    "no JSON": b"{",
}
"""Messages that a server may send for ever."""


def portion(stream: str, count: int = 200) -> bytes:
    """Return some messages of a stream, as lines; each portion of those with a number has another."""
    return b"".join(STREAMS[stream].replace(b"@N@", b"@N@%04d" % number) + b"\n" for number in range(count))


def portion_of_events(stream: str, count: int = 200) -> bytes:
    """Return some messages of a stream, as events."""
    return b"".join(
        b"data: " + STREAMS[stream].replace(b"@N@", b"@N@%04d" % number) + b"\n\n" for number in range(count)
    )
