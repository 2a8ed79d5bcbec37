"""How many examples a property test draws: the profile says it, and a test only whether an example is dear.

``ci`` draws the same examples in every run, so that a red run is red again. ``OPSCOPE_TESTS=deep`` draws others
in each run, and twenty times as many.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SAME = {
    "deadline": None,
    "print_blob": True,
    # what a test patches, or a folder of its own, serves all of its examples
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
settings.register_profile("ci", max_examples=30, derandomize=True, **_SAME)
settings.register_profile("deep", max_examples=600, **_SAME)
settings.load_profile("deep" if os.environ.get("OPSCOPE_TESTS") == "deep" else "ci")

#: How many examples are drawn, for tests that draw them by themselves.
EXAMPLES = settings().max_examples
#: Of a test whose example takes long (it compiles, or writes files): a sixth of the examples.
dear = settings(max_examples=EXAMPLES // 6)
