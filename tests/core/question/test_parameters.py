"""Parameters of questions: values as Python has them and as a command's text has them, and what is refused."""

from __future__ import annotations

import re

import pytest

from opscope.core.question import parameters
from opscope.core.question.parameters import WrongParameter, value_of
from opscope.core.question.registry import chosen, question


@pytest.mark.parametrize(
    ("given", "ns"),
    [
        (5, 5),
        ("5", 5),
        ("5ns", 5),
        ("5us", 5_000),
        (" 5 µs ", 5_000),
        ("1.5ms", 1_500_000),
        ("0.25s", 250_000_000),
    ],
)
def test_a_time_is_in_nanoseconds_or_has_its_unit(given, ns):
    assert parameters.duration("a time").read(given) == ns


@pytest.mark.parametrize(
    "given", ["5parsec", "", "-5us", "1e3", "us", "5" * 13, 5.0, True, None, "٥us"]
)
def test_what_is_no_time_is_refused(given):
    with pytest.raises(
        WrongParameter, match=re.escape(f"below: a time such as 5us or 1.5ms, not {given!r}")
    ):
        value_of("below", parameters.duration("a time"), given)


def test_a_time_has_a_least():
    with pytest.raises(WrongParameter, match="below: must be at least 10 ns, not '9ns'"):
        value_of("below", parameters.duration("a time", least=10), "9ns")


@pytest.mark.parametrize("ns", [0, 1, 999, 1_000, 10_000, 1_500_000, 3_000_000_000])
def test_a_time_that_is_written_is_read_again(ns):
    parameter = parameters.duration("a time")
    assert parameter.read(parameter.written(ns)) == ns


def test_a_count_has_bounds():
    depth = parameters.count("levels", least=1, most=1_000)
    assert [depth.read(given) for given in (1, "1", 1_000, " 1000 ")] == [1, 1, 1_000, 1_000]
    for given in (0, "0", 1_001):
        with pytest.raises(ValueError, match="must be from 1 to 1,000, not"):
            depth.read(given)
    for given in ("many", 1.0, True, None, "-1", ""):
        with pytest.raises(ValueError, match="a whole number, not"):
            depth.read(given)
    assert depth.accepts == "a whole number, from 1 to 1,000"


def test_a_count_without_a_bound_may_be_none():
    depth = parameters.count("levels", least=1, optional=True)
    assert [depth.read(given) for given in (None, "", 7)] == [None, None, 7]
    with pytest.raises(ValueError, match="must be at least 1, not 0"):
        depth.read(0)


def test_a_choice_names_the_nearest():
    by = parameters.choice("what a row is", ("device", "stream"))
    assert by.read("stream") == "stream"
    with pytest.raises(ValueError, match=r"no value named 'steam'; did you mean 'stream'\?"):
        by.read("steam")
    with pytest.raises(ValueError, match="no value named '7'; choose from: device, stream"):
        by.read(7)


def test_a_text_a_switch_and_words():
    assert [parameters.text("a").read(given) for given in ("x", None)] == ["x", None]
    with pytest.raises(ValueError, match="a text, not 3"):
        parameters.text("a").read(3)
    assert [parameters.switch("a").read(given) for given in ("yes", "no", True, False)] == [
        True, False, True, False,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="yes or no, not 'perhaps'"):
        parameters.switch("a").read("perhaps")
    words = parameters.words("a")
    assert [words.read(given) for given in ("a+b", ["a", "b"], None)] == [
        ("a", "b"),
        ("a", "b"),
        None,
    ]
    assert words.written(("a", "b")) == "a+b"
    with pytest.raises(ValueError, match="texts, not 3"):
        words.read(3)
    with pytest.raises(ValueError, match="can be given in Python only"):
        parameters.value("a").read("x")


def test_a_long_wrong_value_is_not_repeated_in_full():
    with pytest.raises(WrongParameter) as raised:
        value_of("below", parameters.duration("a time"), "x" * 10_000)
    assert len(str(raised.value)) < 200


# --------------------------------------------------------------------------------- reports with parameters


def test_a_report_is_asked_with_parameters_given_as_text():
    reports = chosen(["operators:by=inputs+source", "short-kernels:below=5us"])
    assert list(reports) == ["operators", "short_kernels"]
    assert reports["operators"].asked == {"by": ("inputs", "source")}
    assert reports["short_kernels"].asked == {"below": 5_000}
    assert reports["short_kernels"].heading == "Short kernels (less than 5 µs)"
    assert "less than 5 µs" in reports["short_kernels"].no_rows
    (idle,) = chosen(["idle:by=stream:kernel_wait=50us"]).values()
    assert idle.asked == {"by": "stream", "kernel_wait": 50_000}


def test_a_report_asked_as_another_is_shown_as_that_one():
    (idle,) = chosen(["idle:by=stream"]).values()
    (stream,) = chosen(["idle_stream"]).values()
    assert idle.name == "idle"
    assert (idle.heading, idle.shown, idle.holds) == (stream.heading, stream.shown, stream.holds)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("short_kernels:belw=5us", "short_kernels: no parameter named 'belw'; did you mean 'below'?"),
        ("short_kernels:below=soon", "below: a time such as 5us or 1.5ms, not 'soon'"),
        ("short_kernels:below", "short_kernels:below: a parameter is NAME=VALUE"),
        ("summary:top=3", "summary takes no parameters, so no 'top'"),
        ("short_kernels:below=5us:below=6us", "short_kernels: below is given twice, with different values"),
        ("modules:depth=0", "depth: must be at least 1, not 0"),
        ("by_op:layers=x", "layers: can be given in Python only"),
    ],
)  # fmt: skip
def test_a_wrong_parameter_of_a_report_is_named(text, complaint):
    with pytest.raises(WrongParameter, match=re.escape(complaint)):
        chosen([text])


def test_a_report_is_asked_for_twice_only_with_the_same_parameters():
    assert list(chosen(["short_kernels:below=5us", "short_kernels:below=5000"])) == [
        "short_kernels"
    ]
    with pytest.raises(WrongParameter, match="short_kernels is asked for twice, with different"):
        chosen(["short_kernels:below=5us", "short_kernels:below=6us"])


def test_arguments_of_a_question_are_bound_as_those_of_a_function():
    short = question("short_kernels")
    assert short.bound((), {}) == {"below": 10_000}
    assert short.bound(("5us",), {}) == {"below": 5_000}
    with pytest.raises(TypeError, match="unexpected keyword argument 'belw'"):
        short.bound((), {"belw": 5})
    with pytest.raises(TypeError, match="too many positional arguments"):
        short.bound((1, 2), {})
    with pytest.raises(WrongParameter, match="below: a time"):
        short.bound((), {"below": None})
