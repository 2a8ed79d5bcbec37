"""Profiles on disk: what is written is read, whole or not at all, and nothing is read before it is asked for."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.core.schema import TABLES
from opscope.core.tables.trace import Trace, concat
from opscope.readers import BadInput
from opscope.readers.profile import profile_folder, profile_writing


def trace(rank: int = 0, rows: int = 5) -> Trace:
    text = pl.Series([f"aten::op{n % 3}()" for n in range(rows)], dtype=pl.Categorical)
    return Trace.of(
        {
            "processes": pl.DataFrame({"process": [0], "pid": [70 + rank], "rank": [rank]}),
            "ranges": pl.DataFrame(
                {
                    "id": range(rows),
                    "process": [0] * rows,
                    "start": [2**60 + n for n in range(rows)],
                    "end": [2**60 + n + 1 for n in range(rows)],
                    "text": text,
                    "seq": [None if n % 2 else n for n in range(rows)],
                    "attrs": ['{"a": "é\\n"}'] * rows,
                }
            ),
            "kernels": pl.DataFrame(schema={"process": pl.Int32}),
        },
        {"format": "kineto", "paths": ["x"]},
    )


def same(left: Trace, right: Trace) -> bool:
    return left.present == right.present and all(
        left[name].schema == right[name].schema and left[name].equals(right[name])
        for name in TABLES
    )


def test_everything_comes_back(tmp_path: Path) -> None:
    extra = {
        "launched": pl.DataFrame(
            {"op": [1, 2, None], "why": pl.Series(["a", "b", "a"], dtype=pl.Categorical)}
        )
    }
    profile_writing.write(tmp_path / "p.opscope", trace(), extra, {"device": "H100"})
    found, others, meta = profile_folder.read(tmp_path / "p.opscope")
    assert same(found, trace())
    assert found.has("kernels")
    assert not found.has("memops")
    assert found.origin == {"format": "kineto", "paths": ["x"]}
    assert others["launched"].equals(extra["launched"])
    assert meta == {"device": "H100"}
    assert same(found.replace(kernels=found["kernels"]), trace())
    assert len(concat([found, found])["ranges"]) == 10
    found.note("info", "what", 3)
    assert found["notes"].rows() == [("info", "what", 3)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_ranks_have_files_of_their_own_and_rows_keep_their_order(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    whole = concat(trace(rank, 3 + rank) for rank in order)
    profile_writing.write(tmp_path / "p", whole)
    assert len(list((tmp_path / "p" / "ranges").iterdir())) == 3
    assert same(profile_folder.read(tmp_path / "p")[0], whole)


def test_rows_of_ranks_in_turn_keep_their_order(tmp_path: Path) -> None:
    whole = concat([trace(0, 4), trace(1, 4)])
    mixed = whole.replace(
        ranges=whole["ranges"].gather_every(1).sample(fraction=1, shuffle=True, seed=1)
    )
    profile_writing.write(tmp_path / "p", mixed)
    assert same(profile_folder.read(tmp_path / "p")[0], mixed)


def test_tables_are_read_when_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile_writing.write(tmp_path / "p", trace())
    read = pl.read_parquet
    asked: list[str] = []
    monkeypatch.setattr(
        pl, "read_parquet", lambda file, **how: asked.append(file.name) or read(file, **how)
    )
    found = profile_folder.read(tmp_path / "p")[0]
    assert found.has("ranges")
    assert asked == []
    assert len(found["ranges"]) == len(found["ranges"]) == 5
    assert asked == ["ranges.parquet"]
    assert profile_folder.scan(tmp_path / "p", "ranges").select(pl.len()).collect().item() == 5
    assert profile_folder.scan(tmp_path / "p", "kernels").collect().is_empty()
    with pytest.raises(KeyError):
        profile_folder.scan(tmp_path / "p", "memops")


def test_an_existing_file_or_profile_is_kept_unless_forced(tmp_path: Path) -> None:
    place = tmp_path / "p.opscope"
    profile_writing.write(place, trace())
    with pytest.raises(FileExistsError, match="exists"):
        profile_writing.write(place, trace(rows=7))
    assert same(profile_folder.read(place)[0], trace())
    profile_writing.write(place, trace(rows=7), force=True)
    assert same(profile_folder.read(place)[0], trace(rows=7))
    mine = tmp_path / "thesis"
    mine.mkdir()
    (mine / "chapter1").write_text("…")
    for force in (False, True):
        with pytest.raises(FileExistsError):
            profile_writing.write(mine, trace(), force=force)
    assert (mine / "chapter1").read_text() == "…"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.opscope", "thesis"]


@pytest.mark.parametrize("existing", [False, True])
def test_a_failure_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: bool
) -> None:
    place = tmp_path / "p"
    if existing:
        profile_writing.write(place, trace(rows=7))

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", fail)
    with pytest.raises(OSError, match="no space"):
        profile_writing.write(place, trace(), force=True)
    assert [p.name for p in tmp_path.iterdir()] == (["p"] if existing else [])
    if existing:
        assert same(profile_folder.read(place)[0], trace(rows=7))


def test_secrets_and_environment_stay_behind(tmp_path: Path) -> None:
    private = trace()
    private.origin.update(
        command=["train.py", "--token=hunter2"],
        environment={"TOKEN": "hunter2"},
        deep={"env": "hunter2"},
    )
    profile_writing.write(tmp_path / "p", private)
    assert "hunter2" not in (tmp_path / "p" / "meta.json").read_text()
    assert profile_folder.read(tmp_path / "p")[0].origin["command"][0] == "train.py"


def test_names_of_extra_tables_are_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a valid table name"):
        profile_writing.write(tmp_path / "p", trace(), {"../x": pl.DataFrame()})
    assert list(tmp_path.iterdir()) == []


def change(place: Path, **keys: object) -> None:
    file = place / "meta.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"version": 2}, "newer opscope"),
        ({"version": "1"}, "does not belong to a profile"),
        ({"version": -1}, "does not belong to a profile"),
        ({"format": "other"}, "does not belong to a profile"),
        ({"tables": {"ranges": {"files": ["../../etc/passwd.parquet"]}}}, "does not list"),
        ({"tables": {"ranges": {"files": ["/etc/x.parquet"]}}}, "does not list"),
        ({"tables": {"ranges": 5}}, "does not list"),
        ({"tables": {"ranges": {"files": ["other.parquet"]}}}, "other.parquet is missing"),
    ],
)
def test_meta_that_is_wrong_is_refused(tmp_path: Path, keys: dict, complaint: str) -> None:
    profile_writing.write(tmp_path / "p", trace())
    change(tmp_path / "p", **keys)
    with pytest.raises(BadInput, match=complaint):
        profile_folder.read(tmp_path / "p")


def test_later_additions_are_ignored_and_absent_columns_null(tmp_path: Path) -> None:
    place = tmp_path / "p"
    profile_writing.write(place, trace())
    frame = pl.read_parquet(place / "ranges.parquet").drop("seq").with_columns(new=pl.lit(1))
    frame.write_parquet(place / "ranges.parquet")
    head = json.loads((place / "meta.json").read_text())
    change(place, tables={**head["tables"], "later": {"files": []}}, something=1)
    found = profile_folder.read(place)[0]
    assert found["ranges"].schema == trace()["ranges"].schema
    assert found["ranges"]["seq"].null_count() == 5


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_file_is_named(tmp_path: Path, seed: int) -> None:
    place = tmp_path / "p"
    profile_writing.write(place, trace(rows=50))
    rng = random.Random(seed)
    file = place / rng.choice(["meta.json", "ranges.parquet", "processes.parquet"])
    data = bytearray(file.read_bytes())
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    file.write_bytes(bytes(data[: rng.randint(1, len(data))] if seed % 2 else data))
    try:
        found = profile_folder.read(place)[0]
        for name in TABLES:
            assert found[name].schema == trace()[name].schema
    except BadInput as error:
        assert str(error).startswith(f"{place}: ")  # noqa: PT017 - either outcome is right
        assert "\n" not in str(error)  # noqa: PT017


def test_rows_that_are_not_those_of_the_meta_are_told(tmp_path: Path) -> None:
    place = tmp_path / "p"
    profile_writing.write(place, trace(), {"about": pl.DataFrame({"x": [1, 2]})})
    for name in ("ranges", "extra.about"):
        pl.read_parquet(place / f"{name}.parquet").head(1).write_parquet(place / f"{name}.parquet")
    found, extra, _ = profile_folder.read(place)
    with pytest.raises(BadInput, match=r"p: table ranges has 1 rows, but meta.json says 5"):
        found["ranges"]
    with pytest.raises(BadInput, match=r"table about has 1 rows, but meta.json says 2"):
        extra["about"]


def test_a_column_with_more_rows_than_those_of_the_meta_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "p"
    profile_writing.write(place, trace())
    rows = pl.read_parquet(place / "ranges.parquet")
    pl.concat([rows, rows]).write_parquet(place / "ranges.parquet")
    found, _, _ = profile_folder.read(place)
    with pytest.raises(BadInput, match=r"p: table ranges has 10 rows, but meta.json says 5"):
        found.tables.narrowed({"ranges": ("start",)}, None).numbers("ranges", "start")


@pytest.mark.parametrize("column", ["start", "end"])
def test_times_that_are_not_there_are_told(tmp_path: Path, column: str) -> None:
    place = tmp_path / "p"
    profile_writing.write(place, trace())
    pl.read_parquet(place / "ranges.parquet").drop(column).write_parquet(place / "ranges.parquet")
    with pytest.raises(BadInput, match="5 rows of ranges whose end is missing or before its start"):
        profile_folder.read(place)[0]["ranges"]


def test_a_bomb_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    place = tmp_path / "p"
    profile_writing.write(place, trace())
    many = pl.repeat(7, 3_000_000, dtype=pl.Int64, eager=True)
    pl.DataFrame({"start": many, "end": many}).write_parquet(place / "ranges.parquet")
    assert (place / "ranges.parquet").stat().st_size < 100_000
    with pytest.raises(BadInput, match=r"ranges.parquet has 3000000 rows in"):
        profile_folder.read(place)[0]["ranges"]


def test_an_extra_table_may_come_in_pieces(tmp_path: Path) -> None:
    whole = pl.DataFrame({"x": range(7), "text": pl.Series(list("abcabca"), dtype=pl.Categorical)})
    for name, parts in {
        "none": [whole.clear()],
        "one": [whole],
        "more": [whole[:3], whole[3:]],
    }.items():
        profile_writing.write(tmp_path / name, trace(), {"about": iter(parts)})
        found = profile_folder.read(tmp_path / name)[1]["about"]
        assert found.equals(pl.concat(parts))
    assert (tmp_path / "more/extra.about/0001.parquet").is_file()


@pytest.mark.parametrize("name", ["ranges.parquet", "meta.json"])
def test_a_pipe_in_a_files_place_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    profile_writing.write(tmp_path / "p", trace())
    (tmp_path / "p" / name).unlink()
    os.mkfifo(tmp_path / "p" / name)
    with pytest.raises(BadInput, match="not a regular file"):
        profile_folder.read(tmp_path / "p")
    with pytest.raises(BadInput, match="not a regular file"):
        profile_folder.scan(tmp_path / "p", "ranges")


def test_a_time_out_of_range_is_refused_and_a_size_out_of_range_is_not_known(
    tmp_path: Path,
) -> None:
    copies = {"process": [0, 0], "start": [1, 2], "end": [5, 6], "bytes": [64, 2**62]}
    made = trace().replace(memops=pl.DataFrame(copies))
    profile_writing.write(tmp_path / "a.opscope", made)
    found = profile_folder.read(tmp_path / "a.opscope")[0]
    assert found["memops"]["bytes"].to_list() == [64, None]
    assert found["notes"]["what"].to_list() == ["values of memops.bytes out of range, read as null"]
    far = trace().replace(memops=pl.DataFrame({**copies, "end": [5, 2**62]}))
    profile_writing.write(tmp_path / "b.opscope", far)
    with pytest.raises(BadInput, match="1 rows of memops whose time is out of range"):
        profile_folder.read(tmp_path / "b.opscope")[0]["memops"]


def test_a_note_out_of_range_is_noted_and_read_once(tmp_path: Path) -> None:
    made = trace()
    made.note("info", "many", 5)
    profile_writing.write(tmp_path / "p.opscope", made)
    (file,) = (tmp_path / "p.opscope").rglob("notes*.parquet")
    notes = pl.read_parquet(file).with_columns(pl.lit(-7, pl.Int64).alias("how_many"))
    notes.write_parquet(file)
    found = profile_folder.read(tmp_path / "p.opscope")[0]["notes"]
    assert found["what"].to_list()[-1] == "values of notes.how_many out of range, read as null"
    assert found["how_many"].to_list()[0] is None


def test_a_time_of_our_own_below_zero_is_not_known(tmp_path: Path) -> None:
    costs = {"process": [0, 0], "part": ["ops", "writing"], "time": [-100, 7], "calls": [3, -1]}
    profile_writing.write(tmp_path / "a.opscope", trace().replace(own_costs=pl.DataFrame(costs)))
    found = opscope.load(tmp_path / "a.opscope")
    assert found.own_costs()["time"].to_list() == [None, 7]
    assert found.own_costs()["calls"].to_list() == [3, None]
    assert found.summary()["own_time"].item() == 7


def _with_results(folder: Path) -> Path:
    launched = pl.DataFrame({"op": [1, 2, None], "why": ["a", "b", "a"]})
    profile_writing.write(folder / "p.opscope", trace(), {"launched": launched}, {})
    return folder / "p.opscope"


def test_some_columns_of_a_stored_result_are_read_and_not_kept(tmp_path: Path) -> None:
    _, stored, _ = profile_folder.read(_with_results(tmp_path))
    assert isinstance(stored, profile_folder.Tables)
    part, held = stored.part("launched", ("op", "no such column"))
    assert part.to_dict(as_series=False) == {"op": [1, 2, None]}
    assert held == {"op", "why"}
    assert stored["launched"] is not stored["launched"]


def test_some_columns_of_a_result_that_lost_rows_are_refused(tmp_path: Path) -> None:
    path = _with_results(tmp_path)
    (file,) = path.rglob("*launched*.parquet")
    pl.read_parquet(file).head(1).write_parquet(file)
    _, stored, _ = profile_folder.read(path)
    assert isinstance(stored, profile_folder.Tables)
    with pytest.raises(BadInput, match="launched has 1 rows, but"):
        stored.part("launched", ("op",))


def test_columns_without_a_value_are_not_in_the_files_and_come_back(tmp_path: Path) -> None:
    profile_writing.write(tmp_path / "p", trace())
    stored = pl.read_parquet_schema(tmp_path / "p" / "ranges.parquet")
    assert set(stored) == {"id", "process", "start", "end", "text", "seq", "attrs"}
    found = profile_folder.read(tmp_path / "p")[0]
    part, held = found.tables.part("ranges", ["end_thread", "start", "fwd_thread"])  # type: ignore[attr-defined]
    assert held == set(TABLES["ranges"])
    assert part.select("end_thread", "start").equals(
        trace()["ranges"].select("end_thread", "start")
    )
    assert part.schema["fwd_thread"] == trace()["ranges"].schema["fwd_thread"]
    lazy = profile_folder.scan(tmp_path / "p", "ranges").select("start", "payload").collect()
    assert lazy.equals(trace()["ranges"].select("start", "payload"))
    assert same(found, trace())


def test_the_files_of_ranks_have_the_same_columns(tmp_path: Path) -> None:
    """A column that only one rank has values of is in the file of each."""
    one, other = trace(0), trace(1)
    other.tables["ranges"] = other["ranges"].with_columns(payload=pl.lit(7, pl.Int64))
    both = concat([one, other])
    profile_writing.write(tmp_path / "p", both)
    files = sorted((tmp_path / "p" / "ranges").iterdir())
    assert [set(pl.read_parquet_schema(file)) for file in files] == [
        {"id", "process", "start", "end", "text", "seq", "payload", "attrs"}
    ] * 2
    assert same(profile_folder.read(tmp_path / "p")[0], both)
    lazy = profile_folder.scan(tmp_path / "p", "ranges").select("payload").collect()
    assert lazy["payload"].equals(both["ranges"]["payload"])


def test_a_failure_while_an_extra_table_is_made_leaves_nothing_behind(tmp_path: Path) -> None:
    def table():
        yield pl.DataFrame({"a": [1]})
        raise ArithmeticError("made no further")

    with pytest.raises(ArithmeticError, match="made no further"):
        profile_writing.write(tmp_path / "p", trace(), {"one": table()})
    assert list(tmp_path.iterdir()) == []
