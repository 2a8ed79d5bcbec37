"""The merge of partials equals load of the same files, bit for bit; what it lacks it says."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import opscope
from opscope.core.analysis.ops.exchanges import exchanges
from opscope.core.question.record import why_not_merged
from opscope.core.question.registry import reports
from opscope.errors import BadInput, NotMerged
from opscope.reports import console
from opscope.reports.vendor_words import vendor
from opscope.scale import packed
from opscope.scale.merge import merge
from opscope.scale.partial import partial_name, write_partial
from tests.made_ranks import rank_files, rank_trace
from tests.merged_same import assert_same

#: Real traces that a job could have: of one format, recording the same things.
REAL = {
    "two ranks of 128": ["kineto/sampled_rank0.json.gz", "kineto/sampled_rank1.json.gz"],
    "three jobs": [
        "kineto/nccl_meta.json.gz",
        "kineto/vision_transformer_rank0.json.gz",
        "kineto/ddp_rank3of8_a100_stacks.json.gz",
    ],
    "memory, inputs, H100": [
        "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
        "kineto/ddp_memory_v100.json.gz",
        "kineto/qwen1.5_0.5b_h100.json.gz",
        "kineto/alexnet_cuda_sync_a100.json.gz",
    ],
}


def partials(files, folder: Path) -> list[str]:
    return [str(folder / write_partial(str(one), folder)) for one in files]


def of_job(tmp_path: Path, traces) -> list[Path]:
    files = [tmp_path / f"rank{number}.json" for number in range(len(traces))]
    for file, trace in zip(files, traces, strict=True):
        file.write_text(json.dumps(trace))
    return files


def with_groups(trace: dict, ranks: list[int], name: str) -> dict:
    """The trace with its collectives in a group of ``ranks``."""
    for event in trace["traceEvents"]:
        if "Process Group Name" in event["args"]:
            event["args"] |= {
                "Process Group Name": name, "Group size": len(ranks), "Process Group Ranks": json.dumps(ranks),
            }  # fmt: skip
    return trace


@pytest.mark.parametrize("name", REAL)
def test_of_real_traces(name, shared, tmp_path):
    files = [shared / one for one in REAL[name]]
    merged = merge(partials(files, tmp_path), expected=1, unrelated=True)
    # of several models of GPU, load rates all steps by one
    models = merged.trace["devices"]["name"].n_unique()
    lacking = ["utilization"] if models > 1 else []
    if merged.manifest["duplicates"]:  # two of these jobs have a rank 0, which the merge notes
        lacking.append("notes")
    assert_same(merged, files, without=lacking, unrelated=True)


def test_of_several_processes_in_a_file(shared, tmp_path):
    files = [one for one in sorted((shared / "nsys").glob("*.sqlite")) if one.stat().st_size < 4e6]
    kept = [
        one
        for one in files
        if not packed.read(Path(partials([one], tmp_path)[0]), one.name).about["cpu_only"]
    ]
    assert len(kept) > 1
    merged = merge(partials(kept, tmp_path), expected=1, unrelated=True)
    models = merged.trace["devices"]["name"].n_unique()
    assert_same(merged, kept, without=("utilization",) if models > 1 else (), unrelated=True)


@pytest.mark.parametrize("ranks", [1, 2, 7])
def test_of_made_ranks(ranks, tmp_path):
    files = rank_files(tmp_path, ranks, slow=ranks // 2)
    assert_same(merge(partials(files, tmp_path / "parts")), files)


def test_hosts_whose_clocks_are_50_ms_apart(tmp_path):
    files = rank_files(tmp_path, 6, slow=3, offset_us={2: 5e4, 3: 5e4, 4: -5e4, 5: -5e4})
    merged = merge(partials(files, tmp_path / "parts"))
    loaded = assert_same(merged, files)
    assert merged.clocks()["offset_ns"].abs().max() > 49_000_000
    assert merged.stragglers().row(0, named=True)["rank"] == 3
    assert_frame_equal(
        merged.of(exchanges).drop("op").with_columns(pl.col(pl.Categorical).cast(pl.String)),
        loaded.of(exchanges).drop("op").with_columns(pl.col(pl.Categorical).cast(pl.String)),
    )


def test_sibling_groups_of_one_name(tmp_path):
    pairs = [[0, 1], [2, 3]]
    traces = [with_groups(rank_trace(rank, 4), pairs[rank // 2], "1") for rank in range(4)]
    files = of_job(tmp_path, traces)
    merged = merge(partials(files, tmp_path / "parts"))
    assert_same(merged, files)
    assert merged.collectives()["members"].to_list() == ["0-1", "2-3"]


def test_a_pipeline_without_collectives(tmp_path):
    traces = []
    for rank in range(4):
        trace = rank_trace(rank, 4, offset=5e4 * (rank // 2))
        for event in trace["traceEvents"]:
            event["name"] = event["name"].replace("AllReduce_Sum_f32_RING_LL", "SendRecv")
            if "Collective name" in event["args"]:
                event["args"]["Collective name"] = "send" if rank % 2 == 0 else "recv"
        traces.append(trace)
    files = of_job(tmp_path, traces)
    merged = merge(partials(files, tmp_path / "parts"))
    assert_same(merged, files)
    assert merged.clocks()["method"].to_list() == ["reference", "not aligned"]
    assert merged.stragglers().is_empty()


def test_the_order_of_adding_changes_nothing(tmp_path, monkeypatch):
    files = rank_files(tmp_path, 7)
    made = partials(files, tmp_path / "parts")
    monkeypatch.setattr("opscope.scale.joined.BATCH", 2)
    assert_same(merge(made), files)


@pytest.mark.parametrize("name", REAL)
def test_of_real_traces_in_pieces(name, shared, tmp_path, small_pieces):
    test_of_real_traces(name, shared, tmp_path)


@pytest.mark.parametrize(
    "of",
    [
        test_hosts_whose_clocks_are_50_ms_apart,
        test_sibling_groups_of_one_name,
        test_a_pipeline_without_collectives,
    ],
)
def test_of_unlike_jobs_in_pieces(of, tmp_path, small_pieces):
    of(tmp_path)


def test_counts_that_begin_apart_in_pieces(tmp_path, small_pieces):
    """Without numbers collectives are counted, and rank 2 recorded the first three of them not."""
    traces = [rank_trace(rank, 4, slow=1) for rank in range(4)]
    for rank, trace in enumerate(traces):
        first: list[float] = []
        for event in trace["traceEvents"]:
            event["args"].pop("Seq", None)
            if "Collective name" in event["args"] and event["cat"] == "kernel":
                first.append(event["ts"])
        if rank == 2:
            after = sorted(first)[2]
            trace["traceEvents"] = [
                one for one in trace["traceEvents"] if one["ts"] > after or one["ph"] != "X"
            ]
    files = of_job(tmp_path, traces)
    merged = merge(partials(files, tmp_path / "parts"))
    assert_same(merged, files)
    numbers = merged.of(exchanges).group_by("process").agg(pl.col("number").min()).sort("process")
    assert numbers["number"].to_list() == [0, 0, 3, 0]
    merged.save(tmp_path / "job.opscope")
    assert_same(opscope.load(tmp_path / "job.opscope"), files)


def test_a_merged_profile_is_saved_and_opened(tmp_path):
    files = rank_files(tmp_path, 3)
    merged = merge(partials(files, tmp_path / "parts"))
    merged.save(tmp_path / "job.opscope")
    opened = opscope.load(tmp_path / "job.opscope")
    assert repr(opened) == "<Profile merged from partials of 3 of 3 ranks>"
    assert_same(opened, files)
    opened.save(tmp_path / "again.opscope")
    assert_same(opscope.load(tmp_path / "again.opscope"), files)


def test_partials_of_a_saved_profile_equal_those_of_its_traces(tmp_path):
    files = rank_files(tmp_path, 2)
    saved = []
    for file in files:
        opscope.load(file).save(file.with_suffix(".opscope"))
        saved.append(file.with_suffix(".opscope"))
    assert_same(merge(partials(saved, tmp_path / "parts")), files)


# ------------------------------------------------------------------------- what is not there


LACKING = (
    "kernels", "ops", "memops", "efficiency", "idle_ops", "critical_path", "launches", "queue",
    "memory_curve", "memory_by_op", "call_tree", "modules", "operators", "input_waits", "cpu_samples",
    "bandwidth", "bandwidth_curve", "slow_steps", "iterations", "energy", "counters",
)  # fmt: skip


@pytest.mark.parametrize("name", LACKING)
def test_what_needs_events_is_refused_and_never_empty(name, tmp_path):
    merged = merge(partials(rank_files(tmp_path, 2), tmp_path / "parts"))
    with pytest.raises(
        NotMerged, match=r"made from partials, which hold no .*open the rank's own file"
    ):
        getattr(merged, name)()


def test_the_documentation_lists_each_report_that_is_not_merged_with_its_reason(tmp_path):
    merged = merge(partials(rank_files(tmp_path, 2), tmp_path / "parts"))
    reasons = {}
    for name, report in reports().items():
        try:
            report.frame(merged)
        except NotMerged:
            reasons[name] = why_not_merged(report)
    page = (Path(__file__).resolve().parents[2] / "docs" / "scale.md").read_text("utf-8")
    table = page.partition("**Not merged**")[2].partition("Most advice")[0]
    cells = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    listed = {
        name: why.strip().replace("`", "")
        for names, why in cells
        for name in re.findall(r"`(\w+)`", names)
    }
    assert listed == reasons


def test_every_other_method_answers_or_refuses(tmp_path):
    """No frame of a merged profile is empty because its events are not there."""
    files = rank_files(tmp_path, 2)
    merged = merge(partials(files, tmp_path / "parts"))
    loaded = opscope.load([str(one) for one in files])
    for name in dir(type(loaded)):
        method = getattr(type(loaded), name)
        if name.startswith("_") or not hasattr(method, "__wrapped__"):  # ``selectable`` methods
            continue
        try:
            found = getattr(merged, name)()
        except (NotMerged, TypeError):  # TypeError: it takes an argument
            continue
        wanted = getattr(loaded, name)()
        if isinstance(wanted, pl.DataFrame) and not name.startswith(("advice", "diagnosis")):
            assert len(found) == len(wanted), name


def test_a_selection_is_refused(tmp_path):
    merged = merge(partials(rank_files(tmp_path, 2), tmp_path / "parts"))
    assert merged.select() is merged
    with pytest.raises(NotMerged):
        merged.op_totals(rank=1)
    with pytest.raises(NotMerged):
        merged.groups(rank=1)


def test_advice_says_why_it_cannot_tell(tmp_path):
    merged = merge(partials(rank_files(tmp_path, 2), tmp_path / "parts"))
    said = merged.advice().filter(pl.col("detector") == "slow_gemms").row(0, named=True)
    assert "made from partials" in str(said.values())


# ------------------------------------------------------------------------- which ranks


def test_missing_ranks_are_named(tmp_path):
    files = rank_files(tmp_path, 4)
    merged = merge(partials([files[0], files[2], files[3]], tmp_path / "parts"))
    assert merged.manifest["missing"] == [1]
    assert merged.merged_of == "3 of 4 ranks"
    said = {row["what"]: row["how_many"] for row in merged.notes().to_dicts()}
    assert said["missing ranks: 1"] == 1
    partial = [many for what, many in said.items() if what.startswith("collectives are partial")]
    assert partial == [4]  # one of each step
    (row,) = merged.collectives().rows(named=True)
    assert (row["size"], row["present"], row["calls"], row["partial"]) == (4, 3, 12, 4)
    assert_same(merged, [files[0], files[2], files[3]], without=("notes",))


def test_more_ranks_may_be_expected(tmp_path):
    merged = merge(partials(rank_files(tmp_path, 2), tmp_path / "parts"), expected=5)
    assert merged.manifest["missing"] == [2, 3, 4]


def test_files_may_be_expected_by_the_names_of_their_partials(tmp_path):
    files = rank_files(tmp_path, 3)
    made = partials(files[:2], tmp_path / "parts")
    names = [partial_name(str(one)) for one in files]
    merged = merge(made, expected=names)
    assert merged.manifest["missing_files"] == [names[2]]


def test_a_duplicate_rank_is_named(tmp_path):
    files = rank_files(tmp_path, 2)
    again = rank_trace(1, 2, slow=0)
    (tmp_path / "later.json").write_text(json.dumps(again))
    merged = merge(partials([*files, tmp_path / "later.json"], tmp_path / "parts"))
    assert merged.manifest["duplicates"] == [1]
    assert "several files are of one rank: 1" in merged.notes()["what"].to_list()


def test_the_same_file_twice_is_refused(tmp_path):
    files = rank_files(tmp_path, 2)
    made = partials(files, tmp_path / "parts")
    with pytest.raises(BadInput, match="it would count twice"):
        merge([*made, made[0]])
    copy = tmp_path / "copy.json"
    copy.write_text(files[0].read_text())
    with pytest.raises(BadInput, match=r"has the same content as .*it would count twice"):
        merge([*made, *partials([copy], tmp_path / "parts")])


def test_a_file_that_changed_leaves_two_partials_that_are_not_merged(tmp_path):
    files = rank_files(tmp_path, 2)
    partials(files, tmp_path / "parts")
    files[0].write_text(json.dumps(rank_trace(0, 2, slow=0)))
    write_partial(str(files[0]), tmp_path / "parts")
    with pytest.raises(BadInput, match=r"is of the same file .*it would count twice"):
        merge(tmp_path / "parts")


def test_files_with_and_without_a_gpu_are_refused(shared, tmp_path):
    files = [shared / "kineto/alexnet_cuda_sync_a100.json.gz"]
    files += [one for one in sorted((shared / "nsys").glob("*nogpu*")) if one.stat().st_size < 4e6]
    assert len(files) > 1
    with pytest.raises(BadInput, match="shows a GPU in use and other files show none"):
        merge(partials(files, tmp_path))


def test_files_that_record_different_things_are_noted(tmp_path):
    files = rank_files(tmp_path, 2)
    trace = rank_trace(1, 2)
    trace["traceEvents"] = [one for one in trace["traceEvents"] if one["cat"] == "kernel"]
    files[1].write_text(json.dumps(trace))
    merged = merge(partials(files, tmp_path / "parts"))
    assert any("record different things" in what for what in merged.notes()["what"])


# ------------------------------------------------------------------------- damage


def test_a_damaged_partial_is_left_out_and_named(tmp_path):
    made = partials(rank_files(tmp_path, 3), tmp_path / "parts")
    whole = Path(made[1]).read_bytes()
    Path(made[1]).write_bytes(whole[: len(whole) // 2])
    merged = merge(tmp_path / "parts")
    assert merged.merged_of == "2 of 3 ranks"
    assert [one["path"] for one in merged.manifest["failed"]] == [made[1]]
    with pytest.raises(BadInput, match="not a partial, or a damaged one"):
        merge(tmp_path / "parts", strict=True)


def test_any_bit_of_a_partial_may_be_damaged(tmp_path):
    made = partials(rank_files(tmp_path, 1), tmp_path / "parts")[0]
    whole = Path(made).read_bytes()
    wanted = packed.read(Path(made), made)
    for place in range(0, len(whole), max(1, len(whole) // 60)):
        Path(made).write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            found = packed.read(Path(made), made)
        except BadInput:
            continue
        assert found.about == wanted.about
        assert set(found.tables) == set(wanted.tables)
        assert all(frame.equals(wanted.tables[name]) for name, frame in found.tables.items())


@pytest.mark.parametrize("what", ["about", "kernel_sums", "digest", "order", "count"])
def test_an_edited_partial_is_left_out_and_named(tmp_path, what):
    """Its rows are all as this version writes them, and not those that were written."""
    made = partials(rank_files(tmp_path, 3), tmp_path / "parts")
    rows = pl.read_parquet(made[1])
    if what == "about":
        about = json.loads(rows["data"][0])
        about["summary"]["steps"] += 1
        changed = rows.with_columns(_at(rows, "data", 0, json.dumps(about).encode()))
    elif what == "kernel_sums":
        place = rows["name"].to_list().index("kernel_sums")
        frame = pl.read_ipc_stream(io.BytesIO(rows["data"][place]))
        frame = frame.with_columns(pl.col("total") + 1)
        changed = rows.with_columns(_at(rows, "data", place, packed._packed(frame)))
    elif what == "digest":
        changed = rows[:-1]
    elif what == "order":
        changed = pl.concat([rows[:1], rows[2:3], rows[1:2], rows[3:]])
    else:
        changed = rows.with_columns(_at(rows, "rows", 0, None))
    changed.write_parquet(made[1])
    merged = merge(tmp_path / "parts")
    assert merged.merged_of == "2 of 3 ranks"
    [lost] = merged.manifest["failed"]
    assert lost["path"] == made[1]
    assert "its digest differs" in lost["what"]
    with pytest.raises(BadInput, match="its digest differs"):
        merge(tmp_path / "parts", strict=True)


@pytest.mark.parametrize("place", [-1, 10_000])
def test_a_partial_with_lengths_that_cannot_be_is_left_out_and_named(tmp_path, place):
    """Whoever edits a partial may write its digest, too."""
    made = partials(rank_files(tmp_path, 2), tmp_path / "parts")
    rows = pl.read_parquet(made[1])
    index = rows["name"].to_list().index("kernel_lengths")
    frame = pl.read_ipc_stream(io.BytesIO(rows["data"][index]))
    frame = frame.with_columns(pl.lit(place).cast(frame.schema["place"]).alias("place"))
    changed = rows.with_columns(_at(rows, "data", index, packed._packed(frame)))
    names, counts, held = (changed[name].to_list() for name in ("name", "rows", "data"))
    digest = packed._digest(zip(names[:-1], counts[:-1], held[:-1], strict=True))
    changed.with_columns(_at(changed, "data", len(held) - 1, digest)).write_parquet(made[1])
    [lost] = merge(tmp_path / "parts").manifest["failed"]
    assert "kernel_lengths has impossible lengths" in lost["what"]


def _at(rows: pl.DataFrame, column: str, place: int, value: object) -> pl.Series:
    """The column with ``value`` in one place."""
    values = rows[column].to_list()
    values[place] = value
    return pl.Series(column, values, rows.schema[column])


def test_a_partial_of_another_analysis_is_refused(tmp_path, monkeypatch):
    files = rank_files(tmp_path, 2)
    with monkeypatch.context() as patched:
        patched.setattr(packed, "ANALYSIS", packed.ANALYSIS - 1)
        partials(files[:1], tmp_path / "parts")
    partials(files[1:], tmp_path / "parts")
    with pytest.raises(BadInput, match=r"made by opscope .*make it again with this version"):
        merge(tmp_path / "parts")


def test_a_job_that_another_version_merged_is_refused(tmp_path):
    merge(partials(rank_files(tmp_path, 1), tmp_path / "parts")).save(tmp_path / "job.opscope")
    meta = tmp_path / "job.opscope" / "meta.json"
    told = json.loads(meta.read_text())
    told["meta"]["analysis"] -= 1
    meta.write_text(json.dumps(told))
    with pytest.raises(BadInput, match="a merge cannot be computed anew"):
        opscope.load(tmp_path / "job.opscope")


def test_a_folder_without_partials_is_an_error(tmp_path):
    with pytest.raises(BadInput, match="no partials here"):
        merge(tmp_path)
    with pytest.raises(BadInput, match="No such file"):
        merge(tmp_path / "nothing")


def test_a_file_that_is_no_partial_is_an_error(tmp_path):
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "x.partial.parquet")
    with pytest.raises(BadInput, match="not a partial"):
        merge(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("summary", {}), ("summary", {"steps": "1"}), ("present", "kernels"), ("origin", []),
        ("summary", {"device_time": -1}), ("origin", {"failed": [{"path": 1}]}), ("origin", {"files": "two"}), ("missing_of", {"all": 1.5}),
        ("missing_of", {"all": 1}),
        ("source", {}), ("ranges", None), ("calls", [1]), ("cpu_only", "no"), ("content", 3),
    ],
)  # fmt: skip
def test_facts_of_a_partial_that_nobody_writes_are_refused(tmp_path, name, value):
    (made,) = partials(rank_files(tmp_path, 1), tmp_path / "parts")
    rows = pl.read_parquet(made)
    about = json.loads(rows["data"][0]) | {name: value}
    forged = rows.with_columns(_at(rows, "data", 0, json.dumps(about).encode()))
    digest = packed._digest(forged[:-1].rows())
    forged.with_columns(_at(forged, "data", -1, digest)).write_parquet(made)
    with pytest.raises(BadInput, match=r"damaged: (?!its content)"):
        merge(tmp_path / "parts")


@pytest.mark.parametrize("how", ["lacks", "other columns", "unknown", "far number", "gaps"])
def test_tables_of_a_partial_that_nobody_writes_are_refused(tmp_path, how):
    (made,) = partials(rank_files(tmp_path, 1), tmp_path / "parts")
    held = packed.read(Path(made), "x")
    tables = dict(held.tables)
    if how == "lacks":
        del tables["exchanges"]
    elif how == "other columns":
        tables["kernel_sums"] = tables["kernel_sums"].drop("calls")
    elif how == "unknown":
        tables["more"] = tables["kernel_sums"]
    else:
        name = "step_table" if how == "far number" else "trace.processes"
        far = pl.lit(2_000_000_000, pl.Int32).alias("process")
        tables[name] = tables[name].with_columns(far)
    packed.write(Path(made), held.about, tables)
    with pytest.raises(BadInput, match=r"damaged: (?!its content)"):
        merge(tmp_path / "parts")


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("devices", "busy", None), ("devices", "busy", -5), ("device_spans", "length", 2**62),
        ("bounds", "start", None), ("bounds", "end", -(2**62)), ("kernel_sums", "total", None),
        ("trace.notes", "severity", None),
    ],
)  # fmt: skip
def test_values_of_a_partial_that_nobody_writes_are_refused(tmp_path, table, column, value):
    (made,) = partials(rank_files(tmp_path, 1), tmp_path / "parts")
    held = packed.read(Path(made), "x")
    frame = held.tables.get(table)
    if frame is None:
        frame = pl.DataFrame({"severity": ["info"], "what": ["x"], "how_many": [1]})
    changed = pl.lit(value, frame.schema[column]).alias(column)
    packed.write(Path(made), held.about, {**held.tables, table: frame.with_columns(changed)})
    with pytest.raises(BadInput, match="damaged: table"):
        merge(tmp_path / "parts")


def test_a_job_without_steps_has_its_first_screen(tmp_path):
    """Of a profile without steps the screen asks which directions there are, which are texts after a merge."""
    for file in rank_files(tmp_path, 2):
        told = json.loads(file.read_text())
        told["traceEvents"] = [
            one for one in told["traceEvents"] if not one["name"].startswith("ProfilerStep")
        ]
        file.write_text(json.dumps(told))
        write_partial(str(file), tmp_path / "parts")
    titles = [one.title for one in console.first_screen(merge(tmp_path / "parts"))]
    assert "Summary of 2 of 2 ranks" in titles


def test_the_first_screen_of_traces_without_a_named_device_has_its_summary(shared, tmp_path):
    """The vendor's words then hang on the names of calls, which a merge has no table of."""
    files = [shared / one for one in REAL["two ranks of 128"]]
    merged = merge(partials(files, tmp_path))
    loaded = opscope.load(files)
    assert merged.call_names == loaded.call_names != []
    assert vendor(merged) == vendor(loaded)
    titles = [table.title for table in console.first_screen(merged)]
    assert titles[0] == "Diagnosis"
    assert titles[1].startswith("Wall time of rank 0")
    assert titles[2] == "Summary of 2 of 128 ranks"
    assert len(titles) > 3
