"""Which change fits a run: each change states what must be true of the run, and ``fit`` checks it.

A detector or the diagnosis states its changes as data, by framework, each a text or a ``Change``, and
``fit(answers, changes, general)`` gives the text of those that fit: in the words of the run's own framework,
nothing that the run has already, nothing for other wrappers or devices. ``fit_run`` does so for a ``Run``, as
``answers.of(run_of)`` makes it; ``later_steps`` returns steps that the program has.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import polars as pl

from opscope.core.advice.communicated import patterns
from opscope.core.advice.compilers import compiled_by
from opscope.core.advice.finding import Answers
from opscope.core.advice.marked_steps import marked_steps
from opscope.core.advice.saying import framework
from opscope.core.analysis.summary.summary import compiles
from opscope.core.perf.devices.vendors import vendor_of
from opscope.core.tables.columns import distinct_values, matching

#: Frameworks for which a change can be worded.
FRAMEWORKS: Final = (
    "torch", "tensorflow", "keras", "jax", "flax", "mindspore", "onnxruntime", "tensorrt",
)  # fmt: skip
#: Frameworks that share another one's changes.
_ALIKE: Final = {"flax": "jax"}
#: Frameworks whose compile phases show that steps run as compiled programs.
_TRACED: Final = ("tensorflow", "keras")
#: Kernels of TorchScript, which torch.compile may still make faster.
_SCRIPTED: Final = re.compile(r"nvfuser_|CudaCodeGen::")
#: The two kinds of collectives that sharded training has together.
_SHARDS: Final = (r"c10d::_?all_?gather_(base|into)", r"c10d::_?reduce_scatter_(base|tensor)")


class Run:
    """The properties of a run that a change may require. Each is computed when first required."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    @cached_property
    def framework(self) -> str | None:
        """The framework whose ops ran; of several that were imported, the one that has ops."""
        name = framework(self._answers)
        if name is not None and "," in name:
            domains = distinct_values(self._answers.trace["ranges"]["domain"]).cast(pl.String)
            with_ops = [each for each in name.split(",") if f"opscope.{each}" in domains]
            name = with_ops[0] if len(with_ops) == 1 else None
        return _ALIKE.get(name or "", name)

    @cached_property
    def compiled(self) -> bool:
        """Whether anything shows that a compiler, or a traced graph, made some of the work."""
        if self.framework in _TRACED and not compiles(self._answers.trace).is_empty():
            return True
        shows = compiled_by(self._answers)
        return shows is not None and not (self.framework == "torch" and _SCRIPTED.search(shows))

    @cached_property
    def on_gpu(self) -> bool:
        return not self._answers.cpu_only

    @cached_property
    def vendor(self) -> str | None:
        return vendor_of(self._answers.trace, self._answers.call_names)

    @cached_property
    def wrappers(self) -> Collection[str]:
        """The ways of training in parallel that the run shows: ``ddp``, ``fsdp``, ``tensor_parallel``."""
        shown = patterns(self._answers)
        if not shown:
            # on a CPU FSDP2 leaves no name: it gathers parameters and scatters gradients
            texts = distinct_values(self._answers.trace["ranges"]["text"])
            if all(matching(texts, words).any() for words in _SHARDS):
                return {"fsdp"}
        return shown

    @property
    def by_opscope(self) -> bool:
        """Whether opscope recorded the run, and therefore all steps of the program that the user did not
        exclude."""
        return str(self._answers.trace.origin.get("format")).startswith("opscope")

    @cached_property
    def steps(self) -> int | None:
        """The number after the program's last step; None where it is not known how many it has."""
        if not self.by_opscope:
            return None
        numbers = marked_steps(self._answers)["step"].drop_nulls()
        last: Any = numbers.max()
        return None if last is None else int(last) + 1


def run_of(answers: Answers) -> Run:
    """Return the properties of the run of these answers that a change may require."""
    return Run(answers)


@dataclass(frozen=True, slots=True)
class Change:
    """One change in words, and what must be true of a run for it to help; None and empty require nothing."""

    text: str
    #: Whether a compiler made some of the work.
    compiled: bool | None = None
    on_gpu: bool | None = None
    #: Vendors whose devices have it.
    vendors: Collection[str] = ()
    #: The wrapper that must be seen. ``no_wrapper``: no wrapper with a change of its own may be seen.
    wrapper: str | None = None
    no_wrapper: bool = False

    def fits(self, run: Run) -> bool:
        """Return whether the run has everything that the change requires."""
        if self.on_gpu is not None and self.on_gpu != run.on_gpu:
            return False
        if self.vendors and run.vendor is not None and run.vendor not in self.vendors:
            return False
        if self.compiled is not None and self.compiled != run.compiled:
            return False
        if self.wrapper is not None and self.wrapper not in run.wrappers:
            return False
        return not (self.no_wrapper and {"ddp", "fsdp"} & set(run.wrappers))


#: A framework's change, or several that are listed one after the other.
Words: TypeAlias = "str | Change | Sequence[str | Change]"
#: The changes of each framework.
Named: TypeAlias = Mapping[str, Words]


def fit(answers: Answers, named: Named, general: str | Change) -> str:
    """Return what to change, in words: of ``named``, by framework, what fits the run; else ``general``."""
    return fit_run(answers.of(run_of), named, general)


def fit_run(run: Run, named: Named, general: str | Change) -> str:
    """Like ``fit``, for a run."""
    given = named.get(run.framework or "", ())
    own = [
        change
        for change in ((given,) if isinstance(given, (str, Change)) else given)
        if isinstance(change, str) or change.fits(run)
    ]
    return " ".join(change if isinstance(change, str) else change.text for change in own) or (
        general if isinstance(general, str) else general.text
    )


def later_steps(run: Run, first: int, most: int = 10) -> str | None:
    """Return ``--steps FIRST:LAST`` with steps that the program has, at most that many; None if it has none.

    Where it is not known how many steps the program has, the range is returned as it is.
    """
    last = first + most if run.steps is None else min(first + most, run.steps)
    return f"--steps {first}:{last}" if last > first else None
