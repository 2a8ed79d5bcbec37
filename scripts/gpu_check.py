"""Runs gpu_check.sh's programs with and without opscope, each for a limited time, and writes what was found.

Usage: bash scripts/gpu_check.sh [FOLDER] [--part NAME]… [--case NAME]… [--budget SECONDS] [--scratch FOLDER]
       python scripts/gpu_check.py --table FOLDER…    (results of several runs as a Markdown table)

A case runs its program alone, under plain torch.profiler, and under opscope, in this order and each in a
process of its own, as CUPTI has one subscriber at a time; gpu_results.py then compares. FOLDER gets
results.txt and results.json, rewritten after each case, logs.tar.gz, and traces-N.tar (a NAME.tar.gz each:
profiles, what they were made of, plain traces), no file over 15 MiB and no more than 6 of them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gpu_bounded

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "scripts"
#: Seconds for all cases of a part, where nothing else is asked for; of a case's program; of the comparison; to pack.
BUDGET, LIMIT, COMPARING, PACKING = 540, 120, 120, 10
#: Of an archive, and of all; a log in its archive keeps this much of its end.
ARCHIVE, ARCHIVES, LOG = 15 << 20, 2, 200_000
PASSED, FAILED, KILLED, LEFT_OUT, ABSENT = "passed", "FAILED", "KILLED", "not run", "not here"


@dataclass(frozen=True)
class Case:
    """A program, and how it is run under opscope. ``runs``: of bare, plain, ours; ``seconds``: of each."""

    name: str
    part: str
    program: str = ""
    options: tuple[str, ...] = ("--whole",)
    runs: tuple[str, ...] = ("bare", "plain", "ours")
    seconds: int = LIMIT
    example: str = ""
    plain: str = ""  # the program that is run under torch.profiler, where it is another
    compare: str = ""  # the script that compares, where it is not gpu_results.py
    needs: str = ""  # a framework that must see the GPU
    why: str = ""


#: The parts, and in each the cases, that matter most first.
CASES = (
    Case("eager", "core", why="a transformer's training in float32"),
    Case("lenet", "core", example="torch_lenet.py", options=(), runs=("ours",),
         why="an example as it is, no option given"),
    Case("graph", "core", why="two CUDA graphs of whole steps, replayed in turn"),
    Case("amp", "core", why="bf16 autocast: Tensor Cores, FLOPs"),
    Case("streams", "core", why="two streams that wait for each other"),
    Case("memory", "core", options=("--whole", "--memory"), runs=("bare", "ours"),
         why="the GPU's memory against its allocator's counts"),
    Case("steps", "core", program="eager", options=("--steps", "3:6"), runs=("ours",),
         why="three steps of six"),
    Case("window", "core", program="long", options=(), runs=("bare", "ours"),
         why="eighty steps: the window that opscope chooses"),
    Case("compiled", "more", seconds=200, why="torch.compile"),
    Case("copies", "more", why="copies within a CUDA graph"),
    Case("branches", "more", why="a CUDA graph of two branches that run at once"),
    Case("fork", "more", plain="worker", why="two forked workers that initialise CUDA themselves"),
    Case("scaler", "more", why="float16 with GradScaler, which leaves steps out"),
    Case("loader", "more", why="batches from workers, pinned, copied without waiting"),
    Case("history", "more", options=("--whole", "--memory"), runs=("bare", "ours"),
         why="a program that keeps its own history of memory"),
    Case("nccl", "more", why="NCCL with one rank: DistributedDataParallel, collectives"),
    Case("jax", "frameworks", example="jax_cnn.py", options=("--whole",), runs=("bare", "ours"),
         compare="gpu_results_jax.py", needs="jax", why="JAX: ops, shapes, the device"),
    Case("tensorflow", "frameworks", example="tensorflow_loop.py", options=("--whole",),
         runs=("bare", "ours"), compare="gpu_results_tensorflow.py", needs="tensorflow", seconds=200,
         why="TensorFlow: ops, the device, its own profile beside ours"),
    Case("overhead", "cost", runs=("self",), seconds=300, why="a step's time beside torch.profiler's"),
)  # fmt: skip
PARTS = tuple(dict.fromkeys(one.part for one in CASES))
SEES = {
    "jax": 'import jax, sys; sys.exit(jax.default_backend() != "gpu")',
    "tensorflow": "import tensorflow as tf, sys;"
    ' sys.exit(not tf.config.list_physical_devices("GPU"))',
}


@dataclass
class Result:
    """What was found of a case."""

    case: Case
    status: str
    why: str = ""
    runs: dict = field(default_factory=dict)
    checks: dict = field(default_factory=dict)
    facts: list = field(default_factory=list)

    def as_json(self):
        return {
            "part": self.case.part,
            "what": self.case.why,
            "status": self.status,
            "why": self.why,
            "runs": self.runs,
            "checks": self.checks,
            "facts": self.facts,
        }


class Check:
    """One run of gpu_check.sh. ``cases`` are those asked for, in order."""

    def __init__(self, out, scratch, cases, budget, device="cuda", python=sys.executable):
        self.out, self.scratch, self.cases = Path(out), Path(scratch), list(cases)
        self.python, self.device = python, device
        self.ends = time.monotonic() + budget
        self.results = {}
        self.about = {}
        self.env = {
            **os.environ,
            "OPSCOPE_CACHE": os.environ.get("OPSCOPE_CACHE", str(self.scratch / "cache")),
            "TORCHINDUCTOR_CACHE_DIR": str(self.scratch / "inductor"),
            "TRITON_CACHE_DIR": str(self.scratch / "triton"),
            # JAX would take three quarters of the GPU's memory
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "PYTHONUNBUFFERED": "1",
        }
        self.known_options = ""
        self.packed = []

    # ------------------------------------------------------------------------------ running

    def left(self):
        """Seconds that a program may still take."""
        return self.ends - time.monotonic() - PACKING

    def run(self, name, command, seconds, **env):
        """Run one program of the case ``name``; its output goes to the case's log."""
        limit = max(1.0, min(seconds, self.left()))
        more = {"GPU_CHECK_SECONDS": str(limit), **env}
        grace = min(gpu_bounded.GRACE, max(1.0, self.left() - limit))
        return gpu_bounded.run(
            list(map(str, command)), self.log(name), limit, {**self.env, **more}, grace
        )

    def log(self, name):
        return self.scratch / f"{name}.log"

    def all(self):
        """Run the cases; returns the exit status."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.out.mkdir(parents=True, exist_ok=True)
        for pattern in ("results.*", "logs.tar.gz", "traces-*.tar"):
            for old in self.out.glob(pattern):  # an earlier check's must not pass for this one's
                old.unlink()
        self.prepare()
        self.write()
        for case in self.cases:
            for old in self.scratch.glob(f"{case.name}.*"):
                shutil.rmtree(old) if old.is_dir() else old.unlink()
            try:
                result = self.one(case)
            except OSError as error:
                result = Result(case, FAILED, f"{type(error).__name__}: {error}")
            self.results[case.name] = result
            self.say(f"{case.name}: {result.status}{result.why and ': ' + result.why}")
            with contextlib.suppress(OSError):
                self.pack(case)
            self.write()
        failed = any(one.status in (FAILED, KILLED) for one in self.results.values())
        return 1 if failed or self.unfinished() else 0

    def unfinished(self):
        return [one.case.name for one in self.results.values() if one.status == LEFT_OUT]

    def say(self, line):
        print(f"gpu_check: {line}", flush=True)

    def prepare(self):
        """What is done once: the machine, the options there are, the native parts."""
        log = self.log("prepare")
        log.unlink(missing_ok=True)
        about = "import sys, torch; print('python', sys.version); print('torch', torch.__version__)"
        if self.device == "cuda":
            about += (
                "; p = torch.cuda.get_device_properties(0); print(p)"
                "; print('cuda', torch.version.cuda, 'devices', torch.cuda.device_count())"
            )
        for command in (
            ["nvidia-smi", "-L"],
            ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,mig.mode.current,"
             "compute_mode,clocks.max.sm", "--format=csv,noheader"],
            [self.python, "-c", about],
            [self.python, "-m", "opscope", "doctor"],
        ):  # fmt: skip
            done = self.run("prepare", command, 60)
            self.about[" ".join(map(str, command))[:60]] = str(done)
        self.run("prepare", [self.python, "-m", "opscope", "build", "torch"], 240)
        before = log.stat().st_size
        self.run("prepare", [self.python, "-m", "opscope", "run", "--help"], 60, COLUMNS="200")
        with open(log, encoding="utf-8", errors="replace") as file:
            file.seek(before)
            self.known_options = file.read()

    def one(self, case):
        """Run a case and compare."""
        if self.left() < 15:
            return Result(case, LEFT_OUT, "no time was left")
        if case.needs:
            done = self.run(case.name, [self.python, "-c", SEES[case.needs]], 90)
            if not done.well:
                said = "does not answer in time" if done.killed else "is not here, or sees no GPU"
                return Result(case, ABSENT, f"{case.needs} {said}")
        result = Result(case, PASSED)
        for way in case.runs:
            if self.left() < 5:
                result.status, result.why = LEFT_OUT, f"no time was left for {way}"
                return result
            done = self.run(case.name, self.command(case, way), case.seconds)
            result.runs[way] = {"ended": str(done), "seconds": round(done.seconds, 1)}
            if not done.well:
                result.status = KILLED if done.killed else FAILED
                result.why = "; ".join(filter(None, (result.why, f"{way}: {done}")))
            if not done.well and way == "bare":
                result.why = f"the program does not run without opscope: {done}"
                return result
        self.compare(case, result)
        return result

    def command(self, case, way):
        """The command line of one run of a case."""
        at = self.scratch / case.name
        suffix = "" if way in ("ours", "self") else f".{way}"
        if case.example:
            program = [self.python, ROOT / "examples" / case.example]
        else:
            name = case.plain if way == "plain" and case.plain else case.program or case.name
            program = [self.python, SCRIPTS / "gpu_programs.py", name, f"{at}{suffix}.json",
                       "--device", self.device]  # fmt: skip
        if way == "plain":
            program += ["--profile", f"{at}.plain.trace.json.gz"]
        if way != "ours":
            return program
        options = [one for one in case.options if one != "--whole" or one in self.known_options]
        return [self.python, SCRIPTS / "gpu_keeping.py", f"{at}.parts", "run", "--force",
                "--no-report", "--output", f"{at}.opscope", *options, "--", *program]  # fmt: skip

    def compare(self, case, result):
        """What the comparing script finds; that it fails or hangs is a failure as well."""
        script = SCRIPTS / (case.compare or "gpu_results.py")
        done = self.run(case.name, [self.python, script, case.name, self.scratch], COMPARING)
        result.runs["compare"] = {"ended": str(done), "seconds": round(done.seconds, 1)}
        try:
            text = (self.scratch / f"{case.name}.checks.json").read_text(encoding="utf-8")
            found = json.loads(text)
            result.checks, result.facts = found["checks"], found["facts"]
        except (OSError, ValueError, KeyError) as error:
            result.checks = {f"could be compared ({done}; {type(error).__name__})": False}
        if result.status == PASSED and (
            not result.checks or any(one is False for one in result.checks.values())
        ):
            result.status = FAILED

    # ------------------------------------------------------------------------------ writing

    def write(self):
        """results.txt, results.json and the logs, of all that was found until now."""
        found = {name: one.as_json() for name, one in self.results.items()}
        about = {"machine": self.about, "parts": sorted({one.part for one in self.cases})}
        whole = json.dumps({"about": about, "cases": found}, indent=1, default=str)
        replaced(self.out / "results.json", whole.encode())
        replaced(self.out / "results.txt", self.text().encode())
        bundle = io.BytesIO()
        with tarfile.open(fileobj=bundle, mode="w:gz") as tar:
            for log in sorted(self.scratch.glob("*.log")):
                content = tail(log, LOG)
                member = tarfile.TarInfo(log.name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        replaced(self.out / "logs.tar.gz", bundle.getvalue())

    def text(self):
        """The results as a person reads them."""
        lines = []
        with contextlib.suppress(OSError):
            lines += tail(self.log("prepare"), 4000).decode("utf-8", "replace").splitlines()[:40]
        for result in self.results.values():
            lines.append(
                f"\n{result.case.name} ({result.case.why}): {result.status}"
                f"{result.why and ': ' + result.why}"
            )
            said = {True: "pass", False: "FAIL", None: " -- "}
            lines += [f"  {said[one]}  {what}" for what, one in result.checks.items()]
            lines += [f"        {fact}" for fact in result.facts]
            if result.status in (FAILED, KILLED) and not result.checks:
                log = tail(self.log(result.case.name), 3000).decode("utf-8", "replace")
                lines += [f"      | {line}" for line in log.splitlines()[-25:]]
        waiting = [one.name for one in self.cases if one.name not in self.results]
        if waiting:
            lines.append(f"\nnot run yet: {', '.join(waiting)}")
        count = [one.status for one in self.results.values()]
        said = ", ".join(f"{count.count(one)} {one}" for one in dict.fromkeys(count))
        return "\n".join([*lines, f"\n{said or 'nothing was run yet'}"]) + "\n"

    def pack(self, case):
        """Put what a case left into an archive that has room for it; what has none is said."""
        made = self.scratch / f"{case.name}.tar.gz"
        kinds = [f"{case.name}.{end}" for end in ("opscope", "plain.trace.json.gz", "parts")]
        present = [one for one in kinds if (self.scratch / one).exists()]
        while present:
            with tarfile.open(made, "w:gz") as tar:
                for one in present:
                    tar.add(self.scratch / one, one)
            if self.placed(made):
                return
            self.results[case.name].facts.append(f"{present.pop()} found no room in the archives")

    def placed(self, made):
        """Whether ``made`` has been added to an archive."""
        room = made.stat().st_size + 2048
        for number in range(1, ARCHIVES + 1):
            archive = self.out / f"traces-{number}.tar"
            if (archive.stat().st_size if archive.exists() else 0) + room <= ARCHIVE:
                with tarfile.open(archive, "a") as tar:
                    tar.add(made, made.name)
                return True
        return False


def replaced(path, content):
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


def tail(path, most):
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - most))
        return file.read()


def table(folders):
    """The results of several runs as a Markdown table: a row a case, what did not pass below it."""
    lines = ["| case | what | result | passed | milliseconds a step |", "|---|---|---|---|---|"]
    below = []
    for folder in folders:
        found = json.loads((Path(folder) / "results.json").read_text(encoding="utf-8"))
        for name, one in found["cases"].items():
            checks = one["checks"]
            passed = sum(value is True for value in checks.values())
            asked = sum(value is not None for value in checks.values())
            step = next(
                (
                    fact[len("ms a step: ") :]
                    for fact in one["facts"]
                    if fact.startswith("ms a step")
                ),
                "",
            )
            said = one["status"] + (f": {one['why']}" if one["why"] else "")
            lines.append(f"| {name} | {one['what']} | {said} | {passed} of {asked} | {step} |")
            below += [f"- {name}: {what}" for what, value in checks.items() if value is False]
    return "\n".join(lines + ([""] if below else []) + below) + "\n"


def chosen(parts, names):
    """The cases asked for. Raises ValueError on a name that is none."""
    unknown = [one for one in parts if one not in PARTS]
    unknown += [one for one in names if one not in {case.name for case in CASES}]
    if unknown:
        raise ValueError(f"no such part or case: {', '.join(unknown)}")
    if not parts and not names:
        return list(CASES)
    return [case for case in CASES if case.part in parts or case.name in names]


def _interrupted(number, _frame):
    raise SystemExit(128 + number)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="gpu_check.sh", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", nargs="?", default=os.environ.get("OUT") or "gpu_check")
    parser.add_argument("--part", action="append", default=[], metavar="NAME",
                        help=f"only these cases: {', '.join(PARTS)}")  # fmt: skip
    parser.add_argument("--case", action="append", default=[], metavar="NAME")
    parser.add_argument("--budget", type=float, metavar="SECONDS",
                        help=f"for all of them  [{BUDGET} for each part]")  # fmt: skip
    parser.add_argument("--scratch", help="where to work; caches stay there  [a temporary folder]")
    parser.add_argument("--device", default="cuda", help="cpu rehearses the check without a GPU")
    parser.add_argument("--list", action="store_true", help="the cases")
    parser.add_argument("--table", nargs="+", metavar="FOLDER", help="results as a Markdown table")
    options = parser.parse_args(arguments)
    if options.table:
        print(table(options.table), end="")
        return 0
    if options.list:
        for case in CASES:
            print(f"{case.part:11} {case.name:11} {case.why}")
        return 0
    try:
        cases = chosen(options.part, options.case)
    except ValueError as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 2
    parts = {case.part for case in cases}
    scratch = options.scratch or Path(tempfile.gettempdir()) / f"opscope-gpu-check-{os.getuid()}"
    try:
        check = Check(options.folder, scratch, cases, options.budget or BUDGET * len(parts),
                      options.device)  # fmt: skip
        for name in ("SIGTERM", "SIGHUP", "SIGINT"):
            signal.signal(getattr(signal, name), _interrupted)
        status = check.all()
    except OSError as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 2
    print(check.text())
    return status


if __name__ == "__main__":
    sys.exit(main())
