"""The abilities of each version of Nsight Systems, 2020 to 2026, with the source of each fact.

A row that was read from the tool itself (``measured``) is complete. The others hold only documented
differences from the row before: for a version that is not measured, ``tool.py`` asks ``nsys profile --help``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

Version = tuple[int, int]

#: The first version whose command line this package can build. 2019's ``nsys`` has neither ``--cpuctxsw``
#: nor sets of ``--trace`` that its documentation lists in full.
OLDEST: Final[Version] = (2020, 1)
#: A number of ranges in ``--capture-range-end``: ``repeat:3``.
REPEAT: Final = "repeat"


@dataclass(frozen=True, slots=True)
class Release:
    """The abilities of a version, and of later ones up to the next row.

    ``options`` are those of ``nsys profile`` that opscope uses or that change what is recorded, without
    dashes. ``traces`` are the values of ``--trace``, ``exports`` those of ``nsys export --type``, ``ends``
    those of ``--capture-range-end``. ``tables`` are names in the SQLite export that other versions do not
    have. ``graphs`` says how CUDA graphs are traced without ``--cuda-graph-trace``.
    """

    version: Version
    options: frozenset[str]
    traces: frozenset[str]
    ends: frozenset[str]
    suffix: str
    exports: frozenset[str]
    tables: frozenset[str]
    graphs: str
    source: str
    measured: bool = False
    #: ``--delay`` and ``--duration`` take fractions of seconds. 2020.4 and 2022.4 take 0.5 for 0.
    fractions: bool = False

    @property
    def name(self) -> str:
        """The version as NVIDIA writes it: ``2023.4``."""
        return ".".join(map(str, self.version))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_HELP: Final = "its own --version, profile --help, export --help and an export of a run"
_2020: Final = Release(
    (2020, 4),
    _words(
        "trace sample cpuctxsw trace-fork-before-exec capture-range stop-on-range-end nvtx-capture delay"
        " duration kill wait mpi-impl force-overwrite output show-output stop-on-exit"
    ),
    _words(
        "cuda nvtx osrt cublas cudnn opengl opengl-annotations mpi openacc openmp vulkan"
        " vulkan-annotations none"
    ),
    frozenset(),
    ".qdrep",
    _words("sqlite hdf text json info"),
    frozenset(),
    "nodes",
    f"{_HELP} (2020.4.3.7, Debian bullseye)",
    measured=True,
)
_2021_2: Final = replace(
    _2020,
    version=(2021, 2),
    options=(_2020.options - {"stop-on-range-end"}) | {"capture-range-end"},
    ends=_words("none stop stop-shutdown repeat repeat-shutdown"),
    source="published command lines for 2021.2.1 with --capture-range-end stop; the values are 2022.4's",
    measured=False,
)
_2021_4: Final = replace(
    _2021_2,
    version=(2021, 4),
    suffix=".nsys-rep",
    source="docs.nvidia.com/nsight-systems/2021.4/UserGuide: .qdstrm is converted to .nsys-rep",
)
_2022_4: Final = replace(
    _2021_4,
    version=(2022, 4),
    options=_2021_4.options | {"cuda-graph-trace"},
    traces=_2020.traces | _words("cublas-verbose cusparse cusparse-verbose oshmem ucx nvvideo"),
    exports=_words("sqlite hdf text arrow json info"),
    tables=_words("EXPORT_META_DATA CUDA_GRAPH_EVENTS CUPTI_ACTIVITY_KIND_GRAPH_TRACE"),
    graphs="whole graphs with a driver of CUDA 11.7 or later, else nodes",
    source=f"{_HELP} (2022.4.2.1, Debian bookworm)",
    measured=True,
)
_2023_4: Final = replace(
    _2022_4,
    version=(2023, 4),
    options=_2022_4.options | {"flush-on-cudaprofilerstop", "start-later", "python-sampling"},
    traces=_2022_4.traces | {"python-gil"},
    exports=_words("sqlite hdf text json info arrow arrowdir parquetdir"),
    tables=_words("META_DATA_EXPORT META_DATA_CAPTURE CUDA_GRAPH_EVENTS")
    | {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE"},
    source=f"{_HELP} (2023.4.4.54, Debian trixie)",
    fractions=True,
)
_2024_2: Final = replace(
    _2023_4,
    version=(2024, 2),
    options=_2023_4.options | {"cpu-core-metrics", "python-functions-trace"},
    traces=_2023_4.traces | _words("cusolver cusolver-verbose"),
    tables=(_2023_4.tables - {"CUDA_GRAPH_EVENTS"})
    | _words("CUDA_GRAPH_NODE_EVENTS CUDA_GRAPH_EVENTS"),
    source="its own --version, profile --help and export --help (2024.2.3.38, Debian experimental); its "
    "tables as public exports of 2024 have them",
)
_2025_1: Final = replace(
    _2024_2,
    version=(2025, 1),
    options=_2024_2.options | {"cuda-event-trace"},
    source="published runs of 2025.1.1 and 2025.1.3: they trace the completion of CUDA events by default, "
    "warn that this costs time, and name --cuda-event-trace=false; they lack --discard-environment",
    measured=False,
)
_2025_6: Final = replace(
    _2025_1,
    version=(2025, 6),
    options=_2025_1.options | {"cuda-trace-scope"},
    source="docs.nvidia.com/nsight-systems/2025.6/ReleaseNotes: --cuda-trace-scope; rows of an export are in "
    "no order; the text export is in its last release",
)
_2026_1: Final = replace(
    _2025_6,
    version=(2026, 1),
    options=_2025_6.options | {"discard-environment"},
    exports=_2025_6.exports - {"text"},
    source="published command lines for 2026.1.3 with --discard-environment=true; "
    "docs.nvidia.com/nsight-systems/2025.6/ReleaseNotes announces the end of the text export",
)
#: The rows, the oldest first.
RELEASES: Final = (
    _2020, _2021_2, _2021_4, _2022_4, _2023_4, _2024_2, _2025_1, _2025_6, _2026_1,
)  # fmt: skip


def version_of(text: str) -> Version | None:
    """Return the version in what ``nsys --version`` prints; None if there is none."""
    match = re.search(r"version\s+(20\d\d)\.(\d+)", text)
    return None if match is None else (int(match[1]), int(match[2]))


def nearest(version: Version) -> Release:
    """Return the row of the version, else the nearest older one; for a version older than all rows, the
    oldest."""
    older = [release for release in RELEASES if release.version <= version]
    return older[-1] if older else RELEASES[0]
