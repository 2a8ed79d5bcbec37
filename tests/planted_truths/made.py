"""Made GPU traces of a small transformer's training, each with one planted cause and the truth beside it.

A cause is a ``Training`` with one thing that differs from the healthy one, which keeps its device busy. Each
cause is made in three of five sizes and, where both formats can hold it, as Kineto's JSON and as Nsight
Systems' SQLite in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.planted_truths.scene import (
    COMMUNICATION,
    FLOPS,
    Scene,
    Work,
    moved,
    tensor,
    write_kineto,
    write_nsys,
)
from tests.planted_truths.truth import CANNOT_TELL, HEALTHY, Truth

MS = 1_000_000
#: Steps and layers of each size.
SIZES = ((8, 2), (10, 3), (16, 4), (24, 6), (40, 8))
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize2x1x1_execute_kernel__5x_cublas"
SGEMM = "ampere_sgemm_128x128_nn"
UNALIGNED = "ampere_bf16_s16816gemm_bf16_128x64_ldg1_f2f_stages_32x6_tn"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::{}>(int)"
FLASH = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(Flash_fwd_params)"
SOFTMAX = "void softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 11, false, false>(int)"


@dataclass(frozen=True, slots=True)
class Training:
    """A transformer's training. All times in ns; what is not planted has its healthy value."""

    steps: int
    layers: int
    tokens: int = 8192
    width: int = 2048
    hidden: int = 8192
    heads: int = 16
    dtype: str = "bf16"
    loader: int = 40_000
    #: Values read in each layer, and what Python takes after each.
    reads: int = 0
    python: int = 0
    #: Every so many steps a function is compiled again, for so long.
    recompiles: int = 0
    compiling: int = 0
    fused_attention: bool = True
    fused_optimizer: bool = True
    cast_weights: bool = False
    #: How many tiny ops each layer has in place of its products.
    tiny: int = 0
    #: The size of a copy to the device before each step, and where it comes from.
    batch: int = 0
    memory: str = "Pinned"
    #: What the all-reduce of each step takes.
    reducing: int = 0
    evaluation: int = 0
    sleeping: int = 0
    growing: int = 0

    def run(self, scene: Scene, late: int = 0) -> Scene:
        """Run all steps; ``late``: how long this rank sleeps before each."""
        if self.compiling and not self.recompiles:
            scene.compile("compile 0/0", self.compiling)
        for step in range(self.steps):
            with scene.step():
                self._step(scene, step, late)
            if self.evaluation and step % 3 == 2:
                for _ in range(self.evaluation):
                    scene.evaluate(
                        lambda: [self._forward(scene, layer) for layer in range(self.layers)]
                    )
                scene.wait()
        return scene

    def _step(self, scene: Scene, step: int, late: int) -> None:
        with scene.phase("input"):
            if self.loader:
                text = 'DataLoader() {dataset="Images", workers=2, batch=8} @train.py:10'
                scene.load(text, self.loader)
        scene.idle(late)
        if self.batch:
            scene.copy("HtoD", self.batch, self.memory, waits=self.memory == "Pageable")
        if self.recompiles and step % self.recompiles == 1 % self.recompiles:
            scene.compile(f"compile 0/{step // self.recompiles}", self.compiling)
        forward: list[tuple[str, int, tuple[int, ...]]] = []
        with scene.phase("forward"):
            for layer in range(self.layers):
                forward += self._forward(scene, layer)
        scene.idle(self.sleeping)
        with scene.phase("backward"):
            for number, again in enumerate(reversed(forward)):
                self._backward(scene, again, number)
            if scene.world > 1:
                scene.reduce(self.reducing)
        with scene.phase("optimizer"):
            self._optimizer(scene)
        if self.growing:
            scene.grow(self.growing)

    def _forward(self, scene: Scene, layer: int) -> list[tuple[str, int, tuple[int, ...]]]:
        ops: list[tuple[str, int, tuple[int, ...]]] = []
        line = 20
        if self.tiny:
            value = tensor(self.dtype, 64)
            for number in range(self.tiny):
                name = ("mul", "add", "tanh")[number % 3]
                kernel = ELEMENTWISE.format(f"{name}_functor"), 2_000
                inputs = [value, value] if name != "tanh" else [value]
                ops.append(
                    (name, scene.op(f"aten::{name}", inputs, value, kernel, line=line), (64,))
                )
            return ops
        t, d, h = self.tokens, self.width, self.hidden
        for rows, inner, columns in ((t, d, 3 * d),):
            ops.append(self._product(scene, rows, inner, columns, line))
        ops += self._attention(scene, line + 5)
        ops.append(self._product(scene, t, d, h, line + 9))
        middle = tensor(self.dtype, t, h)
        ops.append(("gelu", scene.op("aten::gelu", [middle], middle, (ELEMENTWISE.format("GeluCUDAKernelImpl"),
                    moved(middle, middle)), line=line + 10), (t, h)))  # fmt: skip
        ops.append(self._product(scene, t, h, d, line + 11))
        for _ in range(self.reads):
            scene.idle(self.python)
            scene.read()
        return ops

    def _product(self, scene: Scene, rows: int, inner: int, columns: int, line: int, again: int | None = None
                 ) -> tuple[str, int, tuple[int, ...]]:  # fmt: skip
        weight = tensor(self.dtype, inner, columns)
        if self.cast_weights and again is None:
            master = tensor("f32", inner, columns)
            scene.op("aten::_to_copy", [master], weight,
                     (ELEMENTWISE.format("bfloat16_copy_kernel_cuda"), moved(master, weight)), line=line)  # fmt: skip
        time = 2 * rows * inner * columns / FLOPS[self.dtype]
        name = GEMM if self.dtype == "bf16" else SGEMM
        if self.dtype == "bf16" and any(side % 8 for side in (rows, inner, columns)):
            name, time = UNALIGNED, time * 4
        number = scene.op("aten::mm", [tensor(self.dtype, rows, inner), weight],
                          tensor(self.dtype, rows, columns), (name, round(time)), line=line, again=again)  # fmt: skip
        return "mm", number, (rows, inner, columns)

    def _attention(self, scene: Scene, line: int) -> list[tuple[str, int, tuple[int, ...]]]:
        # four sequences of 2048
        batch, length, wide = self.tokens // 2048, 2048, self.width // self.heads
        value = tensor(self.dtype, batch, self.heads, length, wide)
        flops = 4 * batch * self.heads * length * length * wide
        if self.fused_attention:
            number = scene.op("aten::_scaled_dot_product_flash_attention", [value] * 3, value,
                              (FLASH, round(flops / FLOPS[self.dtype])), line=line)  # fmt: skip
            return [("_scaled_dot_product_flash_attention", number, (batch, length, wide))]
        flat = tensor(self.dtype, batch * self.heads, length, wide)
        turned = tensor(self.dtype, batch * self.heads, wide, length)
        scores = tensor(self.dtype, batch * self.heads, length, length)
        shaped = tensor(self.dtype, batch, self.heads, length, length)
        half = max(moved(flat, turned, scores), round(flops / 2 / FLOPS[self.dtype]))
        ops = [
            (
                "bmm",
                scene.op("aten::bmm", [flat, turned], scores, (GEMM, half), line=line),
                scores[1],
            )
        ]
        kernel = ELEMENTWISE.format("div_true_kernel_cuda"), moved(shaped, shaped)
        ops.append(
            (
                "div",
                scene.op("aten::div", [shaped, tensor(self.dtype)], shaped, kernel, line=line),
                shaped[1],
            )
        )
        kernel = SOFTMAX, moved(shaped, shaped)
        number = scene.op("aten::_softmax", [shaped], shaped, kernel, line=line + 1)
        ops.append(("_softmax", number, shaped[1]))
        ops.append(
            (
                "bmm",
                scene.op("aten::bmm", [scores, flat], flat, (GEMM, half), line=line + 2),
                scores[1],
            )
        )
        return ops

    def _backward(self, scene: Scene, again: tuple[str, int, tuple[int, ...]], number: int) -> None:
        name, sequence, shape = again
        if name == "mm":
            rows, inner, columns = shape
            self._product(scene, rows, columns, inner, 60, sequence)
            self._product(scene, inner, rows, columns, 60, sequence)
            return
        if name == "_scaled_dot_product_flash_attention":
            batch, length, wide = shape
            value = tensor(self.dtype, batch, self.heads, length, wide)
            time = 10 * batch * self.heads * length * length * wide / FLOPS[self.dtype]
            kernel = FLASH.replace("fwd", "bwd"), round(time)
            scene.op(f"aten::{name}_backward", [value] * 5, value, kernel, again=sequence)
            return
        value = tensor(self.dtype, *shape)
        if name == "bmm":
            _, length, _ = shape
            flat = tensor(self.dtype, shape[0], length, self.width // self.heads)
            flops = 2 * shape[0] * length * length * (self.width // self.heads)
            time = max(moved(flat, flat, value), round(flops / FLOPS[self.dtype]))
            for _ in range(2):
                scene.op("aten::bmm", [value, flat], flat, (GEMM, time), again=sequence)
            return
        time = 2_000 if self.tiny else moved(value, value, value)
        op = {
            "gelu": "gelu_backward",
            "_softmax": "_softmax_backward_data",
            "tanh": "tanh_backward",
        }
        kernel = ELEMENTWISE.format(f"{name}_backward"), time
        scene.op(f"aten::{op.get(name, name)}", [value, value], value, kernel, again=sequence)

    def _optimizer(self, scene: Scene) -> None:
        if self.tiny:
            value = tensor(self.dtype, 64)
            scene.op(
                "aten::_fused_adamw_",
                [value] * 4,
                value,
                ("multi_tensor_apply_kernel<FusedAdamMathFunctor>", 3_000),
            )
            return
        weight = tensor(self.dtype, self.width, 3 * self.width + 2 * self.hidden)
        if self.fused_optimizer:
            for _ in range(self.layers):
                kernel = (
                    "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>",
                    moved(*[weight] * 7),
                )
                scene.op("aten::_fused_adamw_", [weight] * 4, weight, kernel, line=80)
            return
        names = ("mul_", "add_", "lerp_", "mul_", "addcmul_", "sqrt", "div", "add_", "addcdiv_")
        for _ in range(3 * self.layers):
            part = tensor(self.dtype, self.width, (3 * self.width + 2 * self.hidden) // 3)
            for name in names:
                many = 3 if name.startswith("addc") else 2
                kernel = ELEMENTWISE.format(f"{name}functor"), moved(*[part] * (many + 1))
                scene.op(f"aten::{name}", [part] * many, part, kernel, host=9_000, line=80)


#: What differs from the healthy training, by cause.
PLANTED: Mapping[str, Callable[[Training], Training]] = {
    "slow loader": lambda run: replace(run, loader=run.layers * 6 * MS),
    "synchronising reads": lambda run: replace(run, reads=3, python=600_000),
    "recompiling shapes": lambda run: replace(run, recompiles=2, compiling=run.layers * 20 * MS),
    "late rank": lambda run: run,
    "lost kernels": lambda run: run,
    "memory growth": lambda run: replace(run, growing=48 << 20),
    "unfused optimizer": lambda run: replace(run, fused_optimizer=False, tokens=2048),
    "unfused attention": lambda run: replace(run, fused_attention=False),
    "casts": lambda run: replace(run, cast_weights=True, tokens=2048, width=1536, hidden=6144),
    "precision": lambda run: replace(run, dtype="f32"),
    "padding": lambda run: replace(run, hidden=8190),
    "tiny ops": lambda run: replace(run, tiny=120),
    "transfers": lambda run: replace(run, batch=run.layers * (150 << 20)),
    "pageable copies": lambda run: replace(run, batch=run.layers * (18 << 20), memory="Pageable"),
    "uncovered communication": lambda run: replace(run, reducing=run.layers * 4 * MS),
    "compile time dominates": lambda run: replace(run, compiling=30_000 * MS),
    "evaluation dominates": lambda run: replace(run, evaluation=30),
    "sleeping between ops": lambda run: replace(run, sleeping=run.layers * 8 * MS),
    HEALTHY: lambda run: run,
    CANNOT_TELL: lambda run: run,
}
#: Formats that can hold a cause, where it is only one.
_ONLY = {
    "recompiling shapes": "nsys",
    "compile time dominates": "nsys",
    "memory growth": "kineto",
    "late rank": "kineto",
    "uncovered communication": "kineto",
}
#: Each rank sleeps so long before each of its steps, where one is late.
LATE = 9 * MS


def names() -> list[tuple[str, int]]:
    """Return the cause and size of each made trace: each cause in three of five sizes."""
    return [
        (cause, (place + turn) % len(SIZES))
        for place, cause in enumerate(PLANTED)
        for turn in (0, 2, 4)
    ]


def make(cause: str, size: int, folder: Path) -> Truth:
    """Write the traces of a cause in a size, and the truth beside them."""
    steps, layers = SIZES[size]
    run = PLANTED[cause](Training(steps, layers))
    place = list(PLANTED).index(cause)
    form = _ONLY.get(cause, ("kineto", "nsys")[(place + size) % 2])
    name = f"{cause.replace(' ', '_')}-{form}-{steps}x{layers}"
    world = {"late rank": 2 + size % 2 * 2, "uncovered communication": 2}.get(cause, 1)
    scenes = [
        run.run(Scene(rank=rank, world=world), _late(cause, rank, world)) for rank in range(world)
    ]
    late = meet(scenes) if world > 1 else 0
    lost = None
    if cause == "lost kernels":
        kept = [work for number, work in enumerate(scenes[0].works) if number % 9 != 4]
        lost = len(scenes[0].works) - len(kept)
        scenes[0].works = kept
    if cause == CANNOT_TELL:
        bare(scenes[0], few=form == "nsys")
    files = []
    for scene in scenes:
        path = folder / (f"{name}-rank{scene.rank}" if world > 1 else name)
        path = path.with_name(path.name + (".sqlite" if form == "nsys" else ".json"))
        (write_nsys if form == "nsys" else write_kineto)(scene, path)
        files.append(path.name)
    unknown = cause == CANNOT_TELL
    truth = Truth(
        name, cause, "trace", form, size, files,
        None if unknown else steps,
        None if unknown or world > 1 else scenes[0].truth(),
        (world - 1, late) if cause == "late rank" else None,
        ranks=world, lost=lost,
    )  # fmt: skip
    truth.write(folder)
    return truth


def _late(cause: str, rank: int, world: int) -> int:
    return LATE if cause == "late rank" and rank == world - 1 else 0


def meet(scenes: list[Scene]) -> int:
    """Let each collective end on all ranks when the last one came, and delay all that follows on each.

    Return by how much the last one comes after the first, over all collectives (ns).
    """
    late = 0
    collectives = [
        [work for work in scene.works if work.stream == COMMUNICATION] for scene in scenes
    ]
    for number in range(len(collectives[0])):
        mine = [works[number] for works in collectives]
        end = max(work.end for work in mine)
        late += max(work.start for work in mine) - min(work.start for work in mine)
        for scene, work in zip(scenes, mine, strict=True):
            more = end - work.end
            work.end = end
            if more:
                delay(scene, work, more)
    return late


def delay(scene: Scene, after: Work, more: int) -> None:
    """Delay all that a rank did since the end of a collective, for which its host waited."""
    edge = after.end - more
    for work in scene.works:
        if work is not after and work.start >= edge:
            work.start, work.end = work.start + more, work.end + more
    scene.calls = [
        (name, start + more if start >= edge else start, end + more if end >= edge else end, *rest)
        for name, start, end, *rest in scene.calls
    ]
    for span in scene.spans:
        span.start += more if span.start >= edge else 0
        span.end += more if span.end >= edge else 0


def bare(scene: Scene, few: bool) -> None:
    """Leave only kernels, with idle time between: nothing says what launched them, or what the host did.

    ``few``: leave so few that nothing can be said of the run.
    """
    scene.spans.clear()
    scene.calls.clear()
    gap = 0
    for work in scene.works:
        work.start, work.end, work.correlation = work.start + gap, work.end + gap, 0
        gap += 2 * (work.end - work.start)
    if few:
        del scene.works[6:]
