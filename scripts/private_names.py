"""Print which wheels of PyTorch lack a private name that opscope uses.

Usage: python scripts/private_names.py torch-*.whl   (wheels of any platform: the Python sources are the same)

A name without a row is in every wheel. ``?``: the wheel does not have the file.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

#: The names by file, as they are written in its text.
NAMES = {
    "_C/_dynamo/eval_frame.pyi": ("set_code_exec_strategy", "def skip_code", "set_eval_frame"),
    "_C/__init__.pyi": (
        "_cuda_hasPrimaryContext",
        "_cuda_record_memory_history",
        "_current_autograd_node",
        "_get_dispatch_mode",
        "_TorchDispatchModeKey",
    ),
    "_dynamo/convert_frame.py": ("def _compile",),
    "_functorch/_aot_autograd/runtime_wrappers.py": ("track_graph_compiling",),
    "_guards.py": ("class CompileContext", "def current_compile_id"),
    "_inductor/config.py": ("provenance_tracking_level",),
    "_inductor/output_code.py": ("class CompiledFxGraph", "def post_compile"),
    "_inductor/runtime/triton_heuristics.py": ("class CachingAutotuner", "benchmark_run"),
    "accelerator/graphs.py": ("class Graph",),
    "amp/grad_scaler.py": ("def _maybe_opt_step",),
    "autograd/__init__.py": ("_disable_profiler", "_is_kineto_stopped"),
    "autograd/graph.py": ("def _engine_run_backward",),
    "autograd/profiler.py": (
        "_prepare_profiler",
        "_is_profiler_enabled",
        "_run_on_profiler_stop",
    ),
    "compiler/__init__.py": ("_is_compiling_flag", "def is_dynamo_compiling"),
    "cuda/__init__.py": (
        "_initialization_lock = threading.Lock()",
        "_queued_calls",
        "is_initializing",
    ),
    "cuda/graphs.py": ("class CUDAGraph", "def capture_begin", "def capture_end", "def replay"),
    "cuda/memory.py": (
        "_cuda_record_memory_history",
        "_cuda_memorySnapshot",
        "clear_history",
        "skip_actions",
    ),
    "distributed/distributed_c10d.py": (
        "def _new_process_group_helper",
        "pg_group_ranks",
        "def split_group",
    ),
    "optim/optimizer.py": ("profile_hook_step",),
    "profiler/profiler.py": (
        "def prepare_trace",
        "def start_trace",
        "def stop_trace",
        "acc_events",
    ),
    "utils/data/dataloader.py": ("class _BaseDataLoaderIter",),
}


def found(wheel: Path) -> dict[tuple[str, str], str]:
    """For each file and name, whether the wheel has it: ``y``, ``-`` or ``?``."""
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        made = {}
        for file, names in NAMES.items():
            path = f"torch/{file}"
            text = archive.read(path).decode() if path in inside else None
            for name in names:
                made[file, name] = "?" if text is None else "y" if name in text else "-"
        return made


def main(wheels: list[Path]) -> None:
    if not wheels:
        sys.exit(__doc__)
    by_version = {wheel.name.split("-")[1]: found(wheel) for wheel in wheels}
    order = sorted(
        by_version, key=lambda text: [int(part) for part in text.split("+")[0].split(".")]
    )
    print(f"{'':56}" + "".join(f"{version:8}" for version in order))
    for file, names in NAMES.items():
        for name in names:
            row = [by_version[version][file, name] for version in order]
            if set(row) != {"y"}:
                print(f"{file + ': ' + name:56}" + "".join(f"{one:8}" for one in row))


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
