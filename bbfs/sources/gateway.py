"""What an MCP server offers beside resources, for `bbfs serve`, which passes it on to its own clients.

Values are JSON of the protocol, under the server's own names and URIs. Everything in them is a stranger's text: the
caller bounds it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from bbfs.model.calls import Progress
from bbfs.model.redaction import Cut
from bbfs.model.values import Completion

OfferedKind = Literal["tools", "prompts"]


@dataclass(frozen=True, slots=True)
class Offered:
    """The tools that the option `tools` of a source allows, and its prompts, as entries of the two listings."""

    tools: tuple[Mapping[str, Any], ...] = ()
    prompts: tuple[Mapping[str, Any], ...] = ()


class Audience(Protocol):
    """The clients of `bbfs serve`, as the server of one source sees them. Only `ask` may wait or raise."""

    @property
    def level(self) -> str | None:
        """The least severe level of log messages that any client wants; None if none wants any."""
        ...

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the clients offer a server, as a client declares it: elicitation, sampling."""
        ...

    def logged(self, params: Mapping[str, Any], cut: Cut) -> None:
        """Take a log message of the server. cut: shortens its texts, and leaves secrets out."""
        ...

    def list_changed(self, kind: OfferedKind) -> None:
        """Take the news that a list has changed. A change "listed" or "missed" of the source follows."""
        ...

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the client whose request the server works on; return its answer. Raise NotSupported, MCPError."""
        ...


class Passing(Protocol):
    """Sends requests for tools, prompts and skills to one server as they are."""

    @property
    def kinds(self) -> Collection[OfferedKind]:
        """What the configuration lets the server offer."""
        ...

    async def offered(self) -> Offered:
        """Return what the server offers, as last listed. Ask it for what was never listed. Raise BbfsError."""
        ...

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], progress: Callable[[Progress], None]
    ) -> Mapping[str, Any]:
        """Run an offered tool once and return its raw result. Raise NotFound, BbfsError.

        progress: called with each progress that the server reports. It must neither block nor raise.
        """
        ...

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str], progress: Callable[[Progress], None]
    ) -> Mapping[str, Any]:
        """Render a prompt and return the raw result. Raise BbfsError. progress: as for `call_tool`."""
        ...

    async def skills(self) -> Sequence[Mapping[str, Any]]:
        """Return the entries of the skills, as last listed. Ask the server if it never was. Raise BbfsError."""
        ...

    async def skill(self, uri: str) -> Mapping[str, Any]:
        """Return the entry of one skill, which need not be listed. uri: the native one. Raise NotFound, BbfsError."""
        ...

    def attach(self, audience: Audience) -> None:
        """Pass on what the server says to these clients."""
        ...

    async def follow_level(self) -> None:
        """Have the server send log messages of the level that its audience wants, if it is connected."""
        ...

    async def complete(self, prompt: str, argument: str, value: str, context: Mapping[str, str]) -> Completion:
        """Return values for an argument of a prompt. context: the values of other arguments. Raise BbfsError."""
        ...


@runtime_checkable
class IsMcpServer(Protocol):
    """Is a whole MCP server, not only a source of resources."""

    @property
    def passing(self) -> Passing: ...
