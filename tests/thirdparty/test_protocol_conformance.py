"""A few scenarios of the conformance suite of the protocol; `make conformance` runs all of them."""

import os

import pytest
from conformance import SUITE, Scenario, judge

QUICK = (
    Scenario("2025-11-25", "client", "tools_call"),
    Scenario("2026-07-28", "client", "auth/pre-registration"),
    Scenario("2026-07-28", "server", "server-stateless"),
    Scenario("2025-11-25", "server", "dns-rebinding-protection"),
)


@pytest.mark.timeout(600)  # it starts about twenty programs
def test_quick_scenarios_end_as_expected() -> None:
    if not SUITE.exists():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"run `scripts/install test`: {SUITE}")
    wrong = [f"{verdict.row}\n{verdict.output}" for verdict in judge(QUICK) if not verdict.is_as_expected]
    assert not wrong, "\n".join(wrong)
