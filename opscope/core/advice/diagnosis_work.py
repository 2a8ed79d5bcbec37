"""Findings on what runs: communication, copies, kernels far below their roof, and nearly full memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from opscope.core.advice import diagnosis_words as words
from opscope.core.advice.diagnosis_limits import ATTAINED, BUSY, CAUSES, FULL, WORTH
from opscope.core.advice.diagnosis_rows import Judge
from opscope.core.advice.diagnosis_words import ns, share


class Work(Judge):
    """What the time goes into while something runs."""

    def _communication(self) -> Iterator[dict[str, Any]]:
        lost = self.parts["communication"]
        late = self.facts.stragglers
        caused = 0 if late.is_empty() else int(late["caused_waiting"].sum() or 0)
        if caused:
            worst = late.row(0, named=True)
            mine = [
                device.time for device in self.facts.divided if device.process == worst["process"]
            ]
            behind = int(worst["lateness"])
            if (
                worst["caused_waiting"] >= CAUSES * caused
                and mine
                and behind * self.near > WORTH * max(mine)
            ):
                gained = behind * len(self.facts.divided)
                yield self._judged(
                    "straggler",
                    min(gained, self.time),
                    behind / max(mine),
                    WORTH,
                    f"it came last to {worst['last']:,} of {worst['compared']:,} collectives,"
                    f" {ns(behind)} later than the first rank in all ({share(behind / max(mine))} of its"
                    " time); the others waited for it",
                    "opscope report --reports step_imbalance,step_summary: what this rank does longer than"
                    " the others, such as its share of the data, its input, its machine",
                    int(worst["process"]),
                )
                lost = max(0, lost - int(worst["caused_waiting"]))
        if not self._within(lost, WORTH):
            beside = "while nothing was computed" if self.on_gpu else "in no op but collectives"
            yield self._judged(
                "communication-bound",
                lost,
                lost / self.time,
                WORTH,
                f"{self._part(lost)} went into communication {beside}",
                self.say.communication(),
            )

    def _copies(self) -> Iterator[dict[str, Any]]:
        staging = self.parts["staging"]
        lost = self.parts["copying"] + staging
        if self._within(lost, WORTH):
            return
        memops = self.facts.trace["memops"]
        kinds = (
            memops.select(
                (pl.col("end") - pl.col("start")).alias("time"),
                *(pl.col(name).cast(pl.String) for name in ("kind", "src_kind", "dst_kind")),
            )
            .group_by("kind", "src_kind", "dst_kind")
            .agg(pl.col("time").sum(), pl.len().alias("many"))
            .sort("time", "many", descending=True)
        )
        kind, source, target, _, count = kinds.row(0)
        pageable = "pageable" in (source, target)
        noun = words.COPIES.get(kind, "copies")
        memory = {"HtoD": f" from {source} memory", "DtoH": f" to {target} memory"}.get(kind, "")
        if (source if kind == "HtoD" else target) not in ("pageable", "pinned"):
            memory = ""
        text = f"{self._part(lost)} went into copies and sets that nothing hides; most of it {noun}{memory}"
        text += f" ({count:,} in all)"
        yield self._judged(
            "copy-bound", lost, lost / self.time, WORTH, text, self.say.copies(kind, pageable)
        )

    def _rate(self) -> tuple[dict[str, tuple[float, float]], float]:
        """Return by bound the time and the ideal time (ns) of what has a roof; and the time of all."""
        if self.facts.device[0] is None:
            return {}, 0.0
        sums = self.facts.sums()
        rated = {bound: (float(time), float(ideal)) for bound, time, ideal in sums.by_bound.rows()}
        return rated, float(sums.ran + self.facts.unattributed())

    def _bounds(self) -> tuple[str, float, float, str] | None:
        """Return what bounds most kernels, their part of the rated time, the efficiency of all that is rated
        and a sentence; None where most of the kernels' time has no roof."""
        rated, total = self._rate()
        time = sum(time_of_class for time_of_class, _ in rated.values())
        if not total or time < BUSY * total:
            return None
        sums = {
            "memory-bandwidth-bound": rated.get("memory", (0.0, 0.0))[0],
            "compute-bound": sum(
                rated.get(name_of_class, (0.0, 0.0))[0] for name_of_class in ("tensor", "vector")
            ),
            "small kernels": rated.get("latency", (0.0, 0.0))[0],
        }
        name = max(sums, key=lambda name_of_class: sums[name_of_class])
        attained = sum(share_of_class for _, share_of_class in rated.values()) / time
        said = (
            f"{words.BOUNDS[name]} bounds {share(sums[name] / time)} of the kernels' time, and they attain"
            f" {share(attained)} of what the {getattr(self.facts.device[0], 'name', 'device')} could"
        )
        return name, sums[name] / time, attained, said

    def _kernels(self) -> Iterator[dict[str, Any]]:
        found = self._bounds()
        computed = self.parts["computation"]
        if found is None or self._within(computed, WORTH):
            return
        name, _, attained, said = found
        lost = computed * max(0.0, 1 - attained / ATTAINED)
        if not self._within(lost, WORTH):
            text = f"{self._part(computed)} went into {'kernels' if self.on_gpu else 'ops'}; {said}"
            rated, _ = self._rate()
            units, vector = (rated.get(bound, (0.0, 0.0))[0] for bound in ("tensor", "vector"))
            to_try = self.say.kernels(name, units > vector)
            yield self._judged(name, lost, lost / self.time, WORTH, text, to_try)

    def memory(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each device whose memory was nearly full."""
        sizes = {
            (process, device): size
            for process, device, size in self.facts.trace["devices"]
            .select("process", "device", "memory")
            .rows()
            if size
        }
        for row in self.facts.memory.sort("process", "device").to_dicts():
            size = sizes.get((row["process"], row["device"]))
            used = max(row["reserved"] or 0, row["peak_reserved"] or 0, row["peak_memory"] or 0)
            if row["device"] is None or row["device"] < 0 or not size or used < FULL * size:
                continue
            yield self._row(
                "memory pressure",
                None,
                f"{words.size(used)} of the {words.size(size)} of GPU {row['device']} were taken"
                f" ({share(used / size)})",
                self.say.memory(),
                row["process"],
            )
