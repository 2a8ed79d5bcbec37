"""Performance as a test: what a block of a program does, held to counts that no machine's speed changes."""

from __future__ import annotations

import pytest

#: The test that now runs in this session.
CURRENT = pytest.StashKey["pytest.Item | None"]()
#: The prefix of the properties of a test that opscope wrote.
PREFIX = "opscope."
