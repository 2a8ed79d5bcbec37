"""What light mode costs a step: on and off in turns within one run, beside TraceML on the same program.

    python benchmarks/light.py mlp transformer keras jax --blocks 80 --steps 25
    traceml run benchmarks/light.py --args mlp transformer --tool traceml

Times are processor time of the program's thread unless --wall is given.
A block is some steps with the tool, then as many without, or the other way round, by chance. Each pair of blocks
gives one difference of their medians, so what the machine does for longer than a pair cancels. Printed: the
median step without, the median of the differences with its 95 % interval (of order statistics), how far the
fastest tenth of the steps with the tool lies from the fastest tenth of those without (what is least disturbed on
a busy machine), and for light mode what it says of itself. `nothing` is a PyTorch training whose loader,
backward pass and optimizer do nothing: what is left is the hooks. It comes last, as it replaces them. Tools' own threads run all the time: what they take is in both.
TraceML counts within its `trace_step`; what it has patched besides stays in the blocks without.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from math import floor, sqrt
from time import perf_counter_ns, thread_time_ns
from typing import Any

#: The clock of steps: processor time of the thread, for other programs of the machine run meanwhile; or, with
#: ``--wall``, time.
clock = thread_time_ns
#: Runs some steps and returns what each took (ns); is given a context for each step.
Runs = Callable[[int, Callable[[], Any]], list[int]]


def timed(step: Callable[[], object]) -> Runs:
    def run(many: int, around: Callable[[], Any]) -> list[int]:
        took = []
        for _ in range(many):
            begin = clock()
            with around():
                step()
            took.append(clock() - begin)
        return took

    return run


def mlp() -> tuple[Any, Runs]:
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return model, timed(_training(model, optimizer, (8, 32), 10))


def transformer() -> tuple[Any, Runs]:
    import torch

    torch.set_num_threads(1)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.Sequential(
        torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False),
        torch.nn.Flatten(),
        torch.nn.Linear(64 * 16, 10),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    return model, timed(_training(model, optimizer, (4, 16, 64), 10))


def _training(
    model: Any, optimizer: Any, shape: tuple[int, ...], classes: int
) -> Callable[[], None]:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    many = 64
    data = TensorDataset(
        torch.randn(many * shape[0], *shape[1:]), torch.randint(0, classes, (many * shape[0],))
    )

    def endless() -> Iterator[Any]:
        while True:
            yield from DataLoader(data, batch_size=shape[0])

    batches = endless()

    def step() -> None:
        x, y = next(batches)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def nothing() -> tuple[Any, Runs]:
    import torch
    from torch.utils.data import dataloader

    class Optimizer(torch.optim.Optimizer):
        def __init__(self) -> None:
            super().__init__([torch.nn.Parameter(torch.zeros(1))], {})

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            return None

    class Loader(dataloader._BaseDataLoaderIter):
        def __init__(self) -> None:
            pass

    dataloader._BaseDataLoaderIter.__next__ = lambda loader: None  # type: ignore[method-assign]
    graph: Any = torch.autograd.graph
    graph._engine_run_backward = lambda *args, **kwargs: None
    loader, optimizer = Loader(), Optimizer()

    def step() -> None:
        next(loader)
        graph._engine_run_backward((loader,), accumulate_grad=True)
        optimizer.step()

    return None, timed(step)


def keras() -> tuple[Any, Runs]:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras
    import numpy as np

    model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    class Times(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.at: list[int] = []

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.at.append(clock())

    def run(many: int, around: Callable[[], Any]) -> list[int]:
        x = np.random.default_rng(0).normal(size=(8 * (many + 2), 32)).astype("float32")
        y = np.zeros(len(x), "int64")
        times = Times()
        model.fit(x, y, batch_size=8, verbose=0, shuffle=False, callbacks=[times])
        return [after - at for at, after in zip(times.at[1:], times.at[2:], strict=False)]

    return None, run


def jax() -> tuple[Any, Runs]:
    import jax
    import jax.numpy as jnp

    import opscope
    from opscope.core.capture import session

    @jax.jit
    def train(weights: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            return jnp.mean((jnp.tanh(x @ w[0]) @ w[1]) ** 2)

        return [w - 0.01 * g for w, g in zip(weights, jax.grad(loss)(weights), strict=True)]

    keys = jax.random.split(jax.random.key(0), 3)
    state = [[jax.random.normal(keys[0], (64, 256)), jax.random.normal(keys[1], (256, 10))]]
    x = jax.random.normal(keys[2], (32, 64))

    def step() -> None:
        if session.light() is not None:
            opscope.step()
        state[0] = jax.block_until_ready(train(state[0], x))

    return None, timed(step)


PROGRAMS = {one.__name__: one for one in (mlp, transformer, keras, jax, nothing)}


class Light:
    """opscope's light mode, which can be turned off and on again."""

    def __init__(self, folder: str, model: Any) -> None:
        from opscope.backends import light

        self.recording = light.into(folder, False)
        self.off()

    def on(self) -> None:
        from opscope import adapters
        from opscope.core.capture import session

        session.measure_steps(self.recording.clock, self.recording.stop)
        adapters.install(None, adapters.Options(spells=False))

    def off(self) -> None:
        from opscope import adapters
        from opscope.core.capture import session

        adapters.uninstall()
        session.leave_step()
        session.measure_steps(None)

    around = staticmethod(nullcontext)

    def told(self) -> str:
        cost = self.recording.step_cost()
        return "-" if cost is None else f"{cost[0] / 1e3:.1f} ± {cost[1] / 1e3:.1f}"


class TraceML:
    """TraceML, which counts within ``trace_step``."""

    def __init__(self, folder: str, model: Any) -> None:
        import traceml_ai

        traceml_ai.init(mode="auto")
        self.traces = lambda: traceml_ai.trace_step(model)
        self.around: Callable[[], Any] = nullcontext

    def on(self) -> None:
        self.around = self.traces

    def off(self) -> None:
        self.around = nullcontext

    def told(self) -> str:
        return "-"


def interval(values: list[float]) -> tuple[float, float, float]:
    """The median, and the order statistics that enclose it in 19 of 20 cases."""
    ordered, many = sorted(values), len(values)
    reach = floor(many / 2 - 0.98 * sqrt(many))
    low = max(0, reach - 1)
    return statistics.median(ordered), ordered[low], ordered[many - 1 - low]


@contextmanager
def _quiet() -> Iterator[None]:
    import gc

    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def compare(name: str, tool: type, blocks: int, steps: int, folder: str) -> None:
    model, run = PROGRAMS[name]()
    run(50, nullcontext)
    used = tool(folder, model)
    used.on()
    run(steps, lambda: used.around())
    chance, differences, without = random.Random(0), [], []
    all_steps: dict[bool, list[int]] = {True: [], False: []}
    for _ in range(blocks):
        medians = {}
        for on in chance.sample([True, False], 2):
            (used.on if on else used.off)()
            run(3, lambda: used.around())
            with _quiet():
                took = run(steps, lambda: used.around())
            medians[on] = statistics.median(took)
            all_steps[on] += took
        differences.append(medians[True] - medians[False])
        without.append(medians[False])
    middle, low, high = interval(differences)
    step = statistics.median(without)
    fast = {on: statistics.quantiles(took, n=10)[0] for on, took in all_steps.items()}
    print(
        f"| {name} | {tool.__name__} | {step / 1e3:.0f} | {middle / 1e3:+.1f} "
        f"({low / 1e3:+.1f} to {high / 1e3:+.1f}) | {fast[True] / 1e3:.1f} - {fast[False] / 1e3:.1f} = "
        f"{(fast[True] - fast[False]) / 1e3:+.1f} | {used.told()} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("programs", nargs="+", choices=PROGRAMS)
    parser.add_argument("--tool", choices=("opscope", "traceml"), default="opscope")
    parser.add_argument("--blocks", type=int, default=80, help="pairs of blocks")
    parser.add_argument("--steps", type=int, default=25, help="steps of a block")
    parser.add_argument(
        "--wall", action="store_true", help="time, not processor time of the thread"
    )
    asked = parser.parse_args()
    global clock
    clock = perf_counter_ns if asked.wall else thread_time_ns
    if asked.tool == "traceml" and {"keras", "jax"} & set(asked.programs):
        sys.exit("TraceML traces PyTorch programs whose loop calls its trace_step")
    print(
        "| program | tool | step [µs] | with it [µs] | fastest tenth [µs] | by its own account [µs] |"
    )
    print("|---|---|---|---|---|---|")
    for name in asked.programs:
        with tempfile.TemporaryDirectory() as folder:
            compare(
                name,
                Light if asked.tool == "opscope" else TraceML,
                asked.blocks,
                asked.steps,
                folder,
            )


if __name__ == "__main__":
    main()
