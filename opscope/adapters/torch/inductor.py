"""Compiled regions: a range for each call of an FX graph that Inductor compiled, and for each kernel in it.

While something listens, the class of compiled graphs and the launcher of Triton kernels are patched, and C++
kernels are replaced in the generated modules, which call them by name. Without a listener only the compiler
is observed: which compilation produced a graph, and which ops its kernels fuse (``provenance``). Code made by
``cpp_wrapper`` or AOTInductor calls its kernels without Python, so only its regions are recorded.
"""

from __future__ import annotations

import functools
import itertools
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

import torch

from opscope.adapters.shared.imported import when_imported
from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.source import Sources
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.schema import Arg, Frame, OpCall, ParamValue

from .call import tensor_spec
from .dynamo import untraced
from .provenance import Fused, Provenance
from .state import Threads

_log = logging.getLogger(__name__)

#: The prefix of a region's name, as in PyTorch's profiler.
REGION: Final = "Torch-Compiled Region: "
_CODECACHE: Final = "torch._inductor.codecache"
_OUTPUT_CODE: Final = "torch._inductor.output_code"
_TRITON: Final = "torch._inductor.runtime.triton_heuristics"
#: The prefix of the names of generated C++ kernels.
_CPP: Final = "cpp_"
_MAX_TEXTS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Region:
    """A compiled FX graph: its code's file ``path``, and its number in Dynamo (frame/recompilation)."""

    compilation: str | None
    backward: bool
    path: str | None
    number: int = field(default_factory=itertools.count().__next__, compare=False)


class _Where(threading.local):
    region: Region | None = None


class Inductor:
    """Observes the compiler from ``install`` to ``uninstall``, and compiled code while something listens."""

    def __init__(
        self,
        emitter: Emitter,
        threads: Threads,
        source: bool,
        failed: Callable[[str], None],
    ) -> None:
        self._emitter = emitter
        self._threads = threads
        self._failed = failed
        self._sources = Sources() if source else None
        self._provenance = Provenance()
        #: By id, because compiled graphs have no hash. An attribute on them would end up in PyTorch's cache.
        self._regions: dict[int, tuple[weakref.ref[Any], Region]] = {}
        self._where = _Where()
        self._texts: dict[tuple[Any, ...], Prepared] = {}
        self._patches = Patches()
        self._compiler_patches = Patches()
        self._recorder: Recorder | None = None
        self._installed = False

    # ------------------------------------------------------------------ always observed

    def install(self) -> None:
        """Observe the compiler, as soon as it is imported."""
        self._installed = True
        self._provenance.install()
        when_imported(_OUTPUT_CODE, self._observe_compiler)

    def uninstall(self) -> None:
        """Remove every patch."""
        self._installed = False
        self.stop()
        self._provenance.uninstall()
        self._compiler_patches.restore()

    def _observe_compiler(self, module: Any) -> None:
        graphs = getattr(module, "CompiledFxGraph", None)
        if not self._installed or graphs is None:
            return
        original = graphs.__dict__.get("post_compile")
        if original is not None:

            @functools.wraps(original)
            def post_compile(graph: Any, *args: Any, **kwargs: Any) -> Any:
                done = original(graph, *args, **kwargs)
                self._remember(graph, [*args, *kwargs.values()])
                return done

            self._compiler_patches.set(graphs, "post_compile", post_compile)
        if self._emitter.active:  # the program imported the compiler during a capture
            self.listen()

    def _remember(self, graph: Any, args: list[Any]) -> None:
        """Register a graph that has just been compiled, with the number of its compilation."""
        try:
            context = torch._guards.CompileContext.current_compile_id()
            fx_kwargs = next(
                (arg for arg in args if isinstance(arg, dict) and "is_backward" in arg), {}
            )
            path = _path_of(graph)
            region = Region(
                None if context is None else str(context), bool(fx_kwargs.get("is_backward")), path
            )
            self._register(graph, region)
        except Exception:  # noqa: BLE001 - must not be raised into the user's compilation
            _log.debug("opscope: a compiled graph could not be named", exc_info=True)

    def _register(self, graph: Any, region: Region) -> Region:
        number = id(graph)
        gone = weakref.ref(graph, lambda _: self._regions.pop(number, None))
        self._regions[number] = (gone, region)
        return region

    # ------------------------------------------------------------ observed during a capture

    def listen(self) -> None:
        """Follow the listener: patch present and future regions and kernels, or restore them."""
        ended, self._recorder = self._recorder, session.recorder()
        if ended is not None and ended is not self._recorder:
            for note in _count():
                ended.note(*note)
        if not self._emitter.active:
            self.stop()
            return
        if self._patches or not self._installed:
            return
        output = sys.modules.get(_OUTPUT_CODE)
        graphs = getattr(output, "CompiledFxGraph", None)
        if graphs is None or "__call__" not in graphs.__dict__:
            return
        self._patches.wrap(graphs, "__call__", self._calling)
        self._see_triton()
        cache = getattr(sys.modules.get(_CODECACHE), "PyCodeCache", None)
        for module in list(getattr(cache, "modules", ())):
            self._see(module)

    def stop(self) -> None:
        """Restore what was replaced: nothing listens any more."""
        self._patches.restore()

    def _see_triton(self) -> None:
        """Patch the launcher of Triton kernels, if it is imported."""
        triton = getattr(sys.modules.get(_TRITON), "CachingAutotuner", None)
        run = None if triton is None else triton.__dict__.get("run")
        if run is not None and not hasattr(run, "_opscope"):
            self._patches.wrap(triton, "run", self._running)

    def _see(self, module: ModuleType) -> None:
        """Replace the C++ kernels of a generated module by wrappers."""
        path = str(getattr(module, "__file__", ""))
        for name, kernel in list(vars(module).items()):
            generated = name.startswith(_CPP) and callable(kernel) and not isinstance(kernel, type)
            if generated and not hasattr(kernel, "_opscope"):
                self._patches.set(module, name, self._kernel(name, kernel, path))

    def _calling(self, original: Any) -> Any:
        emitter, regions, where = self._emitter, self._regions, self._where
        seen: set[int] = set()

        def __call__(graph: Any, inputs: Any) -> Any:
            if not emitter.active:
                return original(graph, inputs)
            outer, pushed = where.region, False
            try:
                entry = regions.get(id(graph))
                if entry is None:  # it was compiled before opscope was installed
                    fx_kwargs = getattr(graph, "fx_kwargs", None) or {}
                    backward = bool(fx_kwargs.get("is_backward"))
                    region = self._register(graph, Region(None, backward, _path_of(graph)))
                else:
                    region = entry[1]
                if region.number not in seen:
                    seen.add(region.number)
                    self._see_triton()
                    self._see_code(graph)
                where.region = region
                emitter.push(self._region_text(region))
                pushed = True
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed("the start of a compiled region could not be recorded")
            try:
                return original(graph, inputs)
            finally:
                where.region = outer
                if pushed:
                    emitter.pop()

        return untraced(__call__, below=False)

    def _see_code(self, graph: Any) -> None:
        """Replace the C++ kernels in the generated module of a graph."""
        code = _globals_of(graph)
        if code is not None:
            module = sys.modules.get(code.get("__name__", ""))
            if module is None or vars(module) is not code:
                code_cache = getattr(sys.modules.get(_CODECACHE), "PyCodeCache", None)
                loaded = getattr(code_cache, "modules", ())
                module = next(
                    (module_there for module_there in loaded if vars(module_there) is code), None
                )
            if module is not None:
                self._see(module)

    def _kernel(self, name: str, kernel: Any, path: str) -> Any:
        emitter = self._emitter

        def call(*args: Any) -> Any:
            if not emitter.active:
                return kernel(*args)
            pushed = False
            try:
                emitter.push(self._kernel_text(name, path, args))
                pushed = True
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed("a compiled kernel could not be described")
            try:
                return kernel(*args)
            finally:
                if pushed:
                    emitter.pop()

        call._opscope = kernel  # type: ignore[attr-defined]
        return untraced(call, below=False)

    def _running(self, original: Any) -> Any:
        emitter, where = self._emitter, self._where

        @functools.wraps(original)
        def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            # the autotuner's benchmark runs of a kernel do not belong to the program
            if not emitter.active or where.region is None or kwargs.get("benchmark_run"):
                return original(kernel, *args, **kwargs)
            pushed = False
            try:
                meta = getattr(kernel, "inductor_meta", None) or {}
                name = meta.get("kernel_name") or getattr(kernel.fn, "__name__", "triton_")
                emitter.push(self._kernel_text(str(name), where.region.path or "", args))
                pushed = True
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed("a Triton kernel could not be described")
            try:
                return original(kernel, *args, **kwargs)
            finally:
                if pushed:
                    emitter.pop()

        run._opscope = original  # type: ignore[attr-defined]
        return untraced(run, below=False)

    # -------------------------------------------------------------------------- the texts

    def _region_text(self, region: Region) -> Prepared:
        category = self._category(region)
        key = (region, category)
        text = self._texts.get(key)
        if text is None:
            kernels = self._provenance.of(region.path) if region.path else {}
            params: list[tuple[str, ParamValue]] = []
            if kernels:
                params.append(("kernels", len(kernels)))
            if region.path:
                params.append(("code", region.path))
            name = f"{REGION}{region.compilation or '?'}"
            lines = [line for fused in kernels.values() for line in fused.lines]
            text = self._prepare(
                key, OpCall(name, params=tuple(params), frames=self._frames(lines)[:1]), category
            )
        return text

    def _kernel_text(self, name: str, path: str, args: tuple[Any, ...]) -> Prepared:
        region = self._where.region
        category = self._category(region)
        shapes = tuple(
            (arg.shape, arg.dtype, arg.stride()) if isinstance(arg, torch.Tensor) else arg
            for arg in args
            if isinstance(arg, (torch.Tensor, int))
        )
        key = (name, path, category, shapes)
        text = self._texts.get(key)
        if text is None:
            fused = self._provenance.of(path).get(name) if path else None
            tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
            inputs: tuple[Arg, ...] = tuple(tensor_spec(tensor) for tensor in tensors)
            frames = self._frames(fused.lines) if fused else ()
            device = str(tensors[0].device) if tensors else None
            call = OpCall(name, inputs, None, _params(fused, frames), device, frames[:1])
            text = self._prepare(key, call, category)
        return text

    def _prepare(self, key: tuple[Any, ...], call: OpCall, category: str) -> Prepared:
        if len(self._texts) >= _MAX_TEXTS:
            self._texts.clear()
        text = self._texts[key] = self._emitter.prepare(call, category)
        return text

    def _category(self, region: Region | None) -> str:
        if region is not None and region.backward:
            return "backward"
        if not torch.is_grad_enabled() and self._threads.current().optimizing:
            return "optimizer"
        return "forward"

    def _frames(self, lines: list[tuple[str, int]]) -> tuple[Frame, ...]:
        """The distinct lines in the user's files and in libraries, in order."""
        if self._sources is None:
            return ()
        shown = ((self._sources.shown(file), line) for file, line in lines)
        return tuple(dict.fromkeys((file, line) for file, line in shown if file is not None))


def _count() -> list[tuple[str, str, int]]:
    """torch.compile's own counters as notes: graphs made, and graph breaks by reason."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    if not counters or not counters["stats"]["unique_graphs"]:
        return []
    graphs = counters["stats"]["unique_graphs"]
    notes = [("info", "torch.compile: graphs made since the program began", int(graphs))]
    for reason, count in sorted(counters["graph_break"].items(), key=lambda pair: -pair[1])[:20]:
        first = str(reason).strip().partition("\n")[0][:200]
        notes.append(("info", f"torch.compile: graph breaks: {first}", int(count)))
    return notes


def _params(fused: Fused | None, frames: tuple[Frame, ...]) -> tuple[tuple[str, ParamValue], ...]:
    if fused is None:
        return ()
    params: list[tuple[str, ParamValue]] = [("fused", ", ".join(fused.ops))]
    if fused.layers:
        params.append(("layers", ", ".join(layer or "(root)" for layer in fused.layers)))
    if len(frames) > 1:
        params.append(("lines", ", ".join(f"{file}:{line}" for file, line in frames)))
    return tuple(params)


def _globals_of(graph: Any) -> Mapping[str, Any] | None:
    """The globals of a compiled graph's code, found through the wrappers around it."""
    function = getattr(graph, "current_callable", None)
    for _ in range(8):
        runner = getattr(function, "__self__", None)
        inner = getattr(function, "__func__", function)
        namespace = getattr(inner, "__globals__", None)
        if namespace is not None and (
            "async_compile" in namespace or "extern_kernels" in namespace
        ):
            return namespace  # type: ignore[no-any-return]
        closure = getattr(inner, "__closure__", None) or ()
        functions = [cell.cell_contents for cell in closure if callable(_content(cell))]
        function = (
            getattr(inner, "__wrapped__", None) or (functions[0] if functions else None) or runner
        )
        if function is None:
            return None
    return None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def _path_of(graph: Any) -> str | None:
    code = _globals_of(graph)
    path = None if code is None else code.get("__file__")
    return str(path) if path else None
