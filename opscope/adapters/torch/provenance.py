"""Records which ops and source lines Inductor fused into each kernel, while it generates the code.

PyTorch records this itself where ``torch._inductor.config.trace.provenance_tracking_level`` is set, but that
setting changes the key of its compile cache, so everything is compiled anew. This module wraps the function
that Inductor reports to instead, and changes nothing. Code from Inductor's cache is not generated again, so
the findings are stored beside our other caches: one small file per generated module, named by its hash.
The program may have been edited since, or another program may have generated the same code: a line counts
only if this process has loaded its file and the file still has it.
"""

from __future__ import annotations

import hashlib
import json
import linecache
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from opscope.adapters.shared import cache
from opscope.adapters.shared.imported import when_imported
from opscope.adapters.shared.patch import Patches

_log = logging.getLogger(__name__)
_Item = TypeVar("_Item")

#: The function that code generators report a kernel's nodes to, and the modules that import it by name.
CALLERS: Final = ("torch._inductor.codegen.cpp", "torch._inductor.codegen.triton")
_SET_PROVENANCE: Final = "set_kernel_post_grad_provenance_tracing"
_FRAME: Final = re.compile(r'File "([^"\n]{1,4096})", line ([0-9]{1,9})')
_FOLDER: Final = "inductor"
#: The most bytes of one file, and the most ops, lines and layers of one kernel.
_MAX_FILE: Final = 4 << 20
_MAX: Final = 64


@dataclass(slots=True)
class Fused:
    """The ops fused into one kernel, in the order of the FX graph.

    ``ops`` are ATen's names before decomposition. ``lines`` are (file, line) of the program, the innermost of
    each op's stack. ``layers`` are the paths of the modules that the ops are in.
    """

    ops: list[str]
    lines: list[tuple[str, int]]
    layers: list[str]

    def add(self, other: Fused) -> None:
        """Add the ops of another use of the same kernel."""
        _extend(self.ops, other.ops)
        _extend(self.lines, other.lines)
        _extend(self.layers, other.layers)


def _extend(mine: list[_Item], more: list[_Item]) -> None:
    mine.extend(origin for origin in more if origin not in mine)
    del mine[_MAX:]


def fused_of(nodes: Iterable[Any]) -> Fused:
    """Return the ops, lines and layers of FX nodes, from their metadata."""
    fused = Fused([], [], [])
    for node in nodes:
        meta = node.meta
        op = meta.get("original_aten") or node.target
        name = op.name() if hasattr(op, "_schema") else str(getattr(op, "__name__", op))
        stack = _FRAME.findall(meta.get("stack_trace") or "")
        within = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}
        modules = [path for path, _ in within.values()]
        fused.add(
            Fused(
                [name],
                [(stack[-1][0], int(stack[-1][1]))] if stack else [],
                [_path(modules[-1])] if modules else [],
            )
        )
    return fused


def _path(dynamo: str) -> str:
    """Return ``layers.0.mlp`` for ``L['self'].layers.0.mlp`` and for ``L['self']._modules['layers']...``."""
    text = re.sub(r"\._modules\['([^']*)'\]", r".\1", str(dynamo))
    text = re.sub(r"\[[\"']?([\w.]+)[\"']?\]", r".\1", text)
    return re.sub(r"^L\.self\.?|^G\.", "", text)


class Provenance:
    """Observes Inductor's code generators, and returns the kernels of a generated module by its file."""

    def __init__(self) -> None:
        self._patches = Patches()
        self._kernels: dict[str, dict[str, Fused]] = {}
        self.on = False

    def install(self) -> None:
        """Observe the code generators, each as soon as it is imported."""
        self.on = True
        for name in CALLERS:
            when_imported(name, self._observe_generator)
        when_imported("torch._inductor.graph", self._observe_modules)

    def uninstall(self) -> None:
        """Restore the patched functions."""
        self.on = False
        self._patches.restore()

    def of(self, path: str) -> dict[str, Fused]:
        """Return the kernels of the generated module ``path``, by name; empty where they are unknown."""
        if path not in self._kernels:
            self._kernels[path] = _load(Path(path).stem)
        return self._kernels[path]

    def _wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        # otherwise uninstalled, or another version
        if self.on and vars(owner).get(name) is not None:
            self._patches.wrap(owner, name, make)

    def _observe_generator(self, caller: Any) -> None:
        self._wrap(caller, _SET_PROVENANCE, self._setting_provenance)

    def _observe_modules(self, graph: Any) -> None:
        self._wrap(graph.GraphLowering, "compile_to_module", self._compiling)

    def _setting_provenance(self, original: Any) -> Any:
        def set_provenance(node_schedule: Any, kernel_name: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                self._record_kernel(node_schedule, kernel_name)
            except Exception:  # noqa: BLE001 - must not be raised into the user's compilation
                _log.debug(
                    "opscope: the ops fused into %s are not known", kernel_name, exc_info=True
                )
            return original(node_schedule, kernel_name, *args, **kwargs)

        return set_provenance

    def _record_kernel(self, schedule: Any, name: Any) -> None:
        """Remember on Inductor's current graph which nodes kernel ``name`` fuses."""
        from torch._inductor.virtualized import V

        if not isinstance(name, str) or not isinstance(schedule, (list, tuple)):
            return
        nodes: dict[Any, None] = {}
        for node_of_schedule in schedule:
            inner = getattr(node_of_schedule, "node", None)
            nodes.update(dict.fromkeys(getattr(inner, "origins", ()) or ()))
        graph = V.graph
        order = {node: at for at, node in enumerate(next(iter(nodes)).graph.nodes)} if nodes else {}
        fused = fused_of(sorted(nodes, key=lambda node: order.get(node, len(order))))
        kernels = graph.__dict__.setdefault("_opscope_kernels", {})
        if name in kernels:
            kernels[name].add(fused)
        else:
            kernels[name] = fused

    def _compiling(self, original: Any) -> Any:
        def compile_to_module(graph: Any, *args: Any, **kwargs: Any) -> Any:
            module = original(graph, *args, **kwargs)
            try:
                kernels = graph.__dict__.pop("_opscope_kernels", None)
                path = getattr(module, "__file__", None)
                if kernels and path:
                    self._kernels[path] = kernels
                    _save(Path(path).stem, kernels)
            except Exception:  # noqa: BLE001 - must not be raised into the user's compilation
                _log.debug(
                    "opscope: the ops fused into a kernel could not be stored", exc_info=True
                )
            return module

        return compile_to_module


def _save(name: str, kernels: dict[str, Fused]) -> None:
    """Store the kernels of generated module ``name`` in the first cache folder that can be written."""
    stored = {
        kernel: {
            "ops": fused.ops,
            "lines": [[file, line, _digest(_text(file, line))] for file, line in fused.lines],
            "layers": fused.layers,
        }
        for kernel, fused in kernels.items()
    }
    for folder in cache.folders():
        try:
            cache.prepare(folder)
            cache.prepare(folder / _FOLDER)
            with tempfile.NamedTemporaryFile(
                "w", dir=folder / _FOLDER, suffix=".tmp", delete=False, encoding="utf-8"
            ) as file:
                file.write(json.dumps(stored))
            os.replace(file.name, folder / _FOLDER / f"{name}.json")
            return
        except OSError as error:
            _log.debug("opscope: %s: %s", folder, error)


def _load(name: str) -> dict[str, Fused]:
    """Read the kernels of generated module ``name`` from the caches; empty where none has them."""
    for folder in cache.folders():
        path = folder / _FOLDER / f"{name}.json"
        try:
            with cache.opened(path) as file:
                text = os.read(file, _MAX_FILE + 1)
            if len(text) > _MAX_FILE:
                continue
            table = json.loads(text.decode("utf-8"))
            loaded = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
            return {
                str(kernel): Fused(
                    [str(op) for op in entry["ops"]],
                    list(_lines(entry["lines"], loaded)),
                    [str(layer) for layer in entry["layers"]],
                )
                for kernel, entry in table.items()
            }
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            _log.debug("opscope: %s: %s", path, error)
    return {}


def _lines(stored: Iterable[Any], loaded: set[Any]) -> Iterator[tuple[str, int]]:
    """Yield the lines that have not changed; a line that moved, if it is unique, with its new number."""
    for file, line, digest in stored:
        if file not in loaded:
            continue
        texts = linecache.getlines(file)
        if 0 < line <= len(texts) and _digest(texts[line - 1]) == digest:
            yield str(file), int(line)
            continue
        same = [number for number, text in enumerate(texts, 1) if _digest(text) == digest]
        if len(same) == 1:
            yield str(file), same[0]


def _text(file: str, line: int) -> str:
    return linecache.getline(file, line)


def _digest(text: str) -> str:
    return hashlib.blake2s(text.strip().encode("utf-8", "replace"), digest_size=8).hexdigest()
