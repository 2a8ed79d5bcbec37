"""Hook the functions by which Python hands an op to MindSpore: versions 2.7 and 2.8 have no dispatch modes.

There are four ways: functions ``pyboost_…`` that classes of Primitives call, objects and base classes made in
C++ (``AddFunctional_``, ``MatMulPrim_``), methods of tensors, and the executor for all other Primitives.
MindSpore does not read them when it compiles a graph. The ops of a backward pass do not go through them: a
gradient has one range (``nodes``, in 2.7 ``results``), and MindSpore's own profiler has its ops. || A
function or a method has overloads, which are different ops. In 2.8, the result's node shows which one was
called; in 2.7, the call gets the newer op's name, if there is one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

from mindspore import Tensor
from mindspore.ops.auto_generate import gen_ops_prim, pyboost_inner_prim

from opscope.adapters.shared.patch import Patches

from . import results
from .api import api
from .ops import Ops
from .state import Entry

_MODULES: Final = (
    "mindspore.ops.auto_generate.gen_ops_prim",
    "mindspore.ops.operations._inner_ops",
    "mindspore.ops.operations.custom_ops",
    "mindspore.ops.operations.manually_defined.ops_def",
    "mindspore.ops.operations.nn_ops",
)
#: Whether tensors know the nodes of their autograd graph.
HAS_NODES: Final = hasattr(Tensor, "_grad_node")
_FUNCTIONS: Final = "pyboost_"
#: Methods of tensors that run no op.
_PLAIN: Final = frozenset({"type_as"})


class EntryPoints:
    """The hooks. ``install`` sets them while something listens."""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._patches = Patches()

    def install(self) -> None:
        """Replace the functions."""
        if self._patches:
            return
        wrap = self._patches.wrap
        for name in _MODULES:
            try:
                module = import_module(name)
            except ImportError:  # not in every version
                continue
            for attribute in [one for one in vars(module) if one.startswith(_FUNCTIONS)]:
                wrap(module, attribute, self._function)
        for kind, op in _classes():
            wrap(kind, "__call__", functools.partial(self._object, op))
        for name, op in _methods():
            wrap(Tensor, name, functools.partial(self._method, op))
        wrap(api()._PyNativeExecutor, "run_op_async", self._primitive)

    def uninstall(self) -> None:
        """Restore the functions."""
        self._patches.restore()

    def _function(self, original: Any) -> Any:
        @functools.wraps(original)
        def pyboost(primitive: Any, args: Any, *rest: Any) -> Any:
            run = functools.partial(original, primitive, args, *rest)
            return self._run(run, primitive.name, None, args)

        return pyboost

    def _object(self, op: str, original: Any) -> Any:
        @functools.wraps(original)
        def __call__(primitive: Any, *args: Any, **kwargs: Any) -> Any:
            flat = args[0] if len(args) == 1 and type(args[0]) is list else args
            run = functools.partial(original, primitive, *args, **kwargs)
            return self._run(run, op, None, (*flat, *kwargs.values()), named=False)

        return __call__

    def _method(self, op: str, original: Any) -> Any:
        @functools.wraps(original)
        def method(*args: Any, **kwargs: Any) -> Any:
            run = functools.partial(original, *args, **kwargs)
            return self._run(run, op, None, (*args, *kwargs.values()), named=False)

        return method

    def _primitive(self, original: Any) -> Any:
        @functools.wraps(original)
        def run_op_async(executor: Any, primitive: Any, name: Any, args: Any) -> Any:
            run = functools.partial(original, executor, primitive, name, args)
            return self._run(run, name, primitive, args)

        return run_op_async

    def _run(
        self, run: Callable[[], Any], name: str, primitive: Any, args: Any, named: bool = True
    ) -> Any:
        ops = self._ops
        if not ops.on:
            return run()
        entry = None
        try:
            entry = ops.begin(name, primitive, args, 2, named)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            ops.failed("an op could not be described")
        try:
            with ops.guard():
                result = run()
                if entry is not None:
                    ops.wait()
        # an error of the program, or an interrupt: close the range and pass it on
        except BaseException:
            if entry is not None:
                ops.raised()
            raise
        if entry is not None:
            ops.end(entry, result)
            if not HAS_NODES:
                self._hook(entry, args, result)
        return result

    def _hook(self, entry: Entry, args: Any, result: Any) -> None:
        ops = self._ops
        try:
            state = ops.state()
            if state.graphs and entry.category == "forward":
                results.hook(ops, state, entry, args, result)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            ops.failed("backward ops could not be paired with their forward ops")


@functools.lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    """Return the ops' names by their lower-case names."""
    kinds = (
        attribute
        for attribute in vars(gen_ops_prim)
        if isinstance(getattr(gen_ops_prim, attribute), type)
    )
    return {kind.lower(): kind for kind in kinds}


def _op(name: str) -> str:
    """Return the op that a function or a method of this name most likely runs."""
    word = name.strip("_").replace("_", "").lower()
    inplace = name.endswith("_") and not name.endswith("__")
    if name.startswith("__i") and word != "invert":
        word, inplace = word[1:], True
    word = {"truediv": "div", "floordivide": "floordiv", "to": "cast"}.get(word, word)
    names = _names()
    if inplace and "inplace" + word in names:
        return names["inplace" + word]
    return names.get(word + "ext") or names.get(word) or word.capitalize()


def _classes() -> Iterator[tuple[Any, str]]:
    """Yield each class made in C++ whose objects run an op when they are called, and the op."""
    overloads = vars(import_module("mindspore.ops.functional_overload"))
    for name, overload in sorted(overloads.items()):
        kind = type(overload)
        if name.endswith("_instance") and "__call__" in vars(kind):
            yield kind, _op(name.removesuffix("_instance"))
    for name, kind in sorted(vars(pyboost_inner_prim).items()):
        if name.endswith("Prim_") and isinstance(kind, type) and "__call__" in vars(kind):
            yield kind, name.removesuffix("Prim_")


def _methods() -> Iterator[tuple[str, str]]:
    """Yield each method of tensors that runs an op in C++, and the op."""
    methods = import_module("mindspore.common._tensor_cpp_method").tensor_cpp_methods
    for name in sorted(set(methods) - _PLAIN):
        if name not in vars(Tensor) and callable(getattr(Tensor, name, None)):
            yield name, _op(name)
