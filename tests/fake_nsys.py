"""A stand-in for ``nsys`` that answers as the real ones of several versions do, for tests without one.

Run as a script: ``fake_nsys.py VERSION COMMAND ...``. What each version knows is copied from what the real
2020.4.3, 2022.4.2, 2023.4.4 and 2024.2.3 print, and holds against them (``test_under_nsight.py``); it does not
come from opscope's own table. Its report is a JSON file of the NVTX events that the program sent to the
injection library of the tests, and of kernels named by FAKE_NSYS_KERNELS. FAKE_NSYS_FAULT makes it fail in
one of the ways that were seen of real ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

_COMMON = (
    "backtrace= capture-range= command-file= cpuctxsw= cuda-flush-interval= cuda-memory-usage= cudabacktrace="
    " delay= duration= env-var= export= force-overwrite= ftrace= ftrace-keep-user-config= gpuctxsw= help"
    " inherit-environment= kill= mpi-impl= nvtx-capture= opengl-gpu-workload= osrt-backtrace-threshold="
    " osrt-threshold= output= sample= sampling-period= session-new= show-output= stats= stop-on-exit= trace="
    " trace-fork-before-exec= vulkan-gpu-workload= wait="
)
_2022 = (
    f"{_COMMON} capture-range-end= cuda-graph-trace= cuda-um-cpu-page-faults= cuda-um-gpu-page-faults="
    " gpu-metrics-device= gpu-metrics-frequency= gpu-metrics-set= nic-metrics= resolve-symbols= run-as="
    " samples-per-backtrace= os-events= event-sample= cpu-core-events= hotkey-capture="
)
_SETS = "cuda nvtx osrt cublas cudnn opengl opengl-annotations mpi openacc openmp vulkan vulkan-annotations"
_SETS_2022 = f"{_SETS} cublas-verbose cusparse cusparse-verbose oshmem ucx nvvideo"
#: version: options, values of --trace, suffix, the export's table about itself
KNOWN = {
    "2020.4.3.7-10543b6": (f"{_COMMON} stop-on-range-end= verbose", f"{_SETS} none", ".qdrep", None),
    "2022.4.2.1-df9881f": (_2022, f"{_SETS_2022} none", ".nsys-rep", "EXPORT_META_DATA"),
    "2023.4.4.54-234433681190v0": (
        f"{_2022} flush-on-cudaprofilerstop= start-later= python-sampling=",
        f"{_SETS_2022} python-gil none",
        ".nsys-rep",
        "META_DATA_EXPORT",
    ),
    "2024.2.3.38-242334140272v0": (
        f"{_2022} flush-on-cudaprofilerstop= start-later= python-sampling= cpu-core-metrics="
        " python-functions-trace=",
        f"{_SETS_2022} python-gil cusolver cusolver-verbose none",
        ".nsys-rep",
        "META_DATA_EXPORT",
    ),
    # unknown to opscope: only its help tells what it can do
    "2031.1.0.1": (
        f"{_2022} cuda-event-trace= discard-environment= quantum=",
        f"{_SETS_2022} warp-drive none",
        ".nsys-rep",
        "META_DATA_EXPORT",
    ),
}  # fmt: skip
_SHORT = {
    "-o": "output",
    "-t": "trace",
    "-s": "sample",
    "-f": "force-overwrite",
    "-c": "capture-range",
}
_USAGE = "\nusage: nsys profile [<args>] [application] [<application args>]\nTry 'nsys profile --help' for more information."


class Bad(Exception):
    """What nsys prints before it ends with status 1."""


def main(version: str, words: list[str]) -> int:
    """Answer one command."""
    fault = os.environ.get("FAKE_NSYS_FAULT", "")
    if fault == "broken":
        sys.stderr.write("nsys: error while loading shared libraries: libfoo.so.1\n")
        return 127
    if words[:1] == ["--version"]:
        text = os.environ.get("FAKE_NSYS_SAYS") or f"NVIDIA Nsight Systems version {version}"
        print(text)
        return 0
    options, sets, suffix, about = KNOWN.get(version, KNOWN["2022.4.2.1-df9881f"])
    try:
        if words[:2] == ["profile", "--help"]:
            if fault == "help":
                raise Bad("no help here")
            print(_help(options.split(), sets.split()))
            return 0
        if words[:1] == ["profile"]:
            return profile(words[1:], options.split(), sets.split(), suffix, fault)
        if words[:1] == ["export"]:
            return export(words[1:], version, about, fault)
        raise Bad(f"unknown command {words[:1]}")
    except Bad as error:
        print(error)
        return 1


def _help(options: list[str], sets: list[str]) -> str:
    lines = ["", "usage: nsys profile [<args>] [application] [<application args>]", ""]
    short = {name: letter for letter, name in _SHORT.items()}
    for option in options:
        name = option.rstrip("=")
        lines.append(f"\t{short[name] + ', ' if name in short else ''}--{option}\n")
        if name == "trace":
            quoted = ", ".join(f"'{one}'" for one in sets[:-1])
            lines.append(
                f"\t   Possible values are {quoted} or '{sets[-1]}'.\n\t   Select the sets.\n"
            )
        elif name == "capture-range-end":
            lines.append(
                "\t   Possible values are 'none', 'stop', 'stop-shutdown', 'repeat[:N]' or "
                "'repeat-shutdown:N'.\n\t   What a range's end does.\n"
            )
        else:
            lines.append("\t   Possible values are 'true' or 'false'.\n")
    return "\n".join(lines)


def _parsed(
    words: list[str], options: list[str], sets: list[str]
) -> tuple[dict[str, str], list[str]]:
    known = {option.rstrip("=") for option in options}
    found: dict[str, str] = {}
    while words and words[0].startswith("-"):
        word = words.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        name = _SHORT.get(word, name)
        if name not in known:
            raise Bad(f"unrecognised option '{word}'\n{_USAGE}")
        found[name] = value if equals else words.pop(0)
    for one in found.get("trace", "").split(","):
        if one and one not in sets:
            raise Bad(
                f"Illegal --trace argument '{one}'\nPossible --trace values are one or more of ...{_USAGE}"
            )
    ends = r"none|stop|stop-shutdown|repeat(:\d+)?|repeat-shutdown:\d+"
    if not re.fullmatch(ends, found.get("capture-range-end", "stop")):
        raise Bad(f"Illegal --capture-range-end argument '{found['capture-range-end']}'.{_USAGE}")
    if not words:
        raise Bad(f"Missing application{_USAGE}")
    return found, words


def profile(words: list[str], options: list[str], sets: list[str], suffix: str, fault: str) -> int:
    """Run the program as nsys does: in a session of its own, with pipes for streams and NVTX injected."""
    asked, program = _parsed(words, options, sets)
    (Path.cwd() / "asked.json").write_text(json.dumps(asked))
    if fault == "tmp":
        raise Bad("Invalid truncate size.")
    if fault == "permission":
        raise Bad("Error: permission denied: /proc/sys/kernel/perf_event_paranoid is 4")
    if fault == "warning":
        print("WARNING: The Linux kernel is older than recommended.", flush=True)
    target = Path(asked["output"])
    log = Path(tempfile.mkdtemp()) / "nvtx-%p.log"
    env = {**os.environ, "NSYS_PROFILING_SESSION_ID": "1", "QUADD_INJECTION_PROXY": "NVTX"}
    tool = os.environ.get("FAKE_NSYS_TOOL")
    if tool and "nvtx" in asked["trace"].split(","):
        env |= {"NVTX_INJECTION64_PATH": tool, "OPSCOPE_TEST_NVTX_LOG": str(log)}
    app = subprocess.Popen(
        program,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        close_fds=False,
        start_new_session=True,
    )
    assert app.stdin is not None
    app.stdin.close()
    relay = threading.Thread(target=_relay, args=(app,), daemon=True)
    relay.start()
    if fault == "dies":
        while not Path("over").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)
    if "duration" in asked:  # a test decides when it is over, by a file
        while not Path("over").exists() and app.poll() is None:
            time.sleep(0.02)
        status = app.poll()
        if status is None and asked.get("kill", "sigterm") != "none":
            os.killpg(app.pid, signal.SIGTERM)
            status = app.wait()
        status = 0 if status is None else status
    else:
        status = app.wait()
        relay.join()
    _write(asked, target, log.parent, suffix, fault, env)
    Path("nsys-ended").touch()
    return 128 - status if status < 0 else status


def _relay(app: subprocess.Popen[bytes]) -> None:
    assert app.stdout is not None
    for line in app.stdout:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def _write(
    asked: dict[str, str], target: Path, logs: Path, suffix: str, fault: str, env: dict
) -> None:
    captures = _captures(asked, sorted(logs.glob("*.log")))
    if asked.get("delay") and os.environ.get("FAKE_NSYS_EARLY"):
        captures = []  # the program ended before the delay did
    names = [f"{target}.{n}" for n in range(1, len(captures) + 1)]
    if not asked.get("capture-range-end", "").startswith("repeat") or len(captures) == 1:
        names = [str(target)][: len(captures)]
    written = []
    for name, events in zip(names, captures, strict=False):
        data = {"events": events, "env": env, "kernels": os.environ.get("FAKE_NSYS_KERNELS", "")}
        place = Path(name + (".qdstrm" if fault == "import" else suffix))
        if fault == "full":
            print(f"Failed to create '{place}': No space left on device.")
            place = Path(tempfile.mkdtemp(), "nsys-report-1234.qdstrm")
        place.write_text(json.dumps(data))
        written.append(place)
    if fault == "import":
        print("Importer error status: An unknown error occurred.")
        print("Unable to retrieve the importer version: skipping importation of the QDSTRM file.")
    if fault == "full":
        print("Importer error status: Importation failed.")
    print(*(["[1/1] [0%  ] report\r[1/1] [====100%] report", "Generated:"]), sep="\n")
    print(*(f"    {path}" for path in written), sep="\n", flush=True)


def _captures(asked: dict[str, str], logs: list[Path]) -> list[list[list[object]]]:
    """The events of each range of ``--capture-range``; all as one without it. Times are by order, in µs."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.nvtx_tool import read

    events: list[list[object]] = []
    for log in logs:
        pid = int(log.stem.rpartition("-")[2])
        for one in read(log):
            row = [one.kind, pid, one.thread, one.domain, one.category, one.payload, one.text]
            events.append([len(events) * 1000, *row])
    kind = asked.get("capture-range", "none")
    if kind == "none":
        return [events]
    if kind == "nvtx":
        text, _, domain = asked["nvtx-capture"].partition("@")
        first, last = ("start", domain, text), ("end", domain, "")
    else:
        first, last = ("mark", "cudart", "start"), ("mark", "cudart", "stop")
    # what names things is known from before the range
    lasting = [e for e in events if e[1] in ("domain", "category", "string")]
    found: list[list[list[object]]] = []
    inside = False
    for event in events:
        if (event[1], event[4], event[7]) == first:
            inside, _ = True, found.append(list(lasting))
        if inside and event not in lasting:
            found[-1].append(event)
        if (event[1], event[4], event[7]) == last:
            inside = False
    end, _, most = asked.get("capture-range-end", "stop").partition(":")
    if end != "repeat":
        return found[:1]
    return found[: int(most)] if most else found


def export(words: list[str], version: str, about: str | None, fault: str) -> int:
    """Write the report as SQLite with the schema of the version; fail as real ones do."""
    asked: dict[str, str] = {}
    while words and words[0].startswith("-"):
        name, _, value = words.pop(0).lstrip("-").partition("=")
        asked[name] = value
    target, report = Path(asked["output"]), Path(words[0])
    if fault == "export":
        target.write_bytes(b"SQLite format 3\0 half of it")
        raise Bad("Exporting 95 events: [===50%\rExportation error: Cannot read from stream.")
    if fault == "export-nothing":
        return 0
    if fault == "export-junk":
        target.write_bytes(b"SQLite format 3\0" + b"\xff" * 4000)
        return 0
    data = json.loads(report.read_text())
    with contextlib.closing(sqlite3.connect(target)) as database, database:
        _tables(database, data, version, about)
    return 0


def _tables(database: sqlite3.Connection, data: dict, version: str, about: str | None) -> None:
    strings: dict[str, int] = {}

    def number(text: str) -> int:
        return strings.setdefault(text, len(strings))

    database.execute(
        "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)"
    )
    database.execute(
        "CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER)"
    )
    rows, last = _nvtx_rows(data["events"], number), len(data["events"]) * 1000
    if rows:
        database.execute(
            "CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,"
            " rangeId INTEGER, category INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER,"
            " textId INTEGER, domainId INTEGER, int64Value INTEGER)"
        )
        marks = ",".join("?" * 11)
        database.executemany(f"INSERT INTO NVTX_EVENTS VALUES ({marks})", rows)
    _kernels(database, data, rows, strings)
    if about:
        database.execute(f"CREATE TABLE {about} (name TEXT NOT NULL, value TEXT)")
        facts = {
            "EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems",
            "EXPORT_PRODUCT_VERSION": version.partition("-")[0],
            "EXPORT_SCHEMA_VERSION": "3.7.2",
        }
        database.executemany(f"INSERT INTO {about} VALUES (?, ?)", facts.items())
        database.execute("CREATE TABLE ANALYSIS_DETAILS (duration INTEGER NOT NULL)")
        database.execute("INSERT INTO ANALYSIS_DETAILS VALUES (?)", (last,))
        # real exports of 2023 have the program's whole environment, here and in META_DATA_CAPTURE
        database.execute(
            "CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT NOT NULL, value TEXT NOT NULL)"
        )
        database.executemany(
            "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, ?)", data["env"].items()
        )
        if about == "META_DATA_EXPORT":
            database.execute("CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT)")
            env = [("PROCESS_0:ENVIRONMENT_VARIABLE", f'{k}="{v}"') for k, v in data["env"].items()]
            database.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", env)
    database.executemany(
        "INSERT INTO StringIds VALUES (?, ?)", ((n, t) for t, n in strings.items())
    )


def _nvtx_rows(events: list, number) -> list[tuple]:
    """NVTX_EVENTS: domains 75, category names 33, push and pop 59, start and end 60, marks 34."""
    rows: list[list] = []
    domains: dict[str, int] = {}
    opened: dict[tuple, list[list]] = {}
    started: dict[tuple, list[list]] = {}
    for time_, kind, pid, thread, domain, category, payload, text in events:
        tid = pid << 24 | thread
        if kind == "domain":
            domains.setdefault(text, len(domains) + 1)
            rows.append([time_, None, 75, None, None, text, tid, None, None, domains[text], None])
            continue
        where = domains.setdefault(domain, len(domains) + 1)
        row = [time_, None, 0, None, category, None, tid, None, number(text), where, payload]
        if kind == "category":
            rows.append([time_, None, 33, None, category, text, tid, None, None, where, None])
        elif kind == "push":
            row[2] = 59
            opened.setdefault((tid, domain), []).append(row)
            rows.append(row)
        elif kind == "pop" and opened.get((tid, domain)):
            opened[tid, domain].pop()[1] = time_
        elif kind == "start":
            row[2] = 60
            started.setdefault((pid, domain), []).append(row)
            rows.append(row)
        elif kind == "end" and started.get((pid, domain)):
            started[pid, domain].pop()[1] = time_
        elif kind == "mark":
            row[2] = 34
            rows.append(row)
    return [tuple(row) for row in rows]


def _kernels(
    database: sqlite3.Connection, data: dict, rows: list[tuple], strings: dict[str, int]
) -> None:
    """A kernel for each push of a range with this text, launched inside it and running after it."""
    name = data["kernels"]
    wanted = {at for text, at in strings.items() if name and name in text}
    found = [row for row in rows if row[2] == 59 and row[1] and row[8] in wanted]
    if not found:
        return
    database.execute(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,"
        " correlationId INTEGER, nameId INTEGER)"
    )
    database.execute(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,"
        " contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,"
        " demangledName INTEGER, shortName INTEGER)"
    )
    call_name = strings.setdefault("cudaLaunchKernel_v7000", len(strings))
    kernel = strings.setdefault("made_kernel", len(strings))
    for at, row in enumerate(found, start=1):
        call = (row[0] + 1, row[0] + 2, row[6], at, call_name)
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)", call)
        pid = row[6] >> 24 << 24
        record = (row[1], row[1] + 500, 0, 1, 7, at, pid, kernel, kernel)
        database.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?,?)", record
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
