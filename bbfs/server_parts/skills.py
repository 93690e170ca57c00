"""The messages of the skills extension of the protocol (SEP-2640), which directories of resources are a part of.

The SDK has no types for them. `directoryRead` is a setting of this extension; the method reads any directory resource.
"""

from typing import Any

import mcp_types as types

SKILLS = "io.modelcontextprotocol/skills"
"""The identifier of the extension in the capabilities of a server."""
DIRECTORY = "inode/directory"
"""The MIME type of a directory resource."""
READ_DIRECTORY, LIST_SKILLS, GET_SKILL = "resources/directory/read", "skills/list", "skills/get"


class DirectoryParams(types.PaginatedRequestParams):
    """The parameters of `resources/directory/read`."""

    uri: str


class DirectoryResult(types.PaginatedResult):
    """The direct children of a directory, or a page of them."""

    resources: list[types.Resource]
    result_type: types.ResultType = "complete"


class SkillsResult(types.PaginatedResult, types.CacheableResult):
    """A page of the entries of skills."""

    skills: list[dict[str, Any]]
    result_type: types.ResultType = "complete"


class SkillParams(types.RequestParams):
    """The parameters of `skills/get`. uri: of the skill's SKILL.md."""

    uri: str


class SkillResult(types.CacheableResult):
    """The entry of one skill."""

    skill: dict[str, Any]
    result_type: types.ResultType = "complete"


def directory(uri: str, name: str) -> types.Resource:
    """Return a directory as a resource. uri: without a slash at its end."""
    return types.Resource(uri=uri, name=name, mime_type=DIRECTORY)
