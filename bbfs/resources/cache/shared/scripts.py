"""The scripts that the shared tier runs on the server, each atomic, and the format of its entries.

Answers are validated: other programs, and other versions of this one, may write there.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_args

from bbfs.model.values import ContentType
from bbfs.resources.cache.tier import PartHeader
from bbfs.sources.content.memory import DIGEST_BYTES

FORMAT = 3
"""Part of every key, so that versions of bbfs with different formats do not see each other's entries."""

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function text(number) return string.format('%.0f', number) end
"""

# Finds and puts entries of a source, and returns an answer for each. KEYS: entry and claim of each, then the epoch.
# ARGV: ms of the lease; then for each one the number of its arguments, and these. Of a find: token ('' to claim none),
# largest age of the entry's claim in ms ('' to accept stale entries too). Of a put: token, epoch and time of the claim,
# ms of age, ttl, life; parts, and their bytes if they are few. What an answer tells may be as old as its request, so
# `since` is the time of the claim.
EXCHANGE = (
    _NOW
    + """
local epoch = redis.call('GET', KEYS[#KEYS]) or ''
local function find(entry_key, claim_key, token, largest)
  local entry = redis.call('HMGET', entry_key, 'epoch', 'at', 'ttl', 'parts', 'since', 'bytes')
  if entry[4] and entry[5] and entry[6] and entry[1] == epoch then
    local age, ttl = now - tonumber(entry[2]), tonumber(entry[3])
    if largest == '' or (age < ttl and now - tonumber(entry[5]) < tonumber(largest)) then
      return {'found', entry[4], age, ttl, entry[6]}
    end
  end
  if token == '' then return {'none'} end
  if redis.call('SET', claim_key, token, 'NX', 'PX', ARGV[1]) then return {'claimed', epoch, text(now)} end
  if redis.call('GET', claim_key) == '-' then return {'alone'} end
  return {'held'}
end
local function put(entry_key, claim_key, token, claimed, since, age, ttl, life, parts, bytes)
  if redis.call('GET', claim_key) ~= token then return 0 end
  redis.call('DEL', claim_key)
  if epoch ~= claimed then return 0 end
  redis.call('DEL', entry_key)
  local at = text(now - age)
  redis.call('HSET', entry_key, 'epoch', epoch, 'since', since, 'at', at, 'ttl', ttl, 'parts', parts, 'bytes', bytes)
  redis.call('PEXPIRE', entry_key, life)
  return 1
end
local answers, first = {}, 3
for i = 2, #KEYS, 2 do
  local last = first + ARGV[first - 1] - 1
  local exchange = last - first == 1 and find or put
  answers[i / 2] = exchange(KEYS[i - 1], KEYS[i], unpack(ARGV, first, last))
  first = last + 2
end
return answers
"""
)

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
