"""``opscope diff``: what it prints, its exit codes, and that names of the profile do no harm."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from opscope.cli.app import app
from opscope.profile import Profile
from opscope.readers.errors import BadInput

MEAN = "aten::mm|`@everyone`<b>"


@pytest.fixture
def runs(trace_of, tmp_path):
    """Two saved runs of four steps; in the second the kernels of one op take twice as long."""

    def saved(name, factor):
        where = {"process": 0, "thread": 1, "end_thread": 1, "kind": "pushpop"}
        ranges, calls, kernels = [], [], []
        for step in range(4):
            at = step * 1_000_000
            ranges.append(
                {
                    **where,
                    "domain": "opscope.step",
                    "category": "step",
                    "text": f"step {step}",
                    "start": at,
                    "end": at + 900_000,
                }
            )
            for place, (op, lasts) in enumerate(
                (("aten::mm", 100_000 * factor), (f'"{MEAN}"', 50_000))
            ):
                begin, number = at + 10_000 + 400_000 * place, step * 2 + place
                ranges.append(
                    {
                        **where,
                        "domain": "opscope.torch",
                        "category": "forward",
                        "text": f"{op}(f32[8,8])",
                        "start": begin,
                        "end": begin + 5_000,
                    }
                )
                calls.append(
                    {
                        "process": 0,
                        "thread": 1,
                        "name": "cudaLaunchKernel",
                        "start": begin + 1_000,
                        "end": begin + 2_000,
                        "correlation": number,
                    }
                )
                kernels.append(
                    {
                        "process": 0,
                        "device": 0,
                        "stream": 7,
                        "name": "gemm",
                        "start": begin + 3_000,
                        "end": begin + 3_000 + lasts + step,
                        "correlation": number,
                    }
                )
        path = tmp_path / name
        Profile(trace_of(ranges=ranges, calls=calls, kernels=kernels)).save(path)
        return str(path)

    return saved("a.opscope", 1), saved("b.opscope", 2)  # fmt: skip


def asked(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["diff", *words])
    if isinstance(result.exception, BadInput):
        return 2, "", str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_the_tables_tell_what_changed_first(runs):
    status, out, _ = asked(*runs)
    assert status == 0
    assert "Most of it" not in out.splitlines()[0], "the steps take equally long"
    assert "What explains the difference of a step" in out
    ops = out[out.index("Ops that changed") :].splitlines()
    assert "aten::mm" in ops[2]
    assert "slower" in ops[2]
    assert "1 other did not change by more than the noise" in out


def test_a_run_and_itself_are_said_not_to_differ(runs):
    status, out, _ = asked(runs[0], runs[0], "--fail-on", "step>0%", "--fail-on", "op:*>0ns")
    assert status == 0
    assert "nothing changed" in out.splitlines()[0]
    assert "Ops that changed" not in out


@pytest.mark.parametrize(
    ("limits", "status"),
    [(["op:aten::mm>50%"], 1), (["op:aten::mm>150%"], 0), (["step>3%"], 0), (["part:kernels>1us"], 1),
     (["step>3%", "op:aten::mm>90us"], 1), (["op:no>3%"], 2), (["step>3"], 2), (["soup>3%"], 2)],
)  # fmt: skip
def test_a_limit_that_is_exceeded_is_one_line_and_exit_code_1(runs, limits, status):
    words = [word for limit in limits for word in ("--fail-on", limit)]
    found, out, err = asked(*runs, *words)
    assert found == status
    if status:
        assert len(err.strip().splitlines()) == 1
        assert err.startswith("opscope: ")
    if status == 1:
        assert limits[-1] in err
        assert "What explains" in out, "the tables come nonetheless"


def test_json_has_everything_and_adds_up(runs):
    status, out, _ = asked(*runs, "--json", "--fail-on", "op:aten::mm>50%")
    assert status == 1
    found = json.loads(out)
    for table in ("parts", "causes"):
        assert sum(row["change"] or 0 for row in found[table]) == found["step"]["change"]
        assert sum(row["a"] or 0 for row in found[table]) == found["step"]["a"]
    assert found["ops"][0]["op"] == "aten::mm"
    assert found["limits"][0]["exceeded"] is True
    assert {"runs", "kernels", "notes", "headline"} < set(found)


def test_csv_is_one_table(runs):
    for words, head in ((["--csv"], "part"), (["--csv", "--table", "op"], "op")):
        status, out, _ = asked(*runs, *words)
        assert status == 0
        rows = list(csv.DictReader(io.StringIO(out)))
        assert next(iter(rows[0])) == head
    status, out, _ = asked(*runs, "--table", "op", "--top", "1")
    assert "aten::mm" in out
    assert "What explains" not in out


def test_markdown_shows_names_as_they_are(runs):
    status, out, _ = asked(*runs[::-1], "--markdown", "--fail-on", "step>3%")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("**")
    assert "- kept: step&gt;3%" in out
    assert "<details><summary>Ops that changed, by shape and layer</summary>" in out
    for line in lines:
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") in range(4, 24)
    status, out, _ = asked(*runs, "--markdown", "--top", "0")
    assert "@everyone" not in out.replace("`aten::mm\\|'@everyone'<b>`", "")


def test_what_cannot_be_done_is_refused(runs, tmp_path):
    assert asked(*runs, "--csv", "--json")[0] == 2
    assert asked(*runs, "--table", "ops")[0] == 2
    assert asked(*runs, "--json", "--table", "op")[0] == 2
    assert asked(runs[0], str(tmp_path / "nothing"))[0] == 2
    assert asked(*runs, "--iter-start", "77")[0] == 2


def test_several_files_a_side_are_a_folder_or_a_pattern(shared, tmp_path):
    files = [shared / f"kineto/sampled_rank{number}.json.gz" for number in (0, 1)]
    if not all(file.exists() for file in files):
        pytest.skip("the traces are not here")
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        for file in files:
            shutil.copy(file, tmp_path / side / file.name)
    (tmp_path / "b" / files[1].name).unlink()
    a, b = tmp_path / "a", tmp_path / "b"
    status, out, err = asked(str(a), f"{a}/sampled_rank*.json.gz", "--json")
    assert status == 0, err
    both = json.loads(out)["step"]
    status, out, err = asked(f"{a}/sampled_rank?.json.gz", str(b), "--json")
    assert status == 0, err
    uneven = json.loads(out)["step"]
    assert (both["steps_a"], both["steps_b"], both["change"]) == (uneven["steps_a"],) * 2 + (0,)
    assert uneven["steps_a"] == 2 * uneven["steps_b"] > 0


def test_steps_are_chosen_in_both(runs):
    _, out, _ = asked(*runs, "--json", "--iter-start", "1", "--iter-stop", "2")
    step = json.loads(out)["step"]
    assert (step["steps_a"], step["steps_b"]) == (2, 2)
    assert pl.DataFrame(json.loads(out)["parts"])["a"].sum() == step["a"]


def test_the_example_of_the_documentation_is_what_is_printed(shared, monkeypatch):
    page = (Path(__file__).resolve().parents[2] / "docs" / "diff.md").read_text("utf-8")
    block = page.split("```text\n$ opscope diff ", 1)[1].split("\n```", 1)[0]
    command, shown = block.split("\n", 1)
    monkeypatch.chdir(shared / "kineto")
    status, out, _ = asked(*command.split())
    assert status == 0
    assert out.strip() == shown.strip()
