"""Graph breaks: proved by the names of resumed functions, and by nothing else."""

from __future__ import annotations

import pytest

from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.made_runs import find as asked
from tests.core.advice.made_runs import on_cpu

MS = 1_000_000
RESUMED = "compile 1/0 torch_dynamo_resume_in_forward_at_27 @net.py:27"


def region(number, start, end):
    return {"text": f'"Torch-Compiled Region: {number}/0"()', "start": start * MS, "end": end * MS}


def eager(start, end):
    return {"text": "aten::sum(f32[64])", "start": start * MS, "end": end * MS}


def compiled(*texts):
    return [
        {"text": text, "start": n, "end": n + 1, "category": "phase"}
        for n, text in enumerate(texts)
    ]


def broken():
    """Two parts of one function, and 30 ms of eager ops between them in each of two steps."""
    rows = compiled("compile 0/0 Net.forward @net.py:12", RESUMED)
    for n in range(2):
        at = 1_000 * n
        rows += [
            {"text": f"step {n}", "start": at * MS + 5, "end": (at + 900) * MS, "category": "step"}
        ]
        rows += [
            region(0, at + 10, at + 20),
            eager(at + 25, at + 40),
            eager(at + 45, at + 60),
            region(1, at + 70, at + 90),
        ]
        rows += [eager(at + 100, at + 400)]
    return on_cpu(rows)


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: a forward pass that torch.compile split at one place", broken)


def find(profile):
    return asked("graph_breaks", profile)


def test_the_eager_ops_between_the_parts_are_what_may_be_saved():
    (found,) = find(broken())
    assert (found.time, found.saving_least, found.saving_most) == (60 * MS, 0, 60 * MS)
    assert found.evidence == "net.py:27 in forward"
    assert "at 1 place;" in found.what
    assert "fullgraph=True" in found.recommendation
    assert "TORCH_LOGS=graph_breaks" in found.recommendation
    assert found.rows.to_dicts() == [{"source": "net.py:27", "detail": "break in forward"}]


def test_without_regions_the_break_is_proved_and_its_cost_is_not_known():
    (found,) = find(on_cpu([*compiled("compile 0/0 f", RESUMED), eager(1, 2)]))
    assert found.saving_most is None
    assert found.confidence == "medium"


def test_a_stack_of_another_profiler_proves_it_too():
    text = "net.py(27): torch_dynamo_resume_in_forward_at_27"
    (found,) = find(
        on_cpu(
            [
                {"text": text, "start": 0, "end": 9, "category": None},
                region(0, 1, 2),
                region(1, 3, 4),
            ]
        )
    )
    assert found.evidence == "forward:27 in forward"


def test_one_function_without_a_resumed_one_is_whole():
    assert find(on_cpu([region(0, 1, 2), eager(3, 4), region(0, 5, 6)])) == []
    assert find(on_cpu([*compiled("compile 0/0 f"), eager(1, 2)])) == []
    # a model and its loss, with nothing between
    assert find(on_cpu([region(0, 1, 2), region(1, 3, 4), eager(9, 10)])) == []


def test_functions_compiled_apart_look_alike():
    answer = find(on_cpu([region(0, 1, 2), eager(3, 4), region(1, 5, 6)]))
    assert isinstance(answer, CannotTell)
    assert "1 eager ops between them" in answer.reason
    assert isinstance(find(on_cpu([eager(1, 2)])), CannotTell)


@pytest.mark.parametrize(
    ("trace", "reason"),
    [
        # one region, 0/0
        ("kineto/triton_example.json.gz", None),
        # CompiledFunction of an older torch.compile
        ("kineto/vision_transformer_rank0.json.gz", "no numbers"),
        ("kineto/ddp_memory_v100.json.gz", "no numbers"),
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", "no use of it"),
        ("nsys/fsdp_h100x2_2026.sqlite", "no use of it"),
    ],
)
def test_real_traces(shared, trace, reason):
    found = find(traces.load(shared / trace))
    if reason is None:
        assert found == []
    else:
        assert isinstance(found, CannotTell)
        assert reason in found.reason
