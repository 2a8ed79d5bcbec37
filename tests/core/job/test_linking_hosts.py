"""Clocks of many hosts: planted offsets and drifts are found within the stated error, whatever links the hosts."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.group_specs import format_ranks, rank_at
from opscope.core.job.linking_hosts import BY_COLLECTIVES, BY_MESSAGES, Met, solved
from opscope.core.job.numbering import _MOST_APART, _Others
from opscope.core.job.offsets import estimate, estimates

SECOND = 1_000_000_000
ENDS = {"node": pl.Int64, "group": pl.Int64, "one": pl.Int64, "start": pl.Int64, "end": pl.Int64}
SENT = dict.fromkeys(("sender", "receiver", "sent", "sent_end", "received", "received_end", "sender_node", "receiver_node"), pl.Int64)  # fmt: skip


class Hosts:
    """Clocks with an offset and a drift of their own; host 0 has the true time."""

    def __init__(self, random, many):
        self.offset = random.integers(-(10**14), 10**14, many)
        self.drift = random.uniform(-50e-6, 50e-6, many)
        self.offset[0] = self.drift[0] = 0

    def clock(self, host, true):
        return true + self.offset[host] + np.rint(self.drift[host] * true).astype(np.int64)


def met(random, hosts, groups, pairs, many=30):
    """Collectives of each of ``groups``, messages both ways between each of ``pairs``; and true ends."""
    ends, sent, true = [], [], []
    begun = np.sort(random.integers(0, 20 * SECOND, many))
    for number, group in enumerate(groups):
        entered = {host: begun - random.integers(1_000, 2_000_000, many) for host in group}
        over = np.max(list(entered.values()), axis=0) + 15_000
        for host in group:
            left = over + random.exponential(5_000, many).astype(np.int64)
            ends.append(
                pl.DataFrame(
                    {"node": host, "group": number, "one": number * many + np.arange(many),
                     "start": hosts.clock(host, entered[host]), "end": hosts.clock(host, left)},
                    schema=ENDS,
                )
            )  # fmt: skip
            true += [(host, *one) for one in zip(left, hosts.clock(host, left), strict=True)]
    for one, other in pairs:
        for sender, receiver in ((one, other), (other, one)):
            at = begun + random.integers(0, 1_000_000, many)
            there = at - random.integers(-300_000, 300_000, many)
            got = np.maximum(at, there) + 20_000 + random.exponential(3_000, many).astype(np.int64)
            gone = got + random.integers(-2_000, 2_000, many)
            times = {
                "sender": sender, "receiver": receiver,
                "sent": hosts.clock(sender, at), "sent_end": hosts.clock(sender, gone),
                "received": hosts.clock(receiver, there),
                "received_end": hosts.clock(receiver, got),
                "sender_node": sender, "receiver_node": receiver,
            }  # fmt: skip
            sent.append(pl.DataFrame(times, schema=SENT))
            true += [(receiver, *each) for each in zip(got, times["received_end"], strict=True)]
    return (
        Met(pl.concat(ends or [pl.DataFrame(schema=ENDS)]),
            pl.concat(sent or [pl.DataFrame(schema=SENT)])),
        true,
    )  # fmt: skip


def moved(time, by):
    return time + by.offset + round(by.drift * (time - by.origin))


def right(found, true):
    for host, real, seen in true:
        if host:
            by, _ = found[host]
            assert abs(moved(int(seen), by) - int(real)) <= by.error + 2


seeds = st.integers(0, 1 << 30)


@given(seeds, st.integers(2, 7), st.sampled_from(["all", "chain", "messages", "both"]))
def test_planted_clocks_are_found_within_their_error(seed, many, shape):
    random = np.random.default_rng(seed)
    hosts = Hosts(random, many)
    chain = [(one, one + 1) for one in range(many - 1)]
    groups = {"all": [range(many)], "chain": chain, "messages": [], "both": chain[::2]}[shape]
    pairs = {"messages": chain, "both": chain[1::2]}.get(shape, [])
    seen, true = met(random, hosts, groups, pairs)
    found = solved(seen, many)
    assert sorted(found) == list(range(1, many)), "every host is linked to the first"
    assert all(one.error is not None for one, _ in found.values())
    right(found, true)
    methods = {method for _, method in found.values()}
    if shape in ("all", "chain"):
        assert methods == {BY_COLLECTIVES}
    if shape == "messages":
        assert methods == {BY_MESSAGES}


@given(seeds, st.permutations(range(1, 6)))
def test_the_order_of_the_hosts_does_not_matter(seed, order):
    """Numbered anew, and in rows of another order, each host has the same clock, to the last nanosecond."""
    random = np.random.default_rng(seed)
    hosts = Hosts(random, 6)
    seen, _ = met(random, hosts, [range(6)], [])
    named = np.array([0, *order])
    other = seen.ends.with_columns(pl.Series("node", named[seen.ends["node"].to_numpy()]))
    other = other.sample(fraction=1.0, shuffle=True, seed=seed % 1000)
    first, again = solved(seen, 6), solved(Met(other, seen.messages), 6)
    assert {int(named[host]): one for host, one in first.items()} == again


def test_messages_one_way_leave_the_error_open():
    random = np.random.default_rng(1)
    hosts = Hosts(random, 2)
    seen, true = met(random, hosts, [], [(0, 1)])
    one_way = Met(seen.ends, seen.messages.filter(pl.col("sender_node") == 0))
    (found, method) = solved(one_way, 2)[1]
    assert (found.error, method) == (None, BY_MESSAGES)
    off = [abs(moved(int(time), found) - int(real)) for host, real, time in true if host]
    assert np.median(off) < 100_000, "the ends still show the offset"


def test_an_error_that_is_not_known_is_none_farther_on():
    """Host 1's collectives with host 0 contradict each other; host 2 is linked through host 1 alone."""
    ends = pl.DataFrame(
        [
            (0, 0, 0, 0, 100), (1, 0, 0, 5, 105), (0, 0, 1, 1000, 1100), (1, 0, 1, 500, 600),
            (1, 1, 2, 2000, 2100), (2, 1, 2, 2000, 2100),
        ],
        schema=ENDS, orient="row",
    )  # fmt: skip
    found = solved(Met(ends, pl.DataFrame(schema=SENT)), 3)
    assert (found[1][0].error, found[2][0].error) == (None, None)


def test_hosts_without_a_link_are_left_out():
    random = np.random.default_rng(3)
    seen, _ = met(random, Hosts(random, 5), [(0, 1), (3, 4)], [])
    assert sorted(solved(seen, 5)) == [1]


def of(seen, kept):
    """What hosts met in, where each took part in some of the collectives only: (first, last) by host."""
    parts = [
        seen.ends.filter((pl.col("node") == host) & pl.col("one").is_between(*kept[host]))
        for host in kept
    ]
    return Met(pl.concat(parts), seen.messages)


@pytest.mark.parametrize("shuffled", [[0, 1, 2], [2, 0, 1]])
def test_a_host_whose_recording_does_not_overlap_the_first_s_is_linked_by_one_between(shuffled):
    random = np.random.default_rng(4)
    hosts = Hosts(random, 3)
    seen, true = met(random, hosts, [range(3)], [])
    kept = {0: (0, 11), 1: (8, 29), 2: (14, 29)}
    found = solved(of(seen, {host: kept[host] for host in shuffled}), 3)
    assert sorted(found) == [1, 2]
    right(found, [one for one in true if one[0] in (1, 2)])


def test_sibling_groups_of_one_name_link_only_those_that_met():
    """Group 0 is two groups that share their name: hosts 0 and 1, and hosts 2 and 3, which met nobody else."""
    random = np.random.default_rng(5)
    seen, true = met(random, Hosts(random, 4), [range(4)], [])
    found = solved(of(seen, {0: (0, 14), 1: (0, 14), 2: (15, 29), 3: (15, 29)}), 4)
    assert sorted(found) == [1]
    right(found, [one for one in true if one[0] == 1][:15])


@given(seeds, st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_many_pairs_at_once_are_what_each_is_alone(seed, sizes):
    random = np.random.default_rng(seed)
    parts = []
    for size in sizes:
        begun = np.sort(random.integers(0, 5 * SECOND, size))
        theirs = begun + int(random.integers(-(10**12), 10**12))
        waits = random.integers(0, 900_000, (2, size))
        parts.append((begun - waits[0], begun + 9_000, theirs - waits[1], theirs + 9_500))
    pair = np.repeat(np.arange(len(sizes)), sizes)
    both = np.ones(len(pair), bool)
    columns = [np.concatenate(one) for one in zip(*parts, strict=True)]
    assert estimates(pair, *columns, both, both) == [estimate(*part) for part in parts]


def plain_shift(first, first_end, other, other_end, same_clock):
    """The definition: every shift, nearest first; a clearly better one replaces the best so far."""
    best = None
    least = max(1, min(len(first), len(other)) // 2)
    for shift in sorted(range(-_MOST_APART, _MOST_APART + 1), key=abs):
        low, high = max(0, shift), min(len(first), len(other) + shift)
        if high - low < least:
            continue
        if not np.array_equal(first[low:high], other[low - shift : high - shift]):
            continue
        apart = other_end[low - shift : high - shift] - first_end[low:high]
        apart = apart[np.isfinite(apart)]
        if not len(apart):
            return shift
        spread = float(np.median(np.abs(apart - (0.0 if same_clock else np.median(apart)))))
        if best is None or spread < 0.5 * best[0]:
            best = (spread, shift)
    shift = 0 if best is None else best[1]
    both = min(len(first), len(other))
    return 0 if 0 < (first[:both] != other[:both]).sum() < abs(shift) else shift


@given(
    seeds, st.integers(2, 40), st.integers(0, 5), st.integers(1, 3), st.booleans(),
    st.sampled_from([1.0, 100.0, 3000.0]), st.booleans(),
)  # fmt: skip
def test_shifts_that_are_not_tried_would_not_have_been_taken(
    seed, many, skipped, kinds, same_clock, noise, unknown
):
    random = np.random.default_rng(seed)
    tokens = random.integers(0, kinds, many) if kinds > 1 else np.zeros(many, np.int64)
    first = np.cumsum(random.choice([1000, 1000, 1700, 4000], many)).astype(np.float64)
    other = (
        first[min(skipped, many - 1) :]
        + np.rint(random.normal(0, noise, many))[min(skipped, many - 1) :]
    )
    if unknown:
        other[0] = np.nan
    theirs = tokens[min(skipped, many - 1) :]
    found = _Others(tokens, first, same_clock).shift(theirs, other)
    assert found == plain_shift(tokens, first, theirs, other, same_clock)


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=20, unique=True))
def test_the_rank_at_each_place_of_a_group(ranks):
    text = format_ranks(ranks)
    assert [rank_at(text, place) for place in range(len(ranks))] == ranks
    assert rank_at(text, len(ranks)) is None


@pytest.mark.parametrize("members", ["", "0,1,...,7", "x-y", "0-9999999999999999999999"])
def test_no_rank_is_read_out_of_another_notation(members):
    assert rank_at(members, 1) is None
