"""The adapter of TensorRT, on a stand-in of its Python API, and on the real binding classes where they load."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import logging
import subprocess
import sys
import types
import weakref
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope import adapters
from opscope.adapters.base import AdapterError
from opscope.adapters.shared import imported
from opscope.adapters.tensorrt import LAYER_TIMES, VERBOSITY, TensorRTAdapter
from opscope.adapters.tensorrt.torch_modules import MODULE
from tests import nvtx_tool, tensorrt_stand_in

ROOT = Path(opscope.__file__).resolve().parents[1]


@pytest.fixture
def trt(monkeypatch):
    """TensorRT's stand-in is imported; opscope knows its adapter."""
    found = tensorrt_stand_in.module()
    monkeypatch.setitem(sys.modules, "tensorrt", found)
    monkeypatch.setattr(
        adapters, "available", lambda: {"tensorrt": "opscope.adapters.tensorrt:TensorRTAdapter"}
    )
    yield found
    opscope.shutdown()


def state(trt) -> dict[str, dict[str, object]]:
    """Every attribute of every class of the module."""
    return {
        name: {key: value for key, value in vars(one).items() if not key.startswith("__")}
        for name, one in vars(trt).items()
        if isinstance(one, type)
    }


def recorded(folder: Path, body) -> opscope.Profile:
    path = folder / "run.opscope"
    with opscope.capture(path, backend="recorder"):
        body()
    return opscope.load(path)


def test_a_run_is_a_range_with_engine_tensors_profile_and_stream(trt, tmp_path):
    opscope.init(frameworks=["tensorrt"])
    context = trt.engine().create_execution_context()

    def runs():
        assert context.execute_async_v3(stream_handle=7)
        assert context.execute_async_v3(9)
        assert context.execute_v2([0, 0])

    ops = recorded(tmp_path, runs).ops().sort("start")
    assert ops["op"].to_list() == ["trt::execute_async_v3"] * 2 + ["trt::execute_v2"]
    assert ops["inputs"].to_list() == ["f32[1,3,8,8]"] * 3
    assert ops["outputs"].to_list() == ["f32[1,4,4,4]"] * 3
    assert ops["params"].to_list() == [
        'engine="net", profile=0, stream=0',
        'engine="net", profile=0, stream=1',
        'engine="net", profile=0',
    ]
    assert ops["direction"].to_list() == ["forward"] * 3


def test_the_work_of_a_run_is_unknown_and_no_zero(trt, tmp_path):
    opscope.init(frameworks=["tensorrt"])
    context = trt.engine().create_execution_context()
    counts = recorded(tmp_path, lambda: context.execute_v2([0, 0])).counts()
    value_of = dict(counts.select("count", "value").rows())
    assert (value_of["ops"], value_of["flops"], value_of["bytes"]) == (1, None, None)


def test_sizes_that_vary_are_those_of_the_run(trt, tmp_path):
    opscope.init(frameworks=["tensorrt"])
    context = trt.engine(dynamic=True).create_execution_context()

    def runs():
        for context.batch in (2, 5, 2):
            context.execute_async_v3(1)

    ops = recorded(tmp_path, runs).ops().sort("start")
    assert ops["inputs"].to_list() == ["f32[2,3,8,8]", "f32[5,3,8,8]", "f32[2,3,8,8]"]
    assert ops["outputs"].to_list() == ["f32[2,4,4,4]", "f32[5,4,4,4]", "f32[2,4,4,4]"]


def test_sizes_that_do_not_vary_are_asked_for_once(trt, tmp_path):
    opscope.init(frameworks=["tensorrt"])
    context = trt.engine().create_execution_context()
    recorded(tmp_path, lambda: [context.execute_async_v3(1) for _ in range(5)])
    assert not [call for call in trt.calls if call.startswith("shape")]
    assert trt.calls.count("inspect") == 1


def test_layers_are_specs_of_the_engine_and_again_of_the_next_capture(trt, tmp_path):
    opscope.init(frameworks=["tensorrt"])
    context = trt.engine().create_execution_context()
    for number in range(2):
        (folder := tmp_path / str(number)).mkdir()
        layers = recorded(folder, lambda: context.execute_async_v3(1)).engine_layers()
        assert layers["layer"].to_list() == ["conv + relu", "pool"]
        assert layers["engine"].to_list() == ["net", "net"]
        assert layers["matrix_flops"].to_list() == [2 * 4 * 64 * 27, 0]
        assert layers["origins"].to_list() == ["conv + relu", "pool"]
        assert layers["mean"].to_list() == [None, None]  # nothing timed them
    assert trt.calls.count("inspect") == 1


def test_two_engines_of_one_name_are_told_apart(trt, tmp_path):
    opscope.init(frameworks=["tensorrt"])
    contexts = [trt.engine().create_execution_context() for _ in range(2)]
    found = recorded(tmp_path, lambda: [one.execute_async_v3(1) for one in contexts])
    assert set(found.engine_layers()["engine"]) == {"net", "net 2"}
    assert found.ops()["params"].str.contains('"net 2"').sum() == 1


def test_contexts_from_before_init_are_known_at_their_first_run(trt, tmp_path):
    context = trt.engine().create_execution_context()
    opscope.init(frameworks=["tensorrt"])
    found = recorded(tmp_path, lambda: context.execute_async_v3(1))
    assert len(found.engine_layers()) == 2


def test_an_engine_that_tells_only_names_is_said_to(trt, tmp_path, caplog):
    opscope.init(frameworks=["tensorrt"])
    context = trt.engine(detailed=False).create_execution_context()
    with caplog.at_level(logging.WARNING):
        found = recorded(tmp_path, lambda: context.execute_async_v3(1))
    assert len(found.ops()) == 1
    assert "ProfilingVerbosity.DETAILED" in caplog.text


# ------------------------------------------------------------------------------ layers' times


def test_layer_times_are_recorded_where_asked_for(trt, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv(LAYER_TIMES, "1")
    opscope.init(frameworks=["tensorrt"])
    context = trt.engine().create_execution_context()
    with caplog.at_level(logging.WARNING):
        layers = recorded(
            tmp_path, lambda: [context.execute_async_v3(1) for _ in range(4)]
        ).engine_layers()
    assert layers["runs"].to_list() == [4, 4]
    assert layers["mean"].to_list() == [250_000.0, 62_500.0]
    assert layers["total"].to_list() == [1_000_000.0, 250_000.0]
    assert layers["share"].to_list() == [0.8, 0.2]
    assert layers["attained_flops"][0] == pytest.approx(2 * 4 * 64 * 27 / 250e-6)
    assert "waits for its end" in caplog.text
    opscope.shutdown()
    assert context.profiler is None


def test_each_recording_has_the_times_of_its_own_runs(trt, tmp_path, monkeypatch):
    monkeypatch.setenv(LAYER_TIMES, "1")
    opscope.init(frameworks=["tensorrt"])
    context = trt.engine().create_execution_context()
    for runs in (1, 3):
        (folder := tmp_path / str(runs)).mkdir()
        found = recorded(folder, lambda n=runs: [context.execute_async_v3(1) for _ in range(n)])
        assert found.engine_layers()["runs"].to_list() == [runs, runs]


def test_a_users_profiler_stays_and_hears_all(trt, tmp_path, monkeypatch):
    monkeypatch.setenv(LAYER_TIMES, "1")
    opscope.init(frameworks=["tensorrt"])
    context = trt.engine().create_execution_context()

    class Mine(trt.IProfiler):
        heard = 0

        def report_layer_time(self, layer_name, ms):
            Mine.heard += 1

    context.profiler = mine = Mine()
    found = recorded(tmp_path, lambda: context.execute_async_v3(1))
    assert context.profiler is mine
    assert Mine.heard == 2
    assert found.engine_layers()["total"].null_count() == 2


def test_a_context_that_reports_later_is_left_alone(trt, tmp_path, monkeypatch):
    monkeypatch.setenv(LAYER_TIMES, "1")
    opscope.init(frameworks=["tensorrt"])
    context = trt.engine().create_execution_context()
    context.enqueue_emits_profile = False
    recorded(tmp_path, lambda: context.execute_async_v3(1))
    assert context.profiler is None


def test_without_being_asked_for_no_profiler_is_set(trt, tmp_path):
    opscope.init(frameworks=["tensorrt"])
    context = trt.engine().create_execution_context()
    recorded(tmp_path, lambda: context.execute_async_v3(1))
    assert context.profiler is None


# ------------------------------------------------------------------------------ builds


def test_a_build_asks_for_detailed_verbosity_and_gives_the_config_back(trt):
    opscope.init(frameworks=["tensorrt"])
    config = trt.IBuilderConfig()
    trt.Builder().build_serialized_network(None, config)
    assert "build DETAILED" in trt.calls
    assert config.profiling_verbosity is trt.ProfilingVerbosity.LAYER_NAMES_ONLY


@pytest.mark.parametrize("name", ["LAYER_NAMES_ONLY", "NONE", "DETAILED"])
def test_a_verbosity_that_the_user_set_stays(trt, name):
    opscope.init(frameworks=["tensorrt"])
    config = trt.IBuilderConfig()
    config.profiling_verbosity = trt.ProfilingVerbosity[name]
    trt.Builder().build_serialized_network(None, config=config)
    assert f"build {name}" in trt.calls


def test_a_variable_leaves_builds_as_they_are(trt, monkeypatch):
    monkeypatch.setenv(VERBOSITY, "0")
    opscope.init(frameworks=["tensorrt"])
    trt.Builder().build_serialized_network(None, trt.IBuilderConfig())
    assert "build LAYER_NAMES_ONLY" in trt.calls


# ------------------------------------------------------------------------------ politeness


def test_everything_is_restored(trt, tmp_path, monkeypatch):
    monkeypatch.setenv(LAYER_TIMES, "1")
    before = state(trt)
    opscope.init(frameworks=["tensorrt"])
    assert state(trt) != before
    context = trt.engine().create_execution_context()
    recorded(tmp_path, lambda: context.execute_async_v3(1))
    opscope.shutdown()
    assert state(trt) == before


def test_runs_are_hooked_only_while_something_listens(trt, tmp_path):
    plain = vars(trt.IExecutionContext)["execute_async_v3"]
    opscope.init(frameworks=["tensorrt"])
    assert vars(trt.IExecutionContext)["execute_async_v3"] is plain
    hooked = []
    recorded(tmp_path, lambda: hooked.append(vars(trt.IExecutionContext)["execute_async_v3"]))
    assert hooked != [plain]
    assert vars(trt.IExecutionContext)["execute_async_v3"] is plain


def test_the_programs_own_errors_pass_and_the_range_ends(trt, tmp_path):
    opscope.init(frameworks=["tensorrt"])
    context = trt.engine().create_execution_context()
    context.fails = RuntimeError("mine")

    def runs():
        with pytest.raises(RuntimeError, match="mine"):
            context.execute_async_v3(1)
        context.fails = None
        assert context.execute_async_v3(1)

    found = recorded(tmp_path, runs)
    assert len(found.ops()) == 2
    assert found.ops()["parent_id"].null_count() == 2


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("ICudaEngine", "get_tensor_dtype"),
        ("ICudaEngine", "create_engine_inspector"),
        ("EngineInspector", "get_engine_information"),
        ("IExecutionContext", "get_tensor_shape"),
    ],
)
def test_our_own_error_reaches_no_program(trt, tmp_path, monkeypatch, caplog, owner, name):
    opscope.init(frameworks=["tensorrt"])

    def fails(*_):
        raise OSError("no")

    engine = trt.engine(dynamic=True)
    monkeypatch.setattr(getattr(trt, owner), name, fails)
    context = []

    def runs():
        context.append(engine.create_execution_context())
        assert context[0].execute_async_v3(1)
        assert context[0].execute_async_v3(1)

    with caplog.at_level(logging.ERROR):
        recorded(tmp_path, runs)
    assert caplog.text.count("is no longer observed") == 1
    assert trt.calls.count("execute_async_v3") == 2


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"Layers": 3}', '{"Layers": [{}]}', None, "[" * 9999]
)
def test_layer_info_that_cannot_be_read_is_said_and_runs_go_on(
    trt, tmp_path, monkeypatch, caplog, text
):
    monkeypatch.setattr(trt.EngineInspector, "get_engine_information", lambda *_: text)
    opscope.init(frameworks=["tensorrt"])
    context = trt.engine().create_execution_context()
    with caplog.at_level(logging.WARNING):
        found = recorded(tmp_path, lambda: context.execute_async_v3(1))
    assert len(found.ops()) == 1
    assert "cannot be read" in caplog.text


def test_engines_and_contexts_are_not_kept_alive(trt, tmp_path):
    opscope.init(frameworks=["tensorrt"])
    gone = []

    def runs():
        engine = trt.engine()
        context = engine.create_execution_context()
        context.execute_async_v3(1)
        gone.extend((weakref.ref(engine), weakref.ref(context)))

    recorded(tmp_path, runs)
    gc.collect()
    assert [one() for one in gone] == [None, None]


@pytest.mark.parametrize(
    ("version", "fits"), [("8.5.3", False), ("8.6.0", True), ("11.4.0.106", True)]
)
def test_versions_are_checked(trt, version, fits):
    trt.__version__ = version
    if fits:
        TensorRTAdapter.check_version()
    else:
        with pytest.raises(AdapterError, match=r"needs >=8\.6"):
            TensorRTAdapter.check_version()


# ------------------------------------------------------------------------------ Torch-TensorRT


@pytest.fixture
def torch_module(trt, monkeypatch):
    """Torch-TensorRT's module class, imported after init, whose engine C++ holds."""

    class TorchTensorRTModule:
        def __init__(self, name):
            self.name = name
            self.engine = object()
            self.asked = 0

        def get_layer_info(self):
            self.asked += 1
            return json.dumps({"Layers": tensorrt_stand_in.LAYERS})

        def forward(self, x):
            return x + 1

    module = types.ModuleType(MODULE)
    module.TorchTensorRTModule = TorchTensorRTModule
    monkeypatch.setitem(sys.modules, MODULE, module)
    # wrapt fires once for a name in a process, and other tests wait for this one
    monkeypatch.setattr(imported, "_waiting", {})
    importlib.import_module("wrapt.importer")._post_import_hooks.pop(MODULE, None)
    return TorchTensorRTModule


def test_a_module_that_runs_in_cpp_is_a_range_and_tells_its_layers(torch_module, tmp_path):
    plain = torch_module.forward
    opscope.init(frameworks=["tensorrt"])
    module = torch_module("_run_on_acc_0")
    results = []
    found = recorded(tmp_path, lambda: results.extend(module.forward(n) for n in range(3)))
    assert results == [1, 2, 3]
    assert module.asked == 1
    assert set(found.engine_layers()["engine"]) == {"_run_on_acc_0"}
    graphs = found.trace["ranges"].filter(pl.col("category").cast(pl.String) == "graph")
    assert graphs["text"].cast(pl.String).to_list() == ["_run_on_acc_0"] * 3
    opscope.shutdown()
    assert torch_module.forward is plain


def test_a_module_whose_engine_is_pythons_is_left_to_the_hook_of_its_context(
    torch_module, tmp_path
):
    opscope.init(frameworks=["tensorrt"])
    module = torch_module("one")
    module.engine = types.SimpleNamespace(cuda_engine=object())
    found = recorded(tmp_path, lambda: module.forward(1))
    assert module.asked == 0
    assert found.engine_layers().is_empty()


# ------------------------------------------------------------------------------ NVTX

_PROGRAM = """
import sys
from tests import tensorrt_stand_in
sys.modules["tensorrt"] = trt = tensorrt_stand_in.module()
from opscope import adapters
adapters.available = lambda: {"tensorrt": "opscope.adapters.tensorrt:TensorRTAdapter"}
import opscope
opscope.init(frameworks=["tensorrt"])
context = trt.engine().create_execution_context()
context.execute_async_v3(1)
opscope.shutdown()
"""


def test_an_nvtx_tool_hears_engine_run_and_specs(tmp_path):
    heard = nvtx_tool.hear(_PROGRAM, nvtx_tool.build(tmp_path), tmp_path)
    domain = "opscope.tensorrt"
    pushed = [one.text for one in heard.of("push", domain=domain)]
    call = 'trt::execute_async_v3(f32[1,3,8,8]) -> f32[1,4,4,4] {engine="net", profile=0, stream=0}'
    assert pushed == ["net", call]
    assert len(heard.of("pop", domain=domain)) == 2
    marks = [one.text for one in heard.of("mark", domain=domain)]
    assert any(text.startswith('net/"conv + relu" = trt::Convolution(') for text in marks)


# ------------------------------------------------------------------------------ the real classes

_STUB = """
void *createInferBuilder_INTERNAL(void) {return 0;} void *createInferRefitter_INTERNAL(void) {return 0;}
void *createInferRuntime_INTERNAL(void) {return 0;} void *getBuilderPluginRegistry(void) {return 0;}
void *createNvOnnxParserRefitter_INTERNAL(void) {return 0;} void *getPluginRegistry(void) {return 0;}
void *createNvOnnxParser_INTERNAL(void) {return 0;} int getNvOnnxParserVersion(void) {return 0;}
int initLibNvInferPlugins(void) {return 1;} void *getLogger(void) {return 0;}
"""
_REAL = """
import ctypes, sys
sys.path.insert(0, {root!r})
for name in ("nvinfer", "nvinfer_plugin", "nvonnxparser"):
    ctypes.CDLL(f"{folder}/lib{{name}}.so.{major}", mode=ctypes.RTLD_GLOBAL)
import tensorrt_bindings as trt
sys.modules["tensorrt"] = trt
from opscope import adapters
adapters.available = lambda: {{"tensorrt": "opscope.adapters.tensorrt:TensorRTAdapter"}}
import opscope

CLASSES = (trt.IExecutionContext, trt.ICudaEngine, trt.Builder, trt.IBuilderConfig)
def state():
    return {{(one, key): value for one in CLASSES for key, value in vars(one).items()}}

before = state()
ran = []
runs = [name for name in vars(trt.IExecutionContext) if name.startswith("execute")]
for name in runs:  # the libraries are empty: what would run a kernel notes that it was called
    setattr(trt.IExecutionContext, name, lambda self, *a, _name=name, **k: ran.append(_name) or True)
stood = state()
opscope.init(frameworks=["tensorrt"])
assert state() != stood
context = trt.IExecutionContext.__new__(trt.IExecutionContext)
for name in runs:
    getattr(context, name)(0)
assert ran == runs, ran
opscope.shutdown()
assert state() == stood

# the real profiler class can be what ours is made from
from opscope.adapters.tensorrt.layer_times import _profiler_class
profiler = _profiler_class(trt)()
profiler.report_layer_time("conv", 0.25)
assert profiler.heard == [("conv", 0.25)]
assert {{str(one).rpartition(".")[2] for one in trt.DataType.__members__.values()}} <= set(
    __import__("opscope.adapters.tensorrt.engines", fromlist=["_DTYPES"])._DTYPES
), trt.DataType.__members__
assert str(trt.TensorIOMode.INPUT).rpartition(".")[2] == "INPUT"
import weakref
weakref.ref(context)
hash(context)
for name in ("LAYER_NAMES_ONLY", "DETAILED"):
    assert hasattr(trt.ProfilingVerbosity, name)
assert isinstance(vars(trt.IBuilderConfig)["profiling_verbosity"], property)
print("fits", trt.__version__, runs)
"""


def test_the_real_binding_classes_can_be_hooked_and_restored(tmp_path):
    """NVIDIA's own binding module, loaded over empty libraries: its classes are the real ones."""
    found = importlib.util.find_spec("tensorrt_bindings")
    if found is None or found.origin is None:
        pytest.skip("the wheel tensorrt-cu13-bindings is not installed")
    from importlib.metadata import version

    major = version("tensorrt-cu13-bindings").partition(".")[0]
    source = tmp_path / "stub.c"
    source.write_text(_STUB)
    for name in ("nvinfer", "nvinfer_plugin", "nvonnxparser"):
        library = f"lib{name}.so.{major}"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{library}", str(source), "-o", str(tmp_path / library)],
            check=True,
        )  # fmt: skip
    script = tmp_path / "real.py"
    script.write_text(_REAL.format(root=str(ROOT), folder=str(tmp_path), major=major))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fits")
