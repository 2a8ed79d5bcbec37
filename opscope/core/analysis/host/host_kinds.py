"""Classify what a thread did when its Python stack was sampled: ran, slept, waited for a lock, a file, a
device …"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from opscope.core.code_files import StackFrame

PYTHON, IMPORT, COMPILE, WAITING = "python", "import", "compile", "waiting"
SLEEP, LOCK, FILE, NETWORK = "sleep", "lock", "file", "network"
PROCESS, DEVICE, COLLECTION = "process", "device", "garbage collection"
NOT_SAMPLED: Final = "not sampled"
#: Every kind, with its meaning.
KINDS: Final = {
    PYTHON: "the thread ran, or was ready to run",
    IMPORT: "it imported a module",
    COMPILE: "it compiled a program for a device, or waited for that",
    SLEEP: "it slept",
    LOCK: "it waited for another thread: a lock, a queue, a thread's end",
    FILE: "it read or wrote a file",
    NETWORK: "it read from or wrote to the network, or waited for it",
    PROCESS: "it waited for another process",
    DEVICE: "it waited for a device: .item(), synchronize(), a copy to the host",
    COLLECTION: "Python collected garbage, 0.2 ms or longer at a time",
    WAITING: "it was off the processors, for a reason that the stack does not show",
    NOT_SAMPLED: "no sample fell here",
}
#: Kinds in which the thread waited for something that faster ops or a compiler would not shorten.
WAITS: Final = frozenset((SLEEP, LOCK, FILE, NETWORK, PROCESS))
#: Kinds that need no processor: if the thread was running, it did something else on that line.
_OFF: Final = (LOCK, PROCESS)
#: Functions by the last word of the call, used if the words before it do not decide.
_CALLS: Final = (
    (SLEEP, re.compile(r"(?:\A|\.)(?:sleep|usleep|nanosleep|pause|sigwait)\Z")),
    (
        DEVICE,
        re.compile(
            r"(?:\A|\.)(?:item|tolist|synchronize|_synchronize|block_until_ready|device_get|wait_stream"
            r"|cpu|asnumpy|hal_sync|_cuda_synchronize)\Z"
        ),
    ),
    (
        PROCESS,
        re.compile(
            r"(?:\A|\.)(?:waitpid|wait4|waitid|wait3|communicate)\Z|\A(?:subprocess|os)\.(?:run|call"
            r"|check_call|check_output|system|wait)\Z|(?:\A|\.)(?:proc|process|child|popen)\w*\.wait\Z"
        ),
    ),
    (
        NETWORK,
        re.compile(
            r"(?:\A|\.)(?:recv|recv_into|recvfrom|recvmsg|send|sendall|sendto|sendmsg|connect|accept"
            r"|getaddrinfo|gethostbyname|urlopen|urlretrieve|do_handshake)\Z"
            r"|(?:\A|\.)(?:requests|session|sock\w*|conn\w*)\.(?:get|post|put|read|write)\Z"
        ),
    ),
    (
        LOCK,
        re.compile(
            r"(?:\A|\.)(?:acquire|acquire_lock|wait|wait_for|_wait_for_tstate_lock|barrier)\Z"
            r"|\b\w*(?:lock|mutex|sem|semaphore|condition|cond)\w*\.__enter__\Z"
            r"|\b\w*(?:queue|_q|q)\.(?:get|put|join)\Z|\b\w*thread\w*\.join\Z|(?:\A|\.)_?join_thread\Z"
        ),
    ),
    (
        FILE,
        re.compile(
            r"(?:\A|\.)(?:readline|readlines|readinto|readall|read_text|read_bytes|write_text|write_bytes"
            r"|writelines|fsync|fdatasync|sync_file_range|pread|preadv|pwrite|pwritev|sendfile|truncate"
            r"|memmap|tofile|fromfile|savez|savez_compressed|savetxt|loadtxt|read|write|flush|open|stat"
            r"|listdir|scandir|unlink|rename|replace|copyfile|rmtree|mkdir)\Z"
            r"|\A(?:torch|np|numpy|json|pickle|yaml|jnp)\.(?:save|load|dump)\Z"
        ),
    ),
)
#: Functions of Python's library and of frameworks whose innermost frame shows what the thread waits for.
_LEAVES: Final = (
    (PROCESS, re.compile(r"subprocess\.py\t|multiprocessing/popen_\w+\.py\t")),
    (
        NETWORK,
        re.compile(r"(?:/|\A)(?:socket|ssl|selectors|http/\w+|urllib/\w+|asyncio/\w+)\.py\t"),
    ),
    (PROCESS, re.compile(r"multiprocessing/(?:connection|queues|pool|process)\.py\t")),
    (LOCK, re.compile(r"(?:/|\A)(?:threading|queue|concurrent/futures/\w+)\.py\t")),
    (
        DEVICE,
        re.compile(
            r"torch/(?:cuda|xpu|mps|accelerator)/\w+\.py\t(?:\w+\.)?_?(?:synchronize|wait)\b"
        ),
    ),
)
_IMPORTS: Final = "<frozen importlib._bootstrap"
#: Files of frameworks that only compile.
_COMPILES: Final = re.compile(
    r"(?:/|\A)(?:torch/_dynamo/convert_frame|torch/_inductor/compile_fx|jax/_src/compiler"
    r"|jax/_src/interpreters/mlir|tensorflow/python/eager/polymorphic_function/tracing_compilation)\.py\Z"
    r"|(?:/|\A)triton/compiler/"
)
#: A thread that was ready to run for less than this share of the time was waiting; else it was not.
WAITED, RAN = 0.5, 0.9


def kind_by_name(
    frames: Sequence[StackFrame], call: str | None, place: int
) -> tuple[str | None, bool]:
    """Return the kind that the names show (None: none), and whether that kind is impossible for a running
    thread.

    If the frame at ``place``, which is shown, imports or compiles, it decides; else the call of the innermost
    frame decides, or the innermost frame's own function.
    """
    inside = [file.replace("\\", "/") for file, _, _ in frames[: place + 1]]
    if any(file.startswith(_IMPORTS) for file in inside):
        return IMPORT, False
    if any(_COMPILES.search(file) for file in inside):
        return COMPILE, False
    if call is not None:
        for kind, pattern in _CALLS:
            if pattern.search(call):
                return kind, kind in _OFF
    if frames:
        file, _, function = frames[0]
        leaf = f"{file}\t{function}".replace("\\", "/")
        for kind, pattern in _LEAVES:
            if pattern.search(leaf):
                return kind, True
    return None, False
