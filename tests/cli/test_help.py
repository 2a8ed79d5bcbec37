"""The help of the commands: short, in groups, and with ``--help-all`` all of it; the list of the reports."""

from __future__ import annotations

import contextlib
import json
import re

import pytest
from typer.testing import CliRunner

from opscope.cli.app import _GROUPS, app
from opscope.cli.commands import KNOWN
from opscope.cli.grouped_help import COMMON, GROUPS, LINES, name
from opscope.core.question.registry import reports
from opscope.core.question.subjects import subject

#: Without DLProf's own switches, in DLProf's own help; of a command with commands of its own these.
OURS = [command for command in KNOWN if command not in ("dlprof", "baseline")]
OURS += [f"baseline {name}" for name in ("save", "list", "compare", "trend")]


def typed(*words: str) -> str:
    done = CliRunner().invoke(app, words, env={"COLUMNS": "80"}, prog_name="opscope")
    assert done.exit_code == 0, done.output
    return done.output


def options(command: str) -> list:
    """The options of a command."""
    from typer.main import get_command

    made = get_command(app)
    *outer, last = command.split()
    with contextlib.ExitStack() as contexts:
        context = contexts.enter_context(
            made.make_context("opscope", [command, "--help"], resilient_parsing=True)
        )
        for word in (*outer, last):
            made = made.get_command(context, word)
            inner = made.make_context(word, [], parent=context, resilient_parsing=True)
            context = contexts.enter_context(inner)
        return [each for each in made.get_params(context) if each.param_type_name == "option"]


@pytest.mark.parametrize("command", OURS)
def test_the_help_takes_40_lines_and_names_every_option(command):
    short = typed(*command.split(), "--help")
    assert len(short.splitlines()) <= LINES
    for option in options(command):
        assert name(option).removeprefix("--") in short.replace("-\n", "-"), name(option)


@pytest.mark.parametrize("command", ["", "baseline", *OURS])
def test_no_line_of_the_help_ends_within_a_phrase_or_names_types_of_python(command):
    usage, *lines = typed(*command.split(), "--help").splitlines()
    assert not [line for line in lines if line.endswith(("…", "...")) and line[-3:] != ", …"]
    assert not set("{}<") & set(usage)
    assert not [line for line in lines if re.search(r"<(list|str|int|path)|<=x|x>=", line)]


@pytest.mark.parametrize("command", OURS)
def test_the_whole_help_has_each_option_with_all_that_is_said_of_it(command):
    whole = " ".join(typed(*command.split(), "--help-all").split())
    for option in options(command):
        for spelling in option.opts:
            assert spelling in whole
        for word in str(option.help).partition("{")[0].split()[:4]:
            assert word in whole


@pytest.mark.parametrize("command", OURS)
def test_every_option_has_a_group(command):
    grouped = {flag for flags in GROUPS.values() for flag in flags.split()} | {
        "--help",
        "--help-all",
    }
    assert {name(option) for option in options(command)} <= grouped


def test_an_option_is_in_one_group_and_common_ones_exist():
    flags = [flag for flags in GROUPS.values() for flag in flags.split()]
    assert len(flags) == len(set(flags))
    every = {name(option) for command in OURS for option in options(command)}
    assert every >= COMMON
    assert set(flags) <= every


def test_every_command_of_opscope_has_a_group_in_the_help():
    named = [command for commands in _GROUPS.values() for command in commands.split()]
    assert sorted(named) == sorted(KNOWN)
    assert len(typed("--help").splitlines()) <= LINES


def test_the_list_of_reports_has_each_once_below_its_subject():
    rows = json.loads(typed("reports", "--json"))
    assert sorted(row["name"] for row in rows) == sorted(reports())
    assert {row["subject"] for row in rows} == {subject(name) for name in reports()}
    out = typed("reports", "-w", "0")
    for row in rows:
        assert f"\n{row['name']} " in out


def test_words_search_the_reports():
    names = [row["name"] for row in json.loads(typed("reports", "memory", "peak", "--json"))]
    assert "memory" in names
    assert "diagnosis" not in names
    assert "by_direction" in typed("reports", "direction")
    done = CliRunner().invoke(app, ["reports", "no", "such", "word"])
    assert done.exit_code == 2
