"""``opscope attach``: record a part of a program that runs, and print where its time went."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from opscope.core.capture import attach_place
from opscope.core.capture.attach_place import Place
from opscope.core.capture.attach_protocol import MOST_SECONDS, Refused
from opscope.core.capture.attach_server import ask
from opscope.core.question import units

from . import common, declared, inject, options, progress_bar

#: Number of steps that are recorded by default, and the seconds after which a program without steps
#: is let go.
STEPS: Final = 10
LIMIT_S: Final = 120.0
#: Seconds between two checks whether a capture is over, and to wait for the answer to ``start``,
#: which may compile.
_LOOK_S: Final = 0.2
_START_S: Final = 300.0


Pid = Annotated[
    int | None,
    declared.Argument(
        metavar="PID",
        help="The program's process, or its launcher's (torchrun). Without: list the programs.",
        show_default=False,
    ),
]
Steps = Annotated[
    int | None, declared.Option("--steps", min=1, help=f"Record this many whole steps.  [{STEPS}]")
]
Duration = Annotated[
    float | None,
    declared.Option("--duration", min=0.001, max=MOST_SECONDS, help="Record this many seconds."),
]
Dump = Annotated[
    bool,
    declared.Option("--dump", help="Write what the program keeps (opscope run --last), and go on."),
]
Status = Annotated[
    bool, declared.Option("--status", help="Print what the program is doing, and do nothing.")
]
Stop = Annotated[
    bool, declared.Option("--stop", help="End a recording that another opscope attach began.")
]
Inject = Annotated[
    bool,
    declared.Option(
        "--inject",
        help="Make a program attachable that was not started so: Python 3.14 runs opscope.init in it.",
    ),
]
Output = Annotated[
    Path | None,
    declared.Option(
        "-o",
        "--output",
        help="The profile to write.  [beside the program's recording]",
        show_default=False,
    ),
]


def attach(
    pid: Pid = None,
    steps: Steps = None,
    duration: Duration = None,
    dump: Dump = False,
    status: Status = False,
    stop: Stop = False,
    inject_it: Inject = False,
    output: Output = None,
    force: options.Force = False,
    report: options.Report = True,
    top: options.Top = None,
    width: options.Width = None,
) -> None:
    """Record some steps of the running program PID, and print the report. The program goes on.

    It must be this user's, and started by `opscope run --attachable` or with opscope.init(attach=True).
    """
    common.refuse_url(output, "--output")
    if dump + status + stop > 1:
        common.fail("--dump, --status and --stop: choose one")
    if not attach_place.SUPPORTED:
        common.fail("opscope attach needs Linux")
    if pid is None:
        _list()
        return
    if inject_it:
        _inject(pid)
    targets = _targets(pid)
    if status:
        for place in targets:
            common.emit(_tell(place, _ask(place, {"command": "status"})))
        return
    if stop:
        for place in targets:
            answer = _ask(place, {"command": "stop"})
            common.say(f"{place.pid}: stopped; opscope report {answer['folder']}")
        return
    if dump:
        folders, first = _dump(targets)
        name = f"{first['name_of']}-dump"
    else:
        folders, first = _record(targets, steps, duration)
        name = f"{first['name_of']}-attach"
    target = _target(output, Path(first["place"]), name, force)
    _profile(folders, target, first, force and output is not None, (report, top, width))


# ------------------------------------------------------------------------------- which programs


def _targets(pid: int) -> list[Place]:
    """Return the programs that ``pid`` means: itself, or all ranks that it started; ends the command if
    there is none."""
    attach_points = {attach_point.pid: attach_point for attach_point in attach_place.places()}
    below = {
        candidate: list(_ancestors(candidate))
        for candidate in attach_points
        if pid == candidate or pid in _ancestors(candidate)
    }
    if not below:
        common.fail(_why_not(pid))
    ranks = {candidate: _rank(attach_points[candidate]) for candidate in below}
    ranked = [candidate for candidate, rank in ranks.items() if rank is not None]
    if not ranked:
        return (
            [attach_points[pid]]
            if pid in below
            else [attach_points[candidate] for candidate in sorted(below)]
        )
    # a process that a rank started inherits the rank's number, but is not a rank
    tops = [
        candidate
        for candidate in ranked
        if not any(
            other in below[candidate] and ranks[other] == ranks[candidate] for other in ranked
        )
    ]
    return [attach_points[top] for top in sorted(tops, key=lambda top: (ranks[top], top))]


def _rank(attach_point: Place) -> int | None:
    try:
        rank = ask(attach_point, {"command": "status"}).get("rank")
    except (OSError, Refused):
        return None
    return rank if isinstance(rank, int) else None


def _ancestors(pid: int) -> Iterator[int]:
    """Yield the parent of a process, its parent, and so on; stops if the system does not say."""
    for _ in range(64):
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        pid = int(text[text.rindex(")") + 1 :].split()[1])
        if pid <= 1:
            return
        yield pid


def _why_not(pid: int) -> str:
    if not os.path.exists(f"/proc/{pid}"):
        return f"{pid}: no such process"
    if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
        return f"{pid} is another user's process: only its user may attach to it"
    return (
        f"{pid} is not attachable: start it with `opscope run --attachable` or with"
        f" opscope.init(attach=True) (Python 3.14: --inject){_unseen_folders()}"
    )


def _unseen_folders() -> str:
    """Return which folders could not be searched, as the end of a sentence."""
    reasons = attach_place.refusals()
    return f"; not looked into: {'; '.join(reasons)} ({attach_place.WAY_OUT})" if reasons else ""


def _list() -> None:
    rows = 0
    for attach_point in attach_place.places():
        try:
            answer = ask(attach_point, {"command": "status"}, 2.0)
        except (OSError, Refused) as error:
            common.emit(f"{attach_point.pid}: does not answer: {error}")
            continue
        rows += 1
        common.emit(_tell(attach_point, answer))
    if not rows:
        common.say(
            "no attachable program of this user runs; `opscope run --attachable` starts one, and"
            f" opscope.init(attach=True) makes one{_unseen_folders()}"
        )


def _tell(attach_point: Place, answer: dict[str, Any]) -> str:
    rank = answer.get("rank")
    words = [
        f"{attach_point.pid} {answer.get('name')}",
        *([f"rank {rank}"] if rank is not None else []),
        str(answer.get("state")),
    ]
    if answer.get("state") == "recording":
        words.append(f"{answer.get('steps')} steps so far")
    return ", ".join([*words, f"records into {answer.get('place')}"])


def _inject(pid: int) -> None:
    try:
        inject.into(pid)
    except inject.Impossible as error:
        common.fail(str(error))


# -------------------------------------------------------------------------------- recording


def _ask(attach_point: Place, request: dict[str, Any], seconds: float = 30.0) -> dict[str, Any]:
    """Return the program's answer; ends the command if it has none."""
    try:
        answer = ask(attach_point, request, seconds)
    except Refused as error:
        common.fail(f"{attach_point.pid}: {error}")
    except ConnectionRefusedError:
        common.fail(f"{attach_point.pid}: the program has ended")
    except OSError as error:
        common.fail(f"{attach_point.pid}: no answer: {error}")
    name = str(answer.get("name") or "program")
    return {**answer, "name_of": Path(Path(name).name).stem or "program"}


def _record(
    targets: Sequence[Place], steps: int | None, duration: float | None
) -> tuple[list[Path], dict[str, Any]]:
    """Record in all programs at once; return the folders of their recordings, and the first program's
    answer."""
    if steps is None and duration is None:
        steps = STEPS
    request = {"command": "start", "steps": steps, "seconds": duration or LIMIT_S}
    begun: dict[Place, dict[str, Any]] = {}
    for target in targets:
        begun[target] = _ask(target, request, _START_S)
    extent = units.counted(steps, "step") if steps is not None else f"{duration:g} s"
    who = ", ".join(str(place.pid) for place in targets)
    common.say(f"recording {extent} of {who} (by {next(iter(begun.values()))['backend']})")
    try:
        for target, first in begun.items():
            _await(target, first["capture"], steps)
    except KeyboardInterrupt:
        for target in begun:
            _stop_quietly(target)
        common.say("interrupted: what was recorded by then is written")
    return [Path(first["folder"]) for first in begun.values()], next(iter(begun.values()))


def _await(attach_point: Place, number: int, steps: int | None) -> None:
    """Wait until the capture or the program has ended."""
    while True:
        try:
            answer = ask(attach_point, {"command": "status"})
        except (ConnectionRefusedError, FileNotFoundError):
            common.say(f"{attach_point.pid}: the program ended while it was recorded")
            return
        if answer.get("capture") != number:
            return
        if answer.get("ended") is not None:
            if steps is not None and answer.get("steps", 0) < steps:
                common.say(
                    f"{attach_point.pid}: {answer['steps']} of {units.counted(steps, 'step')} recorded: it"
                    f" ended {answer['ended']}"
                )
            return
        time.sleep(_LOOK_S)


def _stop_quietly(attach_point: Place) -> None:
    try:
        ask(attach_point, {"command": "stop"})
    except (OSError, Refused):  # it has ended already
        return


def _dump(targets: Sequence[Place]) -> tuple[list[Path], dict[str, Any]]:
    """Have the rings written, each once: the ranks of a run share one."""
    folders: list[Path] = []
    first: dict[str, Any] = {}
    rings: set[str] = set()
    for target in targets:
        answer = _ask(target, {"command": "status"})
        ring = answer.get("ring")
        if ring is not None and ring in rings:
            continue
        answer = _ask(target, {"command": "dump"}, _START_S)
        rings.add(str(ring))
        dump = Path(answer["dump"])
        root = dump.parent.parent
        # the recording's folder is removed when the program ends, so move the dump out of it at once
        moved = root / f".{dump.parent.name.strip('.')}-{dump.name}"
        dump.rename(moved)
        folders.append(moved)
        first = first or {**answer, "place": str(root)}
    return folders, first


# ---------------------------------------------------------------------------------- profile


def _target(output: Path | None, folder: Path, name: str, force: bool) -> Path:
    """Return the profile's path; ends the command if it exists and is not to be replaced."""
    if output is None:
        number = 1
        while (path := folder / f"{name}-{number}.opscope").exists():
            number += 1
        return path
    common.refuse_name(output)
    path = output if output.suffix == ".opscope" else output.with_name(f"{output.name}.opscope")
    if path.exists() and not (force and (path / "meta.json").is_file()):
        common.fail(
            f"{path} exists" + ("; --force replaces it" if not force else " and is no profile")
        )
    return path


def _profile(
    folders: Sequence[Path],
    target: Path,
    first: dict[str, Any],
    force: bool,
    shown: tuple[bool, int | None, int | None],
) -> None:
    """Make one profile of all recordings, and print the report; a recording is removed only once the
    profile exists."""
    from opscope.backends import recording_folder
    from opscope.core.process_specs import PRIVATE

    from .collected import Task, collect_profile, names_for, print_report

    recording = folders[0]
    for other in folders[1:]:
        for part in recording_folder.parts(other):
            shutil.move(part, recording / part.name)
        recording_folder.discard(other)
    private = os.environ.get(PRIVATE) == "1"
    task = Task(recording, target, names_for(target), [str(first["name"])], force, private, "auto")
    with progress_bar.bar():
        try:
            collected = collect_profile(
                task, "nothing was recorded: no framework that opscope supports ran meanwhile"
            )
        except Exception as error:  # noqa: BLE001 - the recording is kept; its place is printed
            common.fail(
                f"{target} was not written: {recording_folder.reason(error)};"
                f" {recording_folder.left(recording)}",
                1,
            )
        recording_folder.discard(recording)
        if collected is None:
            raise declared.Exit(1)
        report, top, width = shown
        if report and sys.stderr is not None:
            try:
                print_report(collected[0], collected[1], top, width)
            except Exception as error:  # noqa: BLE001  the profile stands
                common.say(f"the report was not printed: {recording_folder.reason(error)}")
