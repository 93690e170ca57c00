"""Keeping what a server's configuration and login hold secret out of messages and logs (`docs/semantics.md` S30)."""

from bbfs.model.redaction import Redactor, header_secrets, url_secrets
from bbfs.model.values import McpServer


class ServerRedactor(Redactor):
    """Replaces a server's secrets in any text: headers, environment, parts of its URL, references, tokens."""

    def __init__(self, server: McpServer) -> None:
        found = {*server.env.values(), *server.secrets, *header_secrets(server.headers)}
        if server.url is not None:
            found |= url_secrets(server.url)
        super().__init__(found)
