"""Measure what each backend costs a training, by the command that people type, beside the frameworks' own profilers.

    python benchmarks/backends.py [--rounds=6] [--steps=60] [--only=NAME,NAME] [--programs=lenet,transformer]

The frameworks installed here decide which programs run: two trainings of PyTorch, else one of JAX, else one of
MindSpore. Each runs plain (``python train.py``), under ``opscope run --backend NAME`` for each backend that
works here, and with the framework's own profiler around its steps. ``emit`` runs under an NVTX tool, which the
tests bring and which writes each range to a file; ``nsys`` runs where one is on PATH or in ``$OPSCOPE_NSYS``,
and records NVTX and calls of the operating system where there is no GPU.

Each run is a process of its own. A run's time is the 10th percentile of its steps' CPU times, of all threads,
which other programs on the machine change least, after a third of the steps; a round runs "plain" before and after each variant, and its ratio is to the mean of both. Printed
are the median of the rounds with the least and the greatest, and the seconds from the end of the last step
to the end of the command: what it writes. Read the ratios: the times are this machine's, of this hour.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from opscope import backends  # noqa: E402

TORCH = """
import torch
from torch import nn
torch.manual_seed(0)
if PROGRAM == "lenet":
    model = nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 10))
    x, y = torch.randn(64, 1, 28, 28), torch.randint(10, (64,))
else:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 4), nn.Flatten(), nn.Linear(64 * 256, 10))
    x, y = torch.randn(8, 64, 256), torch.randint(10, (8,))
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
def step():
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
def own(folder):
    from torch.profiler import ProfilerActivity, profile
    found = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True)
    found.__enter__()
    def end():
        found.__exit__(None, None, None)
        found.export_chrome_trace(folder + "/trace.json")
    return end
"""
JAX = """
import jax, jax.numpy as jnp
keys = jax.random.split(jax.random.key(0), 3)
w = [jax.random.normal(keys[0], (784, 256)) * 0.03, jax.random.normal(keys[1], (256, 10)) * 0.05]
x, y = jax.random.normal(keys[2], (256, 784)), jnp.arange(256) % 10
def loss(w):
    out = jax.nn.log_softmax(jax.nn.relu(x @ w[0]) @ w[1])
    return -jnp.take_along_axis(out, y[:, None], 1).mean()
update = jax.jit(lambda w: jax.tree.map(lambda a, g: a - 0.1 * g, w, jax.grad(loss)(w)))
def step():
    global w
    w = jax.block_until_ready(update(w))
def own(folder):
    jax.profiler.start_trace(folder)
    return jax.profiler.stop_trace
"""
MINDSPORE = """
import os
os.environ.setdefault("GLOG_v", "3")
import numpy, mindspore
from mindspore import nn, ops
mindspore.set_seed(0)
net = nn.SequentialCell(nn.Conv2d(1, 6, 5, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2),
    nn.Conv2d(6, 16, 5, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten(), nn.Dense(256, 10))
x = mindspore.Tensor(numpy.random.rand(64, 1, 28, 28).astype("f4"))
y = mindspore.Tensor(numpy.arange(64, dtype="i4") % 10)
optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9)
grad = mindspore.value_and_grad(lambda: ops.cross_entropy(net(x), y), None, optimizer.parameters)
def step():
    loss, grads = grad()
    optimizer(grads)
    loss.asnumpy()
def own(folder):
    from mindspore import profiler
    found = profiler.Profiler(output_path=folder)
    return found.analyse
"""
#: Runs the steps, and writes each one's time and when the last one ended.
STEPS = """
import json, os, sys, time
PROGRAM, COUNT, OWN, TIMES = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "own", sys.argv[4]
{framework}
for _ in range(COUNT // 3):
    step()
end = own(os.path.dirname(TIMES)) if OWN else lambda: None
if OWN:
    step()
times = []
for _ in range(COUNT):
    begun = time.process_time()
    step()
    times.append(time.process_time() - begun)
with open(TIMES, "w") as file:
    json.dump([times, time.monotonic()], file)
end()
"""
#: Framework → its program's text, the programs, and what its own profiler is called.
FRAMEWORKS = {
    "torch": (TORCH, ("lenet", "transformer"), "torch.profiler, shapes"),
    "jax": (JAX, ("mlp",), "jax.profiler"),
    "mindspore": (MINDSPORE, ("lenet",), "mindspore.profiler"),
}


@dataclass(frozen=True)
class Way:
    """One way to run the training: words before ``python``, an environment, the profiler of its own."""

    name: str
    words: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    own: bool = False


PLAIN = Way("plain")


def ways(framework: str, scratch: Path) -> Iterator[Way]:
    """Yield the ways that work here, and print why the others do not."""
    machine = backends.here(modules={})
    run = (sys.executable, "-m", "opscope", "run", "--no-report", "-f", "-o", "measured")
    tool = injection(scratch)
    nsys = found_nsys()
    for name, backend, found in sorted(backends.ranked(machine), key=lambda one: one[0]):
        words = (*run, "--backend", name, "--")
        if name == "emit" and tool is not None:
            log = ("OPSCOPE_TEST_NVTX_LOG", str(scratch / "nvtx.log"))
            yield Way(
                "emit, to a tool that writes a file",
                words,
                (("NVTX_INJECTION64_PATH", str(tool)), log),
            )
        elif name == "nsys" and nsys is not None:
            trace = (
                "-t",
                "nvtx,cuda" if machine.gpu else "nvtx,osrt",
                "-s",
                "none",
                "--cpuctxsw=none",
            )
            out = ("-f", "true", "-o", str(scratch / "measured"))
            emit = (*run, "--backend", "emit", "--")
            yield Way("nsys", (nsys, "profile", *trace, *out, *emit))
        elif backend is not None and found.works and not backend.outside:
            yield Way(name, words)
        else:
            print(f"  not here: {name}: {found.why}")
    yield Way(FRAMEWORKS[framework][2], own=True)


def injection(scratch: Path) -> Path | None:
    """Build the tests' NVTX tool; None without a compiler or headers."""
    import pytest

    from tests.nvtx_tool import build

    try:
        return build(scratch)
    except (pytest.skip.Exception, subprocess.CalledProcessError) as error:
        print(f"  not here: emit: {error}")
        return None


def found_nsys() -> str | None:
    """The path of nsys."""
    return os.environ.get("OPSCOPE_NSYS") or shutil.which("nsys")


def timed(way: Way, program: str, steps: int, script: Path, scratch: Path) -> tuple[float, float]:
    """Run once; return the seconds of a step and those from the last step to the end of the command."""
    times = scratch / "times" / "times.json"
    shutil.rmtree(times.parent, ignore_errors=True)
    times.parent.mkdir()
    words = (
        sys.executable,
        str(script),
        program,
        str(steps),
        "own" if way.own else "-",
        str(times),
    )
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, **dict(way.env)}
    done = subprocess.run(
        [*way.words, *words], cwd=scratch, env=env, capture_output=True, text=True
    )
    ended = time.monotonic()
    if done.returncode or not times.exists():
        raise SystemExit(f"{way.name} failed: {done.stderr[-2000:]}")
    each, last = json.loads(times.read_text())
    return statistics.quantiles(each, n=10)[0], ended - last


def measure(one: Callable[[Way], tuple[float, float]], every: list[Way], rounds: int) -> None:
    """Run all ways in turns, and print a line for each."""
    ratios: dict[str, list[float]] = {way.name: [] for way in every}
    added: dict[str, list[float]] = {way.name: [] for way in every}
    ends: dict[str, list[float]] = {way.name: [] for way in every}
    plain: list[float] = []
    before = one(PLAIN)[0]
    for _ in range(rounds):
        for way in every:
            step, end = one(way)
            after = one(PLAIN)[0]
            base = (before + after) / 2
            ratios[way.name].append(step / base)
            added[way.name].append((step - base) * 1e3)
            ends[way.name].append(end)
            plain.append(after)
            before = after
            print(f"  {way.name}: {ratios[way.name][-1]:.3f}", file=sys.stderr, flush=True)
    low, high = min(plain) * 1e3, max(plain) * 1e3
    print(
        f"  plain: {statistics.median(plain) * 1e3:.2f} ms of CPU time a step ({low:.2f} to {high:.2f})"
    )
    print(
        "  | backend | CPU time of a step, ratio | least to greatest | ms added to a step | s after the last step |"
    )
    print("  |---|---|---|---|---|")
    for name, found in sorted(ratios.items(), key=lambda item: statistics.median(item[1])):
        row = (
            name,
            f"{statistics.median(found):.3f}",
            f"{min(found):.3f} to {max(found):.3f}",
            f"{statistics.median(added[name]):+.2f}",
            f"{statistics.median(ends[name]):.1f}",
        )
        print(f"  | {' | '.join(row)} |")


def main() -> None:
    options = dict(one.lstrip("-").split("=", 1) for one in sys.argv[1:] if "=" in one)
    framework = next(one for one in FRAMEWORKS if importlib.util.find_spec(one))
    text, programs, _ = FRAMEWORKS[framework]
    wanted = options.get("programs", ",".join(programs)).split(",")
    rounds, steps = int(options.get("rounds", 6)), int(options.get("steps", 60))
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        script = scratch / "train.py"
        script.write_text(STEPS.replace("{framework}", text))
        print(f"{framework}: {rounds} rounds of {steps} steps")
        every = [*ways(framework, scratch)]
        if "only" in options:
            every = [way for way in every if way.name.split(",")[0] in options["only"].split(",")]
        for program in wanted:
            print(f"{program}:", flush=True)
            measure(lambda way, p=program: timed(way, p, steps, script, scratch), every, rounds)


if __name__ == "__main__":
    main()
