"""``opscope try``: run a program without a change and with it by turns, until the difference is certain."""

from __future__ import annotations

import json as json_text
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from . import common, options
from .trial_output import Output, difference
from .trial_trees import NotCopied, WorkTree, apply

if TYPE_CHECKING:
    from opscope.core.analysis.diff.reduced import Reduced
    from opscope.core.analysis.diff.turns import Decision

#: Exit codes: faster with the change; slower with it, or broken; no difference beyond the noise.
FASTER, SLOWER, CANNOT_TELL = 0, 1, 3
_LAST_LINES: Final = 5
_GRACE: Final = 10
#: Without the change, and with it.
SIDES: Final = ("without", "with")


class _Failed(Exception):
    """The program failed: ``side``, and why."""

    def __init__(self, side: str, why: str) -> None:
        super().__init__(why)
        self.side = side


class _BudgetOut(Exception):
    """The time budget of all runs is used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asks for."""

    command: Annotated[
        list[str],
        typer.Argument(
            metavar="[--] COMMAND [ARGS]...", help="The command, as you usually type it."
        ),
    ]
    patch: Annotated[
        Path | None,
        typer.Option(
            "--patch", metavar="FILE", help="The change: a patch (git diff).", show_default=False
        ),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="KEY=VALUE",
            help="The change: a variable; may be repeated.",
            show_default=False,
        ),
    ] = None
    git: Annotated[
        str | None,
        typer.Option(
            "--git", metavar="REF", help="The change: the files of this commit.", show_default=False
        ),
    ] = None
    budget: Annotated[
        float,
        typer.Option("--budget", min=1, metavar="SECONDS", help="Time that all runs may take."),
    ] = 600
    runs: Annotated[
        int,
        typer.Option(
            "--runs", min=4, max=50, help="Most runs of each: without the change and with it."
        ),
    ] = 20
    carry: Annotated[
        list[str] | None,
        typer.Option(
            "--carry",
            metavar="PATH",
            help="Also copy this path of the work tree, which git ignores; may be repeated.",
            show_default=False,
        ),
    ] = None
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", metavar="FOLDER", help="Keep the profiles here.", show_default=False
        ),
    ] = None
    json: options.Json = False

    @property
    def change(self) -> str:
        """The change in words."""
        said = [f"--git {self.git}"] if self.git else []
        said += [f"--patch {self.patch}"] if self.patch else []
        return " ".join([*said, *(self.env or ())])

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of the change; ends the command at an invalid text."""
        pairs = [text.partition("=") for text in self.env or ()]
        for key, equals, _ in pairs:
            if not key or not equals:
                common.fail(f"--env {key!r}: a variable is KEY=VALUE")
        return {key: value for key, _, value in pairs}


@dataclass(slots=True)
class _Trial:
    """The two copies, and the runs in them so far: reduced profiles by side."""

    asked: Options
    scratch: Path
    tree: WorkTree
    until: float
    runs: dict[str, list[Reduced]] = field(default_factory=lambda: {side: [] for side in SIDES})
    #: The typical step (ns) of each run.
    steps: dict[str, list[float]] = field(default_factory=lambda: {side: [] for side in SIDES})
    #: What each side printed.
    printed: dict[str, Output] = field(default_factory=lambda: {side: Output() for side in SIDES})

    def copy(self) -> None:
        """Make the copies, and apply the change to one of them. Raises NotCopied."""
        carried = self.asked.carry or ()
        for path in carried:
            if os.path.isabs(path) or ".." in Path(path).parts:
                raise NotCopied(f"--carry {path}: a path within the work tree")
        for side in SIDES:
            if side == "with" and self.asked.git is not None:
                self.tree.check_out(self.asked.git, self.scratch / side, self.scratch)
                self.tree.carry(carried, self.scratch / side)
            else:
                self.tree.copy(self.scratch / side, carried)
        if self.asked.patch is not None:
            apply(self.asked.patch, self.scratch / "with")

    def run(self, side: str) -> None:
        """Run the program once on a side. Raises _Failed, _BudgetOut."""
        number = len(self.runs[side])
        profile = (self.asked.keep or self.scratch).resolve() / f"{side}-{number}.opscope"
        copy = self.scratch / side
        environment = dict(os.environ)
        # a package installed from the user's work tree is imported from the copy
        paths = [os.fspath(copy / "src"), os.fspath(copy)]
        paths += filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        environment |= self.asked.variables if side == "with" else {}
        command = [sys.executable, "-m", "opscope", "run", "--force", "--no-report"]
        command += ["-o", os.fspath(profile), "--"]
        output, log = self.scratch / "output", self.scratch / "log"
        with output.open("wb") as printed, log.open("wb") as errors:
            program = subprocess.Popen(
                [*command, *self.asked.command], cwd=copy / self.tree.below, env=environment,
                stdin=subprocess.DEVNULL, stdout=printed, stderr=errors, start_new_session=True,
            )  # fmt: skip
            status = self._wait(program)
        if status or not profile.exists():
            said = (log.read_bytes()[-4096:].strip() or output.read_bytes()[-4096:]).decode(
                "utf-8", "replace"
            )
            lines = [line.strip() for line in said.splitlines()]
            ours = [line for line in lines if line.startswith("opscope: ")]
            own = [line for line in lines if line not in ours] if status else []
            why = " / ".join(own[-_LAST_LINES:] or ours[-1:]).removeprefix("opscope: ")
            ended = f"status {status} in run {number + 1}" if status else f"run {number + 1}"
            raise _Failed(side, f"{ended}{why and ': '}{why}")
        self.printed[side].add(output)
        self._keep(side, profile)
        if self.asked.keep is None:
            shutil.rmtree(profile, ignore_errors=True)

    def _keep(self, side: str, profile: Path) -> None:
        """Keep the reduced profile of a run, which a difference needs."""
        from opscope.core.analysis.diff.reduced import STEPS
        from opscope.core.analysis.diff.stretches import in_stretches
        from opscope.core.analysis.diff.turns import typical_step
        from opscope.profile import load

        reduced = load(profile)._reducing(STEPS)()
        if reduced.reason is not None:
            raise _Failed(side, reduced.reason)
        self.steps[side].append(typical_step(reduced))
        self.runs[side].append(in_stretches(reduced))

    def _wait(self, program: subprocess.Popen[bytes]) -> int:
        try:
            return program.wait(max(self.until - time.monotonic(), 0.1))
        except BaseException as error:
            os.killpg(program.pid, signal.SIGTERM)
            try:
                program.wait(_GRACE)
            except subprocess.TimeoutExpired:
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise _BudgetOut from None
            raise

    def decide(self, last: bool) -> Decision:
        """Return the decision based on the runs so far; ``last``: whether this is the last run."""
        from opscope.core.analysis.diff.turns import decide

        before, after = (self.steps[side][: self.pairs] for side in SIDES)
        return decide(before, after, self.asked.runs, last)

    @property
    def pairs(self) -> int:
        """How many times both sides ran."""
        return min(len(values) for values in self.steps.values())


@options.spread
def try_(asked: Options) -> None:
    """Run a program with and without a change by turns: does it pay?

    It runs in copies of the work tree; yours stays as it is. It ends when the difference of the mean steps of
    the runs is beyond their noise, or the budget is out. Exit code 0: faster. 1: slower, or the program fails
    with the change. 3: cannot be told.
    """
    if not asked.change:
        common.fail("say what to try: --patch FILE, --env KEY=VALUE or --git REF")
    _ = asked.variables
    tree = WorkTree.of(Path.cwd())
    for word in asked.command:
        if os.path.isabs(word) and Path(word).resolve().is_relative_to(tree.top):
            common.fail(f"{word} is in the work tree, and not in its copy: give its path from here")
    scratch = Path(tempfile.mkdtemp(prefix="opscope-try-"))
    try:
        status = _try(_Trial(asked, scratch, tree, time.monotonic() + asked.budget))
    except NotCopied as error:
        common.fail(str(error))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if status:
        raise typer.Exit(status)


def _try(trial: _Trial) -> int:
    """Run by turns, print the decision, and return the exit code."""
    trial.copy()
    asked, out, last = trial.asked, "the runs are out", False
    try:
        for number in range(asked.runs):
            # A B B A or B A A B, by lot: drift affects both sides equally, and no rhythm meets one of them
            block, second = divmod(number, 2)
            reverse = (random.Random(block).random() < 0.5) != bool(second)
            for side in reversed(SIDES) if reverse else SIDES:
                trial.run(side)
            if trial.decide(last).verdict is not None:
                break
            common.say(f"{number + 1} of at most {asked.runs} runs of each")
    except _BudgetOut:
        out, last = "the budget is out", True
    except _Failed as error:
        if error.side == "without":
            common.fail(f"the program fails without the change: {error}")
        said = f"broken: the program fails with the change, {error}: drop it"
        return _print(trial, "broken", said, None)
    if not trial.pairs:
        return _print(trial, "cannot tell", f"cannot tell: {out} before both have run once", None)
    decision = trial.decide(last)
    return _print(trial, *_said(trial, decision, out), decision)


def _said(trial: _Trial, decision: Decision, out: str) -> tuple[str, str]:
    """Return the decision as a word and as a line."""
    from opscope.core.analysis.diff.reasons import reason
    from opscope.core.analysis.diff.stretches import joined
    from opscope.core.analysis.diff.tables import Difference
    from opscope.core.question import units

    runs = trial.pairs
    sides = [trial.runs[side][:runs] for side in SIDES]
    kinds = {run.unit for side in sides for run in side}
    if len(kinds) > 1:
        return "cannot tell", "cannot tell: some runs have steps, and others none"
    unit = kinds.pop()
    before, after = (units.time(round(value)) for value in (decision.before, decision.after))
    became = f"{units.with_article(unit)} took {before} without and takes {after} with {trial.asked.change}"
    became += f" ({decision.ratio:+.1%})"
    if decision.noise is None:
        return (
            "cannot tell",
            f"cannot tell: {became}; {out} after {units.counted(runs, 'run')} of each, too few",
        )
    noise = f"the noise of {units.time(round(decision.noise))}, {runs} runs of each"
    if decision.verdict is None:
        within = "beyond" if decision.beyond else "within"
        often = (
            f", but {units.share(decision.chance)} of equal programs run so"
            if decision.beyond
            else ""
        )
        return "cannot tell", f"cannot tell: {became}, {within} {noise}{often}; {out}"
    try:
        why = reason(Difference(joined(sides[0]), joined(sides[1])))
    except ValueError:  # runs of several kinds have no common explanation
        why = None
    because = "" if why is None else f"; why: {why.words}"
    do = "keep it" if decision.verdict == "faster" else "drop it"
    return decision.verdict, f"{decision.verdict}: {became}, beyond {noise}{because}: {do}"


def _print(trial: _Trial, word: str, line: str, decision: Decision | None) -> int:
    asked, runs = trial.asked, 0 if decision is None else trial.pairs
    output, change = difference(*(trial.printed[side] for side in SIDES))
    line += "" if change is None else f"; its output is another: {change}"
    if asked.json:
        document = {
            "decision": word,
            "said": line,
            "change": asked.change,
            "command": shlex.join(asked.command),
            "runs": runs,
            "before": decision and decision.before,
            "after": decision and decision.after,
            "noise": decision and decision.noise,
            "chance": decision and decision.chance,
            "output": output,
        }
        common.emit(json_text.dumps(document, ensure_ascii=False))
    else:
        common.emit(line)
    return {"faster": FASTER, "cannot tell": CANNOT_TELL}.get(word, SLOWER)
