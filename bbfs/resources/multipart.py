"""Resources that answer several contents: each content gets a name, and the resource becomes their directory (S5)."""

from collections.abc import Callable, Container, Sequence
from itertools import count

from bbfs.model import file_names
from bbfs.model.values import Part, ResourceMetadata
from bbfs.resources.catalog.record import Record


def name_parts(
    record: Record, parts: Sequence[Part], now: float, leads: Callable[[str], str | None]
) -> dict[str, Record]:
    """Name the contents of one load: below the resource's own URI by what follows it, else by their last component.

    leads: where a symbolic link in their directory has to lead for a resource of this native URI; None if nowhere.
    """
    own = record.metadata.native_uri
    named: dict[str, Record] = {}
    for position, part in enumerate(parts):
        uri = part.link or part.native_uri or own
        target = leads(part.link) if part.link is not None else None
        if uri == own and part.link is None:
            name = part.name or file_names.index_name(part.mime_type)
        else:
            below = uri.removeprefix(own).strip("/") if uri.startswith(own) else uri.rstrip("/").rpartition("/")[2]
            name = file_names.show_component(below.replace("/", "%2F") or str(position))
        if part.link is not None and target is None:
            name = file_names.show_component(file_names.hide_component(name) + ".url")
        name = _free(name, named)
        # Its bbfs URI is the one that the rule makes of its path; the server's own may lead nowhere.
        bbfs_uri = f"{record.metadata.uri.rstrip('/')}/{file_names.hide_component(name)}"
        metadata = ResourceMetadata(
            bbfs_uri,
            uri,
            name,
            mime_type=part.mime_type,
            content_type=part.content_type,
            kind="resource" if target is None else "symlink",
            target=target,
        )
        child = Record(record.source_id, metadata, (*record.path, name) if record.path else (), now)
        child.parent, child.part = record, position
        # Its size is no declaration of the source: it belongs to this content and is gone with it.
        child.size, child.digest, child.inode_version = part.content.size, part.content.version, part.content.version
        named[name] = child
    return named


def _free(name: str, taken: Container[str]) -> str:
    """`name`, or with a number before its extension the first that is free: contents have an order, so it is stable."""
    numbered = (file_names.suffixed(name, str(number)) for number in count(1))
    return name if name not in taken else next(each for each in numbered if each not in taken)
