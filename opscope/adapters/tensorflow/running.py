"""Graph ops as they run: TensorFlow's own annotations, heard by the library made of annotations.c."""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
from pathlib import Path
from typing import Any, Final

from opscope.adapters.shared import cache
from opscope.adapters.shared.compiled import BuildError, built
from opscope.adapters.shared.ready import leave_word
from opscope.core.capture.emit import domain_number
from opscope.core.capture.recorder_sink import pop_code
from opscope.core.recording_format import CHUNK, RECORD_BYTES, SOURCE_TEXTS, SOURCE_THREADS

_log = logging.getLogger(__name__)

SOURCE: Final = Path(__file__).with_name("annotations.c")
#: What reads the shapes of an op's inputs; made with TensorFlow's headers, for this TensorFlow alone.
INPUTS: Final = Path(__file__).with_name("inputs.cc")
_TELLS_INPUTS: Final = "building the TensorFlow size reader for this TensorFlow, once (about 14 s)"
#: TensorFlow's own NVTX domain, which its GPU builds use.
DOMAIN: Final = "TSL"
#: Where texts and threads of this source are numbered from: apart from those of other sources.
TEXTS: Final = SOURCE_TEXTS + (1 << 39)
THREADS: Final = SOURCE_THREADS + (1 << 19)
_GENERATION: Final = "_ZN3tsl8profiler15AnnotationStack11generation_E"


class GraphRanges:
    """TensorFlow's graph ops into the recorder, and into NVTX where its build does not do so itself.

    Made with ``GraphRanges.load``; ``listen`` hooks TensorFlow's libraries, ``silence`` restores them.
    """

    def __init__(self, native: Any, framework: Path, tensorflow: Any) -> None:
        self._native = native
        self._framework = framework
        self._tensorflow = tensorflow
        self._inputs: Any = None
        #: Why sizes that a graph does not know are not told, once that was tried.
        self.sizes_lack: str | None = None
        #: Odd while TensorFlow tells its annotations.
        self._generation = ctypes.c_int.in_dll(ctypes.CDLL(str(framework)), _GENERATION)
        self._shapes = self._operations = False
        self.nvtx = bool(native.opscope_nvtx(DOMAIN.encode()))

    @classmethod
    def load(cls, tensorflow: Any) -> GraphRanges:
        """Build the library, if need be, and find TensorFlow's. Raises BuildError where that fails."""
        framework = _framework(tensorflow)
        try:
            native = cache.load(ears_library())
            _declare(native)
            ranges = cls(native, framework, tensorflow)
            if not native.opscope_install(str(framework).encode()):
                raise BuildError("this TensorFlow does not announce the ops that it runs")
            native.opscope_uninstall()
        except (AttributeError, ValueError, OSError) as error:
            raise BuildError(f"this TensorFlow is not as expected: {error}") from None
        return ranges

    def listen(self, record: bool, nvtx: bool) -> None:
        """Hook TensorFlow, and hear every graph op that begins from now on."""
        self._native.opscope_install(str(self._framework).encode())
        numbers = (TEXTS, pop_code(domain_number(DOMAIN)), THREADS, CHUNK)
        self._native.opscope_listen(record, nvtx and self.nvtx, *numbers)
        self._native.opscope_annotate(True)
        self.keep()

    def keep(self, shapes: bool = False, operations: bool = False) -> None:
        """A graph is about to run; with ``shapes`` the sizes of its ops' inputs are told too.

        With ``operations`` those are heard that XLA runs. Annotations that something turned off past
        the import tables are turned on again.
        """
        if shapes != self._shapes:
            self._shapes = shapes
            if shapes and self._inputs is None and self.sizes_lack is None:
                self._read_inputs()
            self._native.opscope_shapes(shapes)
        if operations or self._operations:
            self._native.opscope_operations(operations)
            self._operations = operations
        if not self._generation.value & 1:
            self._native.opscope_annotate(True)

    @property
    def operations(self) -> int:
        """How many operations of XLA's programs were heard since the process began."""
        return int(self._native.opscope_operation_count())

    def _read_inputs(self) -> None:
        """Make what reads the shapes of inputs, or learn why that cannot be."""
        try:
            self._inputs = cache.load(inputs_library(self._tensorflow))
            readers = self._inputs.opscope_inputs_sign, self._inputs.opscope_inputs_text
            self._native.opscope_inputs(*(ctypes.cast(one, ctypes.c_void_p) for one in readers))
        except (BuildError, AttributeError, OSError) as error:
            self.sizes_lack = str(error)
            _log.warning("opscope: sizes that graphs do not know are not told: %s", error)

    def silence(self) -> None:
        """Put TensorFlow's functions back."""
        self._native.opscope_listen(0, 0, *(0,) * 4)
        self._native.opscope_annotate(False)
        self._native.opscope_uninstall()
        self._shapes = self._operations = False

    @property
    def domain(self) -> dict[str, Any]:
        """What a recording must know of the domain."""
        return {"domain": DOMAIN, "number": domain_number(DOMAIN)}

    @property
    def hooked(self) -> int:
        """Entries of TensorFlow's import tables that lead to us."""
        return int(self._native.opscope_installed())

    @property
    def lost(self) -> int:
        """Ops that were not recorded for want of memory, since the process began."""
        return int(self._native.opscope_lost())


class Recording:
    """What one recorder takes from ``GraphRanges`` (``core.capture.recorder_sink.Source``)."""

    def __init__(self, ranges: GraphRanges) -> None:
        self._ranges = ranges
        self._native = ranges._native
        self._texts = 0
        self._threads: set[int] = set()
        self._lost = ranges.lost
        self.take()  # what an earlier recorder left
        self._texts = 0
        self._threads.clear()

    @property
    def lost(self) -> int:
        """Ops that were not recorded for want of memory."""
        return self._ranges.lost - self._lost

    def notes(self) -> list[tuple[str, str, int]]:
        """Nothing: what its ranges cost is in the time of the ops around them."""
        return []

    def take(self) -> tuple[bytes, bytes, list[tuple[int, int, int]]]:
        """Chunks, strings and threads that are new."""
        native = self._native
        room = int(native.opscope_thread_count()) + 16
        numbers = (ctypes.c_int64 * (3 * room))()
        many = int(native.opscope_threads(0, numbers, room))
        triples = [(numbers[3 * i], numbers[3 * i + 1], numbers[3 * i + 2]) for i in range(many)]
        threads = [one for one in triples if one[0] not in self._threads]
        self._threads.update(one[0] for one in threads)
        room = int(native.opscope_waiting()) + 64
        records = ctypes.create_string_buffer(room * RECORD_BYTES)
        written = int(native.opscope_take(records, room))
        lines = []
        for number in range(self._texts, int(native.opscope_text_count())):
            text = native.opscope_text(number).decode("utf-8", "replace")
            lines.append(json.dumps([TEXTS + number, DOMAIN, None, text]))
        self._texts += len(lines)
        strings = "".join(f"{line}\n" for line in lines)
        return records.raw[: written * RECORD_BYTES], strings.encode(), threads


def prepare(tensorflow: Any) -> None:
    """Build both libraries, before the program's first op. What cannot be had is told when needed."""
    with contextlib.suppress(BuildError, OSError, AttributeError):
        ears_library()
        inputs_library(tensorflow)
    leave_word("tensorflow", tensorflow.__file__)


def ears_library() -> Path:
    """The library that hears graph ops, built unless it is there. Raises BuildError."""
    return built(SOURCE, (), "building the TensorFlow observer, once (about 1 s)")


def inputs_library(tensorflow: Any) -> Path:
    """The library that reads the shapes of inputs, for this TensorFlow. Raises BuildError."""
    flags, plain = inputs_flags(tensorflow)
    try:
        return built(INPUTS, flags, _TELLS_INPUTS)
    except BuildError:  # a version whose shapes are kept otherwise can still be asked
        return built(INPUTS, plain)


def inputs_flags(tensorflow: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What that library is made with, and what where that fails. Raises BuildError."""
    framework = _framework(tensorflow)
    # which of the two has what is called differs from version to version
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
    found = next(iter(sorted(folder.glob("libtensorflow_framework.so.*"))), None)
    if found is None:
        raise BuildError(f"no libtensorflow_framework in {folder}")
    return found


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
