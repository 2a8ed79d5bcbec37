"""Run a command of opscope over a damaged file, in this process, and judge what comes of it."""

from __future__ import annotations

import io
import json
import random
import re
import tarfile
import traceback
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz_seeds import SERVED

READ, REFUSED, TRACEBACK, MEMORY, TIME, WRONG = (
    "read", "refused", "traceback", "over memory", "over time", "wrong",
)  # fmt: skip
#: The number of frames, drawn at random, that are requested beside the summary.
ASKED = 3
FRAMES = (
    "kernels", "memops", "ops", "op_totals", "kernel_totals", "unattributed", "missing_costs",
    "communication", "collectives", "memory", "memory_by_op", "compiled", "groups", "meshes", "clocks",
    "efficiency", "utilization", "gaps", "range_totals", "notes", "own_costs",
    "engine_layers", "engine_runs",
)  # fmt: skip
#: Times of the summary, which are never negative unless a sum overflows 64 bits.
_TIMES = re.compile(r"time\Z|wall|busy|span")


class Wrong(AssertionError):
    """An answer that cannot be right."""


@dataclass(frozen=True)
class Case:
    """A damaged file, a sound one of the same reader, an empty folder for what is written, and the dice.

    ``kernel_time``: what its kernels come to, in ns, where the damage left that certain; else None.
    """

    file: Path
    sound: Path
    folder: Path
    dice: random.Random
    kernel_time: int | None = None

    @property
    def out(self) -> Path:
        """What a command writes."""
        return self.folder / "out"

    def some(self, options: Mapping[str, tuple[str, ...]]) -> list[str]:
        """Draw up to two of the options, each with one of its values."""
        names = self.dice.sample(sorted(options), self.dice.choice((0, 0, 1, 2)))
        return [word for name in names for word in (name, self.dice.choice(options[name])) if word]


Words = list[object]

#: What selects a part of a profile.
PART = {
    "--device": ("0", "1", "-1"), "--rank": ("0",), "--layer": ("net.*", "layer:block1"), "--range": ("*", "step 3"),
    "--iter-start": ("0", "1", "4"), "--iter-stop": ("1", "9"), "--key-op": ("aten::mm",), "--gpu": ("H100 SXM",),
}  # fmt: skip
ROWS = {"--json": ("",), "--csv": ("",), "--top": ("0", "3"), "--width": ("0", "20", "300")}


def _report(case: Case) -> list[Words]:
    return [
        ["report", case.file, *case.some({**PART, "--width": ROWS["--width"], "--json": ("",)})]
    ]


def _reports(case: Case) -> list[Words]:
    """A few reports by name, printed or written."""
    from opscope.core.question.registry import divisions, reports

    if case.dice.random() < 0.2:
        return [["report", case.file, "--by", case.dice.choice(sorted(divisions()))]]
    names = ",".join(case.dice.sample(sorted(reports()), 5))
    files = ["--formats", "csv,json,parquet", "--output-path", case.out]
    form: Words = case.dice.choice(([], ["--json"], files))
    return [["report", case.file, "--reports", names, *form, *case.some(PART)]]


def _rows(name: str) -> Callable[[Case], list[Words]]:
    def words(case: Case) -> list[Words]:
        each = (
            ["--each"]
            if name in ("ops", "kernels", "counters") and case.dice.random() < 0.5
            else []
        )
        form = case.dice.choice(([], [], ["--json"], ["--csv"]))
        return [[name, case.file, *each, *form, *case.some(PART)]]

    return words


def _whatif(case: Case) -> list[Words]:
    change = case.dice.choice(
        (
            "--op=*=0",
            "--kernel=volta*=0.5",
            "--copies=0",
            "--host=2",
            "--launches=0",
            "--communication=0",
        )
    )
    return [["whatif", case.file, change, *case.dice.choice(([], ["--json"], ["--csv"]))]]


def _advise(case: Case) -> list[Words]:
    form = case.dice.choice(("-v", "--all", "--json", "--csv", "--markdown"))
    return [["advise", case.file, form, *case.some(PART)]]


def _diff(case: Case) -> list[Words]:
    pair = [case.file, case.sound]
    case.dice.shuffle(pair)
    form: Words = case.dice.choice(
        ([], ["--json"], ["--csv"], ["--markdown"], ["--fail-on", "step>3%"], ["--html", case.out])
    )
    return [["diff", *pair, *form]]


def _exports(to: str) -> Callable[[Case], list[Words]]:
    def words(case: Case) -> list[Words]:
        by = (
            case.dice.choice((["--by", "layer"], ["--by", "source"], []))
            if to == "flamegraph"
            else []
        )
        return [["export", case.file, "--to", to, "-o", case.out, *by]]

    return words


def _styles(case: Case) -> list[Words]:
    return case.dice.choice((
        [["kernels", case.file, "--style", "pyprof", *case.dice.choice(([], ["--csv"], ["-w", "80"]))]],
        [["report", case.file, "--style", "dlprof", "--formats", "csv,json", "--output-path", case.folder]],
    ))  # fmt: skip


def _dlprof(case: Case) -> list[Words]:
    report = case.dice.choice(
        ("all", "summary", "detail", "iteration", "kernel", "tensor", "op_type", "group_node", "expert_systems")
    )  # fmt: skip
    more = case.dice.choice(([], ["--formats=json,csv,parquet"], ["--dump_model_data=true"]))
    return [
        [
            "dlprof",
            f"--database={case.file}",
            f"--reports={report}",
            f"--output_path={case.out}",
            *more,
        ]
    ]


def _job(case: Case) -> list[Words]:
    """The partials of two ranks, the job of them, and what is said of it; or a fleet's."""
    parts, job = case.folder / "parts", case.folder / "job.opscope"
    pair = [case.file, case.sound]
    if case.file.name.endswith(".partial.parquet"):
        steps: list[Words] = [["merge", *pair, "-o", job, "--unrelated"]]
    else:
        advice = ["--advice"] if case.dice.random() < 0.3 else []
        steps = [
            ["partial", *pair, "-o", parts, "--unrelated", *advice],
            ["merge", parts, "-o", job, "--unrelated"],
        ]
    last: Words = case.dice.choice(
        (["report", job], ["report", job, "--json"], ["diff", job, job], ["export", job, "--to", "html", "-o", case.out])
    )  # fmt: skip
    return [*steps, last]


def _fleet(case: Case) -> list[Words]:
    label = case.dice.choice(([], ["--label", "model=a"], ["--gpu-hours", "2"]))
    day = case.dice.choice(([], ["--day", "2026-05-04"]))
    return [["merge", case.file, "--fleet", case.folder / "fleet", "--job", "a", *day, *label]]


def _several(case: Case) -> list[Words]:
    """A session of several files: in a folder, or named; and with what cannot be read left out."""
    if case.dice.random() < 0.5 or case.file.is_dir():
        return [
            [
                "report",
                case.file,
                case.sound,
                *case.dice.choice((["--unrelated"], [], ["--strict"])),
            ]
        ]
    session = case.folder / "session"
    session.mkdir()
    for path in (case.file, case.sound):
        if path.is_file():
            (session / path.name).write_bytes(path.read_bytes())
    return [["report", session]]


def _archive(case: Case) -> list[Words]:
    """The file in an archive, beside the sound one or alone; a tenth of the archives lack their end."""
    packed = case.folder / case.dice.choice(("a.zip", "a.tar", "a.tar.gz"))
    paths = [case.file, case.sound] if case.dice.random() < 0.3 else [case.file]
    inside = [
        (f"{number}/{path.name}/{file.relative_to(path)}" if path.is_dir() else path.name, file)
        for number, path in enumerate(paths)
        for file in (
            [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        )
    ]
    if packed.suffix == ".zip":
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, file in inside:
                archive.write(file, name)
    else:
        with tarfile.open(packed, "w:gz" if packed.suffix == ".gz" else "w") as tape:
            for name, file in inside:
                tape.add(file, name)
    if case.dice.random() < 0.1:
        packed.write_bytes(packed.read_bytes()[: -case.dice.randrange(1, 200)])
    return [["report", packed, *case.dice.choice(([], ["--json"]))]]


def _written(name: str) -> Callable[[Case], list[Words]]:
    words = {
        "html": ["report", "--html"], "redact": ["redact", "-o"], "redact private": ["redact", "--private", "-o"],
    }[name]  # fmt: skip
    return lambda case: [[words[0], case.file, *words[1:], case.out]]


def _beside(option: str) -> Callable[[Case], list[Words]]:
    """The file beside a sound trace of a server, which lies by its seed."""

    def words(case: Case) -> list[Words]:
        served = case.sound.with_name(SERVED)
        sound = case.dice.choice(("requests.csv", "power.csv"))
        other = {"--requests": "--power", "--power": "--requests"}[option]
        more = [other, served.with_name(sound)] if other[2:-1] in sound else []
        names = (
            "serving_requests,serving_goodput,serving_slo_steps,serving_costs,serving_phases,energy"
        )
        reports = case.dice.choice(([], ["--reports", names]))
        return [
            [
                "report",
                served,
                option,
                case.file,
                *more,
                *reports,
                *case.dice.choice(([], ["--json"])),
            ]
        ]

    return words


def _baseline(case: Case) -> list[Words]:
    of = ["--baselines", case.file]
    form = case.dice.choice(([], ["--json"], ["--csv"]))
    trace = case.sound.with_name("kineto.json")
    added: list[Words] = [
        ["baseline", "save", "more", trace, *of],
        ["baseline", "compare", "main", "more", *of],
    ]
    return case.dice.choice((
        [["baseline", "list", *of, *form]], [["baseline", "trend", *of, *form]], added,
        [["baseline", "compare", "main", "change", *of, *form]], [["baseline", "compare", "main", trace, *of]],
    ))  # fmt: skip


JOB = "partial and merge"
#: What is done with a file, by the name in the table: the command lines, one after another.
COMMANDS: Mapping[str, Callable[[Case], list[Words]]] = {
    "report": _report,
    "report by name": _reports,
    "advise": _advise,
    "diff": _diff,
    **{name: _rows(name) for name in ("ops", "kernels", "iterations", "counters")},
    "whatif": _whatif,
    "doctor": lambda case: [["doctor", case.file]],
    **{
        f"export {to}": _exports(to)
        for to in ("perfetto", "chrome", "speedscope", "flamegraph", "otlp", "tensorboard", "prometheus")
    },
    "styles of others": _styles,
    "dlprof": _dlprof,
    JOB: _job,
    "fleet": _fleet,
    "several files": _several,
    "archive": _archive,
    **{name: _written(name) for name in ("html", "redact", "redact private")},
}  # fmt: skip
#: What is asked without a command line.
LIBRARY, VIEWER = "load", "view"
NAMES = (LIBRARY, VIEWER, *COMMANDS)
#: What is done with files that are no traces, and with no others.
APART: Mapping[str, Callable[[Case], list[Words]]] = {
    "requests": _beside("--requests"),
    "power": _beside("--power"),
    "baseline": _baseline,
}
#: What reads files that are no traces: the partial of a rank, what is given beside a trace, baselines.
OF: Mapping[str, tuple[str, ...]] = {
    "partial": (LIBRARY, JOB, "fleet"),
    "log of requests": ("requests",),
    "samples of power": ("power",),
    "baseline": ("baseline",),
}


def judged(name: str, case: Case) -> tuple[str, str]:
    """Do with the file what ``name`` says; return the outcome and an explanation."""
    from opscope.readers import BadInput

    try:
        if name == LIBRARY:
            _load(case)
        elif name == VIEWER:
            _view(case)
        else:
            return _typed({**COMMANDS, **APART}[name](case), case)
    except BadInput as error:
        if len(error.what.splitlines()) != 1:
            return TRACEBACK, f"the message has several lines: {error}"
        return _refused(str(error), case)
    except Wrong as error:
        return WRONG, str(error)
    except BaseException:  # noqa: BLE001 - also panics of Rust; these are what the script looks for
        return TRACEBACK, traceback.format_exc()
    return READ, ""


def _refused(message: str, case: Case) -> tuple[str, str]:
    """A refusal names the file, or what was made of it."""
    from opscope.core.question.units import visible

    named = (case.file, case.sound, case.folder)
    merged = message.startswith("opscope: made from partials")  # it says what to open instead
    deleted = re.match("opscope: (?:main|change): no such", message)  # its file was
    if (
        not merged
        and not deleted
        and not any(visible(str(path)) in visible(message) for path in named)
    ):
        return TRACEBACK, f"the message does not name the file: {message}"
    return REFUSED, message


def _typed(lines: list[Words], case: Case) -> tuple[str, str]:
    """Type the command lines; the first that is refused is the last."""
    from tests.command import opscope

    for words in lines:
        done = opscope(*words)
        if done.returncode == 2:
            if case.out.exists() and not (case.out.is_dir() and not any(case.out.iterdir())):
                return WRONG, f"{words}: refused, and something was written: {done.stderr}"
            if (
                any(word in (*PART, "--fail-on") for word in words)
                and "Traceback" not in done.stderr
            ):
                return REFUSED, done.stderr  # it may have nothing of the part that was asked for
            return _refused(done.stderr, case)
        gate = "--fail-on" in words and done.returncode in (1, 3)
        if done.returncode and not gate:
            return TRACEBACK, f"{words}: status {done.returncode}: {done.stderr}"
        if "--json" in words:
            json.loads(done.stdout, parse_constant=_no_number)
    left = [path.name for path in case.folder.iterdir() if path.name.startswith(".")]
    if left:
        return WRONG, f"{lines}: left {left}"
    return READ, ""


def _no_number(text: str) -> None:
    raise Wrong(f"JSON with {text}")


def _load(case: Case) -> None:
    """Load the file; check its totals, request some frames."""
    import opscope
    from opscope.core.not_merged import NotMerged
    from opscope.core.question import layout
    from opscope.reports import console
    from opscope.scale.merge import merge

    if case.file.name.endswith(".partial.parquet"):
        profile: Any = merge([case.file], strict=True)
    else:
        profile = opscope.load(case.file, strict=True)
    totals(profile, case)
    for name in case.dice.sample(FRAMES, ASKED):
        with suppress(NotMerged):
            getattr(profile, name)()
    layout.write(console.tables(profile, ["summary"]), io.StringIO(), 100)


def totals(profile: Any, case: Case) -> None:
    """Check what must hold of every file: no time is negative, the parts make the whole. Raises Wrong."""
    row = profile.summary().row(0, named=True)
    negative = {k: v for k, v in row.items() if _TIMES.search(k) and type(v) is int and v < 0}
    if profile.merged_of is not None or (case.file / "meta.json").is_file():
        return  # their own totals are read as they are
    if negative:
        raise Wrong(f"negative times: {negative}")
    if profile.cpu_only:
        return  # its ops' own time stands for the device's
    kernels, memops = profile.trace["kernels"], profile.trace["memops"]
    kernel_time = int((kernels["end"] - kernels["start"]).sum())
    unknown = row["device_time"] is None
    row = {name: value or 0 for name, value in row.items()}
    device_time = kernel_time + int((memops["end"] - memops["start"]).sum())
    parts = {
        "kernel_time": (kernel_time, row["kernel_time"]),
        "kernel time by op and without": (kernel_time, row["attributed_time"] + row["unattributed_time"]),
        "device_time": (device_time, row["device_time"]),
        "device time by op and without": (
            device_time, row["device_attributed_time"] + row["device_unattributed_time"],
        ),
        "device time of all ops": (int(profile.op_totals()["device_time"].sum()), row["device_attributed_time"]),
        "device time of no op": (int(profile.unattributed()["time"].sum()), row["device_unattributed_time"]),
    }  # fmt: skip
    if case.kernel_time is not None:
        parts["kernel time of the records"] = (case.kernel_time, row["kernel_time"])
    wrong = {name: pair for name, pair in parts.items() if pair[0] != pair[1]}
    if wrong and not unknown:
        raise Wrong(f"totals: {wrong}")


def _view(case: Case) -> None:
    """Ask the viewer's server some of its questions, as the pages do and as they never do."""
    import opscope
    from opscope.viewer.question import Asked
    from opscope.viewer.registry import questions
    from opscope.viewer.viewed import Viewed
    from tests.viewer.asking import Asking

    odd = {
        "steps": ("1-2", "3", "-", "9-1"), "device": ("0", "-1", "x"), "rank": ("0",), "from": ("0", "-1"), "to": ("9000", "x"),
        "name": ("ops", "kernels", "\0"), "text": ("mm", "("), "by": ("op", "layer"), "lane": ("0", "99"), "index": ("0",),
        "q": ("mm",), "sort": ("time",), "part": ("device", "host"), "of": ("busy", "memory"), "back": ("1",),
    }  # fmt: skip
    other = opscope.load(case.sound) if case.dice.random() < 0.2 else None
    viewed = Viewed(opscope.load(case.file, strict=True), (str(case.file),), other)
    asking = Asking(viewed)
    try:
        for name in case.dice.sample(sorted(questions()), 6):
            question = questions()[name]
            stored = question.stored(viewed)
            given = dict(case.dice.choice(stored)) if stored else {}
            chosen = case.dice.sample(sorted(odd), case.dice.randrange(6))
            given |= {key: case.dice.choice(odd[key]) for key in chosen}
            answer = asking.ask(name, **given)
            if answer.status_code not in (200, 400, 404):
                question.answer(Asked(viewed, given))  # for its traceback: the server keeps it
                raise AssertionError(f"{name}: status {answer.status_code}: {answer.text}")
            if answer.headers["content-type"] == "application/json":
                json.loads(answer.content, parse_constant=_no_number)
        if asking.page("/").status_code != 200:
            raise AssertionError("the page itself")
    finally:
        asking.close()
