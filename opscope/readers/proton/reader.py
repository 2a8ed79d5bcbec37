"""Read a file of Proton by its form, and share the code of all forms. The layouts are those of Triton's
``third_party/proton/csrc/lib/Data/Dump``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput
from opscope.readers.heads import is_json
from opscope.readers.kineto.json_events import whole_file
from opscope.readers.rows import decode

#: The most bytes of a file: its values take five to ten times as much memory.
_MOST: Final = 512 << 20


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    content = whole_file(path, _MOST, f"a file of Proton of more than {_MOST >> 20} MB")
    document: Any
    try:
        document = decode(content, Any) if is_json(content) else msgspec.msgpack.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise BadInput(
            path, f"a file of Triton's Proton that ends early or is damaged: {error}"
        ) from error
    if isinstance(document, dict) and isinstance(document.get("traceEvents"), list):
        from . import chrome  # lazy: a file has one form

        return chrome.trace_of(document["traceEvents"], path)
    if isinstance(document, list) and document and isinstance(document[0], dict):
        from . import tree  # lazy: likewise

        return tree.trace_of(document, path)
    raise BadInput(path, "not a file of Triton's Proton: neither a tree of frames nor events")
