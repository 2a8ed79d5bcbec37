"""Kernels that users write in Triton: ranges around their launches, on a stand-in and, where it is, on Triton."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from opscope.core.rangetext import parse  # noqa: E402

#: As much of Triton 3's launching as the adapter sees: ``kernel[grid](…)`` ends in ``JITFunction.run``.
JIT = """
class JITFunction:
    def __init__(self, fn):
        self.fn, self.__name__ = fn, fn.__name__
        self.arg_names = list(fn.__code__.co_varnames[: fn.__code__.co_argcount])
        self.launched = []

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(grid=grid, warmup=False, *args, **kwargs)

    def warmup(self, *args, grid, **kwargs):
        return self.run(grid=grid, warmup=True, *args, **kwargs)

    def run(self, *args, grid, warmup, **kwargs):
        if warmup:
            return "compiled"
        self.launched.append((args, grid, kwargs))
        return self.fn(*args, **{key: value for key, value in kwargs.items() if key in self.arg_names})
"""
AUTOTUNER = """
class Autotuner:
    def __init__(self, fn, configs):
        self.fn, self.configs = fn, configs

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(grid=grid, warmup=False, *args, **kwargs)

    def _bench(self, *args, config, **meta):
        self.fn.run(*args, **config, **meta)
        return 1.0

    def run(self, *args, **kwargs):
        for config in self.configs:
            self._bench(*args, config=config, **kwargs)
        return self.fn.run(*args, **self.configs[-1], **kwargs)
"""
#: What ``TRITON_INTERPRET=1`` makes of a kernel instead.
INTERPRETER = JIT.replace("JITFunction", "InterpretedFunction")


def module(name: str, text: str) -> ModuleType:
    made = ModuleType(name)
    exec(
        compile(text, f"/lib/python3/site-packages/{name.replace('.', '/')}.py", "exec"), vars(made)
    )
    return made


@pytest.fixture
def triton(monkeypatch):
    """Triton's three modules, and a kernel of the user's."""
    found = {name: module(name, text) for name, text in
             (("triton.runtime.jit", JIT), ("triton.runtime.autotuner", AUTOTUNER),
              ("triton.runtime.interpreter", INTERPRETER))}  # fmt: skip
    for name, made in found.items():
        monkeypatch.setitem(sys.modules, name, made)
    return found


def axpy(x, y, out, n, a, BLOCK):
    out.copy_(x * a + y)


@pytest.mark.parametrize(
    ("name", "kind"), [("jit", "JITFunction"), ("interpreter", "InterpretedFunction")]
)
def test_a_launch_is_an_op_with_its_tensors_numbers_and_line(watched, triton, name, kind):
    jit = getattr(triton[f"triton.runtime.{name}"], kind)
    before = jit.run
    emitter = watched.install()
    kernel = jit(axpy)
    x, y, out = torch.ones(2, 3), torch.ones(2, 3), torch.empty(2, 3)
    kernel[(4,)](x, y, out, 6, 2.0, BLOCK=1024, num_warps=8)
    assert kernel.warmup(x, y, out, 6, 2.0, grid=(1,), BLOCK=1024) == "compiled"
    (one,) = emitter.named("triton::axpy")
    assert (one.category, one.closed) == ("forward", True)
    call = parse(one.text)
    assert [spec.shape for spec in call.inputs] == [(2, 3)] * 3
    assert call.device == "cpu"
    assert dict(call.params) == {
        "grid": (4,), "n": 6, "a": 2.0, "BLOCK": 1024, "num_warps": 8,
    }  # fmt: skip
    assert call.frames[0][0].endswith("test_triton_kernels.py")
    # what the kernel calls is in its range, and it got what the program gave
    assert {r.call.name for r in emitter.ops if one in r.parents} >= {"aten::copy_"}
    assert kernel.launched == [((x, y, out, 6, 2.0), (4,), {"BLOCK": 1024, "num_warps": 8})]
    assert torch.equal(out, torch.full((2, 3), 3.0))
    watched.adapter.uninstall()
    assert jit.run is before
    assert not watched.broken


def test_numbers_that_change_all_the_time_share_a_text(watched, triton):
    emitter = watched.install()
    kernel = triton["triton.runtime.jit"].JITFunction(lambda x, step: None)
    kernel.__name__ = "update"
    for step in range(100):
        kernel[lambda meta: (1,)](torch.ones(2), step)
    texts = {one.text for one in emitter.named("triton::update")}
    assert len(emitter.named("triton::update")) == 100
    assert len(texts) == 33
    assert any("varies" in text for text in texts)


def test_launches_of_a_backward_pass_and_of_an_optimizer_are_theirs(watched, triton):
    emitter = watched.install()
    kernel = triton["triton.runtime.jit"].JITFunction(lambda x: None)
    kernel.__name__ = "touch"

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            kernel[(1,)](x)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            kernel[(1,)](gradient)
            return gradient * 2

    class Own(torch.optim.SGD):
        def step(self, closure=None):
            with torch.no_grad():
                kernel[(1,)](weight)
            return super().step(closure)

    weight = torch.ones(3, requires_grad=True)
    optimizer = Own([weight], 0.1)
    for _ in range(2):
        Double.apply(weight).sum().backward()
        optimizer.step()
    categories = [one.category for one in emitter.named("triton::touch")]
    assert categories == 2 * ["forward", "backward", "optimizer"]


def test_kernels_that_the_autotuner_tries_are_in_the_phase_compile(watched, triton, monkeypatch):
    from contextlib import contextmanager

    from opscope.core.capture import session

    emitter = watched.install()

    @contextmanager
    def phase(name):  # into the emitter of the test
        emitter.push(emitter.prepare(name, "phase"))
        yield
        emitter.pop()

    monkeypatch.setattr(session, "phase", phase)
    tuned = triton["triton.runtime.autotuner"].Autotuner(
        triton["triton.runtime.jit"].JITFunction(axpy), [{"BLOCK": 32}, {"BLOCK": 64}]
    )
    tuned[(2,)](torch.ones(4), torch.ones(4), torch.ones(4), 4, 1.0)
    found = [(one.phase, parse(one.text).param("BLOCK")) for one in emitter.named("triton::axpy")]
    assert found == [("compile", 32), ("compile", 64), (None, 64)]


def test_an_error_of_a_launch_is_the_users_and_closes_its_range(watched, triton):
    emitter = watched.install()
    kernel = triton["triton.runtime.jit"].JITFunction(axpy)
    with pytest.raises(TypeError):
        kernel[(1,)](torch.ones(1))
    (one,) = emitter.named("triton::axpy")
    assert one.closed
    assert not watched.broken


def test_an_argument_that_cannot_be_described_leaves_the_launch_alone(watched, triton):
    class Odd:
        @property
        def value(self):
            raise RuntimeError("odd")

    emitter = watched.install()
    kernel = triton["triton.runtime.jit"].JITFunction(lambda x, odd: None)
    kernel[(1,)](torch.ones(1), Odd())
    assert len(kernel.launched) == 1
    assert not emitter.named("triton::<lambda>")
    assert watched.broken


def test_of_an_object_its_text_is_never_made(watched, triton):
    """A descriptor of a tensor would print the tensor, for which the device is waited for."""

    class Descriptor:
        def __init__(self, base):
            self.base = base

        def __str__(self):
            raise AssertionError("its text was made")

        __repr__ = __str__

    class Dtype(Descriptor):
        name = "fp16"

    emitter = watched.install()
    kernel = triton["triton.runtime.jit"].JITFunction(lambda x, pair, dtype, other, like: None)
    kernel.__name__ = "odd"
    one = torch.ones(2, 3)
    kernel[(1,)](Descriptor(one), (one, one), Dtype(None), Descriptor(None), torch.float16)
    (found,) = emitter.named("triton::odd")
    call = parse(found.text)
    assert [spec.shape for spec in call.input_leaves()] == [(2, 3)] * 3
    assert dict(call.params) == {
        "grid": (1,), "dtype": "fp16", "other": "Descriptor", "like": "f16",
    }  # fmt: skip
    assert not watched.broken


def test_nothing_is_patched_while_nothing_listens(watched, triton):
    jit = triton["triton.runtime.jit"].JITFunction
    before = jit.run
    emitter = watched.install()
    assert jit.run is not before
    emitter.active = False
    watched.adapter.listen()
    assert jit.run is before


def test_real_triton_launches_pass_there(watched, tmp_path, monkeypatch):
    """Without a GPU the launch fails, as it does without opscope; its range is there and closed."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("it would launch: scripts/gpu_check.sh does")
    path = tmp_path / "kernels.py"
    path.write_text(
        "import triton, triton.language as tl\n"
        "@triton.jit\n"
        "def axpy(x, out, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)\n"
        "def launch(x):\n"
        "    axpy[(triton.cdiv(x.numel(), 64),)](x, x, x.numel(), BLOCK=64)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import kernels

    emitter = watched.install()
    with pytest.raises(RuntimeError, match="driver"):
        kernels.launch(torch.ones(100))
    (one,) = emitter.named("triton::axpy")
    assert one.closed
    call = parse(one.text)
    assert dict(call.params) == {"grid": (2,), "n": 100, "BLOCK": 64}
    assert not watched.broken
