"""Which dialect reads the texts of which domains, so that no other's module is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import polars as pl
import pytest

from opscope.core.dialects import DIALECTS, STRIPPING
from opscope.core.tables.interpret import interpret
from opscope.core.tables.trace import Trace

ROOT = Path(__file__).resolve().parents[3]
TEXTS = {
    "torch_nvtx": "aten::mm, seq = 3, op_id = 5",
    "markers": "{'mod': 'torch', 'op': 'mm', 'args': []}",
    "nccl": "ncclAllReduce",
    "mindspore": "Default/network/Conv2D-op1",
    "tsl": "model/dense/MatMul:MatMul",
    "tensorrt": "conv1 + relu1",
    "hlo": "hlo::dot(f32[2,3], f32[3,4]) -> f32[2,4]",
}
DOMAINS = sorted({"", "else", *(one for of in DIALECTS.values() for one in of or ())})


def dialect(name):
    return import_module(f"opscope.core.dialects.{name}")


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_reads_texts_of_its_own_domains_alone(name):
    mine = DIALECTS[name]
    text = TEXTS[name]
    for name_of_strip in STRIPPING:
        text = dialect(name_of_strip).strip(pl.Series([text]))["text"][0]
    reads = {domain for domain in DOMAINS if dialect(name).read(domain, text) is not None}
    assert reads == (set(DOMAINS) if mine is None else mine)


def test_those_that_strip_are_listed():
    assert [name for name in DIALECTS if hasattr(dialect(name), "strip")] == [*STRIPPING]


def test_ranges_of_several_domains_have_the_readings_of_their_dialects():
    rows = [
        (domain, text) for name, text in TEXTS.items() for domain in sorted(DIALECTS[name] or {"x"})
    ]
    table = pl.DataFrame(
        {
            "process": [0] * len(rows),
            "thread": [1] * len(rows),
            "start": list(range(len(rows))),
            "end": list(range(1, len(rows) + 1)),
            "domain": [domain for domain, _ in rows],
            "text": [text for _, text in rows],
        }
    )
    meaning = interpret(Trace.of({"ranges": table}, {"format": "made"}))
    roles = [meaning.readings[number].role for number in meaning.reading]
    assert roles == ["op"] * len(rows)


def test_a_trace_without_prepared_graphs_loads_no_dialect_of_another_framework():
    code = (
        "import sys; import polars as pl\n"
        "from opscope.core.attribution.attribute import attribute\n"
        "from opscope.core.tables.trace import Trace\n"
        "table = pl.DataFrame({'process': [0], 'thread': [1], 'start': [0], 'end': [1],"
        " 'domain': ['opscope.torch'], 'category': ['forward'], 'text': ['aten::mm()']})\n"
        "attribute(Trace.of({'ranges': table}, {'format': 'made'}))\n"
        "print(*sys.modules)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    start = "opscope.core.dialects."
    names = {name.removeprefix(start) for name in done.stdout.split() if name.startswith(start)}
    assert names & set(DIALECTS) == {"nccl"}  # collectives of every framework have its parameters


@pytest.mark.parametrize("domain", ["user", "else"])
def test_a_value_of_ranges_that_are_read_alike_is_asked_once(domain):
    """A server has a name for each of its steps, and all are the user's ranges."""
    table = pl.DataFrame(
        {
            "process": [0] * 40,
            "thread": [1] * 40,
            "start": list(range(40)),
            "end": list(range(1, 41)),
            "domain": [domain] * 40,
            "text": [f"step {number} of 40" for number in range(40)],
        }
    )
    asked = []
    flags = interpret(Trace.of({"ranges": table})).each(lambda reading: not asked.append(reading))
    assert (len(asked), int(flags.sum())) == (1, 40)
