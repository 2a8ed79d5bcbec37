"""The diagnosis of each real trace, checked by hand: what the tables show is written beside each answer."""

from __future__ import annotations

import pytest

from opscope.core.advice import said
from opscope.core.advice.causes import causes
from opscope.core.advice.ranked import diagnosed
from tests import traces

#: Trace → the findings in order ("cannot tell" alone where nothing can be said), why, and a part of the first
#: sentence. Checked in the tables: steps, idle_steps, idle, data_preparation, communication, efficiency.
EXPECTED = {
    # no steps; 79 kernels in 12.9 s, busy for 66 ms; one gap of 10 s while CUDA's libraries are loaded
    "kineto/alexnet_cuda_sync_a100.json.gz": (["host-bound"], "one gap alone took 10 s"),
    # counters replace the activities: launches and no kernels
    "kineto/alexnet_cupti_counters_a100.json.gz": (["cannot tell"], "no kernels were captured"),
    # 5 steps of 348 ms: idle_steps has 153 of 346 ms host wait (83 in the last), steps has 59.6 ms of
    # communication that nothing overlaps; kernels: 19,370, median 8 µs, with a launch of about 6 µs each
    "kineto/ddp_memory_v100.json.gz": (["host-bound", "communication-bound"], "142 ms of a median step's 346 ms"),
    # DLRM: busy 76 to 88 % of each step; embedding and copies attain 33 % of the bandwidth, all_to_all is
    # exposed for a fifth of the step
    "kineto/ddp_rank3of8_a100_stacks.json.gz": (
        ["memory-bandwidth-bound", "communication-bound", "host-bound"],
        "memory bandwidth bounds",
    ),
    # 23 % busy, 501 of 660 ms host wait; the CPU is in ops (compiled autograd) for 138 of 220 ms
    "kineto/nccl_meta.json.gz": (["host-bound"], "169 ms of a median step's 222 ms"),
    # one inference step: 43.1 of 47.2 ms in kernels; elementwise ones run in chains for a quarter of them, and
    # the step ends 3.5 ms (7.4 %) sooner if what lies between them is not written and read
    "kineto/qwen1.5_0.5b_h100.json.gz": (["elementwise chains"], "147 chains that nothing fused"),
    # the plug-in's own example of a slow loader: data_preparation has 416 of 1,049 ms of waiting
    # the replays of CUDA graphs and of a fused optimizer save 12.6 and 7.3 % of a median step
    "kineto/resnet50_nw0_step_span1.pt.trace.json.gz": (
        ["input-bound", "launch bound", "unfused optimizer"], "_SingleProcessDataLoaderIter"
    ),
    # the same with four workers: 1 % of waiting; busy for 79 % of the later steps, the rest is host wait
    "kineto/resnet50_nw4_step_span1.pt.trace.json.gz": (["host-bound"], "26.3 ms of a median step's 126 ms"),
    # idle_steps: half of the time idle, more than half of it host wait; exposed NCCL 28 %
    "kineto/sampled_rank0.json.gz": (
        ["host-bound", "communication-bound", "waiting on other streams"],
        "185 ms of a median step's 615 ms",
    ),
    "kineto/sampled_rank1.json.gz": (
        ["host-bound", "waiting on other streams", "communication-bound"],
        "174 ms of a median step's 619 ms",
    ),
    # one step of 383 ms: its kernels take 160 ms, and begin 222 ms after it
    # scores of 3,137 × 3,137 are written and read: 129 ms
    "kineto/timesformer_h100.json.gz": (
        ["host-bound", "unfused attention", "memory-bandwidth-bound"], "223 ms of a median step's 383 ms"
    ),
    # one kernel of 1.76 µs
    "kineto/triton_example.json.gz": (["cannot tell"], "recorded (1)"),
    # 64 ms gaps before copies that were launched 129 ms earlier: the streams wait for something, not the host
    "kineto/vision_transformer_rank0.json.gz": (
        ["waiting on other streams", "communication-bound"],
        "114 ms of a median step's 216 ms",
    ),
    # decode by CUDA graph: busy 99.8 %; the graph's kernels have no op, so nothing is said of what bounds them
    "kineto/vllm_decode_cudagraph.json.gz": (["cannot tell"], "96.9 % of the device's time has no op"),
    # capturing graphs runs next to nothing: ten pieces of work, with 56 ms of capturing between them
    "kineto/vllm_decode_cudagraph_capture.json.gz": (["cannot tell"], "went into CUDA graphs"),
    # a data frame's operations: idle has 335 of 442 ms of host wait, a gap in six after a synchronisation
    "nsys/cudf_2020.sqlite": (["host-bound", "synchronising calls"], "277 ms of the 442 ms"),
    # two ranks, both busy for 90 %; no device's name, so no roof
    "nsys/fsdp_h100x2_2026.sqlite": (["healthy"], "90.4 %"),
    "nsys/multiprocessing_nogpu_2020.sqlite": (["cannot tell"], "no steps are marked"),
    # tests that compile for seconds between a few kernels
    "nsys_more/fuser_h200_pytest_nvtx.sqlite": (["host-bound"], "one gap alone took 1.63 s"),
    "nsys_more/fuser_h200_test_matmul.sqlite": (["host-bound"], "one gap alone took 397 ms"),
    "nsys_more/jacc_a100_nocuda_2026.1.sqlite": (["cannot tell"], "no ops and no kernels"),
    "nsys_more/lighttransport_gemm_runtime_only.sqlite": (["cannot tell"], "no kernels were captured"),
    # 284 kernels, median 3.7 µs, in 57.7 ms: idle for 84 % of it
    "nvprof/language_model.sqlite": (["host-bound", "synchronising calls"], "median 3.66 µs"),
    # a LeNet of 59 kernels in 8.8 ms
    "dlprof/nsys_profile.sqlite": (["host-bound", "synchronising calls"], "4.61 ms of the 8.77 ms"),
    # 200 kernels on eight devices, each busy for 3 to 4 of 91 to 138 ms
    "xplane/jax_conv_mi300.xplane.pb": (["host-bound"], "100 ms of the 104 ms"),
    # model_loading and session_initialization: 878 of 937 ms; one run of 35.2 ms
    "onnxruntime/resnet_inference_gemmini.json": (["compilation"], "93.7 %"),
    # kernels alone: what they waited for is not known
    "rocm/rocprofiler-compute_vcopy_MI200": (["cannot tell"], "recorded (3)"),
    "rocm/rocprofv1_gfx1201_llamacpp": (["cannot tell"], "808 ms of the 1.47 s"),
    "rocm/rocprofv1_mi250_laplacian": (["cannot tell"], "98.6 %"),
    "rocm/rocprofv1_mi250_laplacian_kernel1": (["cannot tell"], "98.9 %"),
    "rocm/rocprofv1_mi300_gunrock": (["cannot tell"], "81 ms of the 90 ms"),
    # three captures of one program
    "rocm/rocprofv3_gfx1151": (["cannot tell"], "179 ms of the 187 ms"),
    # a gap of 2.74 s before the timed products
    "rocm/rpd": (["host-bound"], "one gap alone took 2.74 s"),
    # pipeline parallel: collectives alone were recorded, so what ran beside them is not known; its first step
    # compiles
    "mindspore/mindinsight_cluster": (["cannot tell", "slow start"], "collectives and no computation"),
    # trimmed to one kernel and one call
    "mindspore/mindinsight_profiler_misc": (["cannot tell"], "recorded (1)"),
    # its one step begins with the first wait of the device for a batch, 0.8 ms before the mark
    "mindspore/mindinsight_run2_ascend910": (["healthy"], "96.2 %"),
    # ten steps are marked, and the tasks of the first alone are there
    "mindspore/msprof_device0": (["cannot tell", "communication-bound"], "of a median step's 47.6 ms"),
    # totals of trtexec, without times
    "tensorrt/cookbook_trt10.16": (["cannot tell"], "totals and no times"),
    "tensorrt/trex": (["cannot tell"], "totals and no times"),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_the_diagnosis_of_a_real_trace_is_what_its_tables_show(shared, name):
    path = shared / name
    if not path.exists():
        pytest.skip(f"{name} is not there")
    found = traces.load(path).diagnosis()
    rows = found.to_dicts()
    expected, sentence = EXPECTED[name]
    told = [row["finding"] for row in rows]
    assert told[: len(expected)] == expected
    assert set(told[len(expected) :]) <= {"cannot tell"}
    assert sentence in rows[0]["text"]
    assert rows[0]["to_try"]
    for row in rows:
        if row["lost"]:
            assert 0 < row["share"] <= 1


@pytest.mark.parametrize("name", list(EXPECTED)[::3])
def test_the_detectors_that_a_report_does_not_ask_would_change_nothing_in_the_diagnosis(
    shared, name
):
    path = shared / name
    if not path.exists():
        pytest.skip(f"{name} is not there")
    profile = traces.load(path)
    seen = profile.of(causes)
    profile.of(said.answers_by_detector).clear()
    asked = said._said(profile, said._LEADING)
    every = said.said_by(profile, None)
    assert len(asked) < len(every)
    assert list(diagnosed(asked, seen, None)) == list(diagnosed(every, seen, None))
