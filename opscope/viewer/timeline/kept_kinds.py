"""Keep the category of each kernel of a saved profile by its op, so that the next view has all colours at
once. ``kept.kernel_kinds.parquet`` in the profile's folder is the msgpack form of ``_Packed``, one byte per
row: a column of equal categories would compress so well that the reader refuses the file as harmful."""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.version import __version__

from .lane import CATEGORIES, UNTOLD

if TYPE_CHECKING:
    from opscope.profile import Profile

NAME: Final = "kernel_kinds"
#: Increase it when kernels' categories, or their packed form, change.
_FORM: Final = 1
_log: Final = logging.getLogger(__name__)


class _Packed(msgspec.Struct, array_like=True):
    """``categories``: names by number; ``packed``: a number for each kernel, as a zlib stream."""

    by: tuple[int, str]
    categories: list[str]
    packed: bytes


def kept(profile: Profile) -> NDArray[np.uint8] | None:
    """Return the category of each kernel, UNTOLD where its op does not decide it; None if none are stored."""
    if profile.selected is not None or NAME not in profile._kept:
        return None
    frame = profile._as_stored(NAME)
    if frame is None:
        return None
    count = profile._own_columns("kernels", [])[1]
    try:
        data = frame["byte"].cast(pl.UInt8).to_numpy().tobytes()
        packed = msgspec.msgpack.decode(data, type=_Packed)
        # bytes after the last kernel are not unpacked
        numbers = zlib.decompressobj().decompress(packed.packed, count + 1)
    except (msgspec.DecodeError, pl.exceptions.PolarsError, zlib.error) as error:
        _log.debug("the kinds of kernels of %s are not used: %s", profile._path, error)
        return None
    if packed.by != (_FORM, __version__) or packed.categories != list(CATEGORIES):
        return None
    categories = np.frombuffer(numbers, np.uint8)
    fits = (categories < len(CATEGORIES)) | (categories == UNTOLD)
    return categories if len(categories) == count and bool(fits.all()) else None


def keep(profile: Profile, categories: NDArray[np.uint8]) -> None:
    """Keep the category of each kernel, if the profile is saved in a folder that we may write."""
    if profile._place is None or profile.selected is not None:
        return
    packed = _Packed((_FORM, __version__), list(CATEGORIES), zlib.compress(categories.tobytes(), 1))
    data = msgspec.msgpack.encode(packed)
    profile._keep(NAME, pl.DataFrame({"byte": np.frombuffer(data, np.uint8)}))
