"""The specs by which a process describes itself, and the switch that leaves out host and arguments."""

from __future__ import annotations

from typing import Final

#: Graph and key of the spec by which a process describes itself to an NVTX tool; GRAPH is also the name of
#: the spec's range.
GRAPH: Final = "process"
KEY: Final = "facts"
#: Key of the spec that says that the process has forked.
FORK: Final = "fork"
#: Environment variable; 1 means that neither the host's name nor the arguments are recorded.
PRIVATE: Final = "OPSCOPE_PRIVATE"
