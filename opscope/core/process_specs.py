"""How a process tells of itself: the names of its specs, and the switch that keeps who and where out."""

from __future__ import annotations

from typing import Final

#: The graph, the key and the name of the spec by which a process tells an NVTX tool of itself.
GRAPH: Final = "process"
KEY: Final = "facts"
#: The key of what it says in between: that it has forked.
FORK: Final = "fork"
#: Set to 1 where neither the host's name nor the arguments are to be recorded.
PRIVATE: Final = "OPSCOPE_PRIVATE"
