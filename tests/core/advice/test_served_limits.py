"""Each detector for servers on both sides of its limit: a trace in which its matter is true, and a sibling
that differs in a single number and is healthy."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.advice.detectors import (
    decode_outside_graphs,
    graph_padding,
    host_sampling,
    late_scheduler,
    prefill_stalls,
)
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from tests.made_server import PRODUCT, US, Step, served, serving


def gaps(after: int) -> list[Step]:
    """Decodes of 1,000 us; between them the host takes ``after`` us, in which the device has no work."""
    name = "execute_context_0(0)_generation_16(16)"
    return [Step(name, 1_000 * US, after * US) for _ in range(20)]


def mixed(took: int) -> list[Step]:
    """A prefill of 5,020 us, 20 decodes of 1,020 us, and a mixed step of ``took`` us."""
    name = "execute_context_1(500)_generation_16(16)"
    return [*serving(1, 20), Step(name, took * US, tokens=516)]


def launched(host: int) -> list[Step]:
    """Decodes of 30 kernels of 40 us without a graph, and ``host`` us without work in each range."""
    name = "execute_context_0(0)_generation_16(16)"
    work = tuple((PRODUCT, 40 * US) for _ in range(30))
    return [Step(name, (30 * 40 + host) * US, 0, work=work) for _ in range(20)]


def padded(requests: int) -> list[Step]:
    """Batches of so many requests in graphs of 100."""
    name = f"decode[bs={requests}/100 tok={requests} d={requests}]"
    return [Step(name, 1_000 * US, tokens=100) for _ in range(8)]


#: Each detector with a trace on either side of its limit: the one that it is about comes first.
PAIRS = {
    # of 20,980 us: 19 gaps of 60 us are 5.4 %; of 45 us 4.1 %
    "late_scheduler": (late_scheduler, served(gaps(60)), served(gaps(45))),
    # 2,600 - 1,020 us are 5.6 % of 28,020 us; 2,300 - 1,020 us are 4.6 % of 27,720 us
    "prefill_stalls": (prefill_stalls, served(mixed(2_600)), served(mixed(2_300))),
    # 80 us of 1,280 us are 6.3 %; 40 us of 1,240 us are 3.2 %
    "decode_outside_graphs": (decode_outside_graphs, served(launched(80)), served(launched(40))),
    # 11 and 10 of 100 rows
    "graph_padding": (graph_padding, served(padded(89)), served(padded(90))),
    # a byte more than 4,096 for each of 16 requests
    "host_sampling": (
        host_sampling,
        served(serving(), copied=16 * 4_096 + 1),
        served(serving(), copied=16 * 4_096),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_it_fires_beyond_its_limit_and_is_silent_at_it(name):
    detector, true, healthy = PAIRS[name]
    assert len(detector.DETECTOR.find(Profile(true))) == 1
    assert detector.DETECTOR.find(Profile(healthy)) == []


def ranks(trace: Trace, other: Trace | None = None) -> Profile:
    """Two ranks of one engine that run the same steps, or an ``other`` engine in the second process."""
    tables = {}
    for name in ("ranges", "calls", "kernels", "memops", "devices", "processes"):
        each = [
            source[name].with_columns(pl.lit(number, pl.Int32).alias("process"))
            for number, source in enumerate((trace, other or trace))
        ]
        if name == "ranges":
            each[1] = each[1].with_columns(pl.col("id") + len(each[0]))
        tables[name] = pl.concat(each, how="diagonal")
    return Profile(Trace.of(tables))


@pytest.mark.parametrize("name", ["late_scheduler", "decode_outside_graphs", "host_sampling"])
def test_a_step_of_two_ranks_counts_once(name):
    detector, true, _ = PAIRS[name]
    (alone,), (both,) = (detector.DETECTOR.find(one) for one in (Profile(true), ranks(true)))
    assert (both.what, both.time) == (alone.what, alone.time)


#: Other engines beside those that are true: without the matter, but with more steps.
BESIDE = {
    "late_scheduler": served(gaps(1) * 2),
    "prefill_stalls": served(serving(1, 50)),
    "decode_outside_graphs": served(launched(0) * 2),
    "graph_padding": served(padded(100) * 2),
    "host_sampling": served(serving(4, 8), copied=8),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_said_of_an_engine_counts_no_steps_of_another(name):
    detector, true, _ = PAIRS[name]
    (alone,) = detector.DETECTOR.find(Profile(true))
    (beside,) = detector.DETECTOR.find(ranks(true, BESIDE[name]))
    assert (beside.what, beside.evidence, beside.time) == (
        alone.what,
        alone.evidence,
        alone.time,
    )
