"""Name the producer of a file that opscope does not read, and say what to do instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .errors import BadInput

_RECORD: Final = "record the run with opscope run, or with torch.profiler"
_SIMPLE: Final = "opscope run --mode simple records its kernels on a GPU, its steps and its ranges"
#: The first bytes of a JSON file without events that are searched for its producer.
_LOOKED_AT: Final = 1 << 16
#: Entries of a folder without traces that are looked at.
_ENTRIES: Final = 64
_UNREAD: Final = "opscope does not read it"
#: Characters of a database's tables that a message names.
_LISTED: Final = 200


@dataclass(frozen=True, slots=True)
class Events:
    """Facts about the writer of a file in Chrome's trace-event format, each value once. ``categories`` as
    written; ``names`` of events; ``ids`` of processes and threads that are texts; ``labels``: the names of
    processes and threads; ``keys`` beside ``traceEvents``."""

    categories: Collection[str] = field(default=())
    names: Collection[str] = field(default=())
    ids: Collection[str] = field(default=())
    labels: Collection[str] = field(default=())
    keys: Collection[str] = field(default=())


def _any(pattern: str) -> Callable[[Collection[str]], bool]:
    match = re.compile(pattern).match
    return lambda texts: any(map(match, texts))


_PADDLE_ID: Final = _any(r"\d+\((?:Python|C\+\+)\)\Z")
_PADDLE_NAME: Final = re.compile(r"\[\d+(?:\.\d+)? (?:ns|us|ms|s)\]\Z")
_PADDLE_KIND: Final = frozenset(
    (
        "ProfileStep",
        "OperatorInner",
        "OperatorSupplement",
        "PythonUserDefined",
        "UserDefined",
        "PythonOp",
    )
)
_HOROVOD: Final = _any(
    r"NEGOTIATE_[A-Z]+\Z|(?:NCCL|MPI|GLOO|CCL|ADASUM)_(?:[A-Z]+_)*(?:ALLREDUCE|ALLGATHER|BCAST|BROADCAST|"
    r"ALLTOALL|REDUCESCATTER)\Z|MEMCPY_(?:IN|OUT)_FUSION_BUFFER\Z|CYCLE_START\Z|WAIT_FOR_(?:OTHER_TENSOR_)?DATA\Z"
)
_RAY_KIND: Final = _any(r"task(?:\Z|:)|ray(?:\Z|::|\.)|actor_task\Z")
_RAY_ID: Final = _any(r"(?:worker|driver|raylet|Node|Worker ID)[: ]")
_TF1_LABEL: Final = _any(r"/\S+ (?:Compute|Tensors)\Z")
_MXNET_LABEL: Final = _any(r"(?:cpu|gpu|cpu pinned|cpu shared)/\d*\Z")
_SPYRE: Final = _any(r".*\b(?:Cmpt Exec|Cmpt Prep|Sen(?:Fused|PreCompute)\w*|\w*DmaI|\w*DmaO)\b")
_BROWSER: Final = _any(
    r"(?:.*,)?(?:blink|v8|devtools\.timeline|toplevel|__metadata|node)(?:\Z|[.,])"
)


def _paddle(events: Events) -> bool:
    timed = sum(_PADDLE_NAME.search(name) is not None for name in events.names)
    return (
        _PADDLE_ID(events.ids)
        or 2 * timed > len(events.names)
        or len(_PADDLE_KIND.intersection(events.categories)) > 1
    )


#: Writers of events in Chrome's format: their names, how they are recognised, what to do. Keys beside the
#: events are no evidence: Paddle copies ``schemaVersion`` and ``deviceProperties`` from Kineto.
_EVENTS: Final[tuple[tuple[str, Callable[[Events], bool], str], ...]] = (
    (
        "PaddlePaddle's profiler (paddle.profiler)",
        _paddle,
        "record it with opscope run and the adapter of opscope's sources (examples/opscope_paddle)",
    ),
    (
        "Horovod's timeline (HOROVOD_TIMELINE)",
        lambda events: _HOROVOD(events.names),
        f"it has phases of collectives and no ops or kernels; {_RECORD}",
    ),
    (
        "Ray's timeline (ray timeline)",
        lambda events: _RAY_KIND(events.categories) or _RAY_ID(events.ids),
        "it has tasks and no ops or kernels; record what a worker runs with torch.profiler",
    ),
    (
        "TensorFlow 1's timeline (tf.python.client.timeline)",
        lambda events: "Op" in events.categories or _TF1_LABEL(events.labels),
        "record with tf.profiler.experimental, whose .xplane.pb opscope reads",
    ),
    (
        "the Spyre runtime of IBM (FLEX)",
        lambda events: _SPYRE(events.names),
        "record with torch.profiler and ProfilerActivity.PrivateUse1, or use IBM's aiu-trace-analyzer",
    ),
    (
        "NCCL's profiler plugin",
        lambda events: bool({"GROUP_API", "KERNEL_LAUNCH", "P2P_API", "COLL_API"} & set(events.categories)),
        f"it has collectives and no ops or kernels; {_RECORD}",
    ),
    (
        "MXNet's profiler",
        lambda events: _MXNET_LABEL(events.labels),
        "record the program with nsys profile -t cuda,nvtx",
    ),
    (
        "PyTorch's profiler before 1.8 (torch.autograd.profiler without Kineto)",
        lambda events: bool({"CPU functions", "CUDA functions"} & set(events.ids)),
        "record with torch.profiler.profile",
    ),
    (
        "Intel's unitrace",
        lambda events: "gpu_op" in events.categories,
        "record with torch.profiler and ProfilerActivity.XPU",
    ),
    (
        "VizTracer",
        lambda events: "viztracer_metadata" in events.keys or "FEE" in events.categories,
        f"it has Python calls and no ops or kernels; {_RECORD}",
    ),
    (
        "py-spy",
        lambda events: "py-spy" in events.categories,
        f"it has samples of Python and no ops or kernels; {_RECORD}",
    ),
    (
        "Clang (-ftime-trace)",
        lambda events: "beginningOfTime" in events.keys,
        f"it is of a compiler's run; {_RECORD}",
    ),
    (
        "PyTorch's compiler (chromium_events.json of tlparse)",
        lambda events: "dynamo_timed" in events.categories,
        f"it has phases of compilation and no kernels; {_RECORD}",
    ),
    (
        "Chrome or Node.js",
        lambda events: _BROWSER(events.categories),
        f"it is of a browser or of JavaScript; {_RECORD}",
    ),
)  # fmt: skip

#: Producers of JSON files without events.
_JSON: Final[tuple[tuple[str, re.Pattern[bytes], str], ...]] = (
    (
        "a Chakra execution trace",
        re.compile(rb'"schema"\s*:\s*"[^"]*chakra'),
        "it has ops without device times; give torch.profiler's trace (Kineto) of the same run",
    ),
    (
        "PyTorch's execution trace (ExecutionTraceObserver)",
        re.compile(rb'"schema"\s*:\s*"\d.*"nodes"\s*:|"nodes"\s*:.*"ctrl_deps"', re.DOTALL),
        "it has ops without device times; give torch.profiler's trace (Kineto) of the same run",
    ),
    (
        "a speedscope profile",
        re.compile(rb'"\$schema"\s*:\s*"https?://www\.speedscope\.app|"shared"\s*:\s*\{\s*"frames"'),
        f"it has stacks of samples; {_RECORD}",
    ),
    (
        "PyTorch's memory snapshot",
        re.compile(rb'"segments"\s*:\s*\[.*"device_traces"\s*:|"device_traces"\s*:', re.DOTALL),
        "give the pickle of torch.cuda.memory._dump_snapshot, which opscope reads",
    ),
    (
        "rocprof-sys (timemory)",
        re.compile(rb'\{\s*"timemory"\s*:|\{\s*"rocprofiler-systems"\s*:|\{\s*"omnitrace"\s*:'),
        "give the rocpd database (.db) that rocprof-sys writes, or record with rocprofv3",
    ),
    ("cProfile", re.compile(rb"\A\{[()\xa8\xa9]\x03"), f"it has calls of Python; {_RECORD}"),
    (
        "nsys export (JSON)",
        re.compile(rb'\A\s*\[?\s*\{\s*"(?:Type"\s*:\s*\d+\s*,\s*"\w+Event|Version"[^{}]*"NSys|data"\s*:\s*\[\s*"nsys)'),
        "export it again with nsys export --type sqlite",
    ),
    (
        "OpenTelemetry, Jaeger or Zipkin",
        re.compile(rb'"(?:resourceSpans|traceID|traceId)"\s*:'),
        "it has requests and no ops or kernels; give it beside the server's trace:"
        " opscope report TRACE --requests FILE",
    ),
    (
        "the V8 or Firefox profiler",
        re.compile(rb'"callFrame"\s*:|"stackwalk"\s*:|"profilingStartTime"\s*:'),
        f"it has samples of a program's stacks; {_RECORD}",
    ),
    (
        "TVM's profiler",
        re.compile(rb'"calls"\s*:\s*\[.*"Duration \(us\)"', re.DOTALL),
        _SIMPLE,
    ),
    (
        "Linux perf (perf data convert)",
        re.compile(rb'"linux-perf-json-version"'),
        f"it has samples of the CPU; {_RECORD}",
    ),
    (
        "Scalene or pyinstrument",
        re.compile(rb'"root_frame"\s*:|"max_footprint_mb"\s*:'),
        f"it has samples of Python; {_RECORD}",
    ),
)  # fmt: skip

#: Producers of files other than JSON, by the first bytes, decompressed.
_BYTES: Final[tuple[tuple[str, re.Pattern[bytes], str], ...]] = (
    (
        "tinygrad's profile (a pickle that names code, which opscope never loads)",
        re.compile(rb"\A\x80[\x02-\x05].*tinygrad", re.DOTALL),
        _SIMPLE,
    ),
    (
        "a Python pickle, which opscope never loads",
        re.compile(rb"\A(?:\x80[\x02-\x05]|\((?:[dl]p\d+\n|i\w+\n))"),
        "save the trace in its profiler's own format",
    ),
    (
        "a stream of TensorBoard's events",
        re.compile(rb"\A.{8}.{4}\x09.{8}\x1a.brain\.Event", re.DOTALL),
        "the profile is beside it: plugins/profile/TIME/HOST.xplane.pb",
    ),
    ("Linux perf (perf.data)", re.compile(rb"\APERF(?:ILE2|FILE)"), f"it has samples of the CPU; {_RECORD}"),
    (
        "a printout of perf script",
        re.compile(
            rb"\A(?:#[^\n]*\n)*\S[^\n]*\s\d+\.\d{6,9}:\s+(?:\d+\s+)?[\w/:.-]+:[^\n]*\n\s+[0-9a-f]{4,16} "
        ),
        f"it has samples of the CPU; {_RECORD}",
    ),
    (
        "stacks of samples, a line each (collapsed, for flame graphs)",
        re.compile(rb"\A[^\n;\0]+(?:;[^\n;\0]+)+ \d+(?:\r?\n|\Z)"),
        _RECORD,
    ),
    (
        "pprof (Go, gperftools, JAX's device_memory_profile)",
        re.compile(rb"\A\x0a[\x04-\x0c]\x08[\x80-\xff]{0,4}[\0-\x7f]\x10[\x80-\xff]{0,4}[\0-\x7f][\x0a\x12]"),
        f"it has totals of stacks and no times; {_RECORD}",
    ),
    (
        "nvprof's printed profile",
        re.compile(rb"(?:\A|\n)==\d+== (?:NVPROF|Profiling (?:result|application))"),
        "record with nvprof -o FILE.nvvp, whose database opscope reads, or with nsys profile",
    ),
    (
        "a table of nsys stats",
        re.compile(rb'\A(?:\xef\xbb\xbf)?"?(?:Time \(%\)"?,"?Total Time|Start \(ns\)"?,"?Duration \(ns\))'),
        "give the report (.nsys-rep) or database (.sqlite) that it was made of",
    ),
    (
        "a report of DLProf",
        re.compile(
            rb"\A(?:(?:Kernel|Iteration|Group Op|Tensor Core|Op Type Summary) Report|System Config"
            rb"|Expert Systems Feedback|All Iterations)\r?\n"
        ),
        "give DLProf's database (dlprof_dldb.sqlite), or the one of Nsight Systems that it was made of",
    ),
    (
        "a table of TraceLens",
        re.compile(
            rb"\A(?:name,param: |Parent (?:op category,Parent )?cpu_op,|op category,Count,total_direct_kernel"
            rb"|name,(?:total_direct_kernel_time|op category,process_name)|type,time ms,percent\r?\n)"
        ),
        "give the trace of torch.profiler that it was made of",
    ),
    (
        "torch.profiler's printed table",
        re.compile(rb"\A[\s-]*(?:\n)? *Name .*Self C(?:PU|UDA)"),
        "save the trace with export_chrome_trace",
    ),
    (
        "DeepSpeed's flops profiler",
        re.compile(rb"DeepSpeed Flops Profiler"),
        f"opscope counts FLOPs by itself; {_RECORD}",
    ),
    (
        "OpenVINO's benchmark_app",
        re.compile(rb"\A(?:(?:layerName|\w+)?;?execStatus;layerType|Command line parameters\r?\n-)"),
        "it has totals of layers; record the run with opscope run and the adapter of opscope's sources"
        " (examples/opscope_openvino)",
    ),
    (
        "samples of nvidia-smi or dcgmi",
        re.compile(rb"\A(?:# ?Entity\b|[^\n]{0,400}utilization\.gpu)"),
        f"it has how busy a device was, and no kernels; {_RECORD}",
    ),
    (
        "LiteRT's benchmark_model (TensorFlow Lite)",
        re.compile(rb"={6,} (?:Run Order|Top by Computation Time) ={6,}|\[node type\][^\n]{0,80}\[avg ms\]"),
        f"it has means of nodes and no times; {_SIMPLE}",
    ),
    ("the text of a program for XLA (HLO)", re.compile(rb"\A(?:HloModule |module @)"), _RECORD),
    (
        "Tracy",
        re.compile(rb"\A(?:tlZ\x04|tZst|tr\xfdP|tracy)"),
        f"it has zones of a program and no kernels of its GPU's libraries; {_RECORD}",
    ),
    (
        "a pointer of Git LFS, not the file",
        re.compile(rb"\Aversion https://git-lfs"),
        "fetch the file with git lfs pull",
    ),
    (
        "a picture of PyTorch's memory",
        re.compile(rb"\A\s*<html>.{0,200}(?:<title>GPU Memory Timeline|\{add_local_files\})", re.DOTALL),
        "give export_memory_timeline's .json or .raw.json.gz, or the snapshot (.pickle) that it was made of",
    ),
    (
        "Instruments (xctrace export)",
        re.compile(rb"\A\s*<\?xml[^>]*>\s*<trace-(?:query-result|toc)"),
        f"opscope reads nothing of Apple's GPUs; {_RECORD}",
    ),
    (
        "a page or a picture (HTML, SVG)",
        re.compile(rb"\A\s*(?:<(?:\?xml|!--)[^>]*>\s*){0,4}<(?:!DOCTYPE|html|svg)", re.IGNORECASE),
        "a download that failed is one too: give the trace itself",
    ),
    (
        "Intel's VTune (vtune -report)",
        re.compile(rb'\A(?:\xef\xbb\xbf)?"?(?:Function|Computing Task|Task Type|Module)"?[,;\t|][^\n]{0,400}'
                   rb'(?:CPU Time:|Clockticks|:Total Time)'),
        f"it has totals of functions; {_RECORD}",
    ),
    ("AMD uProf", re.compile(rb"\A(?:\xef\xbb\xbf)?\"?AMD ?uProf"), f"it has samples of the CPU; {_RECORD}"),
    ("Austin", re.compile(rb"\A(?:MOJ[\x00-\x1f]|# austin: )"), f"it has samples of Python; {_RECORD}"),
    ("Java's Flight Recorder", re.compile(rb"\AFLR\0"), f"it is of a Java program; {_RECORD}"),
    ("an XML file", re.compile(rb"\A\s*<\?xml"), "give the trace itself"),
    ("memray", re.compile(rb"\Amemray"), f"it has allocations of Python; {_RECORD}"),
    ("a Parquet file", re.compile(rb"\APAR1"), "give the folder of the profile that it belongs to"),
    ("an HDF5 file", re.compile(rb"\A\x89HDF\r\n"), _RECORD),
    ("a 7z archive", re.compile(rb"\A7z\xbc\xaf\x27\x1c"), "unpack it first"),
    ("an RAR archive", re.compile(rb"\ARar!\x1a\x07"), "unpack it first"),
    (
        "an lz4, LZMA, snappy or compress file",
        re.compile(rb"\A(?:\x04\x22\x4d\x18|\x5d\0\0.{2}[\0\xff]{2}|\xff\x06\0\0sNaPpY|\x1f\x9d)", re.DOTALL),
        "unpack it first",
    ),
)  # fmt: skip

#: SQLite databases, by tables that they have.
_DATABASES: Final = (
    (
        "PyTorch's memory snapshot as a database (of a proposal that no release up to 2.14 has)",
        frozenset({"device_traces", "segments", "blocks"}),
        "give the pickle of torch.cuda.memory._dump_snapshot",
    ),
    (
        "MemSnapDump's database",
        frozenset({"trace_entry_0", "block_0"}),
        "give the snapshot (.pickle) that it was made of",
    ),
    (
        "msprof-analyze's cluster analysis",
        frozenset({"ClusterStepTraceTime"}),
        "give the folders of the ranks that it was made of",
    ),
)

#: Producers of folders and archives, by a file in them.
_FOLDERS: Final = (
    (
        "Instruments",
        re.compile(r"form\.template"),
        f"opscope reads nothing of Apple's GPUs; {_RECORD}",
    ),
    ("Intel's VTune", re.compile(r".*\.vtune"), f"it has samples of the CPU; {_RECORD}"),
    (
        "ExecuTorch's ETRecord",
        re.compile(r"ETRECORD_V\d+"),
        "it has the program and no times: give the ETDump (.etdp) of its run",
    ),
)


def of_events(events: Events) -> str | None:
    """Return the message about a file in Chrome's format whose producer is known and not supported."""
    if "cpu_op" in events.categories and "gpu_op" not in events.categories:
        return None  # a Kineto trace, even if another tool merged its own events into it
    for producer, is_its, advice in _EVENTS:
        if is_its(events):
            return _say(producer, advice)
    return None


def of_json(text: bytes) -> str | None:
    """Return the message about JSON without events that begins with ``text``, if its producer is known."""
    return _matching(_JSON, text[:_LOOKED_AT])


def of_bytes(head: bytes, name: str) -> str | None:
    """Return the message about the file ``name``, which is not JSON, if its producer is known."""
    return _matching(_BYTES, head)


def of_names(names: Iterable[str]) -> str | None:
    """Return the message about a folder or an archive with these files, if its producer is known."""
    listed = list(names)
    for producer, pattern, advice in _FOLDERS:
        if any(map(pattern.fullmatch, listed)):
            return _say(producer, advice)
    return None


def of_folder(folder: Path, look: Callable[[Path], object]) -> str:
    """Return the end of the message about a folder without traces: whose it is, or whose a file in it is, by
    what ``look`` raises of that."""
    entries = sorted(folder.iterdir())[:_ENTRIES]
    if (message := of_names(entry.name for entry in entries)) is not None:
        return f": {message}"
    for entry in entries:
        try:
            look(entry)
        except BadInput as error:
            if _UNREAD in error.what:
                return f"; in it {entry.name}: {error.what}"
    return ""


def of_database(path: Path) -> str:
    """Return the complaint about an SQLite database that no reader takes. Raises BadInput."""
    from .sqlite import Database  # lazy: it loads Polars

    with Database(path) as database:
        names = database.tables.keys()
    for producer, tables, advice in _DATABASES:
        if tables <= names:
            return _say(producer, advice)
    shown = ", ".join(sorted(names)[:8]) or "none"
    return (
        "an SQLite database that is not a trace of Nsight Systems, nvprof, DLProf or AMD's profilers"
        f" (its tables: {shown[:_LISTED]})"
    )


def _matching(producers: tuple[tuple[str, re.Pattern[bytes], str], ...], text: bytes) -> str | None:
    for producer, pattern, advice in producers:
        if pattern.search(text):
            return _say(producer, advice)
    return None


def _say(producer: str, advice: str) -> str:
    return f"{producer}: {_UNREAD}; {advice}"
