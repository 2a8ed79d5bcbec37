"""``--iter-start``, ``--iter-stop``, ``--device``, ``--rank``, ``--layer``, ``--range``."""

from __future__ import annotations

import json

import pytest

from opscope.cli import start as application


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the command line in this process; returns the exit code, stdout and stderr."""

    def call(*args):
        monkeypatch.setattr("sys.argv", ["opscope", *map(str, args)])
        status = application.run()
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.mark.parametrize("spelling", ["--iter-start", "--iter_start"])
def test_steps_select_in_every_command(run, saved, spelling) -> None:
    for command in (["report", "--reports", "kernel"], ["kernels"], ["ops"]):
        status, out, _ = run(*command, saved, spelling, 1, "--iter-stop", 1, "--json")
        assert status == 0
        found = json.loads(out)
        rows = found["kernel"] if command[0] == "report" else found
        assert {row["calls"] for row in rows} == {1}


def test_the_summary_says_what_was_selected(run, saved) -> None:
    status, out, _ = run("report", saved, "--layer", "Net.layers.1", "--device", 0)
    assert status == 0
    assert "device 0, layer Net.layers.1" in out


def test_values_may_be_given_several_times(run, saved) -> None:
    status, out, _ = run(
        "ops", saved, "--layer", "Net.layers.0", "--layer", "Net.layers.1", "--each", "--json"
    )
    assert status == 0
    assert {row["layer"] for row in json.loads(out)} == {"Net.layers.0", "Net.layers.1"}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--iter-start", 9], "the trace has steps 0 to 1"),
        (["--device", 3], "the trace has device 0"),
        (["--rank", 1], "the trace has no ranks"),
        (["--layer", "Net.layer.1"], "did you mean"),
        (["--range", "warmup"], "the trace has no ranges"),
    ],
)
def test_what_is_not_there_is_one_line_and_exit_code_2(run, saved, options, what) -> None:
    status, out, err = run("report", saved, *options)
    assert (status, out) == (2, "")
    assert what in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("spelling", ["--key-node", "--key_node", "--key-op", "--key_op"])
def test_a_key_node_gives_every_command_its_iterations(run, saved, spelling) -> None:
    key = [spelling, "aten::relu", "--iter-start", 1, "--iter_stop", 1, "--json"]
    for command in (["report", "--reports", "kernel"], ["kernels"], ["ops"]):
        status, out, err = run(*command, saved, *key)
        assert status == 0, err
        found = json.loads(out)
        assert (found["kernel"] if command[0] == "report" else found) != []
    status, out, _ = run("report", saved, "--reports", "steps", spelling, "aten::relu", "--json")
    assert [row["step"] for row in json.loads(out)["steps"]] == [0, 1]


def test_an_unknown_key_node_is_one_line_and_exit_code_2(run, saved) -> None:
    status, out, err = run("ops", saved, "--key-op", "aten::rellu")
    assert (status, out) == (2, "")
    assert "did you mean aten::relu" in err
