"""Which sources' contents may be kept where other machines, and whoever else is let in there, can read them.

Two machines share a source when they have configured it alike (`attached.fingerprint`). That must mean the same
contents, and contents that are nobody's in particular. So by default (`DataSource.shared` is None) only an MCP server
over HTTP is shared, and only if everybody who knows its URL is told the same:

- no `auth`, no headers, nothing in its definition that came in as a secret, no user or query in the URL: what such a
  server answers may be for one user's eyes. A login (`bbfs login`) counts likewise, whenever it is made;
- no `tools` and no `roots`: those make it do something, or look at folders, for this user;
- not on this machine (`localhost`): the same URL is another server on every machine. For the same reason no program
  that is started here, and no local folder, which is read faster than any server anyway.

`shared = true` says that the user knows better, `shared = false` keeps out what would be shared.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from bbfs.model.values import DataSource, McpServer


def may_be_shared(source: DataSource, *, logged_in: bool = False) -> bool:
    """Whether the contents of a source go to the shared cache. logged_in: whether a login of this user is used."""
    if source.shared is not None or source.mcp is None:
        return bool(source.shared) and source.mcp is not None
    return not (logged_in or source.auth or source.tools != "off" or source.prompts) and _is_public(source.mcp)


def _is_public(server: McpServer) -> bool:
    if server.transport == "stdio" or server.url is None:
        return False
    parts = urlsplit(server.url)
    personal = server.headers or server.env or server.secrets or server.roots or parts.query or "@" in parts.netloc
    return not personal and not _is_this_machine(parts.hostname or "")


def _is_this_machine(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        name = host.rstrip(".").lower()
        return name == "localhost" or name.endswith(".localhost")
    return address.is_loopback or address.is_unspecified or address.is_link_local
