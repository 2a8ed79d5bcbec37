"""How much of communication is hidden by computation."""

from __future__ import annotations

TITLE = "overlap of communication and computation"


def ours(profile):
    """Return the part of all communication (%) during which a kernel computes."""
    found = profile.communication()
    overlap = found["overlap"][0] if len(found) else None
    return {"communication hidden (%)": None if overlap is None else round(100 * overlap, 2)}


def theirs(analysis):
    """Return HTA's ``comp_comm_overlap_pctg``."""
    found = analysis.get_comm_comp_overlap(visualize=False)
    return {"communication hidden (%)": found["comp_comm_overlap_pctg"].iloc[0]}
