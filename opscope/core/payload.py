"""What the payload of a range holds: the sequence number of an op, and the thread of its forward pass."""

from __future__ import annotations

from typing import Final

#: Bits 0–47 are the sequence number, 48–62 the 1-based forward thread. What does not fit
#: (PyTorch's 2⁶⁴−1 means "none") is left out.
SEQ_BITS: Final = 48
MAX_SEQ: Final = 1 << SEQ_BITS
MAX_FWD_THREAD: Final = 1 << 15
#: Ops of a graph pair forward with backward as if one thread had made them, which no payload has.
GRAPH_THREAD: Final = 1 << 16
