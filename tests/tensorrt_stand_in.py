"""A stand-in for the module ``tensorrt``: the classes and methods that the adapter touches, without a GPU.

It behaves as NVIDIA's documentation of the Python API says: a context with a profiler reports each layer's
time before ``execute_async_v3`` returns, unless ``enqueue_emits_profile`` is off; the inspector gives names
alone unless the engine was built with detailed verbosity. Every call is in ``calls``.
"""

from __future__ import annotations

import enum
import json
import types
from typing import Any

LAYERS = [
    {
        "Name": "conv + relu", "LayerType": "CaskConvolution",
        "Inputs": [{"Name": "x", "Dimensions": [1, 3, 8, 8], "Format/Datatype": "Float"}],
        "Outputs": [{"Name": "y", "Dimensions": [1, 4, 8, 8], "Format/Datatype": "Float"}],
        "ParameterType": "Convolution", "Kernel": [3, 3], "PrePadding": [1, 1],
        "PostPadding": [1, 1], "Stride": [1, 1], "Dilation": [1, 1], "OutMaps": 4, "Groups": 1,
        "Weights": {"Type": "Float", "Count": 108}, "Bias": {"Type": "Float", "Count": 4},
        "TacticName": "sm80_xmma_fprop_implicit_gemm_f32f32", "TacticValue": "0x1",
        "Metadata": "[ONNX Layer: conv]\x1e[ONNX Layer: relu]",
    },
    {
        "Name": "pool", "LayerType": "CaskPooling",
        "Inputs": [{"Name": "y", "Dimensions": [1, 4, 8, 8], "Format/Datatype": "Float"}],
        "Outputs": [{"Name": "z", "Dimensions": [1, 4, 4, 4], "Format/Datatype": "Float"}],
        "ParameterType": "Pooling", "PoolingType": "MAX", "WindowSize": [2, 2],
    },
]  # fmt: skip
TIMES_MS = {"conv + relu": 0.25, "pool": 0.0625}


def module(version: str = "10.16.1") -> Any:
    """Return a new module with new classes, so that a test that patches them leaves no trace."""
    trt: Any = types.ModuleType("tensorrt")
    trt.__version__ = version
    trt.calls = calls = []

    class DataType(enum.Enum):
        FLOAT = 0
        HALF = 1
        INT64 = 5

    class TensorIOMode(enum.Enum):
        NONE = 0
        INPUT = 1
        OUTPUT = 2

    class ProfilingVerbosity(enum.Enum):
        LAYER_NAMES_ONLY = 0
        NONE = 1
        DETAILED = 2

    class LayerInformationFormat(enum.Enum):
        ONELINE = 0
        JSON = 1

    class IProfiler:
        def __init__(self) -> None: ...

        def report_layer_time(self, layer_name: str, ms: float) -> None: ...

    class EngineInspector:
        execution_context: Any = None

        def __init__(self, engine: Any) -> None:
            self._engine = engine

        def get_engine_information(self, form: Any) -> str:
            calls.append("inspect")
            assert form is LayerInformationFormat.JSON
            detailed = self._engine.profiling_verbosity is ProfilingVerbosity.DETAILED
            layers = LAYERS if detailed else [one["Name"] for one in LAYERS]
            return json.dumps({"Layers": layers, "Bindings": ["x", "z"]})

    class ICudaEngine:
        def __init__(self, name: str, verbosity: Any, dynamic: bool) -> None:
            self.name = name
            self.profiling_verbosity = verbosity
            batch = -1 if dynamic else 1
            self._tensors = {
                "x": (DataType.FLOAT, TensorIOMode.INPUT, (batch, 3, 8, 8)),
                "z": (DataType.FLOAT, TensorIOMode.OUTPUT, (batch, 4, 4, 4)),
            }

        @property
        def num_io_tensors(self) -> int:
            return len(self._tensors)

        def get_tensor_name(self, index: int) -> str:
            return list(self._tensors)[index]

        def get_tensor_dtype(self, name: str) -> Any:
            return self._tensors[name][0]

        def get_tensor_mode(self, name: str) -> Any:
            return self._tensors[name][1]

        def get_tensor_shape(self, name: str) -> Any:
            return self._tensors[name][2]

        def create_engine_inspector(self) -> Any:
            return EngineInspector(self)

        def create_execution_context(self, *args: Any) -> Any:
            return IExecutionContext(self)

    class IExecutionContext:
        def __init__(self, engine: Any) -> None:
            self.engine = engine
            self.profiler: Any = None
            self.enqueue_emits_profile = True
            self.active_optimization_profile = 0
            self.batch = 1
            self.fails: Exception | None = None

        def get_tensor_shape(self, name: str) -> Any:
            calls.append(f"shape {name}")
            return tuple(
                self.batch if size < 0 else size for size in self.engine.get_tensor_shape(name)
            )

        def _run(self) -> bool:
            if self.fails is not None:
                raise self.fails
            if self.profiler is not None and self.enqueue_emits_profile:
                for layer, milliseconds in TIMES_MS.items():
                    self.profiler.report_layer_time(layer, milliseconds)
            return True

        def execute_v2(self, bindings: list[int]) -> bool:
            calls.append("execute_v2")
            return self._run()

        def execute_async_v3(self, stream_handle: int) -> bool:
            calls.append("execute_async_v3")
            return self._run()

    class IBuilderConfig:
        def __init__(self) -> None:
            self._verbosity: Any = ProfilingVerbosity.LAYER_NAMES_ONLY

        def _get(self) -> Any:
            return self._verbosity

        def _set(self, value: Any) -> None:
            self._verbosity = value

        profiling_verbosity = property(_get, _set)

    class Builder:
        def build_serialized_network(self, network: Any, config: Any) -> Any:
            calls.append(f"build {config.profiling_verbosity.name}")
            return ICudaEngine("built", config.profiling_verbosity, False)

    for one in (DataType, TensorIOMode, ProfilingVerbosity, LayerInformationFormat, IProfiler,
                EngineInspector, ICudaEngine, IExecutionContext, IBuilderConfig, Builder):  # fmt: skip
        setattr(trt, one.__name__, one)
    trt.engine = lambda name="net", detailed=True, dynamic=False: ICudaEngine(
        name,
        ProfilingVerbosity.DETAILED if detailed else ProfilingVerbosity.LAYER_NAMES_ONLY,
        dynamic,
    )
    return trt
