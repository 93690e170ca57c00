"""Shared by all tests: how properties are tested."""

import os

from hypothesis import HealthCheck, settings

# A shared machine may stop a test for seconds at any point: only the test's own bound counts.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
