"""Which source is meant, and what a URI may have been meant for that leads nowhere."""

from bbfs.model.errors import BbfsError, ConfigError, InvalidUri, NotFound
from bbfs.model.uri import ParsedUri, native_scheme, parse_data_source_uri
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.server.errors import Fault


def source_called(manager: ResourceManager, called: str) -> Source:
    """The source with this id, or else with this name or URI prefix. Raises Fault, and ConfigError for several."""
    sources = list(manager.sources.values())
    found = [source for source in sources if source.data.id == called]
    if not found:
        names = {called, called.rstrip(":/")}
        found = [s for s in sources if not names.isdisjoint((s.data.name, s.data.uri_prefix, s.data.base_prefix))]
    if len(found) > 1:
        raise ConfigError(f"{called!r} names several data sources: {', '.join(source.data.id for source in found)}")
    if not found:
        raise Fault("data_source_not_found", f"data source not found: {called}; there are: {_there(manager)}")
    return found[0]


def certain(manager: ResourceManager, uri: str, error: BbfsError) -> BbfsError | Fault:
    """What an error with a bbfs URI says, more exactly where the URI's source or scheme is not the one there is."""
    if not isinstance(error, NotFound):
        return error
    try:
        parsed = parse_data_source_uri(uri)
    except InvalidUri as invalid:
        return invalid
    source = manager.sources.get(parsed.base_prefix)
    if source is None:
        return _without_source(manager, parsed)
    scheme = source.data.scheme
    if scheme is not None and native_scheme(parsed.original_uri) != scheme:
        return Fault("type_mismatch", f"{uri}: the URIs of {source.data.id} begin with {source.data.uri_prefix}:")
    return error


def _without_source(manager: ResourceManager, parsed: ParsedUri) -> Fault:
    named = [s.data.base_prefix for s in manager.sources.values() if s.data.name == parsed.data_source_name]
    if named:
        name = parsed.data_source_name
        return Fault("type_mismatch", f"{parsed}: {name} is {' or '.join(named)}, not {parsed.base_prefix}")
    known = f"data source not found: {parsed.base_prefix}; there are: {_there(manager)}"
    return Fault("data_source_not_found", known)


def _there(manager: ResourceManager) -> str:
    return ", ".join(sorted(source.data.id for source in manager.sources.values())) or "none"
