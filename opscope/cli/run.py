"""``opscope run``: profile an unchanged command, and print where the time went."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from opscope.adapters import modes

from . import declared, options


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asks for."""

    command: Annotated[
        list[str],
        declared.Argument(
            metavar="[--] COMMAND [ARGS]...", help="The command, as you usually type it."
        ),
    ]
    output: Annotated[
        Path | None,
        declared.Option(
            "-o",
            "--output",
            help="The profile to write.  [the script's name, with a number if it exists]",
            show_default=False,
        ),
    ] = None
    force: options.Force = False
    steps: Annotated[
        str | None,
        declared.Option("--steps", help="Record only these steps: 3:6 means 3, 4 and 5."),
    ] = None
    delay: Annotated[
        float, declared.Option("--delay", min=0, help="Start recording after this many seconds.")
    ] = 0.0
    duration: Annotated[
        float | None, declared.Option("--duration", min=0, help="Record for this many seconds.")
    ] = None
    whole: Annotated[
        bool,
        declared.Option(
            "--whole",
            help="Record kernels of the whole run, not of a window; the program keeps them in memory until "
            "it ends.",
        ),
    ] = False
    backend: Annotated[
        str,
        declared.Option(
            "--backend",
            help="How to record: auto, recorder (ops only), kineto (GPU kernels by PyTorch's profiler), "
            "mindspore (MindSpore's profiler), xplane (JAX's profiler), nsys (Nsight Systems), or emit (an "
            "NVTX tool around opscope records).",
        ),
    ] = "auto"
    mode: Annotated[
        str,
        declared.Option(
            "--mode",
            help="Which frameworks to observe: auto (all), simple (none: only steps, ranges and kernels, of "
            "any program), pytorch, tensorflow2, jax, or another that `opscope doctor` lists.",
        ),
    ] = modes.AUTO
    memory: Annotated[
        bool,
        declared.Option("--memory", help="Also record each allocation of tensor memory (PyTorch)."),
    ] = False
    counters: Annotated[
        str | None,
        declared.Option(
            "--counters",
            help="Measure these hardware counters of each kernel, comma-separated, in place of the kernels' "
            "times (NVIDIA's GPUs): CUPTI's names (also with *), or flops, tensor, dram.",
            metavar="NAMES",
            show_default=False,
        ),
    ] = None
    counters_by: Annotated[
        str | None,
        declared.Option(
            "--counters-by",
            help="How to measure them: ranges (CUPTI, CUDA 12.6 or later), torch (PyTorch's profiler, CUDA "
            "12 at most), sampling (CUPTI, whole devices by time); auto takes the first that can begin.",
            metavar="WAY",
            show_default=False,
        ),
    ] = None
    samples: Annotated[
        float | None,
        declared.Option(
            "--samples",
            min=0,
            max=1000,
            help="Sample the processors this often in a second (default: 10; 0: never).",
        ),
    ] = None
    stacks: Annotated[
        bool,
        declared.Option(
            "--stacks/--no-stacks",
            help="Whether to sample the Python stacks of the recorded threads: the source lines of the time "
            "outside ops.",
        ),
    ] = True
    light: Annotated[
        bool,
        declared.Option(
            "--light",
            help="Measure steps and their phases, for a whole training, and record no ops; slow spells are "
            "recorded in full.",
        ),
    ] = False
    spells: Annotated[
        bool,
        declared.Option(
            "--spells/--no-spells",
            help="With --light: whether a slow spell is recorded in full, for a few steps, three times an "
            "hour at most.",
        ),
    ] = True
    private: Annotated[
        bool,
        declared.Option(
            "--private", help="Record no arguments, no host name and no folders of paths."
        ),
    ] = False
    trace: Annotated[
        str | None,
        declared.Option(
            "--trace",
            help="With nsys: more calls to record in its report, as in osrt,cublas,cudnn,mpi.",
            show_default=False,
        ),
    ] = None
    range_end: Annotated[
        str | None,
        declared.Option(
            "--capture-range-end",
            help="With nsys: record only what callbacks of opscope and opscope.capture mark: stop (the first "
            "range), repeat (all, a profile each) or repeat:N.",
            show_default=False,
        ),
    ] = None
    cuda_graph_trace: Annotated[
        str | None,
        declared.Option(
            "--cuda-graph-trace",
            metavar="node|graph",
            help="With cupti and nsys: record each kernel of a CUDA graph (node, the default), or each "
            "launch of one as a whole, at less cost (graph).",
            show_default=False,
        ),
    ] = None
    attachable: Annotated[
        bool,
        declared.Option(
            "--attachable",
            help="Let `opscope attach PID` record the program; record nothing by itself.",
        ),
    ] = False
    last: Annotated[
        str | None,
        declared.Option(
            "--last",
            metavar="60s|20 steps",
            help="Keep only the last seconds or steps, however long the program runs; with kernels where "
            "CUPTI can be used.",
        ),
    ] = None
    slow: Annotated[
        float | None,
        declared.Option(
            "--slow",
            metavar="K",
            help="With --last: also write a profile when a step takes K times the median.",
        ),
    ] = None
    last_signal: Annotated[
        str | None,
        declared.Option(
            "--last-signal",
            metavar="USR2",
            help="With --last: also write a profile at this signal, where the program does not handle it.",
        ),
    ] = None
    report: options.Report = True
    top: options.Top = None
    width: options.Width = None

    @property
    def is_bounded(self) -> bool:
        """Whether times or steps bound what is recorded."""
        return self.steps is not None or bool(self.delay) or self.duration is not None

    @property
    def is_part(self) -> bool:
        """Whether only a part of the run is recorded."""
        return self.is_bounded or self.last is not None


@options.spread
def run(asked: Options) -> None:
    """Run COMMAND and profile each of its Python processes.

    The program's input, output, exit status and signals pass through; opscope prints to stderr.
    Processes that the program starts, such as torchrun's ranks, go into the same profile.
    """
    from .run_record import record

    raise declared.Exit(record(asked))
