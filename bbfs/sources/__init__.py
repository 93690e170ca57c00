"""The public interface for authors of source types. A handler needs no other name of bbfs, and no other one is stable.

`docs/sources/own.md` shows its use. `bbfs.testing` has the tests that every handler must pass.
"""

from bbfs.model.calls import Call, Progress, Tool, ToolArgument
from bbfs.model.errors import (
    BbfsError,
    Busy,
    ConfigError,
    Conflict,
    DeadlineExceeded,
    Denied,
    Exists,
    InvalidUri,
    IsADirectory,
    LoginRequired,
    NoSpace,
    NotADirectory,
    NotEmpty,
    NotFound,
    NotSupported,
    Outdated,
    ProtocolViolation,
    Rejected,
    TooLarge,
    ToolFailed,
    Unreachable,
)
from bbfs.model.uri import parse_data_source_uri, source_uri
from bbfs.model.uri_paths import show_component
from bbfs.model.values import (
    Change,
    Completion,
    Content,
    DataSource,
    Hit,
    Listing,
    ListingProgress,
    Loaded,
    Part,
    Policy,
    ResourceMetadata,
    ResourceTemplate,
    SourceState,
    Unchanged,
    WriteOperation,
)
from bbfs.model.versions import Expected, Labels
from bbfs.sources.abilities import (
    BacksOff,
    CanAnnounce,
    CanCall,
    CanClose,
    CanComplete,
    CanDescribe,
    CanFind,
    CanList,
    CanListDirectory,
    CanLoad,
    CanLoadIfChanged,
    CanLogIn,
    CanMakeDirectories,
    CanReadDirectory,
    CanRename,
    CanSearch,
    CanSetTime,
    CanShareListing,
    CanStage,
    CanStat,
    CanWatch,
    CanWrite,
    DetectsExisting,
    DetectsRemoved,
    Handler,
    HoldsContents,
    IsLocalFile,
    ListingExchange,
    LoadsWhileWanted,
    ProposesSearch,
    ProposesWrite,
    RenamesSome,
    SearchesByMeaning,
    StatesBeginning,
    TellsMore,
    TellsProgress,
    WritesUnseen,
)
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.content.spool import Spool
from bbfs.sources.factory import Services
from bbfs.sources.media_types import content_type_of, mime_type_of_name
from bbfs.sources.options import Bytes, SourceOptions, local_path, open_regular, parse_options, refuse_auth

__all__ = [
    "BacksOff", "BbfsError", "Busy", "Bytes", "Call", "CanAnnounce", "CanCall", "CanClose", "CanComplete",
    "CanDescribe", "CanFind", "CanList", "CanListDirectory", "CanLoad", "CanLoadIfChanged", "CanLogIn",
    "CanMakeDirectories", "CanReadDirectory", "CanRename", "CanSearch", "CanSetTime", "CanShareListing",
    "CanStage", "CanStat", "CanWatch", "CanWrite", "Change", "Completion", "ConfigError", "Conflict", "Content",
    "DataSource", "DeadlineExceeded", "Denied", "DetectsExisting", "DetectsRemoved", "Exists", "Expected",
    "Handler", "Hit", "HoldsContents", "InvalidUri", "IsADirectory", "IsLocalFile", "Labels", "Listing",
    "ListingExchange", "ListingProgress", "Loaded", "LoadsWhileWanted", "LoginRequired", "MemoryContent",
    "NoSpace", "NotADirectory", "NotEmpty", "NotFound", "NotSupported", "Outdated", "Part", "Policy",
    "Progress", "ProposesSearch", "ProposesWrite", "ProtocolViolation", "Rejected", "RenamesSome", "ResourceMetadata",
    "ResourceTemplate", "SearchesByMeaning", "Services", "SourceOptions", "SourceState", "Spool",
    "StatesBeginning", "TellsMore", "TellsProgress", "TooLarge", "Tool", "ToolArgument", "ToolFailed",
    "Unchanged", "Unreachable", "WriteOperation", "WritesUnseen", "content_type_of", "local_path",
    "mime_type_of_name", "open_regular", "parse_data_source_uri", "parse_options", "refuse_auth",
    "show_component", "source_uri",
]  # fmt: skip
