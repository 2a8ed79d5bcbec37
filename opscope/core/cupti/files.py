"""The files of CUPTI's activity in a process's part of a recording.

``RAW`` has each completed buffer behind a ``BUFFER`` header, as CUPTI filled it. ``FACTS`` has a JSON object
a line. The first has ``version`` (cuptiGetVersion's number), ``kinds`` (the kinds of records that were
enabled) and ``pointer_bytes``; then, in any order,

* ``{"names": {"<address>": text}}``: the text of each pointer to a string, before the buffer that has it.
  With ``"buffer": n`` it holds from buffer n on (the first is 1), because another text then lies there;
* ``{"clock": [cupti ns, recorder ns, uncertainty ns]}``: a pair of readings of both clocks;
* ``{"dropped": n, "context": c, "stream": s}``: records that CUPTI did not keep;
* ``{"threads": {"<number in CUPTI's records>": system thread id}}``;
* ``{"devices": [{"device": n, ...}]}``, with columns of the table ``devices``;
* ``{"sizes": {"<kind>": bytes}}``: sizes of records, where CUPTI tells them;
* ``{"graph_nodes": [[recorder ns, thread, graph, node, original node], ...]}``: nodes of CUDA graphs as they
  were made, the last number 0 where it is no clone;
* ``{"note": text}`` and ``{"stop": recorder ns}``.

Both files are only appended to, so that a killed process leaves readable ones.

In a ring each segment has a ``RAW`` of its own, and a ``FACTS`` with the readings of clocks and the
dropped records of its time, the first line of which is ``{"buffers_before": n}``: how many buffers
earlier segments had, to which numbers of buffers are added. All else is in the part's own
``FACTS``.
"""

from __future__ import annotations

import struct
from typing import Final

RAW: Final = "cupti.raw"
FACTS: Final = "cupti.jsonl"
#: Before each buffer: the mark, the number of valid bytes that follow, the recorder's time of completion
#: (ns), the context's and the stream's id (0: not given).
BUFFER: Final = struct.Struct("<8sQQII")
MARK: Final = b"OPSCUPT1"
