"""The list of living threads: complete, and harmless to the program."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

from opscope.core.capture.process import living_threads

#: Garbage with a ``threading.local`` is collected at each of the allocations that follow, in turn.
COLLECTING = """
import gc, threading
from opscope.core.capture.process import living_threads

class Holder:
    pass

def garbage():
    for _ in range(5):
        one = Holder()
        one.local = threading.local()
        one.local.x, one.itself = 1, one

event = threading.Event()
def waits(depth):
    if depth:
        waits(depth - 1)
    else:
        event.wait()

threads = [threading.Thread(target=waits, args=(5,)) for _ in range(8)]
for thread in threads:
    thread.start()
for number in range(2000):
    gc.set_threshold(100_000)
    garbage()
    gc.set_threshold(gc.get_count()[0] + number % 10)
    found = living_threads()
    assert {thread.ident for thread in threads} <= found
    assert gc.isenabled()
event.set()
print("done")
"""


def test_garbage_with_thread_locals_does_not_stop_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COLLECTING], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_the_collector_is_as_the_program_left_it() -> None:
    gc.disable()
    try:
        living_threads()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_thread_is_among_them_until_it_ends() -> None:
    event = threading.Event()
    thread = threading.Thread(target=event.wait)
    thread.start()
    ident = thread.ident
    assert {ident, threading.get_ident()} <= living_threads()
    event.set()
    thread.join()
    assert ident not in living_threads() or ident is None
