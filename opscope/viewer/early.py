"""A script in the page's head: it asks for the timeline's lanes while the pages' own script is still read.

It is the same in every page, so the page's policy names its hash: no other script may stand in the page.
``web/src/source.ts`` takes the answer if the timeline then asks for just that.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

#: What the timeline asks for first, if no steps, devices or ranks are selected.
ASKED: Final = "api/timeline_lanes?part=device"
SCRIPT: Final = (
    r"/^#\/timeline(?!.*[?&](steps|device|rank)=)/.test(location.hash)&&"
    f'(window.opscopeEarly={{url:"{ASKED}",answer:fetch("{ASKED}")}}).answer.catch(()=>0)'
)
#: The script as a policy names it.
SOURCE: Final = f"'sha256-{base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}'"
