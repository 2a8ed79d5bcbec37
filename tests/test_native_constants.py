"""Constants that C and C++ share with Python: each is named here, and has the same value on both sides.

The sources are read as text, so nothing is compiled. A constant that is new must be named below, as shared or
as one that native code has alone.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import opscope
from opscope.core import light_format, rangetext, recording_format, schema
from opscope.core.capture import emit, light, nvtx_sink
from opscope.core.code_files import LIMIT

ADAPTERS = Path(opscope.__file__).parent / "adapters"
#: Sources of one library have one set of names.
LIBRARIES = {
    "observer": ("torch/native/observer.cpp", "torch/native/*.h"),
    "memory": ("torch/native/memory.cpp",),
    "groups": ("torch/native/groups.cpp",),
    "annotations": ("tensorflow/annotations*.c", "tensorflow/annotations*.h"),
    "inputs": ("tensorflow/inputs.cc",),
    "light": ("../backends/light_clock.c",),
    "stacks": ("shared/stacks.c",),
    "buffers": ("shared/buffers.c",),
    "ranges": ("shared/ranges.c",),
}
CATEGORY = {
    "kNone": 0,
    **{f"k{name.title()}": number for name, number in schema.CATEGORY_ID.items()},
}

#: (library, constant) → its value in Python; a string with a colon is a name in a module that needs a framework.
SHARED = {
    ("observer", "kAbi"): "opscope.adapters.torch.native.observer:ABI",
    ("observer", "kCounts"): "opscope.adapters.torch.native.observer:_COUNTS",
    ("observer", "kLibraryMark"): "opscope.adapters.torch.native.observer:_LIBRARY_MARK",
    ("observer", "kTimedEvery"): "opscope.adapters.torch.native.observer:TIMED_EVERY",
    ("observer", "kHookTimedEvery"): "opscope.adapters.torch.native.observer:HOOK_TIMED_EVERY",
    ("observer", "kRecordBytes"): recording_format.RECORD_BYTES,
    ("observer", "kPayload"): recording_format.PAYLOAD,
    ("observer", "kMarkBase"): recording_format.MARK_BASE,
    ("observer", "kPopBase"): recording_format.POP_BASE,
    ("observer", "kCompleteBase"): recording_format.COMPLETE_BASE,
    ("observer", "kChunk"): recording_format.CHUNK,
    ("observer", "kFirstText"): recording_format.SOURCE_TEXTS,
    ("observer", "kFirstThread"): recording_format.SOURCE_THREADS,
    ("observer", "kSeqBits"): emit.SEQ_BITS,
    ("observer", "kMaxSeq"): emit.MAX_SEQ,
    ("observer", "kMaxForwardThread"): emit.MAX_FWD_THREAD,
    ("observer", "kRecordLimit"): emit.RECORD_LIMIT,
    ("observer", "kTextLimit"): rangetext.TEXT_LIMIT,
    ("observer", "kCut"): rangetext.CUT,
    ("observer", "kMaxRegistered"): nvtx_sink.MAX_REGISTERED,
    ("observer", "kSubclass"): "opscope.adapters.torch.call:SUBCLASS",
    ("observer", "kMaxEntries"): "opscope.adapters.torch.dispatch:MAX_ENTRIES",
    ("observer", "kMaxVariants"): "opscope.adapters.torch.dispatch:MAX_VARIANTS",
    ("observer", "kFrames"): LIMIT,
    ("observer", "kFrameDepth"): "opscope.adapters.shared.source:DEPTH",
    ("observer", "kMaxPlaces"): "opscope.adapters.shared.source:MAX_PLACES",
    ("observer", "kUnrecorded"): "opscope.adapters.torch.dispatch:_UNRECORDED",
    ("observer", "kCommunicating"): "opscope.core.communication:TORCH",
    ("observer", "kDynamic"): "opscope.adapters.torch.dispatch:_DYNAMIC",
    ("observer", "kNodes"): "opscope.adapters.torch.state:MAX_NODES",
    **{("observer", name): number for name, number in CATEGORY.items() if number <= 5},
    ("observer", "kCategoryNames"): (None, *schema.DIRECTIONS),
    ("observer", "kOtherCategoryNames"): schema.CATEGORIES[len(schema.DIRECTIONS) :],
    ("observer", "kResultCategory"): schema.CATEGORY_ID["result"],
    ("memory", "kAbi"): "opscope.adapters.torch.memory:ABI",
    ("memory", "kCounts"): "opscope.adapters.torch.memory:_Counts._fields",
    ("memory", "kTimedEvery"): "opscope.adapters.torch.memory:TIMED_EVERY",
    ("memory", "kRecordBytes"): recording_format.MEMORY_RECORD.size,
    ("memory", "kUnknown"): recording_format.UNKNOWN_BYTES,
    ("memory", "kCpu"): recording_format.CPU_DEVICE,
    ("memory", "kAllocated"): recording_format.ALLOCATED,
    ("memory", "kReleased"): recording_format.RELEASED,
    ("groups", "kReductions"): "opscope.adapters.torch.call:_REDUCTIONS",
    ("annotations", "RECORD_BYTES"): recording_format.RECORD_BYTES,
    ("annotations", "WAIT_TEXT"): "opscope.adapters.tensorflow.running:_WAIT",
    ("annotations", "MAX_REGISTERED"): nvtx_sink.MAX_REGISTERED,
    ("light", "ABI"): "opscope.backends.light_clock:ABI",
    ("light", "PHASES"): len(light_format.PHASES),
    **{
        ("light", name): getattr(light_format, name)
        for name in ("FORWARD", "BACKWARD", "OPTIMIZER", "OTHER", "STEP", "FULL", "WIDTH")
    },
    **{("light", name): getattr(light, name) for name in ("AWAY", "ONE_IN", "MAX_WAITING", "KEPT")},
    ("light", "FIRST"): "opscope.core.capture.light:_FIRST",
    ("stacks", "ABI"): "opscope.adapters.shared.native_stacks:ABI",
    ("stacks", "MAX_DEPTH"): "opscope.core.capture.host_stacks:MAX_DEPTH",
    ("stacks", "MAX_NODES"): "opscope.core.capture.host_stacks:MAX_NODES",
    ("stacks", "MAX_UNWRITTEN"): "opscope.core.capture.host_stacks:MAX_UNWRITTEN",
    ("stacks", "SAMPLE"): recording_format.SAMPLED,
    ("stacks", "COLLECTION"): recording_format.COLLECTED,
    ("ranges", "kPayload"): recording_format.PAYLOAD,
    ("ranges", "kMarkBase"): recording_format.MARK_BASE,
    ("ranges", "kCompleteBase"): recording_format.COMPLETE_BASE,
    ("ranges", "kSeqBits"): emit.SEQ_BITS,
    ("ranges", "kMaxForwardThread"): emit.MAX_FWD_THREAD,
}
#: What native code has alone: its buffers and tables, names and layouts of others, answers that stay within it.
#: ``known`` is the table of dtypes, which has a test of its own.
ALONE = {
    "observer": """kBlock kAskFlush kMaxWaiting kLongestSample kLongestHook kFastcall kOneArgument kLine
        kOther kTensor kDtype kLayout kMemoryFormat kDevice others users library kWhose kRecentFrames kEach
        kLayouts kArena kLargestPooled kMost kOutputsOnDemand kFar kScope COLD APART page known""",
    "memory": "kAskFlush kMaxWaiting kLongestSample",
    "groups": "group_type reduction_type",
    "annotations": """EXPORT titles starts BLOCK MAX_BLOCKS CACHE MAX_TEXTS ARENA MAX_DEPTH JUMP_SLOT RECORDED SENT TITLES
        PUSH POP REGISTER CREATE INITIALIZE CORE2_SIZE FIRST LAST MOST CALLBACKS VERSION_INFO CORE2
        NVTX_VERSION_3 ASCII REGISTERED TRACING_OFF OPERATIONS NEEDED REPLACED MAX_PATCHES""",
    "inputs": "",
    "buffers": "EXPORT MAX_CLASSES BF_GETBUFFER TP_AS_BUFFER entries",
    "ranges": """FASTCALL KEYWORDS LOCAL RECORDER FLUSH POPPED NAME_OF_LOG NAME_OF_ID NAME_OF_DEADLINE
        PYTHON""",
    "light": "API FIRST_ROOM NO_ARGUMENT ONE_ARGUMENT",
    "stacks": "API ARGUMENTS HANDOVER_NS MAX_CODES MAX_THREADS RESOLVE_NS SHORT_COLLECTION_NS",
}

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_CONSTEXPR = re.compile(r"(?:\bconstexpr\b|\bstatic const\b|^const) [^={};()]*?=[^;]*;", re.M)
_DEFINE = re.compile(r"^#define (\w+)[ \t]+(.+)$", re.M)
_ENUM = re.compile(r"\benum\b[^{};]*\{([^}]*)\}")
_ONE = re.compile(r"(\w+)\s*(?:\[\w*\])?\s*=\s*(\{[^}]*\}|[^,;]+)")


def found(library: str) -> dict[str, object]:
    """The constants of a library's sources, with their values; None of one that is no number and no text."""
    text = "\n".join(
        path.read_text(encoding="utf-8")
        for pattern in LIBRARIES[library]
        for path in sorted(ADAPTERS.glob(pattern))
    )
    text = _COMMENT.sub("", text)
    values: dict[str, object] = {}
    for name, value in _DEFINE.findall(text):
        values[name] = evaluated(value, values)
    for body in _ENUM.findall(text):
        number: object = -1
        for one in filter(None, map(str.strip, body.split(","))):
            name, _, value = map(str.strip, one.partition("="))
            number = evaluated(value, values) if value else number + 1
            values[name] = number
    for match in _CONSTEXPR.finditer(text):
        for name, value in _ONE.findall(match.group()):
            values[name] = evaluated(value, values)
    return values


def evaluated(text: str, known: dict[str, object]) -> object:
    """The value of C's expression where Python has the same one; else None."""
    text = re.sub(r"(?<=[0-9])'(?=[0-9])", "", text.strip())
    text = re.sub(r"\b(u?int\d+_t|size_t)\(", "(", text).replace("(size_t)", "")
    text = re.sub(r"\b(0x[0-9a-fA-F]+|\d+)(?:u|l|ul|ull|ll)\b", r"\1", text)
    text = text.replace("nullptr", "None")
    if text.startswith("{"):
        text = f"({text[1:-1].strip().rstrip(',')},)"
    if re.search(r"[A-Za-z_]\w*\(|::|sizeof", re.sub(r'"[^"]*"', "", text)):
        return None
    try:
        tree = ast.parse(text, mode="eval")
        return eval(compile(tree, "", "eval"), {"__builtins__": {}}, dict(known))  # noqa: S307
    except (SyntaxError, NameError, TypeError):
        return None


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_constant_of_native_code_is_compared_or_its_own(library):
    shared = {name for of, name in SHARED if of == library}
    alone = set(ALONE[library].split())
    names = set(found(library))
    assert names - shared - alone == set()
    assert shared | alone <= names
    assert shared & alone == set()


@pytest.mark.parametrize(("library", "name"), SHARED)
def test_a_shared_constant_is_the_same_in_python(library, name):
    expected = SHARED[library, name]
    if isinstance(expected, str) and expected.startswith("opscope."):
        module, _, path = expected.partition(":")
        if ".torch" in module:
            pytest.importorskip("torch")
        if ".tensorflow" in module:
            pytest.importorskip("tensorflow")
        expected = importlib.import_module(module)
        for part in path.split("."):
            expected = getattr(expected, part)
        if name == "kCounts":
            expected = len(expected)
    assert found(library)[name] == expected


@pytest.mark.parametrize(
    ("function", "python"), [("layout_name", "_LAYOUTS"), ("memory_format_name", "_FORMATS")]
)
def test_names_of_layouts_and_formats_are_those_of_python(function, python):
    pytest.importorskip("torch")
    call = importlib.import_module("opscope.adapters.torch.call")
    source = (ADAPTERS / "torch/native/text.h").read_text(encoding="utf-8")
    body = re.search(rf"\b{function}\(int64_t \w+\) \{{(.*?)\n\}}", source, re.S).group(1)
    assert set(re.findall(r'"\\"(\w+)\\""', body)) == set(getattr(call, python))


def test_names_of_dtypes_are_those_of_python():
    source = (ADAPTERS / "torch/native/text.h").read_text(encoding="utf-8")
    table = re.search(r"known\[\] = \{(.*?)\};", source, re.S).group(1)
    names = {short for _, short in re.findall(r'\{"(\w+)", "(\w+)"\}', table)}
    # float4 has two numbers in a byte: PyTorch's own name stays
    assert names == set(schema.DTYPE_NAMES.values()) | {"c32"} - {"f4e2m1"}


def test_python_calls_the_builtins_that_there_are():
    pytest.importorskip("torch")
    observer = importlib.import_module("opscope.adapters.torch.native.observer")
    source = (ADAPTERS / "torch/native/python.h").read_text(encoding="utf-8")
    table = source[source.index("kBuiltins[]") :]
    assert set(re.findall(r'\{"(\w+)",', table)) == {*observer._BUILTINS, "push", "pop", "mark"}


def test_the_symbol_that_says_whether_annotations_are_on_is_the_one_that_c_finds():
    python = (ADAPTERS / "tensorflow/running.py").read_text(encoding="utf-8")
    c = (ADAPTERS / "tensorflow/annotations.c").read_text(encoding="utf-8")
    symbol = re.search(r'_GENERATION: Final = "(\w+)"', python).group(1)
    assert f'dlsym(library, "{symbol}")' in c


def test_python_declares_each_function_of_the_annotations_library_as_c_has_it():
    """ctypes checks nothing: one argument fewer would be read from wherever it would lie."""
    source = "\n".join(
        path.read_text(encoding="utf-8")
        for path in sorted((ADAPTERS / "tensorflow").glob("annotations*.[ch]"))
    )
    exported = {
        name: 0 if arguments == "void" else arguments.count(",") + 1
        for name, arguments in re.findall(
            r"^EXPORT [\w ]+?\*? ?(opscope_\w+)\(((?:[^()]|\([^()]*\))*)\) \{", source, re.M
        )
        for arguments in [re.sub(r"\([^()]*\)", "", arguments)]
    }
    running = ast.parse((ADAPTERS / "tensorflow/running.py").read_text(encoding="utf-8"))
    declared = {
        name.value: len(arguments.elts)
        for row in ast.walk(running)
        if isinstance(row, ast.Tuple) and len(row.elts) == 3
        for name, _, arguments in [row.elts]
        if isinstance(name, ast.Constant) and isinstance(arguments, ast.List)
    }
    assert declared.items() <= exported.items()
    assert len(declared) > 10


@pytest.mark.parametrize(
    ("path", "struct", "python"),
    [
        ("torch/native/memory.cpp", r"struct Record \{(.*?)\};", recording_format.MEMORY_RECORD),
        (
            "tensorflow/annotations.c",
            r"typedef struct \{([^}]*)\} Record;",
            recording_format.RECORD,
        ),
    ],
)
def test_a_record_has_the_fields_that_python_reads(path, struct, python):
    body = re.search(struct, _COMMENT.sub("", (ADAPTERS / path).read_text(encoding="utf-8")), re.S)
    kinds = {"int64_t": "q", "uint64_t": "Q", "int32_t": "i", "int16_t": "h"}
    fields = "".join(
        kinds[kind] * len(names.split(","))
        for kind, names in re.findall(r"(u?int\d+_t) ([^;]+);", body.group(1))
    )
    assert fields == re.sub(r"(\d)(\w)", lambda m: m[2] * int(m[1]), python.format.strip("<"))
