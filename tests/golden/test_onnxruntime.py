"""ONNX Runtime's profile of ResNet-50 in 8 bits on Gemmini: the sums that hold within the file."""

from tests import traces

FILE = "onnxruntime/resnet_inference_gemmini.json"
MICROSECOND = 1000


def test_the_nodes_and_runs_add_up(shared):
    profile = traces.load(shared / FILE)
    ops = profile.ops()
    assert len(ops) == 77
    by_provider = ops["params"].str.contains("SystolicExecutionProvider")
    assert (int(by_provider.sum()), int((~by_provider).sum())) == (69, 8)
    assert set(ops["device"]) == {"cpu", "systolic"}
    assert ops["self_time"].sum() == ops["cpu_time"].sum() == 32_640 * MICROSECOND
    summary = profile.summary().row(0, named=True)
    assert summary["steps"] == 1
    assert summary["attributed_time"] == 32_640 * MICROSECOND
    assert summary["device_time"] == 35_225 * MICROSECOND
    assert summary["unattributed_time"] == (35_225 - 32_640) * MICROSECOND
    ranges = profile.trace["ranges"]
    spans = dict(zip(ranges["text"].cast(str), ranges["end"] - ranges["start"], strict=True))
    assert spans["step 0"] == 35_225 * MICROSECOND
    assert spans["SequentialExecutor::Execute"] == 34_565 * MICROSECOND
    assert spans["model_loading_uri"] == 145_641 * MICROSECOND
    assert spans["session_initialization"] == 732_701 * MICROSECOND


def test_setting_up_the_session_is_in_no_step(shared):
    ranges = traces.load(shared / FILE).trace["ranges"]
    by_text = {row["text"]: row for row in ranges.iter_rows(named=True)}
    for name in ("model_loading_uri", "session_initialization"):
        assert by_text[name]["category"] == "phase"
        assert by_text[name]["end"] <= by_text["step 0"]["start"]


def test_flops_without_shapes_are_unknown_and_the_notes_say_what_helps(shared):
    profile = traces.load(shared / FILE)
    products = profile.ops().filter(profile.ops()["op"].is_in(["QLinearConv_nhwc", "Gemm"]))
    assert len(products) == 54
    # the file has sizes in bytes alone, in which channels and window cannot be told apart
    assert products["flops"].null_count() == 54
    assert set(products["op_type"]) == {"conv", "gemm"}
    assert profile.notes()["what"].str.contains("no shapes.*give the model").any()
