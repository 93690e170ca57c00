"""What programs may write and create, as far as can be told without a request."""

from bbfs.resources.catalog.record import Node, Path, Record
from bbfs.resources.tree import Roots
from bbfs.resources.writing.temporary import is_temporary, made_for


class Grants:
    """What programs may write on one mount.

    is_lower: an overlay is over the mount, so programs create names there, whatever the sources take. roots: the
    directories at the root whose sources can be written.
    """

    def __init__(self, roots: Roots, *, is_lower: bool) -> None:
        self._roots = roots
        self.is_lower = is_lower
        self.roots: set[str] = set()

    def replaceable(self, record: Record) -> bool:
        """Return whether the content of a resource can be written."""
        writes = self._roots.of(record).writes
        return writes is not None and not record.on_open and "replace" in writes.writes(record.metadata.native_uri)

    def may_create(self, path: Path) -> bool:
        """Return whether a program may try to create a name at a path."""
        return self.is_lower or path[0] in self.roots

    def may_be_new(self, path: Path, node: Node) -> Record | None:
        """Return the resource that a template alone makes of a name, if a program may try to create it, else None.

        If the source creates nothing there, that is an error of its own, and a file may still live in the mount alone.
        A name that programs make up is one that they try to create wherever they are: mkstemp(3) would go on to the
        next name as long as each is there.
        """
        record = node.record or node.candidate if node.draft is None else None
        if record is None or not record.provisional or record.on_open:
            return None
        if self.is_lower or is_temporary(path[-1]) or made_for(path[-1]) is not None:
            return record
        if not self.may_create(path):
            return None
        writes = self._roots.of(record).writes
        return record if writes is not None and writes.writes(record.metadata.native_uri) else None
