"""Read a model's configuration, the ``config.json`` beside its weights: the sizes of its layers, as data."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any, Final

from opscope.core.perf.model_config import model_config
from opscope.readers.errors import BadInput

#: Larger files are not configurations: the largest of a model has some 30 kB.
_LARGEST: Final = 4 << 20


def read(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the content of the file. Raises BadInput if it is not a model's configuration."""
    file = Path(path)
    if file.is_dir():
        file = file / "config.json"
    try:
        if file.stat().st_size > _LARGEST:
            raise BadInput(
                file, f"is larger than {_LARGEST >> 20} MiB: not a model's configuration"
            )
        raw = json.loads(file.read_bytes())
    except OSError as error:
        raise BadInput(file, error.strerror or str(error)) from None
    except (ValueError, RecursionError):
        raise BadInput(file, "is not JSON: the config.json of a model is needed") from None
    if not isinstance(raw, dict) or model_config(raw).hidden is None:
        raise BadInput(file, "is no model's configuration: it has no hidden_size")
    return raw
