"""The public interface for authors of source types: `bbfs.sources`, as docs/sources/own.md lists it."""

import re
from types import ModuleType

from repository import DOCS

import bbfs.sources

DOCUMENT = DOCS / "sources/own.md"
PUBLIC = """
    BacksOff BbfsError Busy Bytes Call CanAnnounce CanCall CanClose CanComplete CanDescribe CanFind CanList
    CanListDirectory CanLoad CanLoadIfChanged CanLogIn CanMakeDirectories CanReadDirectory CanRename CanSearch
    CanSetTime
    CanShareListing CanStage CanStat CanWatch
    CanWrite Change Completion ConfigError Conflict Content DataSource DeadlineExceeded Denied
    DetectsExisting DetectsRemoved Exists Expected Handler Hit HoldsContents InvalidUri IsADirectory
    IsLocalFile Labels Listing
    ListingExchange ListingProgress Loaded LoadsWhileWanted LoginRequired MemoryContent NoSpace NotADirectory NotEmpty
    NotFound NotSupported Outdated Part Policy Progress ProposesSearch ProposesWrite ProtocolViolation Rejected
    RenamesSome ResourceMetadata ResourceTemplate SearchesByMeaning Services SourceOptions SourceState Spool
    StatesBeginning TellsMore TellsProgress TooLarge Tool ToolArgument ToolFailed Unchanged Unreachable
    WriteOperation WritesUnseen
    content_type_of local_path mime_type_of_name open_regular parse_data_source_uri parse_options refuse_auth
    show_component source_uri
"""
"""Packages of other people depend on these names. One that goes, or changes its meaning, breaks them."""


def test_the_interface_has_these_names_and_no_other():
    assert sorted(bbfs.sources.__all__) == sorted(PUBLIC.split())
    names = {name for name, value in vars(bbfs.sources).items() if not isinstance(value, ModuleType)}
    assert {name for name in names if not name.startswith("_")} == set(PUBLIC.split())


def test_the_document_lists_all_of_them():
    table = re.search(r"^\| for \|(?:.*\n)+?\n", DOCUMENT.read_text() + "\n", re.MULTILINE)
    assert table is not None
    assert set(re.findall(r"`(\w+)`", table[0].partition("\n|---|---|\n")[2])) - {"__init__", "options"} == set(
        PUBLIC.split()
    )


def test_the_example_uses_nothing_else_of_bbfs():
    text = DOCUMENT.read_text()
    assert set(re.findall(r"^from (bbfs(?:\.\w+)*) import", text, re.MULTILINE)) == {"bbfs.sources", "bbfs.testing"}
