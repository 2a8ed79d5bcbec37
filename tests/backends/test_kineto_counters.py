"""Hardware counters in the program: what PyTorch's profiler is asked for, and why it may measure none."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from opscope.backends import kineto_capture as kineto
from opscope.backends import kineto_counters
from opscope.cli.start import run
from opscope.core.counter_permission import CUPTI_CODE, REMEDY, denied, forbidden
from opscope.profile import Profile
from opscope.readers.kineto import reader
from opscope.readers.recording.with_kineto import merge

PARAMETERS = "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {}\nTCEBypassMode: 0\n"


def options_of_2_13(profiler_metrics, profiler_measure_per_kernel):
    return locals()


def options_of_2_15(*, performance_events=(), custom_profiler_config="", trace_only=False):
    return locals()


def torch_of(cuda: str | None = "12.6", hip: str | None = None, options=options_of_2_13):
    """What ``kineto_counters`` looks at of a PyTorch."""
    made = SimpleNamespace(_ExperimentalConfig=options) if options else SimpleNamespace()
    return SimpleNamespace(
        version=SimpleNamespace(cuda=cuda, hip=hip), _C=SimpleNamespace(_profiler=made)
    )


@pytest.fixture
def machine(tmp_path):
    """A function that writes what a machine says of its driver and of this process' capabilities."""

    def make(restricted: str | None, capabilities: int = 0):
        parameters, status = tmp_path / "params", tmp_path / "status"
        if restricted is not None:
            parameters.write_text(PARAMETERS.format(restricted))
        status.write_text(f"Name:\tpython\nCapEff:\t{capabilities:016x}\n")
        return forbidden(parameters, status)

    return make


@pytest.mark.parametrize(
    ("restricted", "capabilities", "answer"),
    [
        ("1", 0, True),
        ("1", 1 << 21, False),
        ("1", 1 << 38, False),
        ("0", 0, False),
        (None, 0, None),
    ],
)
def test_the_drivers_parameters_say_who_may_count(machine, restricted, capabilities, answer):
    assert machine(restricted, capabilities) is answer


@pytest.mark.parametrize(
    "said",
    [
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
        " on the target device 0.",
        "function cuptiProfilerBeginSession(&p) failed with error CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)",
        "The user does not have permission to access NVIDIA GPU Performance Counters",
    ],
)  # fmt: skip
def test_every_tools_refusal_is_understood(said):
    assert denied(said)
    assert not denied("==ERROR== The application returned an error code (1).")
    assert CUPTI_CODE == 35


def test_counters_are_named_one_by_one_or_in_groups():
    found = kineto_counters.parse("dram, sm__cycles_active.avg,dram__bytes_read.sum")
    assert found == ("dram__bytes_read.sum", "dram__bytes_write.sum", "sm__cycles_active.avg")
    assert len(kineto_counters.parse("flops")) == 9
    for wrong in ("", " , ", "a b", "--help", "x;y", "x\nCUPTI=1"):
        with pytest.raises(ValueError, match="flops, tensor, dram"):
            kineto_counters.parse(wrong)


@pytest.mark.parametrize(
    ("torch", "why"),
    [
        (torch_of("13.0"), "CUDA 13.0, for which Kineto has no range profiler"),
        (torch_of(None, hip="6.2"), "rocprofv3"),
        (torch_of(None), "not built for CUDA"),
        (torch_of(options=None), "no profiler_metrics"),
        (torch_of(options=options_of_2_15), "--counters-by ranges"),
    ],
)
def test_a_pytorch_that_cannot_measure_says_why(torch, why):
    assert why in kineto_counters.refusal(torch)


def test_a_driver_that_forbids_counters_is_told_with_the_remedy(monkeypatch):
    monkeypatch.setattr(kineto_counters, "forbidden", lambda: True)
    assert kineto_counters.refusal(torch_of()) == REMEDY
    assert "NVreg_RestrictProfilingToAdminUsers=0" in kineto_counters.why_none()
    monkeypatch.setattr(kineto_counters, "forbidden", lambda: None)
    assert kineto_counters.refusal(torch_of()) is None
    assert "another profiler" in kineto_counters.why_none()


def test_the_profiler_is_asked_for_each_kernels_counters(monkeypatch):
    monkeypatch.setenv(kineto_counters.WANTED, "dram__bytes.sum")
    given = kineto_counters.arguments(torch_of(), kineto_counters.wanted())
    assert given == {"experimental_config": {"profiler_metrics": ["dram__bytes.sum"],
                                             "profiler_measure_per_kernel": True}}  # fmt: skip


def test_a_real_pytorch_takes_the_request_or_is_not_asked(monkeypatch, caplog):
    torch = pytest.importorskip("torch")
    from torch.profiler import profile

    names = ("dram__bytes.sum",)
    if kineto_counters._experimental(torch) is not None:  # until 2.14
        made = profile(**kineto_counters.arguments(torch, names))
        assert isinstance(made.experimental_config, torch._C._profiler._ExperimentalConfig)
    monkeypatch.setenv(kineto_counters.WANTED, names[0])
    if torch.version.cuda is None:  # a build for the CPU
        assert kineto._counters() == {}
        assert "not built for CUDA" in caplog.text


def test_without_the_option_nothing_is_asked(monkeypatch):
    monkeypatch.delenv(kineto_counters.WANTED, raising=False)
    assert kineto_counters.wanted() == ()
    assert kineto._counters() == {}


def test_counters_in_the_profilers_trace_join_the_recorders_ranges(tmp_path, trace_of):
    call = {
        "ph": "X",
        "cat": "cuda_runtime",
        "pid": 7,
        "tid": 8,
        "dur": 5,
        "name": "cudaLaunchKernel",
    }
    events = [{**call, "ts": 1000 + 10 * n, "args": {"correlation": n + 1}} for n in range(2)]
    events += [{"ph": "X", "cat": "cuda_profiler_range", "name": f"k{n}", "pid": 0, "tid": 0, "ts": 5000 + n,
                "dur": 1, "args": {"dram__bytes.sum": n + 1}} for n in range(2)]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    op = {"process": 0, "thread": 8, "kind": "pushpop", "domain": "opscope.torch"}
    mine = [{**op, "text": "aten::relu(f32[8])", "start": 990_000, "end": 1_008_000},
            {**op, "text": "aten::add(f32[8], f32[8])", "start": 1_009_000, "end": 1_030_000}]  # fmt: skip
    clocks = [{"clock_domain": 0, "kind": "unix", "to_unix_ns": 0}]
    processes = [{"process": 0, "pid": 7, "clock_domain": 0}]
    part = trace_of(
        ranges=mine,
        clocks=clocks,
        processes=processes,
        threads=[{"process": 0, "thread": 8, "os_tid": 8}],
    )
    frame = Profile(merge(part, reader.read(path))).counters()
    assert frame.select("name", "dram__bytes.sum").rows() == [("k0", 1.0), ("k1", 2.0)]
    assert frame["bottom_op"].to_list() == ["aten::relu", "aten::add"]


def test_the_command_refuses_names_that_are_none_and_backends_that_cannot(monkeypatch, capsys):
    for options, said in (
        (["--counters", "a b"], "'a b' is no counter's name"),
        (["--counters", "flops", "--backend", "nsys"], "--backend nsys"),
        (
            ["--counters", "flops", "--backend", "recorder"],
            "CUPTI or PyTorch's profiler measure them",
        ),
    ):
        monkeypatch.setattr("sys.argv", ["opscope", "run", *options, "--", "true"])
        assert run() == 2
        assert said in capsys.readouterr().err
