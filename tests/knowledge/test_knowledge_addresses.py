"""URIs of the knowledge base: one for each resource, and the one that expanding the templates gives."""

import pytest
import uritemplate
from hypothesis import given
from hypothesis import strategies as st

from bbfs.knowledge import addresses
from bbfs.knowledge.addresses import Address, parse, uri

IDS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=80)  # a longer URI is none


@given(kind=st.sampled_from(["documents", "stats", "document"]), collection=IDS, document=IDS)
def test_every_address_has_one_uri(kind: addresses.Kind, collection: str, document: str) -> None:
    address = Address(kind, collection, document if kind == "document" else "")
    assert parse(uri(address)) == address
    template = {
        "documents": addresses.DOCUMENTS_TEMPLATE,
        "stats": addresses.STATS_TEMPLATE,
        "document": addresses.DOCUMENT_TEMPLATE,
    }[kind]
    assert uritemplate.expand(template, collectionId=collection, docId=document) == uri(address)


@given(text=st.one_of(st.text(), st.text().map(lambda tail: f"resource://knowledge/{tail}")))
def test_what_parses_is_spelled_as_we_spell_it(text: str) -> None:
    address = parse(text)
    assert address is None or uri(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "file:///etc/passwd",
        "resource://knowledge",
        "resource://knowledge/",
        "resource://knowledge//documents",
        "resource://knowledge/docs",
        "resource://knowledge/docs/documents/",
        "resource://knowledge/docs/document/",
        "resource://knowledge/docs/document/a/b",
        "resource://knowledge/do%63s/documents",
        "resource://knowledge/a%2fb/documents",
        "resource://knowledge/%ff/documents",
        "resource://knowledge/\ud800/documents",
        "resource://knowledge/docs/documents?x",
        "resource://system/health/",
        "RESOURCE://system/health",
    ],
)
def test_what_is_no_uri_of_ours(text: str) -> None:
    assert parse(text) is None
