"""The number of ranks in a group of a collective, where XLA names the axes of a mesh of devices."""

from __future__ import annotations

import pytest

from opscope.core.hlo.calls import _group
from opscope.core.hlo.wire import fields

#: Field 93 of an instruction, as JAX 0.11.2 wrote it for a mesh of a = 2 and b = 2 devices.
OVER_A = b"\n\x0e\n\x05\n\x01a\x10\x02\n\x05\n\x01b\x10\x02\x12\x00"
OVER_BOTH = OVER_A + b"\x12\x02\x08\x01"
#: A part of b, which has 8 devices: 4 of them.
OVER_PART = b"\n\x0e\n\x05\n\x01a\x10\x02\n\x05\n\x01b\x10\x08\x12\x06\x08\x01\x12\x02\x10\x04"
OVER_NONE = b"\n\x07\n\x05\n\x01a\x10\x02"
OUT_OF_THE_MESH = b"\n\x07\n\x05\n\x01a\x10\x02\x12\x02\x08\x07"
#: Two axes of 2^62 devices each, and a collective over both: no file that XLA wrote.
TOO_MANY = (
    b"\n\x18" + 2 * (b"\n\x0a\x10" + 8 * b"\x80" + b"\x40") + b"\x12\x02\x08\x00\x12\x02\x08\x01"
)


@pytest.mark.parametrize(
    ("axes", "ranks"),
    [
        (OVER_A, 2),
        (OVER_BOTH, 4),
        (OVER_PART, 4),
        (OVER_NONE, None),
        (OUT_OF_THE_MESH, None),
        (TOO_MANY, None),
    ],
)
def test_a_group_along_axes_of_a_mesh_has_their_devices(axes, ranks):
    data = b"\xea\x05" + bytes([len(axes)]) + axes
    found = dict(_group(data, fields(data, 0, len(data))))
    assert found.get("group_size") == ranks
