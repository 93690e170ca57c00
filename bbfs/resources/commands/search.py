"""Searches the sources (`bbfs search`).

    {"id": 1, "request": "search", "query": "renew the certificate", "paths": ["mcp-server+docs"], "limit": 20,
     "mode": "both", "within": 5}

Each hit comes as `{"id": 1, "hit": {…}}`, the best first, then each sentence about a source that may have more as
`{"id": 1, "problem": TEXT}`.
"""

import math
from collections.abc import Collection
from typing import Any

from bbfs.model.errors import ProtocolViolation
from bbfs.resources.catalog.record import Path
from bbfs.resources.manager import ResourceManager
from bbfs.resources.search.engine import LIMIT, WITHIN, Found

LONGEST = 600.0
"""Seconds that a search may take at most."""


async def search(manager: ResourceManager, request: dict[str, Any], paths: Collection[Path]) -> list[dict[str, Any]]:
    """Return the messages of the answer to a request, without its id. Raise BbfsError."""
    query, limit, mode, within = (request.get(key) for key in ("query", "limit", "mode", "within"))
    limit, mode, within = (LIMIT if limit is None else limit), mode or "both", WITHIN if within is None else within
    if not isinstance(query, str) or type(limit) is not int or mode not in ("words", "meaning", "both"):
        raise ProtocolViolation("query must be a string, limit an integer, and mode words, meaning or both")
    if type(within) not in (int, float) or not math.isfinite(within) or not 0 < within <= LONGEST:
        raise ProtocolViolation(f"within must be a number of seconds from 0 to {LONGEST:g}")
    answer = await manager.searches.search(query, below=paths, limit=limit, mode=mode, within=within)
    return [
        *({"hit": described(found)} for found in answer.hits),
        *({"problem": problem} for problem in answer.problems),
    ]


def described(found: Found) -> dict[str, Any]:
    """Return a hit as one JSON object."""
    fields = {
        "path": "/".join(found.path),
        "uri": found.uri,
        "source": found.source_id,
        "title": found.title,
        "snippet": found.snippet,
        "where": found.where,
        "score": found.score,
    }
    return {key: value for key, value in fields.items() if value is not None}
