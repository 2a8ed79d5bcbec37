"""Performance as a test: what a block of a program does, compared with counts that do not depend on the
machine's speed."""

from __future__ import annotations

import pytest

#: The test that now runs in this session.
CURRENT = pytest.StashKey["pytest.Item | None"]()
#: The prefix of the properties of a test that opscope wrote.
PREFIX = "opscope."
