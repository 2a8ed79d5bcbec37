"""Keep the first pictures of a saved profile, so that it is shown again before its lanes are made.

``kept.first_pictures.parquet`` in the profile's folder has the description of the devices' lanes, the names
of their slices, and the last few pictures of all devices, each of 150 kB at most. A picture is the answer to
exactly one question (lanes, window, columns), so it is as exact as if it were made again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
import polars as pl

from opscope.version import __version__

from .lanes_said import said

if TYPE_CHECKING:
    from opscope.profile import Profile

    from .index import Timeline

NAME: Final = "first_pictures"
#: Increase it when pictures, or descriptions of lanes, change.
_FORM: Final = 1
#: Number of page sizes whose pictures are kept.
_PICTURES: Final = 4
#: With more characters of names, or bytes in all, nothing is kept.
_CHARACTERS: Final = 1 << 20
_BYTES: Final = 4 << 20
_log: Final = logging.getLogger(__name__)


class Question(NamedTuple):
    """The parameters of a picture: lanes as the page names them, the window (ns), the columns."""

    lanes: str
    low: int
    high: int
    columns: int


class FirstPictures(msgspec.Struct, array_like=True):
    """The kept pictures. ``lanes``: the answer for the lanes of devices. ``names``: the names by number."""

    by: tuple[int, str]
    lanes: dict[str, Any]
    names: list[str]
    pictures: list[tuple[Question, bytes]]

    def of(self, question: Question) -> bytes | None:
        """Return the picture that answers the question; None if it is not stored."""
        return next(
            (picture_kept for asked, picture_kept in self.pictures if asked == question), None
        )


def kept(profile: Profile) -> FirstPictures | None:
    """Return the pictures that are kept in a profile's folder; None if there are none, or for a selection."""
    if profile.selected is not None or NAME not in profile._kept:
        return None
    frame = profile._as_stored(NAME)
    if frame is None:
        return None
    try:
        # one byte per row: the reader refuses a small file that would unpack to many rows
        data = frame["byte"].cast(pl.UInt8).to_numpy().tobytes()
        pictures_kept = msgspec.msgpack.decode(data, type=FirstPictures)
    except (msgspec.DecodeError, pl.exceptions.PolarsError) as error:
        _log.debug("the first pictures of %s are not used: %s", profile._path, error)
        return None
    return pictures_kept if pictures_kept.by == (_FORM, __version__) else None


def keep(timeline: Timeline, question: Question, picture: bytes) -> None:
    """Keep a picture of all devices, if the profile is saved and we may write into its folder."""
    profile = timeline.profile
    if profile._place is None or not all(
        lane_id[:1] == "d" for lane_id in question.lanes.split(",")
    ):
        return
    lanes = said(timeline, "device")
    if lanes["span"] != [str(question.low), str(question.high)]:
        return
    names = timeline.names.all()
    if sum(map(len, names)) > _CHARACTERS:
        return
    before = [] if timeline.first is None else timeline.first.pictures
    pictures = [*before, (question, picture)][-_PICTURES:]
    timeline.first = FirstPictures((_FORM, __version__), lanes, names, pictures)
    try:
        data = msgspec.msgpack.encode(timeline.first)
    except UnicodeEncodeError:  # a name with half a surrogate pair, which UTF-8 does not have
        return
    if len(data) <= _BYTES:
        profile._keep(NAME, pl.DataFrame({"byte": np.frombuffer(data, np.uint8)}))
