"""The scripts that the shared tier runs on the server, each atomic, and the format of its entries.

Answers are validated: other programs, and other versions of this one, may write there.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_args

from bbfs.model.digest import DIGEST_BYTES
from bbfs.model.values import ContentType
from bbfs.resources.cache.tier import PartHeader

FORMAT = 2
"""Part of every key, so that versions of bbfs with different formats do not see each other's entries."""

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function text(number) return string.format('%.0f', number) end
"""

# KEYS: entry, claim, epoch. ARGV: token ('' to claim nothing), ms of the lease, largest age of the entry's claim in ms
# ('' to accept stale entries too).
FIND = (
    _NOW
    + """
local epoch = redis.call('GET', KEYS[3]) or ''
local entry = redis.call('HMGET', KEYS[1], 'epoch', 'at', 'ttl', 'parts', 'since')
if entry[4] and entry[5] and entry[1] == epoch then
  local age, ttl = now - tonumber(entry[2]), tonumber(entry[3])
  if ARGV[3] == '' or (age < ttl and now - tonumber(entry[5]) < tonumber(ARGV[3])) then
    return {'found', entry[4], age, ttl}
  end
end
if ARGV[1] == '' then return {'none'} end
if redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then return {'claimed', epoch, text(now)} end
if redis.call('GET', KEYS[2]) == '-' then return {'alone'} end
return {'held'}
"""
)

# KEYS: entry, claim, epoch. ARGV: token, epoch and time of the claim, ms of age, ttl, life; parts. What an answer tells
# may be as old as its request, so `since` is the time of the claim.
PUT = (
    _NOW
    + """
local epoch = redis.call('GET', KEYS[3]) or ''
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[2])
if epoch ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1])
redis.call(
  'HSET', KEYS[1], 'epoch', epoch, 'since', ARGV[3], 'at', text(now - ARGV[4]), 'ttl', ARGV[5], 'parts', ARGV[7])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
return 1
"""
)

# KEYS: content. ARGV: ms for which it has to be kept at least, ms for which it is kept otherwise, its bytes.
KEEP = """
local left = redis.call('PTTL', KEYS[1])
if left >= tonumber(ARGV[1]) then return 1 end
if left > 0 then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
return 1
"""

# KEYS: claim. ARGV: token, ms for which no machine waits.
RELEASE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], '-', 'PX', ARGV[2])
return 1
"""

# KEYS: claims. ARGV: ms of the lease, then their tokens.
RENEW = """
for i, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[i + 1] then redis.call('PEXPIRE', key, ARGV[1]) end
end
return #KEYS
"""

# KEYS: entry, claim. ARGV: channel, message. Without its claim, a load that has begun before is not put.
DROP = """
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('PUBLISH', ARGV[1], ARGV[2])
return 1
"""

# KEYS: epoch. ARGV: the new one, ms for which it is kept (no entry lives as long), channel, message.
DROP_ALL = """
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 1
"""


@dataclass(frozen=True, slots=True)
class Dropped:
    """An invalidation by the machine `by`: of a resource, or (None) of all resources of a source."""

    by: str
    source: str
    uri: str | None


def parse_dropped(message: bytes) -> Dropped | None:
    """Return the invalidation in a message, or None if it is not one of this version."""
    document = _json(message)
    match document:
        case {"by": str(by), "source": str(source), "uri": str() | None as uri}:
            return Dropped(by, source, uri)
    return None


def parts_text(parts: Iterable[PartHeader]) -> str:
    rows = [[p.digest, p.size, p.native_uri, p.mime_type, p.content_type, p.name] for p in parts]
    return json.dumps(rows, separators=(",", ":"))


def parse_parts(text: Any) -> tuple[PartHeader, ...] | None:
    """Return the parts of an entry, or None if the text is not valid."""
    document = _json(text)
    if not isinstance(document, list):
        return None
    parts = [_part(row) for row in document]
    return tuple(part for part in parts if part is not None) if parts and None not in parts else None


def _part(row: object) -> PartHeader | None:
    match row:
        case [str(digest), int(size), str() | None as uri, str() | None as mime, str(kind), str() | None as name]:
            if len(digest) == 2 * DIGEST_BYTES and size >= 0 and kind in get_args(ContentType):
                return PartHeader(digest, size, uri, mime, kind, name)  # type: ignore[arg-type]
    return None


def _json(text: Any) -> object:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
