"""What bounds the steps of a merged job: what its steps' parts show, as ``load`` of the files says it too."""

from __future__ import annotations

import polars as pl
import pytest

import opscope
from opscope.core.advice.diagnosis_merged import causes_of_sums
from opscope.core.advice.diagnosis_rows import HEALTHY
from opscope.core.analysis.diff.rankwise import PARTS, RANKED
from opscope.core.analysis.host.light_diagnosis import CANNOT_TELL, FINDINGS
from opscope.core.analysis.ranks.stragglers import STRAGGLERS
from opscope.scale.merge import merge
from opscope.scale.partial import write_partial
from tests.made_job import job_files

NOBODY = pl.DataFrame(schema=STRAGGLERS)


def job(slow=None, how="compute", more=200, usual=(4, 4, 300)):
    def program(rank):
        for step in range(6):
            yield ("step", step)
            for kind, time in zip(("input", "launch", "compute"), usual, strict=True):
                yield (kind, time + more * (slow in (rank, "all") and kind == how))
            yield ("all_reduce", "0", 1024)

    return program


def merged_of(files, folder):
    for one in files:
        write_partial(one, folder)
    return merge(folder)


@pytest.mark.parametrize(
    ("program", "finding", "rank"),
    [
        (job(), HEALTHY, None),
        (job(2), "straggler", 2),
        (job("all", "input"), "input-bound", None),
    ],
    ids=["healthy", "straggler", "input"],
)
def test_it_finds_what_load_of_the_files_finds(tmp_path, program, finding, rank):
    files = job_files(tmp_path, 4, program)
    merged = merged_of(files, tmp_path / "parts").diagnosis()
    loaded = opscope.load(files).diagnosis()
    assert dict(merged.schema) == FINDINGS
    first = merged.row(0, named=True)
    assert (first["finding"], first["rank"]) == (finding, rank)
    told = [one.filter(pl.col("finding") != CANNOT_TELL) for one in (merged, loaded)]
    assert told[0].select("rank", "finding").rows() == told[1].select("rank", "finding").rows()
    # events tell that the device waits for its input until the next launch, parts until the next call
    assert told[0]["share"].to_list() == pytest.approx(told[1]["share"].to_list(), abs=0.01)


def test_a_job_that_lacks_ranks_says_so(tmp_path):
    files = job_files(tmp_path, 4, job())
    told = merged_of(files[:3], tmp_path / "parts").diagnosis()
    said = "whether a rank that was not read makes the others wait: the job is 3 of 4 ranks"
    assert said in told["text"].to_list()


def steps(**parts):
    row = {"process": 0, "rank": 0, "step": 1, "time": 1000, "work": None, **dict.fromkeys(PARTS)}
    return pl.DataFrame([{**row, **parts}], schema=RANKED)


def diagnosis(*given) -> pl.DataFrame:
    """The rows of a merged job in words: its causes, else that nothing stands out; then what cannot be told."""
    causes = causes_of_sums(*given)
    return pl.DataFrame([*(causes.rows or [causes.otherwise]), *causes.not_told])


def test_an_idle_device_has_no_definite_cause():
    found = diagnosis(steps(compute=200, runtime=100, other=700), NOBODY, True, None, "")
    assert found["finding"].to_list() == [CANNOT_TELL] * 4
    assert "the device was busy for 20 %" in found["text"][0]
    assert "why the device was idle for another 800 ns" in found["text"][1]


def test_without_steps_or_parts_nothing_is_said():
    (row,) = diagnosis(pl.DataFrame(schema=RANKED), NOBODY, True, None, "").rows(named=True)
    assert (row["finding"], row["to_try"]) == (
        CANNOT_TELL, "opscope.step() at the beginning of each iteration"
    )  # fmt: skip
    first, *_ = diagnosis(steps(other=1000), NOBODY, True, None, "").rows(named=True)
    assert first["text"] == "what bounds the run: what ran in its steps is not known"


def test_a_cause_just_over_its_threshold_is_borderline():
    found = diagnosis(steps(compute=940, data_loader=60, other=0), NOBODY, True, None, "")
    assert found["finding"][0] == "borderline input-bound"
    found = diagnosis(steps(compute=950, data_loader=50, other=0), NOBODY, True, None, "")
    assert found["finding"][0] == HEALTHY
