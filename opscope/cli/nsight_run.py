"""``opscope run --backend nsys``: start nsys around the program, keep its report, and read it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from opscope import backends
from opscope.backends import graph_trace
from opscope.backends.nsys import NSYS, preflight, reports
from opscope.backends.nsys.command import (
    CUDA,
    NVTX,
    RANGE,
    Line,
    Wanted,
    filled_in,
    line,
    parse_end,
    parse_traces,
    with_options,
)
from opscope.backends.nsys.tool import NoTool, Tool

from . import common, nsight, nsight_launch

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace

_LOG = "nsys.log"
#: A profile needs at least one of these tables.
_CONTENT = ("ranges", "kernels", "memops", "calls")
#: 2020.4 prints this after it has written its report.
_AFTERWARDS = "terminate called"


@dataclass(frozen=True, slots=True)
class Wishes:
    """The user's settings for nsys itself.

    ``range``: what begins and ends the recording (``CUDA``, ``NVTX``), on any machine. ``options``: options
    of ``nsys profile``, as ``--name=value``, which replace opscope's. ``report``: the path of nsys's report,
    by default beside the profile. ``told``: whether to print the command of nsys and its output.
    """

    range: str | None = None
    options: tuple[str, ...] = ()
    report: Path | None = None
    told: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of the run that nsys carries out."""

    steps: str | None = None
    delay: float = 0
    duration: float | None = None
    traces: str | None = None
    end: str | None = None
    graphs: str = graph_trace.NODE


@dataclass(slots=True)
class UnderNsight:
    """A run under nsys: ``line`` is its command, without the program."""

    tool: Tool
    wanted: Wanted
    notes: list[str]
    asked: Asked
    #: The reason why nsys records.
    reason: str
    wishes: Wishes = Wishes()

    @classmethod
    def of(cls, asked: Asked, foreign: bool, named: bool, wishes: Wishes = Wishes()) -> UnderNsight:
        """Return the run. Raises ValueError with the reason if nsys cannot do it."""
        if asked.steps is not None and asked.end not in (None, "stop"):
            raise ValueError("--steps are one range: --capture-range-end repeat is for callbacks")
        if asked.end is not None and (asked.delay or asked.duration is not None):
            raise ValueError(
                "--capture-range-end cannot be combined with --delay or --duration: the program says when"
            )
        machine = backends.here(in_process=False, foreign=foreign)
        tool = NSYS.tool(machine)
        ranged = asked.steps is not None or asked.end is not None
        # without a driver there is no function of CUDA whose calls nsys could see
        kind = wishes.range or ((CUDA if machine.gpu == "nvidia" else NVTX) if ranged else None)
        end = parse_end(asked.end or "stop")
        wanted = Wanted(
            kind, end, asked.delay, asked.duration, parse_traces(asked.traces or ""), asked.graphs
        )
        notes = [*preflight.findings(tool, machine, foreign)]
        reason = backends.REQUESTED if named else NSYS.available(machine).why
        launch = cls(tool, wanted, notes, asked, reason, wishes)
        # raises ValueError if this version cannot
        launch.notes += launch._line(Path("report")).notes
        return launch

    def _line(self, folder: Path) -> Line:
        return line(self.tool, self.wanted, folder / reports.NAME)

    @property
    def settings(self) -> dict[str, str]:
        """Environment variables for the program's processes."""
        return {} if self.wanted.range is None else {RANGE: self.wanted.range}

    def run(
        self,
        command: list[str],
        env: Mapping[str, str],
        parts: Path,
        signals: Collection[signal.Signals],
        started: Callable[[int], None] = lambda pid: None,
    ) -> int:
        """Run the command and return its status. Raises NeverBegan, and OSError if it cannot be started."""
        for note in self.notes:
            common.say(note)
        words = with_options(self._line(parts.resolve()).words, self.wishes.options)
        if self.wishes.told:
            common.say(f"Nsight Systems {self.tool.full}: {reports.name_of([*words, *command])}")
        ended = nsight_launch.run(words, command, env, parts / _LOG, signals, started)
        if ended.failed is not None:
            raise OSError(ended.failed, os.strerror(ended.failed), command[0])
        if ended.status is None:
            log = reports.read_log(parts / _LOG)
            why = "; ".join(reports.faults(log)) or f"nsys ended with status {ended.nsys}"
            raise NeverBegan(f"Nsight Systems {self.tool.full} did not start the program: {why}")
        return ended.status

    def traces(self, parts: Path, target: Path, *, force: bool, private: bool) -> list[Trace]:
        """Keep nsys's reports beside ``target``, say where, and return the trace of each that can be read."""
        log = reports.read_log(parts / _LOG)
        parts_left = reports.left(parts.resolve(), log)
        for said in reports.lines_of(log) if self.wishes.told else ():
            common.say(f"nsys: {said}")
        for fault in reports.faults(log):
            if not (parts_left.reports and fault.startswith(_AFTERWARDS)):
                common.say(f"Nsight Systems: {fault}")
        traces = []
        target = self.wishes.report or target
        silent = any(listener["silent"] for listener in nsight.listeners(parts))
        # otherwise it was printed before the run
        if silent and not preflight.silences(self.tool.version):
            common.say(preflight.silent(f"Nsight Systems {self.tool.full}"))
        for number, report in enumerate(parts_left.reports):
            part_folder = (
                target if not number else target.with_name(f"{target.stem}-{number}{target.suffix}")
            )
            trace = self._trace(report, part_folder, parts, force=force, private=private)
            if trace is not None:
                traces.append(trace)
        if not parts_left.reports and parts_left.raw:
            self._keep_raw(parts_left.raw, target)
        elif not parts_left.reports:
            common.say(f"nothing was recorded: {self._nothing(parts)}")
        return traces

    def _trace(
        self, report: Path, target: Path, parts: Path, *, force: bool, private: bool
    ) -> Trace | None:
        from opscope.readers import nsys as reader
        from opscope.readers.errors import BadInput

        try:
            kept = report if private else reports.keep(report, target, force=force)
        except OSError as error:
            common.say(f"the report of Nsight Systems stays at {report}: {error.strerror or error}")
            kept = report
        if not private:
            common.say(f"Nsight Systems wrote {kept}")
        database = parts / f"{report.stem}.sqlite"
        try:
            reports.export(self.tool.path, kept, database)
            trace = reader.read(database)
            self._sign(trace)
            if not any(len(trace[table]) for table in _CONTENT):
                common.say(
                    f"{kept} has no range and no kernel, so no profile was made{_lost(parts)}"
                )
                return None
            return trace
        except (reports.ExportFailed, BadInput) as error:
            reason_text = error.what if isinstance(error, BadInput) else str(error)
            if private:  # otherwise the complete recording would be lost
                kept = reports.keep(report, target, force=force)
            common.say(
                f"no profile was made of {kept}: {reason_text}; to try again: opscope report {kept}"
            )
            return None

    def _sign(self, trace: Trace) -> None:
        """Note in the trace which tool recorded it, and why."""
        about = {"backend": NSYS.name, "reason": self.reason, "processes": len(trace["processes"])}
        trace.origin["backends"] = [{**about, "version": self.tool.full}]

    def _keep_raw(self, raw: tuple[Path, ...], target: Path) -> None:
        kept = []
        for path in raw:
            try:
                kept.append(reports.keep(path, target, force=False))
            except OSError:  # for example the disk is full: the report stays where nsys left it
                kept.append(path)
        names = ", ".join(map(str, kept))
        common.say(
            f"Nsight Systems could not import what it recorded: there is no profile; its data is in {names}"
        )
        common.say(reports.advice(reports.Left((), tuple(kept)), self.tool.path))

    def _nothing(self, parts: Path) -> str:
        asked = self.asked
        heard = nsight.listeners(parts)
        if asked.steps is not None:
            marks = "optimizers mark steps, and so does opscope.step()"
            return f"no process reached the steps {asked.steps}; {marks}"
        if self.wishes.range is not None:
            return "the program called no cudaProfilerStart that Nsight Systems heard"
        if asked.end is not None:
            return "the program began no range; callbacks of opscope and opscope.capture do"
        if asked.delay:
            return f"the program ended within the {asked.delay:g} s of --delay"
        return "nsys wrote no report" + (
            "" if heard else ", and no Python process with opscope ran"
        )


def _lost(parts: Path) -> str:
    """Return why a report may be empty although a process of the run sent ranges."""
    if not any(listener["heard"] for listener in nsight.listeners(parts)):
        return ""
    return (
        "; a Python process with opscope was heard: it ran nothing that opscope observes, or Nsight Systems "
        "lost its ranges, as it can on a busy machine"
    )


class NeverBegan(RuntimeError):
    """nsys ended before it started the program; the message says why."""


def output(name: Path) -> Path:
    """Return the profile's path with nsys's patterns filled in. Ends the command if that fails."""
    try:
        return Path(filled_in(str(name), os.environ))
    except ValueError as error:
        common.fail(str(error))


def prepared(
    asked: Asked, foreign: bool, named: bool, wishes: Wishes | None = None
) -> UnderNsight | None:
    """Return the run under nsys; None, with a printed line, if ``auto`` chose nsys but it cannot record."""
    try:
        return UnderNsight.of(asked, foreign, named, wishes or Wishes())
    except (ValueError, NoTool) as error:
        if named:
            common.fail(f"--backend nsys: {error}")
        common.say(f"Nsight Systems is not used: {error}")
        return None
