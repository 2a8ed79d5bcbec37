"""Reports on a TensorRT engine from the JSON that trtexec exports. Needs neither TensorRT nor a GPU.

The files are written here, in the format that these options of trtexec write:

    trtexec --onnx=net.onnx --profilingVerbosity=detailed --separateProfileRun --exportLayerInfo=net.graph.json
        --exportProfile=net.profile.json --exportTimes=net.timing.json

With files of your own: ``opscope report net.graph.json --reports engine_layers,engine_runs``. The figures
below are made up, for a small convolutional network on an A100.
"""

import json
import sys
import tempfile
from pathlib import Path

import opscope
from opscope.core.question.layout import write
from opscope.reports import console

LINEAR, LAST = "Row major linear FP32", "Channel major FP16 format where channel % 8 == 0"
REFORMAT = "Reformatting CopyNode for Input Tensor 0 to conv1 + relu1"


def tensor(name, dimensions, form=LAST):
    return {"Name": name, "Location": "Device", "Dimensions": dimensions, "Format/Datatype": form}


def convolution(name, source, result, kernel, tactic):
    inputs, outputs = source["Dimensions"][1], result["Dimensions"][1]
    return {
        "Name": name, "LayerType": "CaskConvolution", "Inputs": [source], "Outputs": [result],
        "ParameterType": "Convolution", "Kernel": [kernel, kernel],
        "PaddingMode": "kEXPLICIT_ROUND_DOWN", "PrePadding": [kernel // 2] * 2,
        "PostPadding": [kernel // 2] * 2, "Stride": [1, 1], "Dilation": [1, 1],
        "OutMaps": outputs, "Groups": 1,
        "Weights": {"Type": "Half", "Count": outputs * inputs * kernel**2},
        "Bias": {"Type": "Half", "Count": outputs}, "Activation": "RELU",
        "TacticName": tactic, "TacticValue": "0x0000000000000001",
        "Metadata": "\x1e".join(f"[ONNX Layer: /{part}]" for part in name.split(" + ")),
    }  # fmt: skip


def layers():
    """What ``--exportLayerInfo`` writes of an engine."""
    image, first = tensor("image", [32, 8, 56, 56], LINEAR), tensor("image (f16)", [32, 8, 56, 56])
    hidden, last = tensor("hidden", [32, 64, 56, 56]), tensor("features", [32, 128, 56, 56])
    pooled = tensor("pooled", [32, 128, 28, 28])
    reformat = {"Name": REFORMAT, "LayerType": "Reformat", "Inputs": [image], "Outputs": [first],
                "ParameterType": "Reformat", "Origin": "REFORMAT", "TacticValue": "0x0"}  # fmt: skip
    pool = {"Name": "pool", "LayerType": "CaskPooling", "Inputs": [last], "Outputs": [pooled],
            "ParameterType": "Pooling", "PoolingType": "MAX", "WindowSize": [2, 2], "Stride": [2, 2],
            "PrePadding": [0, 0], "PostPadding": [0, 0], "Metadata": "[ONNX Layer: /pool]"}  # fmt: skip
    kernel = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32"
    found = [
        reformat,
        convolution("conv1 + relu1", first, hidden, 5, kernel),
        convolution("conv2 + relu2", hidden, last, 3, kernel),
        pool,
    ]
    return {"Layers": found, "Bindings": ["image", "pooled"]}


def times(runs=1000):
    """What ``--exportProfile`` writes: sums over many runs."""
    each = {REFORMAT: 0.012, "conv1 + relu1": 0.031, "conv2 + relu2": 0.118, "pool": 0.039}
    whole = sum(each.values())
    rows = [
        {"name": name, "timeMs": one * runs, "averageMs": one, "medianMs": one,
         "percentage": 100 * one / whole}
        for name, one in each.items()
    ]  # fmt: skip
    return [{"count": runs}, *rows]


def runs(many=2000, each=0.25):
    """What ``--exportTimes`` writes: every run, the first 200 ms of them to warm up."""
    found = []
    for number in range(many):
        start, compute = number * each, 0.2 + 0.001 * (number % 7)
        found.append(
            {"startEnqMs": start, "endEnqMs": start + 0.01, "startH2dMs": start,
             "endH2dMs": start + 0.02, "startComputeMs": start + 0.02,
             "endComputeMs": start + 0.02 + compute, "startD2hMs": start + 0.02 + compute,
             "endD2hMs": start + 0.03 + compute, "h2dMs": 0.02, "computeMs": compute,
             "d2hMs": 0.01, "latencyMs": 0.03 + compute}
        )  # fmt: skip
    return found


def main():
    with tempfile.TemporaryDirectory() as folder:
        written = {"graph": layers(), "profile": times(), "timing": runs()}
        for kind, what in written.items():
            (Path(folder) / f"net.{kind}.json").write_text(json.dumps(what))
        # one file is enough: those of its name beside it are found, and checked to belong to it
        profile = opscope.load(Path(folder) / "net.graph.json", gpu="A100 SXM4 80GB")
    write(console.tables(profile, ["summary", "engine_layers", "engine_runs"]), sys.stdout)
    slowest = profile.engine_layers().sort("mean", descending=True).row(0, named=True)
    print(f"\nslowest layer: {slowest['layer']}, {slowest['share']:.0%} of a run")


if __name__ == "__main__":
    main()
