"""Observe graph ops as they run: the library built from annotations.c receives TensorFlow's annotations."""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
from pathlib import Path
from typing import Any, Final

from opscope.adapters.shared import cache
from opscope.adapters.shared.compiled import BuildError, built
from opscope.adapters.shared.reads import SOURCE as BUFFERS
from opscope.adapters.shared.ready import leave_marker
from opscope.core.capture.emit import domain_number
from opscope.core.capture.recorder_sink import pop_code
from opscope.core.rangetext import format_call
from opscope.core.recording_format import CHUNK, RECORD_BYTES, SOURCE_TEXTS, SOURCE_THREADS
from opscope.core.schema import INPUT_DOMAIN, OpCall

_log = logging.getLogger(__name__)

SOURCE: Final = Path(__file__).with_name("annotations.c")
#: Reads the shapes of an op's inputs. It is built with TensorFlow's headers, so it fits one version only.
INPUTS: Final = Path(__file__).with_name("inputs.cc")
_BUILDING_INPUTS: Final = (
    "building the TensorFlow size reader for this TensorFlow, once (about 14 s)"
)
#: TensorFlow's own NVTX domain, which its GPU builds use.
DOMAIN: Final = "TSL"
#: The first numbers of this source's texts and threads, which no other source of a recording uses.
TEXTS: Final = SOURCE_TEXTS + (1 << 39)
THREADS: Final = SOURCE_THREADS + (1 << 19)
#: The text by which annotations_input.h marks the waits for tf.data, and the text that replaces it.
_WAIT: Final = "opscope tf.data"
LOADER: Final = format_call(OpCall("tf.data", params=(("in_graph", True),)))
_GENERATION: Final = "_ZN3tsl8profiler15AnnotationStack11generation_E"


class GraphRanges:
    """Sends TensorFlow's graph ops to the recorder, and to NVTX if TensorFlow's build does not do so itself.

    Create it with ``GraphRanges.load``. ``listen`` hooks TensorFlow's libraries, ``silence`` restores them.
    """

    def __init__(self, native: Any, framework: Path, tensorflow: Any) -> None:
        self._native = native
        self._framework = framework
        self._tensorflow = tensorflow
        self._inputs: Any = None
        #: The reason if the size reader could not be loaded; None before a try, or if it is loaded.
        self.sizes_reason: str | None = None
        #: Odd while TensorFlow's annotations are enabled.
        self._generation = ctypes.c_int.in_dll(ctypes.CDLL(str(framework)), _GENERATION)
        self._shapes = self._operations = False
        self.nvtx = bool(native.opscope_nvtx(DOMAIN.encode()))

    @classmethod
    def load(cls, tensorflow: Any) -> GraphRanges:
        """Build the library if needed, and find TensorFlow's. Raises BuildError on failure."""
        framework = _framework(tensorflow)
        try:
            native = cache.load(observer_library())
            _declare(native)
            ranges = cls(native, framework, tensorflow)
            if not native.opscope_install(str(framework).encode()):
                raise BuildError(
                    "this version of TensorFlow does not announce the ops that it runs"
                )
            native.opscope_uninstall()
        except (AttributeError, ValueError, OSError) as error:
            raise BuildError(
                f"this version of TensorFlow differs from what opscope expects: {error}"
            ) from None
        return ranges

    def listen(self, record: bool, nvtx: bool) -> None:
        """Hook TensorFlow, and observe every graph op that begins from now on."""
        self._native.opscope_install(str(self._framework).encode())
        numbers = (TEXTS, pop_code(domain_number(DOMAIN)), THREADS, CHUNK)
        self._native.opscope_listen(record, nvtx and self.nvtx, *numbers)
        self._native.opscope_waits(pop_code(domain_number(INPUT_DOMAIN)) if record else 0)
        self._native.opscope_annotate(True)
        self.before_run()

    def before_run(self, shapes: bool = False, operations: bool = False) -> None:
        """Prepare for the next run of a graph.

        ``shapes``: also read the sizes of the ops' inputs. ``operations``: also observe the operations
        that XLA runs. If something has disabled annotations without going through the import tables,
        enable them again.
        """
        if shapes != self._shapes:
            self._shapes = shapes
            if shapes and self._inputs is None and self.sizes_reason is None:
                self._read_inputs()
            self._native.opscope_shapes(shapes)
        if operations or self._operations:
            self._native.opscope_operations(operations)
            self._operations = operations
        if not self._generation.value & 1:
            self._native.opscope_annotate(True)

    @property
    def operations(self) -> int:
        """The number of distinct XLA operations observed since the process began."""
        return int(self._native.opscope_operation_count())

    def _read_inputs(self) -> None:
        """Load the library that reads the shapes of inputs, or store and log why it cannot be loaded."""
        try:
            self._inputs = cache.load(inputs_library(self._tensorflow))
            readers = self._inputs.opscope_inputs_sign, self._inputs.opscope_inputs_text
            self._native.opscope_inputs(
                *(ctypes.cast(reader, ctypes.c_void_p) for reader in readers)
            )
        except (BuildError, AttributeError, OSError) as error:
            self.sizes_reason = str(error)
            _log.warning("opscope: tensor sizes that graphs do not know are missing: %s", error)

    def silence(self) -> None:
        """Restore TensorFlow's functions."""
        self._native.opscope_listen(0, 0, *(0,) * 4)
        self._native.opscope_annotate(False)
        self._native.opscope_uninstall()
        self._shapes = self._operations = False

    @property
    def domains(self) -> list[dict[str, Any]]:
        """The facts about the domains that a recording must contain: their names and numbers."""
        return [{"domain": name, "number": domain_number(name)} for name in (DOMAIN, INPUT_DOMAIN)]

    @property
    def hooked(self) -> int:
        """The number of entries in TensorFlow's import tables that point to our functions."""
        return int(self._native.opscope_installed())

    @property
    def lost(self) -> int:
        """The number of ops not recorded for lack of memory since the process began."""
        return int(self._native.opscope_lost())


class Recording:
    """The source of one recorder's records from ``GraphRanges`` (``core.capture.recorder_sink.Source``)."""

    def __init__(self, ranges: GraphRanges) -> None:
        self._ranges = ranges
        self._native = ranges._native
        self._texts = 0
        self._threads: set[int] = set()
        self._lost = ranges.lost
        self.take()  # drop the records that an earlier recorder left
        self._texts = 0
        self._threads.clear()

    @property
    def lost(self) -> int:
        """The number of ops not recorded for lack of memory since this recording began."""
        return self._ranges.lost - self._lost

    def notes(self) -> list[tuple[str, str, int]]:
        """Return no notes: the cost of these ranges is in the time of the ops around them."""
        return []

    def take(self) -> tuple[bytes, bytes, list[tuple[int, int, int]]]:
        """Return the new chunks, strings and threads."""
        native = self._native
        room = int(native.opscope_thread_count()) + 16
        numbers = (ctypes.c_int64 * (3 * room))()
        thread_count = int(native.opscope_threads(0, numbers, room))
        triples = [
            (numbers[3 * i], numbers[3 * i + 1], numbers[3 * i + 2]) for i in range(thread_count)
        ]
        threads = [triple for triple in triples if triple[0] not in self._threads]
        self._threads.update(thread[0] for thread in threads)
        room = int(native.opscope_waiting()) + 64
        records = ctypes.create_string_buffer(room * RECORD_BYTES)
        written = int(native.opscope_take(records, room))
        lines = []
        for number in range(self._texts, int(native.opscope_text_count())):
            text = native.opscope_text(number).decode("utf-8", "replace")
            line = [DOMAIN, None, text] if text != _WAIT else [INPUT_DOMAIN, "input", LOADER]
            lines.append(json.dumps([TEXTS + number, *line]))
        self._texts += len(lines)
        strings = "".join(f"{line}\n" for line in lines)
        return records.raw[: written * RECORD_BYTES], strings.encode(), threads


def prepare(tensorflow: Any) -> None:
    """Build the libraries, before the program's first op. A failure is reported when one is needed."""
    with contextlib.suppress(BuildError, OSError, AttributeError):
        built(BUFFERS)
        observer_library()
        inputs_library(tensorflow)
    leave_marker("tensorflow", tensorflow.__file__)


def observer_library() -> Path:
    """Return the library that observes graph ops, built if missing. Raises BuildError."""
    return built(SOURCE, (), "building the TensorFlow observer, once (about 1 s)")


def inputs_library(tensorflow: Any) -> Path:
    """Return the library that reads the shapes of inputs, for this TensorFlow. Raises BuildError."""
    flags, plain = inputs_flags(tensorflow)
    try:
        return built(INPUTS, flags, _BUILDING_INPUTS)
    except BuildError:  # this version may store shapes in another way: use its public functions
        return built(INPUTS, plain)


def inputs_flags(tensorflow: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the compiler flags of that library, and the flags to try if they fail. Raises BuildError."""
    framework = _framework(tensorflow)
    # versions differ in which of the two libraries defines a function that ours calls
    libraries = (framework, *sorted(framework.parent.glob("libtensorflow_cc.so.*")))
    flags = (
        *tensorflow.sysconfig.get_compile_flags(),
        f"-DTENSORFLOW={tensorflow.__version__}",
        "-Wl,--no-as-needed",
        *map(str, libraries),
    )
    return flags, (*flags, "-DPLAIN_SIZES")


def _framework(tensorflow: Any) -> Path:
    folder = Path(tensorflow.__file__).resolve().parent
    library = next(iter(sorted(folder.glob("libtensorflow_framework.so.*"))), None)
    if library is None:
        raise BuildError(f"no libtensorflow_framework in {folder}")
    return library


def _declare(native: Any) -> None:
    number = ctypes.c_int64
    for name, result, arguments in (
        ("opscope_nvtx", ctypes.c_int, [ctypes.c_char_p]),
        ("opscope_install", ctypes.c_int, [ctypes.c_char_p]),
        ("opscope_uninstall", None, []),
        ("opscope_installed", ctypes.c_int, []),
        ("opscope_inputs", None, [ctypes.c_void_p, ctypes.c_void_p]),
        ("opscope_shapes", ctypes.c_int, [ctypes.c_int]),
        ("opscope_annotate", None, [ctypes.c_int]),
        ("opscope_waits", ctypes.c_int, [number]),
        ("opscope_operations", ctypes.c_int, [ctypes.c_int]),
        ("opscope_operation_count", ctypes.c_uint32, []),
        ("opscope_listen", None, [ctypes.c_int, ctypes.c_int, number, number, number, number]),
        ("opscope_waiting", number, []),
        ("opscope_take", number, [ctypes.c_char_p, number]),
        ("opscope_threads", number, [number, ctypes.POINTER(number), number]),
        ("opscope_thread_count", number, []),
        ("opscope_text_count", ctypes.c_uint32, []),
        ("opscope_text", ctypes.c_char_p, [ctypes.c_uint32]),
        ("opscope_lost", number, []),
    ):
        function = getattr(native, name)
        function.restype, function.argtypes = result, arguments
