"""The data types that all parts of opscope share: tensors, op calls, and the columns of the trace tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias, cast

#: A dimension: a size, ``"?"`` if the size is not known, or a symbol (``"s0"``, ``"batch"``).
Dim: TypeAlias = "int | str"
#: A scalar parameter of an op; sequences are tuples.
ParamValue: TypeAlias = "bool | int | float | str | tuple[ParamValue, ...] | None"

#: Bits per element of each dtype. ``?`` (an unknown dtype) and strings have no size.
DTYPE_BITS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "f64": 64,
        "f32": 32,
        "tf32": 32,
        "f16": 16,
        "bf16": 16,
        "f8e4m3fn": 8,
        "f8e5m2": 8,
        "f8e4m3fnuz": 8,
        "f8e5m2fnuz": 8,
        "f8e8m0fnu": 8,
        "f6e2m3fn": 6,
        "f6e3m2fn": 6,
        "f4e2m1": 4,
        "i64": 64,
        "i32": 32,
        "i16": 16,
        "i8": 8,
        "i4": 4,
        "u64": 64,
        "u32": 32,
        "u16": 16,
        "u8": 8,
        "u4": 4,
        "bool": 8,
        "c32": 32,
        "c64": 64,
        "c128": 128,
    }
)
#: Patterns and parsers read only this many characters of a name; exports keep all of it. The longest real
#: names have 6,000. A pattern may start at each character, and one with ``.*`` reads from each to the end.
SEARCHED: Final = 6_144
#: The kinds of dtypes. The first letter does not give the kind (``bf16``, ``bool``).
FLOATS: Final = frozenset(
    {"f64", "f32", "tf32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"}
    | {"f8e8m0fnu", "f6e2m3fn", "f6e3m2fn", "f4e2m1"}
)
INTEGERS: Final = frozenset({"i64", "i32", "i16", "i8", "i4", "u64", "u32", "u16", "u8", "u4"})
COMPLEX: Final = frozenset({"c32", "c64", "c128"})
#: The dtypes by the names that NumPy and the frameworks agree on.
DTYPE_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{f"float{bits}": f"f{bits}" for bits in (64, 32, 16)},
        "bfloat16": "bf16",
        **{
            f"float8_{kind}": f"f8{kind}"
            for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")
        },
        **{f"int{bits}": f"i{bits}" for bits in (64, 32, 16, 8)},
        **{f"uint{bits}": f"u{bits}" for bits in (64, 32, 16, 8)},
        "bool": "bool",
        "complex64": "c64",
        "complex128": "c128",
    }
)


#: Layouts without strides for which the sizes do not give the number of stored elements.
SPARSE_LAYOUTS: Final = ("coo", "csr", "csc", "bsr", "bsc", "other")
#: All layouts without strides.
LAYOUTS: Final = (*SPARSE_LAYOUTS, "mkldnn", "nested", "jagged", "vectorized")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor as an op receives or returns it: element type, sizes, and the layout if not row-major.

    ``minor_to_major`` is HLO's notation (dimension numbers, fastest first); ``strides`` are in elements, one
    per dimension; ``layout`` is one of ``LAYOUTS``, which have no strides. At most one of the three is
    set; if none is, the tensor is row-major. ``stored`` is the number of elements that a sparse layout
    stores, explicit zeros and whole blocks included, if known.
    """

    dtype: str
    shape: tuple[Dim, ...]
    minor_to_major: tuple[int, ...] | None = None
    strides: tuple[Dim, ...] | None = None
    layout: str | None = None
    stored: int | None = None

    @property
    def is_sparse(self) -> bool:
        """Whether the layout is sparse, so that the sizes do not give the number of stored elements."""
        return self.layout in SPARSE_LAYOUTS

    @property
    def numel(self) -> int | None:
        """The product of the sizes, or ``None`` if a dimension is symbolic or unknown."""
        count = 1
        for dim in self.shape:
            if not isinstance(dim, int) or dim < 0:
                return None
            count *= dim
        return count

    @property
    def itemsize(self) -> float | None:
        """Bytes per element (half a byte for 4-bit types), or ``None`` if not known."""
        bits = DTYPE_BITS.get(self.dtype)
        return None if bits is None else bits / 8

    @property
    def nbytes(self) -> int | None:
        """Bytes of all elements, each counted once, without gaps; ``None`` if not known. They are not known
        for a sparse tensor, because the width of its indices is not recorded."""
        numel, bits = self.numel, DTYPE_BITS.get(self.dtype)
        if numel is None or bits is None or self.is_sparse:
            return None
        return (numel * bits + 7) // 8


@dataclass(frozen=True, slots=True)
class SameAs:
    """An argument that is the same tensor as an earlier one: leaf ``index`` of the inputs.

    Leaves are counted over the inputs in reading order with lists expanded; an absent argument is a leaf.
    """

    index: int


#: One argument or result: a tensor, ``None`` if absent, a back reference, or a list of these.
Arg: TypeAlias = "TensorSpec | SameAs | tuple[Arg, ...] | None"
#: ``(file, line)``, innermost user frame first.
Frame: TypeAlias = "tuple[str, int]"


@dataclass(frozen=True, slots=True)
class OpCall:
    """One call of one op, in the same form for all frameworks.

    ``outputs`` is ``None`` if they are not known (the range was pushed before the op ran) and
    ``()`` if the op returns nothing. ``truncated`` marks a call that was parsed from a cut text.
    """

    name: str
    inputs: tuple[Arg, ...] = ()
    outputs: tuple[Arg, ...] | None = None
    params: tuple[tuple[str, ParamValue], ...] = ()
    device: str | None = None
    frames: tuple[Frame, ...] = ()
    truncated: bool = False

    def param(self, key: str, default: ParamValue = None) -> ParamValue:
        """Return the parameter named ``key``, or ``default``."""
        for name, value in self.params:
            if name == key:
                return value
        return default

    def input_leaves(self) -> tuple[TensorSpec | None, ...]:
        """Return the inputs with lists expanded and back references resolved; ``None`` if absent."""
        plain = _plain(self.inputs)
        return tuple(_resolve(self.inputs, ())) if plain is None else plain

    def output_leaves(self) -> tuple[TensorSpec | None, ...] | None:
        """Return the outputs in the form of ``leaves`` (a back reference is to an input leaf); ``None`` if
        not known."""
        if self.outputs is None:
            return None
        plain = _plain(self.outputs)
        return tuple(_resolve(self.outputs, self.input_leaves())) if plain is None else plain

    def arg(self, position: int) -> Arg:
        """Return top-level input ``position``, with a back reference resolved; ``None`` past the end."""
        if position >= len(self.inputs):
            return None
        arg = self.inputs[position]
        return self.input_leaves()[arg.index] if isinstance(arg, SameAs) else arg

    def tensor(self, position: int) -> TensorSpec | None:
        """Return top-level input ``position`` if it is a tensor, else ``None``."""
        arg = self.arg(position)
        return arg if isinstance(arg, TensorSpec) else None


def _plain(args: tuple[Arg, ...]) -> tuple[TensorSpec | None, ...] | None:
    """Return ``args`` if all are tensors or absent, else None. It is a shortcut: leaves are read seven times
    per call."""
    for arg in args:
        if arg is not None and not isinstance(arg, TensorSpec):
            return None
    return cast("tuple[TensorSpec | None, ...]", args)


def leaves(args: tuple[Arg, ...]) -> Iterator[TensorSpec | SameAs | None]:
    """Yield the leaves of an argument list in reading order: lists expanded, references not resolved."""
    for arg in args:
        if isinstance(arg, tuple):
            yield from leaves(arg)
        else:
            yield arg


def _resolve(
    args: tuple[Arg, ...], base: tuple[TensorSpec | None, ...]
) -> Iterator[TensorSpec | None]:
    seen: list[TensorSpec | None] = list(base)
    for leaf in leaves(args):
        value = leaf
        if isinstance(leaf, SameAs):
            value = seen[leaf.index] if 0 <= leaf.index < len(seen) else None
        assert not isinstance(value, SameAs)
        if not base:
            seen.append(value)
        yield value


#: Directions, and all NVTX categories of ranges.
DIRECTIONS: Final = ("forward", "backward", "optimizer", "input", "communication")
CATEGORIES: Final = (*DIRECTIONS, "layer", "step", "phase", "spec", "result", "graph")
#: The NVTX category id of each name is its place in CATEGORIES plus one (0 means none in NVTX).
CATEGORY_ID: Final[Mapping[str, int]] = MappingProxyType(
    {name: number for number, name in enumerate(CATEGORIES, start=1)}
)

#: Texts of the ranges of category ``graph`` around the capture and the replays of a CUDA graph, with the
#: graph's number in its process.
GRAPH_CAPTURE: Final = "CUDA graph {} capture"
GRAPH_REPLAY: Final = "CUDA graph {} replay"
#: The text of a step's range, with its number: ``step 5``, or ``step`` with the payload 5.
STEP: Final = "step"
#: The note of a recording whose steps a hook marks: each mark follows an optimizer's step, or the run of a
#: function that trains.
OPTIMIZER_STEPS: Final = "steps end where the optimizer's step ends: a hook marks them"
#: The result mark just before the pop of a range that had no real end, such as the step that the last
#: optimizer step began.
UNENDED: Final = "unended"
#: The prefix of the mark with a step's kind, and the kinds of steps of an inference engine.
ENGINE_STEP: Final = "engine step: "
ENGINE_KINDS: Final = ("prefill", "decode", "mixed", "verify", "draft", "idle")
#: In a range's attrs: the range was still open when its recording ended.
UNCLOSED: Final = '{"unclosed":true}'
#: The phase in which a program is compiled. A space and the name of the compiled function may follow.
COMPILE: Final = "compile"
#: The framework of specs that have the lines (one a line) of a kernel in a graph of torch.compile.
INDUCTOR: Final = "inductor"
#: The phase in which a program saves its state.
CHECKPOINT: Final = "checkpoint"

#: The domain of the ranges around each wait for a data loader. Their category is ``input``, their
#: text the loader as a call with parameters and source lines, their payload the number of batches
#: that were ready (if known).
INPUT_DOMAIN: Final = "opscope.input"
#: The domain of the ranges around each read of an array's values by the host: the read as a call.
READ_DOMAIN: Final = "opscope.read"
#: The note of a recording that lacks some reads of values.
UNHEARD_READS: Final = "np.array(tensor) and memoryview(tensor) are not recorded as reads of values"
#: The domain of the range that tells Nsight Systems when to record: it encloses the recorded work.
CAPTURE_DOMAIN: Final = "opscope.capture"
#: Names of samples. The value of a CPU sample holds from the previous sample of its name to its own time; a
#: first null value only marks the begin of the first interval. Percent: of all processors for the machine, of
#: one processor (so it can exceed 100) for processes.
MACHINE_CPU: Final = "machine CPU [%]"
PROCESS_CPU: Final = "process CPU [%]"
CHILDREN_CPU: Final = "child processes CPU [%]"
#: Samples of the process's first thread: it could run, but no processor was free.
PROCESS_QUEUED: Final = "waiting for a processor [%]"
PROCESS_MEMORY: Final = "process memory [bytes]"
PROCESS_THREADS: Final = "process threads"
PROCESSORS: Final = "processors"
CHILDREN_MEMORY: Final = "child processes memory [bytes]"
DISK_READ: Final = "disk read [bytes/s]"
DISK_WRITTEN: Final = "disk written [bytes/s]"
NETWORK_RECEIVED: Final = "network received [bytes/s]"
NETWORK_SENT: Final = "network sent [bytes/s]"
#: The joules that a GPU has used since its driver began, and its power in watts.
GPU_ENERGY: Final = "GPU energy [J]"
GPU_POWER: Final = "GPU power [W]"
#: Batches that were ready when the program asked for one.
INPUT_QUEUE: Final = "input queue [batches]"
#: Samples of a framework's input pipeline by stage. The name of a sample is this prefix, the stage,
#: ``: `` and the quantity. A stage is a queue of batches (``device queue``, ``dataset iterator``)
#: or an op, with its number and that of the op which takes its output (``MapOp 2 of 1``).
PIPELINE: Final = "input pipeline, "
#: How many elements are ready in the output queue, how many it can hold, and how many workers there are.
PIPELINE_READY: Final = "ready"
PIPELINE_CAPACITY: Final = "capacity"
PIPELINE_WORKERS: Final = "workers"
#: Processor time of an op's threads, in the form of a process's.
PIPELINE_CPU: Final = "CPU [%]"
#: For each batch: how long the queue waited for it, how long the queue waited to pass it on, and the time
#: from the begin of the first wait to the end of the second.
PIPELINE_GET: Final = "get [ns]"
PIPELINE_PUSH: Final = "push [ns]"
PIPELINE_BATCH: Final = "batch [ns]"

#: A light step's time, and its parts, which exclude each other and add up to it.
_LIGHT_PHASES: Final = dict.fromkeys(
    ("duration", "input", "forward", "backward", "optimizer", "collective", "other"), "i64"
)

#: The columns of the trace tables. Column types are names, so that this module does not load Polars: "i64",
#: "i32", "f64", "str", "bool", and "cat", dictionary-encoded text (polars.Categorical). Times are integer
#: ns, sizes bytes. ``tables/trace.py`` maps each type to Polars. A reader leaves out columns that its format
#: lacks.
TABLES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        # A process is (host, boot, pid, start time), not a file: two files of one process merge.
        # ``versions`` is a JSON object, ``start_time`` Unix ns. ``processor_time``: ns that its threads
        # ran on processors while it was recorded.
        "processes": {
            "process": "i32",
            "host": "str",
            "pid": "i64",
            "start_time": "i64",
            "parent": "i64",
            "rank": "i32",
            "world_size": "i32",
            "clock_domain": "i32",
            "name": "str",
            "framework": "str",
            "versions": "str",
            "processor_time": "i64",
        },
        "threads": {
            "process": "i32",
            "thread": "i64",
            "os_tid": "i64",
            "pthread_id": "i64",
            "name": "str",
        },
        # Domains of one ``machine`` (one boot of one host) share one clock. ``method`` is how the machine's
        # times were aligned with the reference's clock (core/job/clocks.py): ``offset_ns`` was added, and the
        # result may be off by ``error_ns``. Before alignment, ``error_ns`` is the error of ``to_unix_ns``.
        "clocks": {
            "clock_domain": "i32",
            "kind": "str",
            "to_unix_ns": "i64",
            "drift_ppm": "f64",
            "error_ns": "i64",
            "machine": "str",
            "method": "str",
            "offset_ns": "i64",
            "spread_ns": "i64",
            "collectives": "i64",
        },
        # memory in bytes, clock_khz in kHz, mem_bandwidth in bytes/s
        "devices": {
            "process": "i32",
            "device": "i32",
            "name": "str",
            "uuid": "str",
            "cc": "str",
            "sm_count": "i32",
            "memory": "i64",
            "max_threads_per_sm": "i32",
            "clock_khz": "i64",
            "mem_bandwidth": "i64",
        },
        # kind: pushpop, startend, mark (end == start). ``seq`` and ``fwd_thread`` come from the payload
        # or from the text; PyTorch's call numbers are then replaced in the text (``, seq = *``).
        # ``payload`` is the original integer, ``attrs`` a JSON object.
        "ranges": {
            "id": "i64",
            "process": "i32",
            "thread": "i64",
            "end_thread": "i64",
            "start": "i64",
            "end": "i64",
            "domain": "cat",
            "category": "cat",
            "text": "cat",
            "seq": "i64",
            "fwd_thread": "i64",
            "payload": "i64",
            "attrs": "str",
            "kind": "cat",
        },
        "specs": {
            "process": "i32",
            "framework": "cat",
            "graph": "cat",
            "key": "cat",
            "time": "i64",
            "text": "cat",
        },
        "calls": {
            "process": "i32",
            "thread": "i64",
            "start": "i64",
            "end": "i64",
            "name": "cat",
            "correlation": "i64",
        },
        # grid, block, cluster: "x,y,z". Shared and local memory in bytes.
        "kernels": {
            "process": "i32",
            "device": "i32",
            "context": "i64",
            "stream": "i64",
            "start": "i64",
            "end": "i64",
            "name": "cat",
            "correlation": "i64",
            "grid": "cat",
            "block": "cat",
            "cluster": "cat",
            "registers": "i32",
            "shared_static": "i64",
            "shared_dynamic": "i64",
            "local_memory": "i64",
            "graph": "i64",
            "graph_node": "i64",
            "op_key": "cat",
            "attrs": "str",
        },
        # kind: HtoD, DtoH, DtoD, HtoH, PtoP, HtoA …, memset. Memory kinds: device, pinned,
        # pageable, managed, array, host.
        "memops": {
            "process": "i32",
            "device": "i32",
            "context": "i64",
            "stream": "i64",
            "start": "i64",
            "end": "i64",
            "kind": "cat",
            "src_kind": "cat",
            "dst_kind": "cat",
            "peer": "i32",
            "bytes": "i64",
            "correlation": "i64",
            "graph_node": "i64",
            "op_key": "cat",
        },
        "graph_nodes": {
            "process": "i32",
            "graph": "i64",
            "node": "i64",
            "original_node": "i64",
            "thread": "i64",
            "time": "i64",
        },
        # ``record``: the correlation id of the call that recorded the event waited for, ``event_stream``: the
        # stream that it recorded.
        "syncs": {
            "process": "i32",
            "device": "i32",
            "context": "i64",
            "stream": "i64",
            "start": "i64",
            "end": "i64",
            "kind": "cat",
            "correlation": "i64",
            "event_id": "i64",
            "record": "i64",
            "event_stream": "i64",
        },
        "allocations": {
            "process": "i32",
            "device": "i32",
            "thread": "i64",
            "time": "i64",
            "address": "i64",
            "bytes": "i64",
            "total": "i64",
            "reserved": "i64",
            # as in ``host_samples``
            "stack": "cat",
        },
        # The segments of an allocator when a snapshot was taken. ``address`` identifies a segment: memory
        # taken from the driver. kind: large, small. ``pool``: the pool of a CUDA graph, or of the program.
        "memory_segments": {
            "process": "i32",
            "device": "i32",
            "stream": "i64",
            "address": "i64",
            "bytes": "i64",
            "kind": "cat",
            "pool": "cat",
            "expandable": "bool",
        },
        # The parts of each segment. state: active_allocated (a tensor's), active_pending_free (released, and
        # still used by another stream), inactive. ``requested``: what the program asked for.
        "memory_blocks": {
            "process": "i32",
            "device": "i32",
            "segment": "i64",
            "address": "i64",
            "bytes": "i64",
            "requested": "i64",
            "state": "cat",
            "stack": "cat",
        },
        "counters": {
            "process": "i32",
            "device": "i32",
            "correlation": "i64",
            "range_id": "i64",
            "name": "cat",
            "value": "f64",
        },
        # device: null for a sample of the process or of its machine; ``name`` has the unit in brackets
        "samples": {
            "process": "i32",
            "device": "i32",
            "time": "i64",
            "name": "cat",
            "value": "f64",
        },
        # The requests of a server, from its log: when each arrived, had its first token and ended, on the
        # trace's clock if that is known; ``queue``: ns until it was scheduled, as the server reports.
        "requests": {
            "id": "str",
            "arrival": "i64",
            "first_token": "i64",
            "finished": "i64",
            "queue": "i64",
            "prompt_tokens": "i64",
            "output_tokens": "i64",
        },
        # opscope's own cost: ``time`` is ns that a part took in ``calls`` calls, of which one in ``one_in``
        # was timed (null: the number of calls times the cost of one call). Parts do not overlap. ``span``
        # is ns that the process recorded, the last write included; ``steps_span`` the part of it inside
        # ended steps; ``steps_time`` the part of that taken by all parts of opscope, null if no hook times
        # itself. The last three are the same in all rows of a process.
        "own_costs": {
            "process": "i32",
            "part": "str",
            "time": "i64",
            "calls": "i64",
            "one_in": "i64",
            "span": "i64",
            "steps_span": "i64",
            "steps_time": "i64",
        },
        # What each thread did: ``running``, or why the thread was off the CPU, as the scheduler recorded it.
        "thread_states": {
            "process": "i32",
            "thread": "i64",
            "start": "i64",
            "end": "i64",
            "state": "cat",
        },
        # The place in the code where a thread was at ``start``; it is taken to have been there until ``end``.
        # ``kind`` null: a sample of its Python stack; ``garbage collection``: a collection of 0.2 ms or more,
        # exactly. ``stack``: ``file``, ``line`` and ``function`` of each frame, a tab between them and a
        # frame a line, innermost first. ``call``: what the innermost frame called, as written in the program;
        # null if it called nothing or that is not known. ``samples``: the number of samples; 0: ``start`` and
        # ``end`` were traced. ``cpu``: ns from ``start`` to ``end`` that the thread ran or was ready to run,
        # null if not known.
        "host_samples": {
            "process": "i32",
            "thread": "i64",
            "start": "i64",
            "end": "i64",
            "kind": "cat",
            "stack": "cat",
            "call": "cat",
            "samples": "i64",
            "cpu": "i64",
        },
        # The times in which device work was captured, for processes that were not captured throughout: one
        # row per window [start, end), and one per time in which there was no device to capture (``source``
        # null). A row of length 0 means that nothing was captured. ``ended``: why the window ended. A
        # process without a row was captured throughout.
        "windows": {
            "process": "i32",
            "start": "i64",
            "end": "i64",
            "source": "str",
            "first_step": "i64",
            "last_step": "i64",
            "ended": "str",
        },
        # Light mode, a row per process: how many steps were summed up, and how many also recorded in full;
        # the mean time of its hooks in a step with the half width of its confidence interval; the total time
        # of its writing; how many slow spells were seen and recorded, and why some were not. Times are ns.
        "light": {
            "process": "i32",
            "steps": "i64",
            "full_steps": "i64",
            "start": "i64",
            "end": "i64",
            "step_cost": "i64",
            "step_cost_error": "i64",
            "writing": "i64",
            "spells": "i64",
            "spells_recorded": "i64",
            "not_recorded": "str",
        },
        # The steps that begin in one stretch of time: their sums (ns), and the longest.
        "light_blocks": {
            "process": "i32",
            "first_step": "i64",
            "steps": "i64",
            "start": "i64",
            "end": "i64",
            **_LIGHT_PHASES,
            "longest": "i64",
        },
        # How many steps spent about ``length`` ns in a phase (``step``: the total); exact within 1 %.
        "light_lengths": {
            "process": "i32",
            "phase": "cat",
            "length": "f64",
            "steps": "i64",
        },
        # Kept steps: the slowest, the first, the last, and evenly spaced ones. ``full``: the step
        # was also recorded in full, so it took longer.
        "light_steps": {
            "process": "i32",
            "step": "i64",
            "start": "i64",
            "end": "i64",
            **_LIGHT_PHASES,
            "full": "bool",
        },
        # The run of a process, from its start to its exit. kind: ``began`` and ``ended`` (the process itself;
        # start == end), ``recorded`` (opscope observed it), ``import`` (an import that is in no other,
        # ``name`` the module), ``session`` (a framework made what runs a model, ``name`` the model), ``exit``
        # (whoever started it saw its exit; ``name`` the exit status as a shell says it).
        "process_times": {
            "process": "i32",
            "start": "i64",
            "end": "i64",
            "kind": "cat",
            "name": "str",
        },
        # severity: info, warning, error. how_many: number of records that the note is about.
        "notes": {
            "severity": "str",
            "what": "str",
            "how_many": "i64",
        },
    }
)
