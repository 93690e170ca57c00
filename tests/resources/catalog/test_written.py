"""What programs have stored, over listings that began before (S32)."""

import pytest

from bbfs.model.listing import Rows
from bbfs.model.values import Listing, ResourceMetadata
from bbfs.resources.catalog.overlay import WRITTEN_KEPT, Written

BASE = "bb-scripted+tree"


def described(name: str, etag: str | None) -> ResourceMetadata:
    return ResourceMetadata(f"{BASE}+file:./{name}", f"file:./{name}", name, size=1, etag=etag)


@pytest.mark.semantics("S32")
@pytest.mark.parametrize("is_flat", [False, True])
def test_a_listing_has_what_was_stored_since_it_began(is_flat: bool) -> None:
    written = Written()
    for name, etag in (("a", "new"), ("absent", "new"), ("gone", "new"), ("untold", None)):
        written.note(described(name, etag), at=5.0)
    written.forget("file:./gone")

    def etags(began: float) -> dict[str, str | None]:
        listed = [described(name, "old") for name in ("a", "b", "gone", "untold")]
        listing = Listing(Rows(BASE, listed) if is_flat else tuple(listed))
        return {each.name: each.etag for each in written.over(listing, began).resources}

    old = dict.fromkeys(("a", "b", "gone", "untold"), "old")
    assert etags(began=4.0) == {**old, "a": "new"}
    assert etags(began=5.0) == old
    for number in range(WRITTEN_KEPT):
        written.note(described(str(number), "new"), at=5.0)
    assert etags(began=4.0) == old
