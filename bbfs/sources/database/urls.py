"""URLs of databases, and their secrets."""

from urllib.parse import quote, quote_plus

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from bbfs.model.errors import ConfigError

HIDDEN = "***"


class Secrets:
    """The secrets of a URL, which no message may have."""

    def __init__(self, url: URL) -> None:
        given = [url.password, *(value for name, value in url.query.items() if "password" in name.lower())]
        plain = [text for text in given if isinstance(text, str) and text]
        self._texts = sorted({form for text in plain for form in (text, quote(text, safe=""), quote_plus(text))})

    def hidden(self, text: str) -> str:
        """Return `text` without the secrets."""
        for secret in sorted(self._texts, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text


def parse_url(where: str, url: str, password: str | None) -> URL:
    """Parse a URL of SQLAlchemy, with a password from elsewhere. Raises ConfigError, whose text has no secret."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise ConfigError(f"{where}: not a URL such as postgresql://user@host:5432/database") from None
    return parsed if password is None else parsed.set(password=password)
