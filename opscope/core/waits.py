"""The single definition of waiting, by names of events: the state of a device's queue while it runs nothing.
A wait for an event, another stream, device or rank is not work, and neither is the signal that ends it: they
add no kernel time, keep no device busy and belong to no op. Readers put them into ``syncs``."""

from __future__ import annotations

import re
from typing import Final

#: Names of things that are waited for, and of actions on them.
_THING: Final = (
    r"events?|notify|notification|semaphores?|sem|signals?|streams?|queues?|device|context|fences?|flag|"
    r"mem(?:ory)?|capture|barrier|dependency|counter|value(?:32|64)?"
)
_VERB: Final = r"wait(?:ing)?|record|poll(?:ing)?|sync(?:hroni[sz]e)?|reset"
_VENDOR: Final = (
    r"(?:cuda|cu|hip|hsa|mtia|xpu|ze|sycl|npu|acl|aclrt|rt|musa|mcr?|hpu|syn|tpu|mlu|cn|gcu)"
)
#: Complete names, with ``_`` for spaces, hyphens and humps: names of kernels have arguments, or
#: contain ``kernel``.
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
#: Waits in ``syncs`` whose times are those of the queue. CUPTI's (``stream wait``, ``Stream Wait
#: Event``) have the times of the host's call.
ON_QUEUE: Final = r"(?i)wait|poll|spin"
OF_CALLS: Final = r"(?i)^stream wait(?: event)?$"


def is_wait(name: str) -> bool:
    """Return whether a device's event with this complete name waits or signals, and runs nothing."""
    return len(name) < 64 and _NAME.match(_HUMP.sub("_", name).lower()) is not None
