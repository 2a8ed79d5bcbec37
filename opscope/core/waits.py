"""The one definition of waiting: what a device's queue does while it runs nothing, by names of its events.

A wait for an event, another stream, device or rank, and the signal that ends it, are no work: they are in
no time of kernels, keep no device busy and belong to no op. Readers put them into ``syncs``.
"""

from __future__ import annotations

import re
from typing import Final

#: What is waited for, and what is done about it.
_THING: Final = (
    r"events?|notify|notification|semaphores?|sem|signals?|streams?|queues?|device|context|fences?|flag|"
    r"mem(?:ory)?|capture|barrier|dependency|counter|value(?:32|64)?"
)
_VERB: Final = r"wait(?:ing)?|record|poll(?:ing)?|sync(?:hroni[sz]e)?|reset"
_VENDOR: Final = (
    r"(?:cuda|cu|hip|hsa|mtia|xpu|ze|sycl|npu|acl|aclrt|rt|musa|mcr?|hpu|syn|tpu|mlu|cn|gcu)"
)
#: Whole names, with ``_`` for spaces, hyphens and humps: a kernel has arguments, or ``kernel`` in its name.
_NAME: Final = re.compile(
    rf"(?:{_VENDOR}_)?(?:"
    rf"(?:{_THING})(?:_(?:{_THING}))*_(?:{_VERB})(?:_(?:{_THING}))*(?:_(?:on|for|with_flags|external|sqe|async))?"
    rf"|(?:{_VERB})(?:_(?:for|on))?(?:_(?:{_THING}))+(?:_(?:sqe|external|async))?"
    r"|(?:busy_)?wait(?:ing)?|poll(?:ing)?|spin(?:ning)?(?:_wait)?|idle"
    r")\Z"
)
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\s\-]+")
#: Task types of CANN that wait or signal: ``EVENT_WAIT``, ``NOTIFY_RECORD_SQE``, ``Notify Wait``.
TASKS: Final = (
    r"(?i)^(?:EVENT|NOTIFY|CAPTURE|IPC|MEM)[_ ](?:\w+[_ ])?(?:WAIT|RECORD|RESET)(?:[_ ]\w+)?$"
)
#: Waits among the ``syncs`` of a trace whose times are the queue's. CUPTI's (``stream wait``, ``Stream Wait
#: Event``) have those of the host's call.
ON_QUEUE: Final = r"(?i)wait"
OF_CALLS: Final = r"(?i)^stream wait(?: event)?$"


def is_wait(name: str) -> bool:
    """Return whether a device's event with this whole name waits or signals, and runs nothing."""
    return len(name) < 64 and _NAME.match(_HUMP.sub("_", name).lower()) is not None
