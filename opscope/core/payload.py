"""The layout of a range's payload: an op's sequence number, and the thread of its forward pass."""

from __future__ import annotations

from typing import Final

#: Bits 0–47 are the sequence number, bits 48–62 the forward thread, counted from 1. Values that do not fit
#: are left out; PyTorch's 2⁶⁴−1, which means "none", is one of them.
SEQ_BITS: Final = 48
MAX_SEQ: Final = 1 << SEQ_BITS
MAX_FWD_THREAD: Final = 1 << 15
#: The forward thread used to pair forward with backward ops of a graph; no payload contains this value.
GRAPH_THREAD: Final = 1 << 16
