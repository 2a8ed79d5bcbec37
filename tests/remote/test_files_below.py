"""What is below a path in a store, whatever the store's package answers."""

from __future__ import annotations

import pytest

from opscope.remote import written
from opscope.remote.stores import below


class _Store:
    """A store that answers ``find`` of a file as adlfs does: with its name, and no details."""

    def exists(self, path):
        return True

    def find(self, path, detail=False):
        return [path]


def test_a_file_of_which_no_details_are_told_is_itself():
    assert below(_Store(), "bucket/a.json") == {"bucket/a.json": {"name": "bucket/a.json"}}


def test_a_file_that_is_there_is_not_replaced():
    with pytest.raises(FileExistsError, match="already exists"):
        written._refuse(_Store(), "bucket/a.json", "az://bucket/a.json", False)
    assert written._refuse(_Store(), "bucket/a.json", "az://bucket/a.json", True) == [""]
