"""Play the kernels of a trace back during a real training on the CPU, from within its ops and threads.

PyTorch's CPU kernels of some ops are replaced by functions that launch the trace's kernels of the op on a
simulated GPU, then compute with another overload of the op. So the launches come from real ops of the forward
and the backward pass, on real threads.
"""

from __future__ import annotations

import mmap
import random
import threading
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import torch

from opscope.core.capture import session
from opscope.profile import Profile
from tests.fake_cuda import FakeCuda

#: The stack size of a thread, bytes.
STACK = 128 << 20
#: A launch of an op: ("kernel" | "copy" | "fill", its name or kind, ns, more properties).
Launch = tuple[str, str, int, dict[str, Any]]


@dataclass
class Player:
    """The launches left to play, by op; an op without launches left takes those of others."""

    ops: dict[str, deque[list[Launch]]]
    lock: threading.Lock = field(default_factory=threading.Lock)
    played: int = 0

    def take(self, op: str) -> list[Launch]:
        """Take the launches of the next op with this name."""
        with self.lock:
            found = self.ops.get(op) or next((left for left in self.ops.values() if left), None)
            launches = found.popleft() if found else []
            self.played += len(launches)
            return launches

    def left(self) -> bool:
        """Whether any launches are left."""
        return any(self.ops.values())


def of_trace(profile: Profile) -> Player:
    """Return a player for the launches of a profile's ops, in order."""
    kernels = profile.kernels().filter(pl.col("op_id").is_not_null())
    memops = profile.memops().filter(pl.col("op_id").is_not_null())
    found: dict[tuple[str, int], list[tuple[int, Launch]]] = defaultdict(list)
    columns = "op", "op_id", "call_start", "duration", "stream"
    for op, number, at, length, stream, name, grid, block in kernels.select(
        *columns, "name", "grid", "block"
    ).rows():
        told = {"stream": stream, "grid": _three(grid), "block": _three(block)}
        found[op, number].append((at, ("kernel", name, length, told)))
    for op, number, at, length, stream, kind, size in memops.select(
        *columns, "kind", "bytes"
    ).rows():
        told = {"stream": stream, "bytes": size}
        what = ("fill", "", length, told) if kind == "memset" else ("copy", kind, length, told)
        found[op, number].append((at, what))
    ops: dict[str, deque[list[Launch]]] = defaultdict(deque)
    for op, number in sorted(found, key=lambda key: found[key][0][0]):
        each = sorted(found[op, number], key=lambda launch: launch[0])
        ops[op.partition(".")[0]].append([launch for _, launch in each])
    return Player(dict(ops))


def made(seed: int, many: int = 600) -> Player:
    """Return a player for random launches: one to three per op, sometimes a copy or a set."""
    draw = random.Random(seed)
    ops: dict[str, deque[list[Launch]]] = defaultdict(deque)
    for number in range(many):
        op = draw.choice(("aten::addmm", "aten::mm", "aten::mul", "aten::add", "aten::copy_"))
        launches: list[Launch] = [
            ("kernel", f"kernel_{number}_{part}", draw.randrange(800, 9_000), {"stream": 7})
            for part in range(draw.randrange(1, 4))
        ]
        if draw.random() < 0.2:
            launches.append(("copy", "HtoD", 900, {"bytes": 4096, "stream": 7}))
        if draw.random() < 0.1:
            launches.append(("fill", "", 700, {"bytes": 512, "stream": 13}))
        ops[op].append(launches)
    return Player(dict(ops))


def _three(text: str | None) -> tuple[int, ...]:
    return tuple(map(int, (text or "1,1,1").split(",")))


# ------------------------------------------------------------------------- ops that launch


@dataclass
class Stage:
    """The GPU and the player that the ops use; both are exchanged between runs."""

    gpu: FakeCuda | None = None
    player: Player | None = None
    local: threading.local = field(default_factory=threading.local)

    @contextmanager
    def within(self, op: str) -> Iterator[None]:
        """Play the op's launches, then compute; ops called inside the op play nothing."""
        inside = getattr(self.local, "inside", False)
        if not inside:
            self.play(op)
        self.local.inside = True
        try:
            yield
        finally:
            self.local.inside = inside

    def play(self, op: str) -> None:
        """Make the launches of the next op with this name."""
        if self.gpu is None or self.player is None:
            return
        for kind, name, length, told in self.player.take(op):
            if kind == "kernel":
                self.gpu.launch(name, op, length, **told)
            elif kind == "copy":
                self.gpu.copy(name, op, length, **told)
            else:
                self.gpu.fill(op, length, **told)


@contextmanager
def launching(stage: Stage) -> Iterator[None]:
    """Within this context, the CPU kernels of these ops play the launches of ``stage``."""
    aten = torch.ops.aten
    outs: dict[str, Any] = {
        "addmm": aten.addmm.out,
        "mm": aten.mm.out,
        "mul.Tensor": aten.mul.out,
        "add.Tensor": aten.add.out,
        "pow.Tensor_Scalar": aten.pow.Tensor_Scalar_out,
        "mean.dim": aten.mean.out,
        "rsqrt": aten.rsqrt.out,
        "cat": aten.cat.out,
    }

    def through(name: str, out: Any) -> Callable[..., torch.Tensor]:
        op = f"aten::{name.partition('.')[0]}"

        def kernel(*args: Any, **options: Any) -> torch.Tensor:
            first = args[0][0] if isinstance(args[0], (list, tuple)) else args[0]
            with stage.within(op):
                result: torch.Tensor = out(*args, **options, out=first.new_empty(0))
            return result

        return kernel

    def copy(self: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        if isinstance(source, (int, float)):  # a scalar of an op, which the op converts to a tensor
            self.detach().numpy()[...] = source
            return self
        with stage.within("aten::copy_"):
            self.detach().numpy()[...] = source.detach().numpy()
        return self

    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel")
            for name, out in outs.items():
                library.impl(name, through(name, out), "CPU")
            library.impl("copy_", copy, "CPU")
        yield
    finally:
        library._destroy()


# ----------------------------------------------------------------------------- the training


def train(player: Player, seed: int, step: Callable[[], object] = lambda: None) -> None:
    """Train a small model by plain gradient descent until everything is played; call ``step`` per step."""
    made = torch.Generator().manual_seed(seed)

    def parameter(*shape: int) -> torch.Tensor:
        return (torch.randn(shape, generator=made) * 0.1).requires_grad_()

    weights = [parameter(16, 16) for _ in range(3)]
    biases = [parameter(16) for _ in range(3)]
    average = torch.zeros(16, 16)
    data = torch.randn((8, 16), generator=made)
    while player.left():
        x = data
        for weight, bias in zip(weights, biases, strict=True):
            x = torch.addmm(bias, x, weight)
            x = x * torch.rsqrt(torch.mean(torch.pow(x, 2), 1, keepdim=True) + 1e-6)
        loss = torch.mean(torch.pow(torch.cat((x, data)), 2), (0, 1))
        loss.backward()
        with torch.no_grad():
            for each in (*weights, *biases):
                each.copy_(torch.add(each, each.grad, alpha=-0.01))
                each.grad = None
            average.copy_(torch.mul(weights[0], 0.5))
        step()


@contextmanager
def elsewhere(draw: random.Random) -> Iterator[None]:
    """Within this context, new threads have their stacks, and so their pthread ids, at other addresses."""
    # Reserve up to 8 GiB of addresses without touching them, in pieces that fill the gaps into which a stack
    # fits. glibc does not reuse stacks above 40 MB for the next thread.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    held = [mmap.mmap(-1, STACK, flags=flags, prot=0) for _ in range(draw.randrange(64))]
    before = threading.stack_size(STACK)
    try:
        yield
    finally:
        threading.stack_size(before)
        for piece in held:
            piece.close()


def run(stage: Stage, gpu: FakeCuda, player: Player, threads: int, seed: int) -> list[int]:
    """Train on this thread and ``threads`` more, during a capture; return the threads' pthread ids."""
    stage.gpu, stage.player = gpu, player
    errors: list[BaseException] = []
    met = [threading.get_ident()]

    def other(number: int) -> None:
        met.append(threading.get_ident())
        try:
            train(player, number)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    workers = []
    with elsewhere(random.Random(seed)):
        for number in range(threads):
            workers.append(threading.Thread(target=other, args=(number,)))
            workers[-1].start()
    try:
        train(player, seed, session.step)
    finally:
        for worker in workers:
            worker.join()
        stage.gpu = stage.player = None
    if errors:
        raise errors[0]
    return met
