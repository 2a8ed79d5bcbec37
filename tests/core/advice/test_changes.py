"""What is advised fits the run: its framework's words, and nothing that it has already."""

from __future__ import annotations

import re
from importlib import import_module

import polars as pl
import pytest

from opscope.core.advice import changes
from opscope.core.advice.ask import detectors
from opscope.core.advice.changes import Change, fit, later_steps, run_of
from opscope.core.advice.diagnosis_words import Words
from opscope.core.advice.finding import CannotTell
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from tests.core.advice.made_runs import on_cpu, on_gpu, processes, ran, spans

MS = 1_000_000
#: Words that only users of a framework know.
OWN = {
    "torch": r"\btorch\b|torchvision|torchrun|DataLoader|aten::|DistributedDataParallel|FullySharded|no_sync"
    r"|fully_shard|\.item\(\)|\.backward\(\)",
    "tensorflow": r"\btf\.|tensorflow|RaggedTensor",
    "keras": r"\bkeras|model\.compile\(|model\.fit\(",
    "jax": r"\bjax\b|\bjnp\b|flax|optax|\bXLA_FLAGS|grain",
    "mindspore": r"mindspore|GRAPH_MODE|asnumpy",
    "onnxruntime": r"onnxruntime|\bort\.|\bORT_",
}
#: Keras is a part of TensorFlow.
BOTH = {"tensorflow": {"keras"}, "keras": {"tensorflow"}}
#: What these find is PyTorch's by name, whatever the process says that it imported.
OF_TORCH = {
    "data_parallel", "ddp_without_nccl", "graph_breaks", "slow_api_flags", "cudnn_benchmark", "tf32_off"
}  # fmt: skip


def foreign(text, framework):
    """The words of other frameworks in a text."""
    own = {framework, *BOTH.get(framework, ())}
    return [
        word for name, words in OWN.items() if name not in own for word in re.findall(words, text)
    ]


def examples():
    """The detectors whose example is made of rows, what makes it, and each framework that may have it."""
    for name in detectors():
        made = getattr(import_module(f"tests.core.advice.test_{name}"), "EXAMPLE", (None, None))[1]
        if callable(made):
            for framework in ["torch"] if name in OF_TORCH else OWN:
                yield pytest.param(name, made, framework, id=f"{name}-{framework}")


def of_framework(made, framework):
    """The made profile, as if this framework had recorded it."""
    trace = made().trace
    tables = {name: trace[name] for name in trace.tables}
    numbers = tables["ranges"]["process"].unique() if "ranges" in tables else [0]
    known = tables.get("processes")
    if known is None or known.is_empty():
        known = pl.DataFrame({"process": pl.Series(list(numbers), dtype=pl.Int32)})
    tables["processes"] = known.with_columns(pl.lit(framework).alias("framework"))
    return Profile(Trace.of(tables, trace.origin))


@pytest.mark.parametrize(("name", "made", "framework"), list(examples()))
def test_every_detector_speaks_the_words_of_the_runs_framework(name, made, framework):
    answer = detectors()[name].find(of_framework(made, framework))
    if isinstance(answer, CannotTell):
        assert foreign(answer.reason, framework) == []
    else:
        for finding in answer:
            # a loader is of the framework that its name shows
            text = finding.recommendation.replace("DataLoader(", "loader(")
            assert foreign(text, framework) == []


def test_every_change_that_is_stated_by_framework_is_in_its_words():
    stated = 0
    for name in detectors():
        module = import_module(f"opscope.core.advice.detectors.{name}")
        for value in vars(module).values():
            if (
                not isinstance(value, dict)
                or not value
                or not set(value) <= set(changes.FRAMEWORKS)
            ):
                continue
            for framework, given in value.items():
                every = (given,) if isinstance(given, (str, Change)) else given
                for each in every:
                    text = each if isinstance(each, str) else each.text
                    if framework in OWN and isinstance(text, str):
                        stated += 1
                        assert foreign(text, framework) == [], (name, framework)
    assert stated > 60


COMPILED = {"text": "compile model", "start": 0, "end": MS, "category": "phase"}
MM = {"text": "aten::mm(f32[8,8], f32[8,8])", "start": MS, "end": 2 * MS}
TWO = {"torch": ("always.", Change("torch.compile(model).", compiled=False))}


def test_torch_compile_is_not_advised_to_a_run_that_is_compiled():
    assert fit(on_cpu([MM]), TWO, "in general") == "always. torch.compile(model)."
    assert fit(on_cpu([COMPILED, MM]), TWO, "in general") == "always."


def test_what_fits_no_change_of_its_framework_gets_the_general_words():
    only = {"torch": Change("torch.compile(model)", compiled=False), "jax": "jax.jit"}
    assert fit(on_cpu([COMPILED, MM]), only, "in general") == "in general"
    assert fit(on_cpu([MM], framework="jax"), only, "in general") == "jax.jit"
    assert fit(on_cpu([MM], framework="flax"), only, "in general") == "jax.jit"
    assert fit(on_cpu([MM], framework="mindspore"), only, "in general") == "in general"


def test_of_several_imported_frameworks_the_one_that_ran_ops_counts():
    run = run_of(on_cpu([MM], framework="torch,jax"))
    assert run.framework == "torch"


GATHER = "c10d::_allgather_base_(f32[64], f32[32])"
SCATTER = "c10d::_reduce_scatter_base_(f32[32], f32[64])"


@pytest.mark.parametrize(
    ("texts", "wrappers"),
    [
        (["DistributedDataParallel.forward"], {"ddp"}),
        (["FullyShardedDataParallel.forward"], {"fsdp"}),
        # FSDP2 on a CPU leaves no name
        ([GATHER, SCATTER], {"fsdp"}),
        ([GATHER], set()),
        (["c10d::alltoall_base_(f32[64], f32[64])"], set()),
    ],
)
def test_wrappers_are_told_by_names_or_by_what_they_send(texts, wrappers):
    rows = [{"text": text, "start": MS * n, "end": MS * n + 9} for n, text in enumerate(texts)]
    run = run_of(on_cpu(rows))
    assert set(run.wrappers) == wrappers
    assert Change("", wrapper="ddp").fits(run) == ("ddp" in wrappers)
    assert Change("", no_wrapper=True).fits(run) == (not wrappers)


def test_changes_for_gpus_and_vendors_are_not_said_of_others():
    gpu = run_of(on_gpu([ran(MM["text"], 0, 9, "gemm")]))
    cpu = run_of(on_cpu([MM]))
    assert Change("", on_gpu=True).fits(gpu)
    assert not Change("", on_gpu=True).fits(cpu)
    assert Change("", vendors=("nvidia",)).fits(gpu)
    assert not Change("", vendors=("amd",)).fits(gpu)


def steps(count, origin):
    """A program of so many steps."""
    rows = spans(
        [{"text": f"step {n}", "start": MS * n, "end": MS * (n + 1)} for n in range(count)], "step"
    )
    tables = {"ranges": pl.DataFrame(rows), "processes": processes("torch")}
    return Profile(Trace.of(tables, origin))


def test_steps_are_advised_that_the_program_has():
    recorded = {"format": "opscope"}
    assert later_steps(run_of(steps(30, recorded)), 3) == "--steps 3:13"
    assert later_steps(run_of(steps(10, recorded)), 3) == "--steps 3:10"
    assert later_steps(run_of(steps(10, recorded)), 10) is None
    # another tool recorded ten of who knows how many
    assert later_steps(run_of(steps(10, {"format": "kineto"})), 10) == "--steps 10:20"


def test_the_diagnosis_tries_what_the_run_has_not():
    def words(*rows):
        run = run_of(on_cpu(list(rows)))
        return Words(run.framework, on_gpu=False, run=run)

    assert "torch.compile(model)" in words(MM).outside(short=True, sampled=False)
    assert "torch.compile" not in words(COMPILED, MM).outside(short=True, sampled=False)
    assert "pin_memory" not in words(MM).input(0)
    rows = [
        {"text": text, "start": MS * n, "end": MS * n + 9}
        for n, text in enumerate((GATHER, SCATTER))
    ]
    assert "fully_shard" in words(*rows).communication()
    assert "DistributedDataParallel" not in words(*rows).communication()
    alone = words({"text": "c10d::alltoall_base_(f32[64], f32[64])", "start": 0, "end": 9})
    assert "no_sync" not in alone.communication()
