"""A script in the page's head that asks for the timeline's lanes while the main script still loads. It is the
same in every page, so the content policy allows it by its hash, and no other inline script.
``web/src/source.ts`` uses the answer if the timeline asks for the same lanes."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

#: The timeline's first request, if no steps, devices or ranks are selected.
ASKED: Final = "api/timeline_lanes?part=device"
SCRIPT: Final = (
    r"/^#\/timeline(?!.*[?&](steps|device|rank)=)/.test(location.hash)&&"
    f'(window.opscopeEarly={{url:"{ASKED}",answer:fetch("{ASKED}")}}).answer.catch(()=>0)'
)
#: The script as a content policy names it.
SOURCE: Final = f"'sha256-{base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}'"
