"""Performance as a test: what a block of a program does, held to counts that no machine's speed changes."""

from __future__ import annotations

import pytest

#: The test that runs now, of the session.
CURRENT = pytest.StashKey["pytest.Item | None"]()
#: How the properties of a test begin that opscope wrote.
PREFIX = "opscope."
