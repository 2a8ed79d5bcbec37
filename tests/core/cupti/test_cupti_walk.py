"""Walking a buffer of CUPTI's records finds the same records whether one after another or in all pieces at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.cupti import kinds, layouts, walk
from opscope.core.cupti.walk import taken

VERSIONS = [18, 22, 28, 130001, 130500]
TIME = 1_700_000_000_000_000_000


def in_pieces(content, layout):
    """Walk with many walkers in pieces as small as can be, however short the content is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "_SMALL", 1)
        patch.setattr(walk, "_PIECE", 48)
        patch.setattr(walk, "_MOVES", 3)
        return walk.walk(content, layout)


def one_by_one(content, layout):
    """Where records begin, told by a loop that knows sizes only; and where it ends."""
    places, at = [], 0
    while at + 8 <= len(content):
        kind = int.from_bytes(content[at : at + 4], "little")
        size = int(layout.slots[kind]) * 8 if kind < 256 else 0
        if not size or at + size > len(content):
            break
        places.append((at // 8, kind))
        at += size
    return places, at


def same(content, layout):
    expected, end = one_by_one(content, layout)
    for found in (in_pieces(content, layout), walk.walk(content, layout)):
        pairs = list(zip(found.places.tolist(), found.kinds.tolist(), strict=True))
        assert pairs == expected
        assert (found.end * 8, found.unread) == (end, len(content) - end)
    return found


def layout_of(version):
    return layouts.candidates(version)[0]


@st.composite
def sequences(draw):
    """The records of a version in any order, with any values, as bytes, and their kinds."""
    layout = layout_of(draw(st.sampled_from(VERSIONS)))
    known = np.flatnonzero(layout.slots).tolist()
    order = draw(st.lists(st.sampled_from(known), max_size=60)) * draw(st.integers(1, 8))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    like = draw(st.sampled_from(["any", "small", "kinds"]))
    parts = []
    for kind in order:
        size = int(layout.slots[kind]) * 8
        high = {"any": 256, "small": 2, "kinds": 60}[like]
        body = random.integers(0, high, size, np.uint8)
        if like == "kinds":  # every word could be a kind
            body = np.where(np.arange(size) % 4 == 0, body, 0).astype(np.uint8)
        body[:4] = np.frombuffer(np.uint32(kind).tobytes(), np.uint8)
        dtype = layout.dtypes.get(kind)
        if dtype is not None and "start" in (dtype.names or ()) and draw(st.booleans()):
            row = body.view(dtype)
            row["start"], row["end"] = TIME, TIME + 5
        parts.append(body.tobytes())
    return layout, order, b"".join(parts)


@given(sequences())
def test_all_records_are_found_in_order_whatever_their_kinds_and_values(made):
    layout, order, content = made
    found = same(content, layout)
    assert found.kinds.tolist() == order
    assert (found.unread, found.unknown) == (0, None)


@given(sequences(), st.integers(0, 1 << 20), st.binary(max_size=400))
def test_what_is_cut_or_overwritten_ends_the_walk_at_the_same_record(made, place, damage):
    layout, _, content = made
    place = place % (len(content) + 1)
    same(content[:place], layout)
    same(content[:place] + damage, layout)
    same(content[:place] + damage + content[place + len(damage) :], layout)


@given(st.binary(max_size=3000), st.sampled_from(VERSIONS))
def test_any_bytes_are_walked_to_an_end(content, version):
    found = same(content, layout_of(version))
    assert 0 <= found.unread <= len(content)


@pytest.mark.parametrize("kind", [kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.RUNTIME])
def test_a_sequence_inside_records_is_never_taken_for_the_true_one(kind):
    """Each record holds, in its middle, what looks like a record of its own kind and size."""
    layout = layout_of(130500)
    row = np.zeros(1, layout.dtypes[kind])
    row["kind"], row["start"], row["end"] = kind, TIME, TIME + 5
    body = np.frombuffer(row.tobytes(), np.uint32).copy()
    words = body.reshape(-1, 2)
    middle = len(words) // 2
    words[middle, 0] = kind
    at = int(layout.times[kind])
    flat = words.reshape(-1)
    if middle * 2 + at + 1 < len(flat):
        flat[middle * 2 + at : middle * 2 + at + 2] = row["start"].view(np.uint32)
    content = flat.tobytes() * 200
    found = same(content, layout)
    assert found.kinds.tolist() == [kind] * 200


@pytest.mark.parametrize("many", [3, 3000])
def test_a_buffer_at_an_odd_address_is_walked_too(many):
    layout = layout_of(130500)
    row = np.zeros(1, layout.dtypes[kinds.RUNTIME])
    row["kind"], row["correlationId"] = kinds.RUNTIME, 9
    content = memoryview(b"x" + row.tobytes() * many)[1:]
    found = walk.walk(content, layout)
    assert len(found.places) == many
    assert (taken(content, found, layout)[kinds.RUNTIME]["correlationId"] == 9).all()


def test_a_kind_without_a_layout_stops_the_walk_and_is_named():
    layout = layout_of(130500)
    row = np.zeros(1, layout.dtypes[kinds.RUNTIME])
    row["kind"] = kinds.RUNTIME
    content = row.tobytes() * 3000 + np.uint32(99).tobytes() + bytes(76)
    for found in (in_pieces(content, layout), walk.walk(content, layout)):
        assert (len(found.places), found.unread, found.unknown) == (3000, 80, 99)


def test_a_large_buffer_is_walked_in_pieces_and_its_records_are_whole():
    layout = layout_of(28)
    random = np.random.default_rng(7)
    order = random.choice(
        [kinds.RUNTIME, kinds.CONCURRENT_KERNEL, kinds.EXTERNAL_CORRELATION], 30_000
    )
    parts = []
    for number, kind in enumerate(order.tolist()):
        row = np.zeros(1, layout.dtypes[kind])
        row["kind"], row["correlationId"] = kind, number
        if kind != kinds.EXTERNAL_CORRELATION:
            row["start"], row["end"] = TIME + number * 1000, TIME + number * 1000 + 500
        parts.append(row.tobytes())
    content = b"".join(parts)
    found = walk.walk(content, layout)
    assert len(content) // 8 > walk._SMALL
    assert found.kinds.tolist() == order.tolist()
    by_kind = taken(content, found, layout)
    for kind, rows in by_kind.items():
        assert rows["correlationId"].tolist() == np.flatnonzero(order == kind).tolist()
