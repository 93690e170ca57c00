"""The values of a write: the state that it replaces, and the labels of its content."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expected:
    """The state of a resource that a write replaces. Another state is a conflict. All None: any state will do.

    exists: whether the source has the resource. etag: of its metadata. version: of its content (`Content.version`).
    """

    exists: bool | None = None
    etag: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Labels:
    """The description of a content by its writer. None leaves the description that the source has."""

    mime_type: str | None = None
    description: str | None = None

    def __bool__(self) -> bool:
        return (self.mime_type, self.description) != (None, None)
