"""The grammar of DLProf's command line: what is a switch, a value, a list, and where the command begins."""

from __future__ import annotations

import contextlib
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.cli.dlprof.asked import Asked, asked
from opscope.cli.dlprof.grammar import Given, Usage, parse
from opscope.cli.dlprof.switches import BY_NAME, FILES, FORMATS, REPORTS, SWITCHES

TRAIN = ["python", "train.py"]


def read(line: str) -> Given:
    return parse(shlex.split(line))


def of(line: str) -> Asked:
    return asked(read(line))


# ------------------------------------------------------------------ values


@pytest.mark.parametrize(
    "line",
    [
        "--mode=pytorch --delay=10 python train.py",
        "--mode pytorch --delay 10 python train.py",
        "-m pytorch -y 10 python train.py",
        "-m=pytorch -y=10 python train.py",
        "-m pytorch -y10 python train.py",
        "--mode=pytorch --delay=10 -- python train.py",
        "--mode simple --mode pytorch --delay 1 -y 10 python train.py",  # the last one counts
    ],
)
def test_a_value_is_behind_an_equals_sign_or_the_next_word(line: str) -> None:
    found = read(line)
    assert found.values == {"mode": "pytorch", "delay": 10.0}
    assert found.command == TRAIN


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("-f true python train.py", True),
        ("-f=true python train.py", True),
        ("--force=True python train.py", True),
        ("--force false python train.py", False),
        ("--force python train.py", True),
        ("-f --mode=pytorch python train.py", True),
        ("-f -- python train.py", True),
    ],
)
def test_a_switch_of_true_or_false_may_stand_alone(line: str, value: bool) -> None:
    found = read(line)
    assert found.values["force"] is value
    assert found.command == TRAIN


@pytest.mark.parametrize(
    "line",
    [
        "--reports=summary,detail python train.py",
        "--reports summary,detail python train.py",
        "--reports summary detail -- python train.py",
        "--reports summary, detail -- python train.py",
        "--reports=summary detail -- python train.py",
        "--report summary detail --formats csv -- python train.py",
        "--reports summary detail -f true python train.py",
    ],
)
def test_a_list_is_one_word_with_commas_or_words_up_to_the_dashes(line: str) -> None:
    found = read(line)
    assert found.values["reports"] == ("summary", "detail")
    assert found.command == TRAIN


def test_a_list_of_one_is_followed_by_the_command() -> None:
    assert read("--reports summary python train.py").command == TRAIN
    assert read("--domains mine python train.py -- x").values["domains"] == (
        "mine", "python", "train.py",
    )  # fmt: skip
    assert read("--domains mine python -m torch").command == ["python", "-m", "torch"]
    assert read("--domains mine python -m torch").values["domains"] == ("mine",)


def test_a_list_whose_end_is_missing_is_told() -> None:
    with pytest.raises(Usage, match=r"detail reads as the command; .* ended by --"):
        read("--reports summary detail python train.py")


def test_options_of_nsys_are_one_quoted_word_or_words_up_to_the_dashes() -> None:
    one = read("--nsys_opts='-t cuda,osrt -s none' python train.py")
    words = read("--nsys_opts -t cuda,osrt -s none -- python train.py")
    spaced = read("--nsys_options '-t cuda,osrt -s none' --mode=simple -- python train.py")
    assert one.command == words.command == spaced.command == TRAIN
    assert asked(one).nsys == asked(words).nsys == asked(spaced).nsys
    assert asked(one).nsys.traces == ("osrt",)
    assert spaced.values["mode"] == "simple"


def test_the_words_of_the_command_are_its_own() -> None:
    line = "--mode=simple python train.py --mode=pytorch -f --reports summary -- --help -x"
    assert read(line).command == [
        *TRAIN, "--mode=pytorch", "-f", "--reports", "summary", "--", "--help", "-x",
    ]  # fmt: skip
    assert read("-- --odd").command == ["--odd"]


@given(st.lists(st.text(min_size=1), max_size=6))
def test_any_words_behind_the_dashes_are_the_command(words: list[str]) -> None:
    assert parse(["--mode=simple", "--", *["x", *words]]).command == ["x", *words]


@given(
    st.lists(
        st.sampled_from([*BY_NAME, "--", "-", "=", "--force=", "summary", "1", "-1", "--x=y", ""])
        | st.text(max_size=8),
        max_size=8,
    )
)
def test_any_line_is_read_or_refused_as_usage(words: list[str]) -> None:
    with contextlib.suppress(Usage):
        asked(parse(words))


# ------------------------------------------------------------------ what is wrong


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--modus=pytorch x", "no switch --modus; did you mean --mode?"),
        ("--nsys-opts=-t x", "no switch --nsys-opts; did you mean --nsys_opts?"),
        ("--iterstart 3 x", "did you mean --iter_start?"),
        ("-z x", "no switch -z"),
        ("-fast x", "no switch -fast"),
        ("--reports=sumary x", "--reports=sumary: choose from all, summary"),
        ("--reports=sumary x", "did you mean summary?"),
        ("--formats=xml x", "choose from csv, json, parquet"),
        ("--reports= x", "the list is empty"),
        ("--force=maybe x", "choose true or false"),
        ("--delay=soon x", "--delay=soon: give seconds"),
        ("--delay=-1 x", "give seconds, 0 or more"),
        ("--delay=inf x", "give seconds, 0 or more"),
        ("--iter_start=1.5 x", "the number of an iteration"),
        ("--iter_start=9 --iter_stop=3 x", "--iter_stop=3 is before --iter_start=9"),
        ("--mode=pytroch x", "did you mean 'pytorch'?"),
        ("--verbosity=loud x", "choose from quiet"),
        ("--profile_name=a/b x", "give a name without a folder"),
        ("--base_name=.. x", "give a name without a folder"),
        ("--help=all x", "the switch has no value"),
        ("--mode", "the value is missing"),
        ("--mode --force x", "the value is missing"),
        ("--mode=pytorch", "no command"),
        ("reports=detail file_formats=csv", "did you mean --reports=detail?"),
        ("--nsys_opts='train.py' x", "train.py is no option of nsys profile"),
        ("--nsys_opts='-t \"' x", "No closing quotation"),
        ("--nsys_opts='-y soon' x", "--delay=soon: give seconds"),
        ("--nsys_opts='-t CUDA;rm' x", "give names of sets"),
        ("--nsys_opts=--help x", "nsys profile --help"),
        ("--nsys_opts='-c cudaProfilerApi --capture-range-end=stop-shutdown' x", "choose stop"),
    ],
)
def test_a_wrong_word_is_named_with_what_would_be_right(line: str, told: str) -> None:
    with pytest.raises(Usage) as error:
        of(line)
    assert told in str(error.value)


# ------------------------------------------------------------------ what the switches mean


def test_every_switch_of_the_helps_of_dlprof_is_known() -> None:
    long = """force verbosity mode nsys_database database nsys_base_name nsys_base_output_filename nsys_opts
        nsys_options nsys_profile_range delay duration key_node key_op iter_start iter_stop output_path
        profile_name base_name reports report formats file_formats domains dump_model_data tb_dir
        suppress_tb_files graphdef detailed_mode help version"""
    letters = {
        "h": "help", "V": "version", "f": "force", "v": "verbosity", "m": "mode", "y": "delay",
        "d": "duration", "b": "suppress_tb_files",
    }  # fmt: skip
    assert {f"--{name}" for name in long.split()} <= set(BY_NAME)
    assert {one.letter: one.name for one in SWITCHES if one.letter} == letters


def test_the_reports_and_formats_are_those_that_are_written() -> None:
    real = pytest.importorskip("opscope.reports.dlprof")
    assert (real.REPORTS, real.FORMATS) == (REPORTS, FORMATS)
    made = pytest.importorskip("opscope.reports.dlprof.sections").MAKERS
    assert {name: made[name][0] for name in REPORTS} == {
        name: FILES.get(name, name) for name in REPORTS
    }


def test_defaults_are_dlprofs() -> None:
    found = of("python train.py")
    assert (found.base, found.profile, found.nsys_name) == (
        "dlprof", "dlprof.opscope", "nsys_profile",
    )  # fmt: skip
    assert (found.reports, found.formats, found.domains) == ((), ("csv",), None)
    assert (found.delay, found.duration, found.force) == (0, 0, False) or found.duration is None
    assert (found.key, found.iter_start, found.iter_stop) == (None, None, None)
    assert str(found.folder) == "."


def test_names_of_files() -> None:
    assert of("--profile_name=run x").base == "run"
    assert of("--profile_name=run x").profile == "run.opscope"
    assert of("--base_name=b x").profile == "b.opscope"
    assert of("--base_name=b x").name is None  # a name of files is none of the profile
    both = of("--profile_name=run --base_name=b x")
    assert (both.profile, both.base, both.name) == ("run.opscope", "b", "run")
    spaced = of("--profile_name='my first run' x")
    assert (spaced.profile, spaced.base, spaced.name) == (
        "my_first_run.opscope",
        "my_first_run",
        "my first run",
    )
    assert of("--base_name='my b' x").base == "my_b"
    assert of("x").name is None
    assert of("--profile_name=run.opscope x").profile == "run.opscope"


def test_all_reports_and_their_order() -> None:
    assert of("--reports=all x").reports == REPORTS
    assert of("--reports=kernel,summary x").reports == ("summary", "kernel")
    assert of("--reports=detailed,group_op x").reports == ("detail", "group_node")
    # the guide's own example
    assert of("--reports iteration tensor node_op -- x").reports == (
        "detail",
        "iteration",
        "tensor",
    )
    assert of("--file_formats=parquet,csv x").formats == ("csv", "parquet")


def test_an_empty_key_is_dlprofs_default() -> None:
    assert of("--key_op= x").key is None
    assert of("--key_node=CONV2D_1 x").key == "CONV2D_1"


def test_the_detailed_mode_is_on_unless_it_is_switched_off() -> None:
    assert of("x").detailed
    assert of("--detailed_mode=true x").detailed
    assert not of("--detailed_mode=false x").detailed


def test_switches_without_use_say_why() -> None:
    notes = of("--tb_dir=x -b true --graphdef=auto x").notes
    assert len(notes) == 3
    assert all(note.startswith("--") for note in notes)


# ------------------------------------------------------------------ options of nsys


@pytest.mark.parametrize(
    ("words", "traces", "others"),
    [
        ("-t cuda,nvtx -s none", (), ("--sample=none",)),
        ('"-t cuda,nvtx"', (), ()),  # DLProf's own help has a second pair of quotes
        ("--trace 'nvtx,cuda,osrt' --sample=cpu", ("osrt",), ("--sample=cpu",)),
        ("-t cudnn,mpi, --cuda-memory-usage=true", ("cudnn", "mpi"), ("--cuda-memory-usage=true",)),
        ("-tosrt -scpu --gpu-metrics-device=all", ("osrt",), ("--sample=cpu", "--gpu-metrics-device=all")),
        ("-t none", (), ()),
    ],
)  # fmt: skip
def test_options_of_nsys_go_to_nsys(
    words: str, traces: tuple[str, ...], others: tuple[str, ...]
) -> None:
    found = of(f"--nsys_opts={shlex.quote(words)} x").nsys
    assert (found.traces, found.others, found.given) == (traces, others, True)


def test_options_of_nsys_that_opscope_sets_are_told_or_taken() -> None:
    line = "-d 200 -y 5 -f true -o name --export sqlite --stats=true -w true"
    found = of(f"--nsys_opts='{line}' x")
    assert (found.delay, found.duration, found.nsys.others) == (5, 200, ())
    left = [note.split(": ")[1] for note in found.notes]
    assert left == ["--output", "--force-overwrite", "--export", "--stats", "--show-output"]
    assert of(f"--nsys_opts='{line}' --delay=7 x").delay == 7


def test_a_range_of_nsys_is_the_switch_for_it() -> None:
    for line in (
        "--nsys_profile_range=true x",
        "--nsys_opts='-c cudaProfilerApi --stop-on-range-end true' x",
        "--nsys_opts='--capture-range=cudaProfilerApi --capture-range-end=stop' x",
    ):
        assert of(line).nsys_range
        assert of(line).nsys.others == ()
    nvtx = of("--nsys_opts='-c nvtx -p mine@domain' x")
    assert not nvtx.nsys_range
    assert nvtx.nsys.others == ("--capture-range=nvtx", "--nvtx-capture=mine@domain")


# ------------------------------------------------------------------ lines that people have typed

#: Forms of command lines in public scripts of 2020 to 2024, with other names of programs and files.
SEEN = [
    "--reports all --force=true --mode=pytorch --formats=json --output_path=log python3 net.py",
    "--mode=pytorch -f true --iter_start 20 --iter_stop 80 python net.py",
    "--mode=simple python3 -m package.launch --trial model:Net",
    "--output_path=77 --profile_name=p_0_rank0 --mode=pytorch -f true --reports=all -y 60 -d 120"
    ' --nsys_base_name=nsys_0_rank0 --nsys_opts="-t osrt,cuda,nvtx,cudnn,cublas" python net.py',
    "--mode=pytorch --force=true --output_path=a/b --tb_dir=tb --nsys_base_name=n --reports=all"
    " --nsys_opts=\"--sample=cpu --trace 'nvtx,cuda,osrt,cudnn'\" --iter_start=1 --iter_stop=10"
    " python main.py --output_dir ./t --do_train",
    "--output_path=d --profile_name=d --dump_model_data=true --mode=pytorch"
    ' --nsys_opts="-t osrt,cuda,nvtx,cudnn,cublas --cuda-memory-usage=true --gpuctxsw=true "'
    " -f true --reports=all --delay 120 --duration 60 python net.py -n 1 -g 1",
    "--graphdef=auto --reports=summary,detail,iteration -y=10 -d=120 --force=true"
    " --key_node='cluster_7_1/xla_run' --output_path=./r --iter_start 40 --iter_stop 80"
    " --profile_name='keras_v2' python net.py",
    "--mode=pytorch --reports=summary --iter_start=200 --iter_stop=400 python net.py",
    "--mode=pytorch --output_path /out --reports=summary --formats=json python -m package.train --x=1",
    "--mode=pytorch --nsys_profile_range=true --reports=kernel --formats=csv --force true python net.py",
    "-f true --mode pytorch --reports=summary,detail,iteration,kernel,tensor --delay 60 --duration 60"
    " python3 -u net.py --arch x",
    "-f true --mode=pytorch --key_node=TOPK_1 --reports=summary,detail,iteration,kernel,tensor"
    " --delay 10 --duration 10 --output_path=./n python test.py --use_profile True",
    "--force=true --nsys_opts='-t cuda,nvtx,cublas,cudnn -s none' -m tensorflow2 python net.py",
    "--mode=simple --reports=summary --output_path=e --delay=10 --force=true --formats=json"
    " --suppress_tb_files=true python net.py --amp",
    "--reports=all --mode=simple --nsys_opts=\"-t cuda,nvtx --force-overwrite true\""
    " --output_path=./r/ python net.py --epochs 1",
    '--nsys_opts="-d 200 -t cuda,nvtx,oshmem --mpi-impl=openmpi -s none" python net.py',
    '--nsys_opts="-t cublas,cudnn,cuda,nvtx -s none  -f true --export sqlite'
    ' --capture-range=cudaProfilerApi" python net.py',
    "--mode=pytorch --nsys_opts=\"--trace 'cuda,osrt,nvtx' --gpu-metrics-device=all\""
    " --profile_name=m --nsys_base_name=m --force=true python3 -m package.net --max_steps 50",
    "--key_node=ASSIGNADDVARIABLEOP_1 --iter_start=15 python net.py",
    "--nsys_database=nsys_profile.sqlite",
    "--reports=detail --nsys_database=nsys_profile.sqlite",
    "--mode=pytorch --reports=all --database=nsys_profile.sqlite",
    "--mode=tensorflow1 --force=true python net.py",
    "--mode=tensorrt --force=true --reports=all --output_path=x/dlprof_result python net.py",
    "--force=true --reports=all --mode=simple ./program",
    "python net.py -m ['a', 'b']",
]  # fmt: skip


@pytest.mark.parametrize("line", SEEN)
def test_lines_of_public_scripts_are_understood(line: str) -> None:
    found = of(line)
    if found.database is None:
        assert found.command[0] in ("python", "python3", "./program")
    else:
        assert found.command == []
        assert str(found.database) == "nsys_profile.sqlite"
    assert found.reports or "--report" not in line
    assert found.mode == next((m for m in ("pytorch", "simple", "tensorflow1", "tensorflow2", "tensorrt")
                               if f"mode={m}" in line or f"mode {m}" in line or f"-m {m}" in line), "auto")  # fmt: skip
