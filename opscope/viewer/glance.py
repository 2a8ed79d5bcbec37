"""A profile at a glance, for a notebook's cell: the verdict, a step drawn, the ops; no script, at most 20 kB.
A notebook is saved with its cells' output, so automatic output is small."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from opscope.core.question import units

from .question import whole
from .single import static_words
from .step_picture import step_picture

if TYPE_CHECKING:
    from opscope.profile import Profile

#: Bytes of a cell's output at most.
MOST: Final = 20_000
#: Characters of a table's cell and of a sentence, tried in this order until everything fits.
_WIDEST: Final = ((160, 600), (60, 300), (24, 120))
#: Number of findings that are shown; ``profile.diagnosis()`` has all.
_FINDINGS: Final = 3
#: Number of segments of a lane: about as many as the drawing has pixels.
_PIECES: Final = 150
_COLOURS: Final = {
    "input": "#8f8a1f", "forward": "#2f5fb3", "backward": "#e07b1a", "optimizer": "#5a3d1c",
    "communication": "#b07cc6", "busy": "#0b57a4",
}  # fmt: skip
_OTHER, _IDLE = "#b4bac1", "#f2c9cb"
_MORE: Final = (
    "<p>All pages: <code>opscope.viewer.notebook.Shown(profile)</code>, which adds up to 0.5 MB to the"
    " notebook, or <code>opscope view FILE</code>.</p>"
)


def glance(profile: Profile) -> str:
    """Return the HTML, escaped; its styles are attributes, as a notebook has no style sheet of ours."""
    verdict, picture = profile.diagnosis(), step_picture(profile)
    for cell, sentence in _WIDEST:
        text = (
            _findings(verdict.head(_FINDINGS).to_dicts(), sentence)
            + _picture(picture)
            + static_words(profile, widest=cell)
            + _MORE
        )
        if len(text.encode()) <= MOST:
            break
    return text


def _findings(rows: list[dict[str, Any]], most: int) -> str:
    return "".join(
        f"<p><strong>{_cut(row['finding'], most)}</strong>: {_cut(row['text'], most)}"
        + (f"<br>To try: {_cut(row['to_try'], most)}" if row["to_try"] else "")
        + "</p>"
        for row in rows
    )


def _picture(picture: dict[str, Any]) -> str:
    if picture["why"] is not None:
        return ""
    time = picture["time"]
    step = "A step" if picture["step"] is None else f"Step {picture['step']}"
    lanes = "".join(_lane(lane, time) for lane in picture["lanes"])
    return f"<p>{step}, the nearest to the median: {units.time(time)}</p>{lanes}"


def _lane(lane: dict[str, Any], time: int) -> str:
    """Return one lane as a bar, drawn as one background with colour stops, and its times in words."""
    empty = _IDLE if "idle" in lane else _OTHER
    stops, at = [], 0.0
    for begin, end, what in lane["segments"]:
        low, high = 100 * begin / time, 100 * end / time
        if high - low < 100 / _PIECES and len(lane["segments"]) > _PIECES:
            continue
        stops.append(
            f"{empty} {at:.1f}% {low:.1f}%,{_COLOURS.get(what, _OTHER)} {low:.1f}% {high:.1f}%"
        )
        at = high
    stops.append(f"{empty} {at:.1f}% 100%")
    said = ", ".join(
        f"{escape(name)} {units.time(part)} ({units.share(part / time)})"
        for name, part in sorted(lane["sums"].items(), key=lambda item: -item[1])
    )
    if "idle" in lane:
        said += f", idle {units.time(lane['idle'])} ({units.share(lane['idle'] / time)})"
    return (
        f'<div style="height:16px;max-width:900px;background:linear-gradient(90deg,{",".join(stops)})"></div>'
        f"<p>{escape(lane['name'])}: {said}</p>"
    )


def _cut(text: object, most: int) -> str:
    said = whole(str(text))
    return escape(said if len(said) <= most else f"{said[: most - 1]}…")
