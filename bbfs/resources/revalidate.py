"""Asking a source for what is kept already: where it says that this is still what it has, nothing is transferred.

The answer is then as good as a load that has brought the same bytes, so all that follows from one (the time to live,
the inode, the pages that the kernel keeps) follows from it.
"""

from collections.abc import Sequence

from bbfs.model.values import Content, Loaded, Part, Unchanged
from bbfs.resources.catalog.record import Record
from bbfs.resources.source import Source
from bbfs.resources.tiers import LowerTiers


async def reload(
    source: Source, record: Record, in_memory: Sequence[Content] | None, tiers: LowerTiers
) -> Loaded | None:
    """What a load of a resource brings whose content is kept; None where that is not so, and a load is to be made.

    in_memory: the contents of the version last seen, if they are there. Raises BbfsError.
    """
    if source.reloads is None or record.digest is None or record.parts is not None or record.on_open:
        return None
    part = await _kept(source, record, in_memory, tiers)
    if part is None:
        return None
    answer = await source.reloads.load_if_changed(record.metadata.native_uri, record.digest)
    return Loaded((part,), answer.ttl, answer.metadata) if isinstance(answer, Unchanged) else answer


async def _kept(source: Source, record: Record, in_memory: Sequence[Content] | None, tiers: LowerTiers) -> Part | None:
    """The one content of a resource, of the version last seen, from memory or from the disk."""
    if in_memory is not None:
        m = record.metadata
        return Part(m.native_uri, m.mime_type, in_memory[0], m.content_type)
    found = await tiers.same(source, record)
    return found.parts[0] if found is not None and len(found.parts) == 1 else None
