"""Run gpu_check.sh's programs with and without opscope, each for a limited time, and write the results.

Usage: bash scripts/gpu_check.sh [FOLDER] [--part NAME]… [--case NAME]… [--budget SECONDS] [--scratch FOLDER]
       python scripts/gpu_check.py --table FOLDER…    (results of several runs as a Markdown table)

A case runs its program alone, under plain torch.profiler, and under opscope, in this order. Each run has its
own process, as CUPTI has one subscriber at a time; gpu_results.py then compares the runs. FOLDER gets
results.txt and results.json, rewritten after each case, logs.tar.gz, and traces-N.tar (with a NAME.tar.gz per
case: profiles, their recordings, plain traces). No file is over 15 MiB, and there are at most 6 files.
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
#: Default limits in seconds: for all cases of a part, for a case's program, for the comparison, for packing.
BUDGET, LIMIT, COMPARING, PACKING = 540, 120, 120, 10
#: Seconds that a case's programs leave for the comparison of their runs.
RESERVED = 8
#: Bytes of an archive; the number of archives; bytes that are kept of the end of a log.
ARCHIVE, ARCHIVES, LOG = 15 << 20, 2, 200_000
#: The backends that record kernels; one at a time, as there is one subscriber to CUPTI.
BACKENDS = ("kineto", "xplane", "cupti", "nsys")
#: Nsight Compute's words for every counter of operations on the Tensor Cores that the GPU has.
TENSOR_OPERATIONS = r"regex:^sm__ops_path_tensor_src_.*\.sum$"
PASSED, FAILED, KILLED, LEFT_OUT, ABSENT = "passed", "FAILED", "KILLED", "not run", "not here"


@dataclass(frozen=True)
class Case:
    """A program and its runs. ``runs``: some of bare, plain, ours; ``seconds``: the limit of each run."""

    name: str
    part: str
    program: str = ""
    options: tuple[str, ...] = ("--whole",)
    runs: tuple[str, ...] = ("bare", "plain", "ours")
    seconds: int = LIMIT
    example: str = ""
    script: str = ""  # a program of scripts/ that is no function of gpu_programs.py
    plain: str = ""  # the program that runs under torch.profiler, if it is another one
    compare: str = ""  # the script that compares, if it is not gpu_results.py
    needs: str = ""  # a framework that must see the GPU
    why: str = ""


#: The cases by part; the most important parts and cases come first.
CASES = (
    Case("eager", "core", why="a transformer's training in float32"),
    Case("lenet", "core", example="torch_lenet.py", options=(), runs=("ours",),
         why="an unchanged example, without options"),
    Case("graph", "core", why="two CUDA graphs of whole steps, replayed in turn"),
    Case("amp", "core", why="bf16 autocast: Tensor Cores, FLOPs"),
    Case("streams", "core", why="two streams that wait for each other"),
    Case("memory", "core", options=("--whole", "--memory"), runs=("bare", "ours"),
         why="the GPU's memory against its allocator's counts"),
    Case("steps", "core", program="eager", options=("--steps", "3:6"), runs=("ours",),
         why="three steps of six"),
    Case("window", "core", program="long", options=(), runs=("bare", "ours"),
         why="eighty steps: the window that opscope chooses"),
    Case("cores", "core", runs=("bare", "ours"),
         why="Tensor Core flags of kernels of which it is known beforehand"),
    Case("products", "counters", runs=("bare", "ours", "counted"), seconds=300,
         why="modelled FLOPs against hardware counters"),
    *(
        Case(f"{name}_backends", "backends", program=name, runs=("bare", "plain", "kineto", "cupti", "nsys"),
             compare="gpu_backends.py", seconds=seconds, why=f"{what}, by each backend")
        for name, what, seconds in (
            ("eager", "a transformer's training", LIMIT), ("graph", "CUDA graphs", LIMIT),
            ("amp", "bf16 autocast", LIMIT), ("streams", "two streams", LIMIT),
            ("compiled", "torch.compile", 200), ("nccl", "NCCL with one rank", LIMIT),
            ("branches", "a CUDA graph of two branches", LIMIT),
        )
    ),
    Case("compiled", "more", seconds=200, why="torch.compile"),
    Case("copies", "more", why="copies within a CUDA graph"),
    Case("branches", "more", why="a CUDA graph of two branches that run at once"),
    Case("fork", "more", plain="worker", why="two forked workers that initialise CUDA themselves"),
    Case("scaler", "more", why="float16 with GradScaler, which skips steps"),
    Case("loader", "more", why="batches from workers, pinned, copied asynchronously"),
    Case("history", "more", options=("--whole", "--memory"), runs=("bare", "ours"),
         why="a program that keeps its own history of memory"),
    Case("nccl", "more", why="NCCL with one rank: DistributedDataParallel, collectives"),
    Case("triton", "more", script="gpu_triton.py", runs=("bare", "ours"), needs="triton",
         why="a Triton kernel of the user's own"),
    Case("jax", "frameworks", example="jax_cnn.py", options=("--whole",), runs=("bare", "ours"),
         compare="gpu_results_jax.py", needs="jax", why="JAX: ops, shapes, the device"),
    Case("tensorflow", "frameworks", example="tensorflow_loop.py", options=("--whole",),
         runs=("bare", "ours"), compare="gpu_results_tensorflow.py", needs="tensorflow", seconds=200,
         why="TensorFlow: ops, the device, its own profile beside ours"),
    Case("onnxruntime", "frameworks", script="gpu_onnxruntime.py", runs=("bare", "ours"),
         needs="onnxruntime", why="ONNX Runtime on the GPU: nodes, kernels"),
    Case("jax_backends", "frameworks", example="jax_cnn.py", options=("--whole",),
         runs=("bare", "xplane", "cupti", "nsys"), compare="gpu_backends.py", needs="jax",
         why="JAX, by each backend"),
    Case("tensorflow_backends", "frameworks", example="tensorflow_loop.py", options=("--whole",),
         runs=("bare", "cupti", "nsys"), compare="gpu_backends.py", needs="tensorflow", seconds=200,
         why="TensorFlow, by each backend"),
    Case("overhead", "cost", runs=("self",), seconds=300, why="a step's time compared with torch.profiler's"),
)  # fmt: skip
PARTS = tuple(dict.fromkeys(one.part for one in CASES))
SEES = {
    "triton": "import triton, torch, sys; sys.exit(not torch.cuda.is_available())",
    "onnxruntime": "import onnxruntime as ort, sys;"
    ' sys.exit("CUDAExecutionProvider" not in ort.get_available_providers())',
    "jax": 'import jax, sys; sys.exit(jax.default_backend() != "gpu")',
    "tensorflow": "import tensorflow as tf, sys;"
    ' sys.exit(not tf.config.list_physical_devices("GPU"))',
}


@dataclass
class Result:
    """The result of a case."""

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
    """One run of gpu_check.sh. ``cases`` are the requested cases in order."""

    def __init__(self, out, scratch, cases, budget, device="cuda", python=sys.executable):
        self.out, self.scratch, self.cases = Path(out), Path(scratch), list(cases)
        self.python, self.device = python, device
        self.ends = time.monotonic() + budget
        self.results = {}
        self.about = {}
        self.env = {
            **os.environ,
            "OPSCOPE_CACHE": os.environ.get("OPSCOPE_CACHE", str(self.scratch / "cache")),
            "TRITON_CACHE_DIR": str(self.scratch / "triton"),
            # by default JAX reserves three quarters of the GPU's memory
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "PYTHONUNBUFFERED": "1",
        }
        self.known_options = ""
        self.absent = {}
        self.packed = []

    # ------------------------------------------------------------------------------ running

    def left(self):
        """Return how many seconds programs may still take."""
        return self.ends - time.monotonic() - PACKING

    def run(self, name, command, seconds, **env):
        """Run one program of the case ``name`` and append its output to the case's log."""
        limit = max(1.0, min(seconds, self.left()))
        more = {"GPU_CHECK_SECONDS": str(limit), **env}
        grace = min(gpu_bounded.GRACE, max(1.0, self.left() - limit))
        return gpu_bounded.run(
            list(map(str, command)), self.log(name), limit, {**self.env, **more}, grace
        )

    def log(self, name):
        return self.scratch / f"{name}.log"

    def all(self):
        """Run the cases and return the exit status."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.out.mkdir(parents=True, exist_ok=True)
        for pattern in ("results.*", "logs.tar.gz", "traces-*.tar"):
            for old in self.out.glob(
                pattern
            ):  # results of an earlier check must not pass for new ones
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
        """Prepare once: log the machine, build the native parts, read the options of ``opscope run``."""
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
        self.absent = self.missing_backends()
        before = log.stat().st_size
        self.run("prepare", [self.python, "-m", "opscope", "run", "--help"], 60, COLUMNS="200")
        with open(log, encoding="utf-8", errors="replace") as file:
            file.seek(before)
            self.known_options = file.read()

    def missing_backends(self):
        """Return why a backend cannot record here, for each that cannot, as ``opscope doctor`` says."""
        path = self.scratch / "doctor.json"
        code = (
            "import json, sys; from opscope.backends import Machine, ranked;"
            " found = {name: one for name, _, one in ranked(Machine(in_process=False))};"
            " out = {name: None if one.works else one.why for name, one in found.items()};"
            " json.dump(out, open(sys.argv[1], 'w'))"
        )
        path.unlink(missing_ok=True)
        self.run("prepare", [self.python, "-c", code, path], 60)
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            self.say(f"which backends there are is not known: {error}")
            return {}
        return {name: known.get(name, "there is no such backend") for name in BACKENDS
                if known.get(name, "") is not None}  # fmt: skip

    def one(self, case):
        """Run a case and compare."""
        if self.left() < 15 + RESERVED:
            return Result(case, LEFT_OUT, "no time was left")
        if case.needs:
            done = self.run(case.name, [self.python, "-c", SEES[case.needs]], 90)
            if not done.well:
                said = (
                    "does not answer in time" if done.killed else "is not installed, or sees no GPU"
                )
                return Result(case, ABSENT, f"{case.needs} {said}")
        result = Result(case, PASSED)
        for way in case.runs:
            if self.left() < 5 + RESERVED:
                result.status, result.why = LEFT_OUT, f"no time was left for {way}"
                return result
            if way in self.absent:
                result.runs[way] = {"ended": f"not here: {self.absent[way]}", "seconds": 0}
                continue
            # of code from a cache that another run filled, opscope does not know which ops a kernel fuses
            cache = self.scratch / "inductor" / f"{case.name}-{way}"
            done = self.run(
                case.name,
                self.command(case, way),
                min(case.seconds, max(1.0, self.left() - RESERVED)),
                TORCHINDUCTOR_CACHE_DIR=str(cache),
            )
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
        elif case.script:
            program = [self.python, SCRIPTS / case.script, f"{at}{suffix}.json"]
        else:
            name = case.plain if way == "plain" and case.plain else case.program or case.name
            program = [self.python, SCRIPTS / "gpu_programs.py", name, f"{at}{suffix}.json",
                       "--device", self.device]  # fmt: skip
        if way == "plain":
            program += ["--profile", f"{at}.plain.trace.json.gz"]
        if way not in ("ours", "counted", *BACKENDS):
            return program
        options = [one for one in case.options if one != "--whole" or one in self.known_options]
        if way == "counted":
            from opscope.backends import kineto_counters

            if nsight_compute() is not None:
                names = ",".join((*kineto_counters.parse("flops,dram"), TENSOR_OPERATIONS))
                return [nsight_compute(), "--csv", "--page", "raw", "--nvtx", "--print-units", "base",
                        "--metrics", names, "--log-file", f"{at}.ncu.csv", *program]  # fmt: skip
            options += ["--counters", "flops,tensor,dram"]
        if way in BACKENDS:
            options += ["--backend", way]
        return [self.python, SCRIPTS / "gpu_keeping.py", f"{at}{suffix}.parts", "run", "--force",
                "--no-report", "--output", f"{at}{suffix}.opscope", *options, "--", *program]  # fmt: skip

    def compare(self, case, result):
        """Run the comparing script and read its results; its failure or hang is also a failed check."""
        script = SCRIPTS / (case.compare or "gpu_results.py")
        done = self.run(case.name, [self.python, script, case.name, self.scratch], COMPARING)
        result.runs["compare"] = {"ended": str(done), "seconds": round(done.seconds, 1)}
        try:
            text = (self.scratch / f"{case.name}.checks.json").read_text(encoding="utf-8")
            found = json.loads(text)
            result.checks, result.facts = found["checks"], found["facts"]
        except (OSError, ValueError, KeyError) as error:
            result.checks = {f"the runs could be compared ({done}; {type(error).__name__})": False}
        if result.status == PASSED and (
            not result.checks or any(one is False for one in result.checks.values())
        ):
            result.status = FAILED

    # ------------------------------------------------------------------------------ writing

    def write(self):
        """Write results.txt, results.json and the logs of all cases so far."""
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
        """Return the results as a text for people."""
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
        """Put the files of a case into an archive that has room; add a fact for each file without room."""
        made = self.scratch / f"{case.name}.tar.gz"
        ends = [
            "json",
            "opscope",
            "ncu.csv",
            "counted.opscope",
            "counted.parts",
            "plain.trace.json.gz",
            "parts",
        ]
        ends += [f"{way}.{end}" for way in BACKENDS for end in ("opscope", "nsys-rep", "parts")]
        kinds = [f"{case.name}.{end}" for end in ends]
        present = [one for one in kinds if (self.scratch / one).exists()]
        while present:
            with tarfile.open(made, "w:gz") as tar:
                for one in present:
                    tar.add(self.scratch / one, one)
            if self.placed(made):
                return
            self.results[case.name].facts.append(f"{present.pop()} found no room in the archives")

    def placed(self, made):
        """Add ``made`` to an archive that has room; return whether there was one."""
        room = made.stat().st_size + 2048
        for number in range(1, ARCHIVES + 1):
            archive = self.out / f"traces-{number}.tar"
            if (archive.stat().st_size if archive.exists() else 0) + room <= ARCHIVE:
                with tarfile.open(archive, "a") as tar:
                    tar.add(made, made.name)
                return True
        return False


def nsight_compute():
    """Return the path of Nsight Compute; None if it is not installed."""
    return shutil.which(os.environ.get("OPSCOPE_NCU", "ncu"))


def replaced(path, content):
    """Write a file completely or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


def tail(path, most):
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - most))
        return file.read()


def table(folders):
    """Return the results of several runs as a Markdown table, a row per case, failed checks below."""
    lines = ["| case | what | result | passed | milliseconds per step |", "|---|---|---|---|---|"]
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
    """Return the requested cases. Raises ValueError for an unknown name."""
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
                        help=f"run only the cases of this part: {', '.join(PARTS)}")  # fmt: skip
    parser.add_argument("--case", action="append", default=[], metavar="NAME")
    parser.add_argument("--budget", type=float, metavar="SECONDS",
                        help=f"time limit for all cases  [{BUDGET} per part]")  # fmt: skip
    parser.add_argument("--scratch", help="working folder; caches stay there  [a temporary folder]")
    parser.add_argument("--device", default="cuda", help="cpu tries the check without a GPU")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--table", nargs="+", metavar="FOLDER",
                        help="print results as a Markdown table")  # fmt: skip
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
