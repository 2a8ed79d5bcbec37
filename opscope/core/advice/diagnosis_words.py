"""The words of the diagnosis: times and shares, and the first thing to try, in the user's framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from opscope.core.advice import changes
from opscope.core.advice.changes import Change, Run, fit_run
from opscope.core.analysis.host.in_words import ns, share, size
from opscope.core.question import units

__all__ = ["BOUNDS", "COPIES", "PARTS", "READS", "Words", "ns", "share", "size"]

#: For idle time whose cause is not known, and the first thing to try.
NO_LAUNCHES: Final = "the trace has no launches, which would tell"
OTHER_CLOCKS: Final = (
    "record again, with a newer driver and profiler: only with clocks that agree do launches tell"
)
BOUNDS: Final = {
    "memory-bandwidth-bound": "memory bandwidth",
    "compute-bound": "compute",
    "small kernels": "latency",
}
COPIES: Final = {
    "HtoD": "copies to the device",
    "DtoH": "copies to the host",
    "DtoD": "copies within the device",
    "PtoP": "copies between devices",
    "memset": "sets",
}
#: For a trace with collectives alone: what hides them is not known.
NO_COMPUTATION: Final = (
    "the profile holds collectives and no computation, so that what ran beside them is not known"
)
#: What to do where records are missing.
NO_OPS: Final = (
    "opscope run -- python train.py records the ops; those that a CUDA graph replays are in the trace of its"
    " capture: opscope report FILE CAPTURE"
)
WHOLE_FILE: Final = (
    "copy the file again, or record again and let the profiler end before the program does"
)
FEWER_RECORDS: Final = (
    "record fewer steps, so that the recorder keeps all: opscope run --steps 10:20 -- python train.py, or"
    " nsys profile with a capture range"
)
#: The parts of the time in words.
PARTS: Final = {
    "communication": "communication",
    "copying": "copies",
    "input": "waiting for input",
    "compiling": "compiling",
    "synchronising": "what follows a synchronising call",
    "host": "late launches",
    "staging": "copies that have not begun",
    "starting": "the start of kernels",
    "queued": "waiting for other streams",
    "unknown": "gaps of no known kind",
    "outside": "time outside any op",
}
#: Ops that read a value from the device, and so wait for it.
READS: Final = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero")


@dataclass(frozen=True, slots=True)
class Words:
    """What to try first, by framework; general words where the framework is not known."""

    framework: str | None
    on_gpu: bool
    #: The properties of the run; None if only totals are known; then the first of several texts is used.
    run: Run | None = None

    def _by(self, general: str, **named: changes.Words) -> str:
        if self.run is not None:
            return fit_run(self.run, named, general)
        given = named.get(self.framework or "", general)
        first = given if isinstance(given, (str, Change)) else given[0]
        return first if isinstance(first, str) else first.text

    def input(self, workers: int | None) -> str:
        """``workers``: the number of the loader's workers; None if not known."""
        pinned = ", pin_memory=True" if self.on_gpu else ""
        loader = f"DataLoader(..., num_workers=4{pinned}, persistent_workers=True)"
        loader += ", or cheaper work for each sample"
        if workers:
            has = units.counted(workers, "worker")
            loader = f"more than the loader's {has}, or cheaper work for each sample"
        tf = "dataset.map(..., num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)"
        return self._by(
            "prepare the next batch while the step runs: more loader processes, and prefetching",
            torch=loader,
            tensorflow=tf,
            keras=tf,
            mindspore="dataset.map(..., num_parallel_workers=8), and"
            " mindspore.dataset.config.set_prefetch_size(16)",
        )

    def compiling(self) -> str:
        """For steps that compile again and again."""
        return self._by(
            "the same shapes and the same program in each step: what compiles once is no harm",
            torch="torch.compile(model, dynamic=True), or pad the batches to a few shapes;"
            " TORCH_LOGS=recompiles"
            " says why it compiles again",
            tensorflow="@tf.function(reduce_retracing=True) or input_signature=[...], and tensors in place"
            " of Python"
            " numbers as arguments",
            keras="batches of one shape: dataset.batch(n, drop_remainder=True)",
            jax="batches of one shape, and static_argnums only for values that never change;"
            " jax_log_compiles=True"
            " says what is compiled",
        )

    def compiled(self, later: str) -> str:
        """For a run that compiles at its start; ``later`` is the command that records the steps after it."""
        return self._by(
            f"{later}; a cache of compiled programs shortens the next run's start",
            torch=f"{later}; TORCHINDUCTOR_CACHE_DIR=DIR keeps what was compiled for the next run",
            jax=f'{later}; jax.config.update("jax_compilation_cache_dir", DIR) keeps what was compiled',
            onnxruntime=f"{later}; SessionOptions.optimized_model_filepath keeps what the session made",
        )

    def communication(self) -> str:
        """For communication that nothing hides."""
        return self._by(
            "send less often or less: gradient accumulation, larger batches, gradients in 16 bits; and"
            " overlap it"
            " with the backward pass",
            torch=(
                Change(
                    "with model.no_sync(): on all but the last micro-batch (gradient accumulation), a larger"
                    " batch, or DistributedDataParallel(..., bucket_cap_mb=100,"
                    " gradient_as_bucket_view=True)",
                    wrapper="ddp",
                ),
                Change(
                    "model.set_requires_gradient_sync(False) (fully_shard) on all but the last micro-batch, a"
                    " larger batch, or module.set_modules_to_forward_prefetch([...]) and"
                    " set_modules_to_backward_prefetch([...])",
                    wrapper="fsdp",
                ),
            ),
        )

    def copies(self, kind: str, pageable: bool) -> str:
        """``kind``: the kind of the copies that take most time; ``pageable``: whether their host memory is
        pageable."""
        if kind == "HtoD":
            general = "copy from pinned memory, asynchronously, while the step before computes"
            pinned = (
                "tensors from pinned memory (DataLoader(..., pin_memory=True)), tensor.to(device,"
            )
            return self._by(
                general
                if pageable
                else "copy a step ahead on a stream of its own, and fewer bytes",
                torch=f"{pinned} non_blocking=True)"
                if pageable
                else "tensor.to(device, non_blocking=True) a step ahead on a stream of its own; fewer bytes:"
                " 16 or 8 bits, and no copies of what stays the same, such as offloaded weights",
            )
        if kind == "DtoH":
            general = "read back less, reduced on the device, into pinned memory and on a stream of its own"
            return self._by(
                general,
                torch="reduce on the device before .cpu(); host.copy_(tensor, non_blocking=True) into a"
                " pinned buffer, on a stream of its own while the next step computes",
            )
        if kind == "PtoP":
            return "copy on a stream of its own while both devices compute, or keep on one what they share"
        return (
            "opscope report FILE --reports bandwidth,ops: which ops copy, such as layout and dtype"
            " conversions"
        )

    def synchronising(self) -> str:
        """For calls that wait for the device in each step."""
        return self._by(
            "read values of the device, such as the loss, only every 100 steps",
            torch="keep the loss as a tensor (total += loss.detach()) and call .item() only every 100"
            " steps; no"
            " torch.cuda.synchronize() in the loop",
            tensorflow="keep the loss as a tensor and call .numpy() only every 100 steps",
            jax="keep the loss as an array and call float() or block_until_ready() only every 100 steps",
            mindspore="keep the loss as a tensor and call .asnumpy() only every 100 steps",
        )

    def launches(self, short: bool, begins: bool) -> str:
        """``short``: kernels take less time than their launches. ``begins``: the gaps are at a program's
        start."""
        if begins:
            return "opscope run --steps 10:20 -- python train.py leaves the program's start out"
        if short:
            return self._by(
                "larger batches, or fewer and larger kernels: fuse them, or replay a CUDA graph",
                torch=(
                    Change(
                        'torch.compile(model, mode="reduce-overhead") (CUDA graphs), or a larger batch',
                        compiled=False,
                    ),
                    Change(
                        'mode="reduce-overhead" (CUDA graphs) in its torch.compile call, or a larger batch',
                        compiled=True,
                    ),
                ),
                tensorflow="@tf.function(jit_compile=True) around the step, or a larger batch",
                keras="model.compile(..., jit_compile=True, steps_per_execution=10)",
                jax="jax.jit around the whole step, or jax.lax.scan over several",
                mindspore=Change(
                    "graph mode: mindspore.set_context(mode=mindspore.GRAPH_MODE)", compiled=False
                ),
            )
        return (
            "opscope report FILE --reports idle,idle_ops: what the host did while the device waited"
        )

    def outside(self, short: bool, sampled: bool) -> str:
        """``short``: the CPU's ops take less time than Python between them. ``sampled``: lines are known."""
        if short:
            return self._by(
                "larger batches: fewer and larger ops",
                torch=Change(
                    "torch.compile(model), or larger batches: fewer and larger ops", compiled=False
                ),
                tensorflow=Change("@tf.function around the step", compiled=False),
                jax="larger batches, or jax.lax.scan over several steps inside jax.jit",
                mindspore=Change(
                    "graph mode: mindspore.set_context(mode=mindspore.GRAPH_MODE)", compiled=False
                ),
            )
        if sampled:
            return (
                "opscope report FILE --reports host_lines: what runs between the ops, by source line; do it"
                " less often, on another thread, or after the steps"
            )
        return "cProfile or py-spy on what runs between the ops: logging, checkpoints, sleeping"

    def kernels(self, bound: str, on_matrix_units: bool) -> str:
        """``bound``: the finding that names what bounds the kernels. ``on_matrix_units``: whether matrix
        units set most of the kernels' roofs, so products need no other precision to run there."""
        if bound == "memory-bandwidth-bound":
            return self._by(
                "fuse elementwise work and use 16 bits, so that less memory is read and written",
                torch=(
                    Change(
                        "torch.compile(model) fuses elementwise ops; torch.autocast(device_type,"
                        " dtype=torch.bfloat16) halves what is read and written",
                        compiled=False,
                    ),
                    Change(
                        "torch.autocast(device_type, dtype=torch.bfloat16) halves what is read and written",
                        compiled=True,
                    ),
                ),
                tensorflow="@tf.function(jit_compile=True) fuses; mixed_float16 halves what is read and"
                " written",
                keras="model.compile(..., jit_compile=True),"
                ' keras.mixed_precision.set_global_policy("mixed_bfloat16")',
            )
        if bound == "small kernels":
            return "larger batches, or fused kernels: most kernels are too small to fill the device"
        if on_matrix_units:
            return (
                "dimensions that are multiples of 8, larger products, and better kernels: opscope report FILE"
                " --reports roofline"
            )
        return self._by(
            "matrix products in 16 bits, with dimensions that are multiples of 8; then better kernels"
            " (opscope report FILE --reports roofline)",
            torch='torch.set_float32_matmul_precision("high"), torch.autocast(device_type,'
            " dtype=torch.bfloat16), and"
            " dimensions that are multiples of 8 (opscope report FILE --reports roofline)",
        )

    def memory(self) -> str:
        """For memory near its limit."""
        return self._by(
            "a smaller batch or recomputing activations, before the next allocation fails",
            torch="torch.utils.checkpoint on the largest layers, or"
            " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
            " where memory is reserved and not used",
        )

    def healthy(self) -> str:
        """For a run in which nothing stands out."""
        return (
            "opscope advise FILE: what else could be saved"
            if self.on_gpu
            else "opscope report FILE --by op,layer"
        )
