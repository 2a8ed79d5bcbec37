"""The reader of pickles builds plain values, equal to Python's own, and refuses all that names code or has no bound."""

from __future__ import annotations

import collections
import pickle
import pickletools
import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.readers import pickle_values
from opscope.readers.pickle_values import PickleError, values

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=6), inner, max_size=6)
    ),
    max_leaves=40,
)


def keep(record: object) -> bool:
    return False


def plain(value: Any) -> Any:
    """The value with tuples as lists: a list of values that were all seen before is read as a tuple."""
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


@given(value=PLAIN, protocol=st.integers(0, 5), slim=st.booleans())
def test_a_pickle_of_plain_values_is_what_python_makes_of_it(value, protocol, slim):
    data = pickle.dumps(value, protocol)
    if slim:
        data = pickletools.optimize(data)
    if protocol == 0 and b"\\" in data:  # texts with escapes are refused where they are in quotes
        return
    assert plain(values(data, keep)) == plain(value)


def test_equal_lists_of_known_values_are_one_tuple():
    frames = [{"line": number} for number in range(300)]
    stack = frames[5:45]
    value = [frames, [list(stack) for _ in range(3)]]
    read = values(pickle.dumps(value, 4), keep)
    assert plain(read) == plain(value)
    assert read[1][0] is read[1][2]
    assert read[1][0][0] is read[0][5]


def test_a_dictionary_that_is_taken_is_not_kept():
    taken = []

    def take(record: Any) -> bool:
        taken.append(record.get("n"))
        return "n" in record

    read = values(pickle.dumps({"entries": [{"n": 1}, {"n": 2}], "end": {"m": 3}}, 4), take)
    assert read == {"entries": [None, None], "end": {"m": 3}}
    assert taken == [1, 2, None, None]


class Evil:
    def __reduce__(self) -> Any:
        return eval, ("1/0",)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("value", [Evil(), collections.OrderedDict(a=1), {1, 2}, object(), 1 + 2j])
def test_what_names_code_is_refused_in_every_protocol(value, protocol):
    with pytest.raises(PickleError, match=r"names code to run|unknown instruction"):
        values(pickle.dumps([value], protocol), keep)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04cos\nsystem\n.",
        b"\x80\x04(S'id'\nios\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x04\x82\x01.",
        b"\x80\x04P1\n.",
        b"\x80\x04NQ.",
        b"\x80\x04}}b.",
        b"\x80\x05\x97.",
    ],
)
def test_each_instruction_that_makes_an_object_is_refused(data):
    with pytest.raises(PickleError):
        values(data, keep)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x80\x02" + b"(" * 65 + b".", "within each other"),
        (b"\x80\x02\x8a\x20" + b"\xff" * 32 + b".", "integer of 32 bytes"),
        (b"\x80\x02\x8b" + struct.pack("<I", 1 << 30) + b".", "integer of 1,073,741,824 bytes"),
        (b"L" + b"9" * 4000 + b"L\n.", "too many digits"),
        (b"\x80\x02]r\xff\xff\xff\x7f.", "reference 2,147,483,647"),
        (b"\x80\x02X\xff\xff\xff\x7fa.", "ends"),
        (b"\x80\x04\x8d" + b"\xff" * 8 + b".", "ends"),
        (b"\x80\x02h\x05.", "ends"),
        (b"\x80\x02a.", "ends"),
        (b"\x80\x02NNa.", "wrong kind"),
        (b"\x80\x02}NNu.", "ends"),
        (b"\x80\x02}(](Nes.", "ends"),
        (b"\x80\x02}(]Nu.", "wrong kind"),
        (b"\x80\x02NN.", "unknown instruction 0x2e"),
        (b"\x80\x02" + b"N" * 10, "ends"),
        (b"", "ends"),
    ],
)
def test_what_is_out_of_bounds_is_refused_in_one_line(data, what):
    with pytest.raises(PickleError, match=what) as error:
        values(data, keep)
    assert "\n" not in str(error.value)


def test_the_number_of_values_is_bounded(monkeypatch):
    monkeypatch.setattr(pickle_values, "MOST_KEPT", 1000)
    with pytest.raises(PickleError, match="more than 1,000 values"):
        values(b"\x80\x02]" + b"}0" * 0 + b"(" + b"}" * 1001 + b"e.", keep)
    # what is taken is not kept
    entries = pickle.dumps([{"n": number} for number in range(5000)], 4)
    assert values(entries, lambda record: True) == [None] * 5000


def test_damaged_pickles_are_read_or_refused():
    data = pickle.dumps([{"a": [1, 2.5, "x" * 20, None], "b": (True, -7)}] * 9, 4)
    dice = random.Random(4)
    refused = 0
    for _ in range(2000):
        damaged = bytearray(data)
        for _ in range(dice.randrange(1, 5)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        try:
            values(bytes(damaged), keep)
        except PickleError:
            refused += 1
    assert refused > 500
