"""Layers, phases and steps: what native code writes of them is what Python does, in odd programs too."""

# ruff: noqa: E402 - without torch nothing below can be imported
from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time

import polars as pl
import pytest

import opscope
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import recorder_sink, session
from opscope.core.capture.emit import MAX_FWD_THREAD
from opscope.core.capture.idle import IdleWriter
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.recording_format import RECORD
from opscope.readers.recording.reader import collect

torch = pytest.importorskip("torch")

from torch import nn

from opscope.adapters.torch import modules
from opscope.adapters.torch.native import build, observer, plan
from tests.on_torch.torch_programs import PROGRAMS, warm_up

pytestmark = pytest.mark.usefixtures("binary")


def tree(folder):
    """Layers, phases and steps of each thread, in the order of their start; of the first two each with
    those that enclose it, which steps may end within."""
    ranges = (
        collect(folder).tables["ranges"].with_columns(pl.col("category", "text").cast(pl.String))
    )
    ranges = ranges.filter(pl.col("category").is_in(["layer", "phase", "step"]))
    threads = []
    for _, rows in ranges.sort("start", "end", descending=[False, True]).group_by("thread"):
        told, above = [], []
        for row in rows.to_dicts():
            if row["category"] == "step":
                told.append((row["text"],))
                continue
            while above and above[-1]["end"] < row["end"]:
                above.pop()
            told.append((*(one["text"] for one in above), row["text"]))
            above.append(row)
        threads.append(told)
    return sorted(threads)


def recorded(folder, program, mode, monkeypatch, **options):
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", mode)
    monkeypatch.setattr(session, "_steps", session._Steps())
    opscope.init(frameworks="torch", **options)
    session.start(RecorderCapture(folder))
    try:
        program()
    finally:
        session.stop()
        opscope.shutdown()
    return tree(folder)


def both(make, folder, monkeypatch, **options):
    """What a program says, natively; it must be what Python's hooks say of it."""
    told = []
    for mode in ("dispatch", "native"):
        torch.manual_seed(0)
        told.append(recorded(folder / mode, make(), mode, monkeypatch, **options))
    dispatch, native = told
    assert native == dispatch
    return native


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, tmp_path, monkeypatch):
    warm_up()
    told = both(PROGRAMS[name], tmp_path, monkeypatch)
    assert told or name in ("numbers", "stores that vary")  # which only call ops


class Odd(nn.Module):
    """Calls itself, a part that raises, a part that is made anew, and part of it twice."""

    def __init__(self):
        super().__init__()
        self.part = nn.Linear(2, 2)
        self.shared = nn.Sequential(self.part, nn.ReLU())

    def forward(self, x, depth=2):
        if depth:
            return self(x, depth - 1)
        x = self.shared(self.part(x))
        with pytest.raises(RuntimeError):
            self.part(torch.ones(5))
        with pytest.raises(ZeroDivisionError):
            self.fails(x)
        if not hasattr(self, "later"):
            self.later = nn.Tanh()
        return self.later(nn.Sigmoid()(x))

    def fails(self, x):
        class Raises(nn.Module):
            def forward(self, x):
                raise ZeroDivisionError

        Raises()(x)


def odd():
    model = Odd()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def program():
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        model.eval()
        model(torch.ones(1, 2))
        model.train()
        with torch.no_grad():
            model(torch.ones(1, 2))
        with torch.inference_mode():
            model.part(torch.ones(1, 2))

    return program


def test_modules_that_call_themselves_raise_or_are_made_late(tmp_path, monkeypatch):
    (told,) = both(odd, tmp_path, monkeypatch)
    assert ("forward", *["Odd"] * 3, "Odd.shared", "Odd.part") in told
    assert ("forward", "Odd", "Odd", "Odd", "Odd.later") in told
    assert ("step 3",) in told
    assert ("optimizer",) in told


def nested():
    """A backward pass, an optimizer and a data loader within a module; a model within a model's hook."""
    inner = nn.Linear(2, 2)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x):
            y = self.first(x)
            with torch.enable_grad():
                inner(y.detach()).sum().backward()
                optimizer.step()
            for batch in torch.utils.data.DataLoader(torch.ones(2, 2)):
                y = y + self.second(batch)
            return y

    optimizer = torch.optim.SGD(inner.parameters(), 0.1)
    model = Outer()
    model.register_forward_hook(lambda *_: [inner(torch.ones(1, 2))] * 0 or None)

    def program():
        for training in (True, False):
            model.train(training)
            for _ in range(2):
                model(torch.ones(1, 2)).sum().backward()

    return program


def test_phases_within_modules(tmp_path, monkeypatch):
    (told,) = both(nested, tmp_path, monkeypatch)
    assert any(one[-2:] == ("Outer", "backward") for one in told)
    assert any(one[-2:] == ("Outer", "input") for one in told)
    assert any(one[-2:] == ("Outer", "Outer.second") for one in told)


def abandoned():
    """A module whose call the user interrupts."""

    class Leaves(nn.Module):
        def forward(self, x):
            raise KeyboardInterrupt

    stuck = nn.Sequential(nn.ReLU(), Leaves())
    model = nn.Sequential(nn.Linear(2, 2))

    def program():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                stuck(torch.ones(1, 2))
            model(torch.ones(1, 2)).sum().backward()

    return program


def test_a_module_that_is_interrupted_is_closed(tmp_path, monkeypatch):
    (told,) = both(abandoned, tmp_path, monkeypatch)
    assert [one[-1] for one in told].count("Sequential#2") == 2


def test_without_phases_and_without_layers(tmp_path, monkeypatch):
    (told,) = both(odd, tmp_path / "1", monkeypatch, steps=False)
    assert {one[0] for one in told} == {"Odd", "Odd.part", "optimizer"}
    (told,) = both(odd, tmp_path / "2", monkeypatch, layers=False)
    assert {one[-1].split()[0] for one in told} == {"step", "backward", "optimizer"}


def test_many_threads_come_and_go(tmp_path, monkeypatch):
    def make():
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))

        def work():
            for _ in range(3):
                model(torch.ones(1, 2)).sum().backward()

        def program():
            for _ in range(8):
                threads = [threading.Thread(target=work) for _ in range(2)]
                for one in threads:
                    one.start()
                for one in threads:
                    one.join()

        return program

    told = both(make, tmp_path, monkeypatch)
    assert len(told) == 16
    assert all(one == told[0] for one in told)


def test_a_module_in_the_place_of_one_that_is_gone_has_its_own_name(tmp_path, monkeypatch):
    kinds = [nn.ReLU, nn.Tanh, nn.Sigmoid]
    seen = []

    def make():
        def program():
            x = torch.ones(1, 2)
            for at in range(60):
                outer = nn.Sequential(kinds[at % 3]())
                seen.append(id(outer[0]))
                outer(x)
                outer(x)
                del outer
                gc.collect(0)

        return program

    (told,) = both(make, tmp_path, monkeypatch)
    assert len(set(seen)) < len(seen)  # or it would show nothing
    assert {one[-1] for one in told if len(one) > 2} == {"Sequential.0"}


def test_lone_modules_in_each_others_place(tmp_path, monkeypatch):
    kinds = [nn.ReLU, nn.Tanh, nn.Sigmoid]

    def make():
        def program():
            for at in range(60):
                kinds[at % 3]()(torch.ones(1))

        return program

    (told,) = both(make, tmp_path, monkeypatch)
    names = [one[-1] for one in told if len(one) > 1]
    assert names == ["ReLU", "Tanh", "Sigmoid"] * 20


def test_more_modules_than_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(modules, "MAX_MODULES", 7)

    def make():
        model = nn.Sequential(*(nn.Sequential(nn.ReLU(), nn.Tanh()) for _ in range(4)))
        other = nn.Sequential(nn.ReLU())

        def program():
            for _ in range(3):
                model(torch.ones(1))
                other(torch.ones(1))

        return program

    (told,) = both(make, tmp_path, monkeypatch)
    assert [one[-1] for one in told].count("Sequential.3.1") == 3


def test_recordings_one_after_the_other_and_begun_within_a_module(tmp_path, monkeypatch):
    class Starts(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.after = nn.ReLU(), nn.Tanh()

        def forward(self, x):
            x = self.before(x)
            if self.change:
                self.change()
            return self.after(x)

    for mode in ("dispatch", "native"):
        monkeypatch.setenv("OPSCOPE_TORCH_OPS", mode)
        monkeypatch.setattr(session, "_steps", session._Steps())
        model = Starts()
        opscope.init(frameworks="torch")
        told = []
        try:
            for number in range(3):
                folder = tmp_path / mode / str(number)
                folder.parent.mkdir(exist_ok=True)
                model.change = lambda folder=folder: session.start(RecorderCapture(folder))
                model(torch.ones(1))
                model.change = None
                model(torch.ones(1))
                model.change = session.stop
                model(torch.ones(1))
                told.append(tree(folder))
        finally:
            session.stop()
            opscope.shutdown()
        layers = [[one[-1].partition("#")[0] for one in first] for first, *_ in told]
        # the first recording begins within the model, whose call it does not know
        whole = ["Starts", "Starts.before", "Starts.after"]
        assert [
            [one for one in all if one != "forward" and "step" not in one] for all in layers
        ] == [
            ["Tanh", *whole, *whole[:2]],
            ["Starts.after", *whole, *whole[:2]],
            ["Starts.after", *whole, *whole[:2]],
        ]


def test_a_long_call_is_on_disk_before_it_ends(tmp_path, monkeypatch):
    """What a process that is killed loses is bounded, also where no step ends for long."""
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", "native")
    sizes = [0]

    class Sleeps(nn.Module):
        def forward(self, x):
            deadline = time.monotonic() + 60
            while (size := written()) <= sizes[-1] and time.monotonic() < deadline:
                time.sleep(0.01)
            sizes.append(size)
            return x

    def written():
        return sum(one.stat().st_size for one in tmp_path.rglob("events.bin"))

    model = nn.Sequential(*(Sleeps() for _ in range(4)))
    opscope.init(frameworks="torch")
    session.start(RecorderCapture(tmp_path / "run"))
    try:
        model(torch.ones(1))
    finally:
        session.stop()
        opscope.shutdown()
    assert sizes == sorted(set(sizes)), "each call was written while it ran"
    assert len(sizes) == 5


def test_afterwards_pushes_are_written_to_the_recorder_again(tmp_path, monkeypatch):
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", "native")
    opscope.init(frameworks="torch")
    session.start(RecorderCapture(tmp_path / "1"))
    emitters = [session.emitter(name) for name in ("torch", session.STEP_FRAMEWORK)]
    native = [type(one.push).__name__ for one in emitters]
    opscope.shutdown()
    session.stop()
    session.start(RecorderCapture(tmp_path / "2"))
    recorder = session.recorder()
    recorder.deadline = 1 << 62  # no flush between
    for one in emitters:
        one.push(one.prepare("range"))
    sizes = [len(thread.log) for thread in recorder._threads]
    session.stop()
    assert native == ["builtin_function_or_method"] * 2
    assert sizes == [2 * RECORD.size]


def test_native_code_holds_no_module(tmp_path, monkeypatch):
    import weakref

    monkeypatch.setenv("OPSCOPE_TORCH_OPS", "native")
    opscope.init(frameworks="torch")
    session.start(RecorderCapture(tmp_path / "run"))
    try:
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        for _ in range(2):
            model(torch.ones(1, 2))
        gone = [weakref.ref(one) for one in model.modules()]
        del model
        gc.collect()
        assert [one() for one in gone] == [None] * 3
    finally:
        session.stop()
        opscope.shutdown()


# ------------------------------------------------------------------ as CPython's C API has it


def begin(folder, monkeypatch, mode="native"):
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", mode)
    opscope.init(frameworks="torch")
    session.start(RecorderCapture(folder))


def end():
    session.stop()
    opscope.shutdown()


@pytest.fixture
def flushes(monkeypatch):
    """What is to be done instead of a flush, last of a list; an empty one: what always is."""
    monkeypatch.setattr(
        IdleWriter, "start", lambda _: None
    )  # the model's calls write, and nobody else
    instead = []
    original = Recorder.flush
    monkeypatch.setattr(
        Recorder, "flush", lambda self: instead[-1]() if instead else original(self)
    )
    return instead


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("mode", ["dispatch", "native"])
def test_an_interrupt_while_we_write_reaches_the_program(mode, tmp_path, monkeypatch, flushes):
    model = nn.Sequential(nn.ReLU())
    begin(tmp_path / "run", monkeypatch, mode)
    try:
        model(torch.ones(1))
        time.sleep(recorder_sink.FLUSH_NS / 1e9)
        flushes.append(interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(torch.ones(1))
        flushes.clear()
        model(torch.ones(1))
    finally:
        end()
    ((*_, last),) = [
        [one for one in told if "Sequential" in one] for told in tree(tmp_path / "run")
    ]
    assert last == ("forward", "Sequential", "Sequential.0")


def test_a_fault_while_we_write_does_not(tmp_path, monkeypatch, flushes, caplog):
    def fault():
        raise ValueError("ours")

    monkeypatch.setattr(observer, "_flushed", True)
    model = nn.Sequential(nn.ReLU())
    begin(tmp_path / "run", monkeypatch)
    try:
        model(torch.ones(1))
        time.sleep(recorder_sink.FLUSH_NS / 1e9)
        flushes.append(fault)
        for _ in range(3):
            model(torch.ones(1))
        flushes.clear()
        model(torch.ones(1))
    finally:
        end()
    (said,) = caplog.records
    assert "could not be written" in said.message
    (told,) = tree(tmp_path / "run")
    assert told.count(("forward", "Sequential", "Sequential.0")) == 5


def interrupted_once_entered():
    """Ctrl-C comes when a module has been entered, and before the call that does that has returned."""
    model = nn.Sequential(nn.Sequential(nn.ReLU()))

    def watch(frame, event, builtin):
        python = event == "return" and frame.f_code.co_filename == modules.__file__
        name = builtin.__name__ if event == "c_return" else frame.f_code.co_name if python else ""
        if name == "enter":
            watch.left -= 1
            if not watch.left:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def program():
        for watch.left in (1, 2, 3):
            model(torch.ones(1)).sum()
            sys.setprofile(watch)
            try:
                with pytest.raises(KeyboardInterrupt):
                    model(torch.ones(1))
            finally:
                sys.setprofile(None)
            with torch.no_grad():
                model(torch.ones(1))

    return program


def test_a_module_that_is_interrupted_as_it_is_entered_is_closed(tmp_path, monkeypatch):
    (told,) = both(interrupted_once_entered, tmp_path, monkeypatch)
    layers = [one[1:] for one in told if len(one) > 1]
    assert max(map(len, layers)) == 3
    assert layers.count(("Sequential",)) == 9
    assert layers.count(("Sequential", "Sequential.0", "Sequential.0.0")) == 6 + 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, AttributeError])
def test_a_module_that_does_not_say_whether_it_trains(error, tmp_path, monkeypatch, caplog):
    class Raises(nn.Module):
        raises = 0

        @property
        def training(self):
            if self.raises:
                self.raises -= 1
                raise error
            return True

        @training.setter
        def training(self, value):
            pass

        def forward(self, x):
            return x

    model, other = Raises(), nn.Sequential(nn.ReLU())
    begin(tmp_path / "run", monkeypatch)
    try:
        for _ in range(2):
            model(torch.ones(1))
        model.raises = 1 if error is KeyboardInterrupt else 9  # Ctrl-C comes once
        if error is KeyboardInterrupt:
            with pytest.raises(error):
                model(torch.ones(1))
        else:
            model(torch.ones(1))
        other(torch.ones(1))
    finally:
        end()
    assert [one.message for one in caplog.records] == [
        "opscope: a layer could not be closed; PyTorch is no longer observed"
    ] * (error is ValueError)
    (told,) = tree(tmp_path / "run")
    names = [one[-1] for one in told if "step" not in one[-1]]
    after = [] if error is ValueError else ["Sequential", "Sequential.0"]
    assert [one for one in names if one != "forward"] == ["Raises"] * 3 + after


def test_numbers_that_do_not_fit_are_left_out(tmp_path, monkeypatch):
    """PyTorch says 2**64 - 1 where a node has no number."""
    told = []
    for mode in ("dispatch", "native"):
        begin(tmp_path / mode, monkeypatch, mode)
        try:
            emitter = session.emitter("torch")
            prepared = emitter.prepare("numbers", "layer")
            numbers = [(2**64 - 1, 1), (5, 2**64), (-1, 1), (6, MAX_FWD_THREAD), (7,), (8, 9), ()]
            for one in numbers:
                emitter.push(prepared, *one)
                emitter.pop()
        finally:
            end()
        ranges = collect(tmp_path / mode).tables["ranges"].sort("start")
        told.append(ranges.select("seq", "fwd_thread").rows())
    assert told[0] == told[1]
    assert [seq for seq, _ in told[0]] == [None, None, None, None, 7, 8, None]


def test_builtins_ask_for_what_they_read(tmp_path, monkeypatch):
    begin(tmp_path / "run", monkeypatch)
    try:
        emitter = session.emitter("torch")
        wrong = [emitter.push, emitter.mark]
        library = observer.load(build(plan()))
        wrong += [library.builtins[name] for name in ("switch", "around", "begun", "know", "leave")]
        for one in wrong:
            with pytest.raises(TypeError):
                one()
        for one in (emitter.push, emitter.pop, emitter.mark):
            with pytest.raises(AttributeError):
                one(object())
    finally:
        end()


def test_a_program_that_calls_itself_too_deep_gets_its_own_error(tmp_path, monkeypatch):
    class Deep(nn.Module):
        def forward(self, x):
            return self(x)

    def make():
        model, other = Deep(), nn.Sequential(nn.ReLU())

        def program():
            other(torch.ones(1)).sum()
            for _ in range(2):
                with pytest.raises(RecursionError):
                    model(torch.ones(1))
            other(torch.ones(1))

        return program

    (told,) = recorded(tmp_path / "run", make(), "native", monkeypatch)
    assert told.count(("forward", "Sequential", "Sequential.0")) >= 1


ENDS = """
import atexit, sys, tempfile, torch
from torch import nn
import opscope
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session

model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
call = lambda: model(torch.ones(1, 2)).sum().backward()

class Late:  # no backward pass: PyTorch itself ends badly where one is left so late
    def __del__(self, model=nn.Sequential(nn.ReLU()), x=torch.ones(1)):
        model(x)
        print("late")

atexit.register(lambda: (call(), print("after us")))
opscope.init(frameworks="torch")
session.start(RecorderCapture(sys.argv[1]))
atexit.register(lambda: (call(), print("before us")))
call()
atexit.register(lambda: (call(), print("first")))
late = sys.modules["late"] = Late()
late.itself = late
"""


def test_modules_are_called_while_python_goes_down(tmp_path, monkeypatch):
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", "native")
    done = subprocess.run(
        [sys.executable, "-c", ENDS, str(tmp_path / "run")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n")[:4] == ["first", "before us", "after us", "late"]
    (told,) = tree(tmp_path / "run")
    assert told.count(("forward", "Sequential")) == 3


def test_builtins_keep_no_count_of_what_they_are_given(tmp_path, monkeypatch):
    model = nn.Sequential(*(nn.ReLU() for _ in range(4)))
    held = []

    def hold(*_):
        held.extend(state.open)

    model[1].register_forward_hook(hold)
    x = torch.ones(1)

    def work(times):
        for _ in range(times):
            model(x)
            with torch.no_grad():
                model(x)
            emitter.push(prepared, 1, 2)
            emitter.mark(prepared)
            emitter.pop(prepared)

    def counts():
        session.recorder().flush()  # of texts that wait to be written, with their categories
        gc.collect()
        return [sys.getrefcount(one) for one in of], sys.getallocatedblocks()

    begin(tmp_path / "run", monkeypatch)
    try:
        emitter = session.emitter("torch")
        prepared = emitter.prepare("numbers", "layer")
        (mode,) = [one for one in observer._modes if one._recorder is session.recorder()]
        state = mode.threads.current()
        model(x)
        model[1]._forward_hooks.clear()
        work(50)
        # from 3.12 on None and True are counted no more
        of = [None, True, False, prepared, prepared.id, state.open, *held, "id", "training"]
        before, blocks = counts()
        work(2000)  # 20,000 calls of modules
        after, now = counts()
    finally:
        end()
    assert len(held) == 3
    grown = [now - was for now, was in zip(after, before, strict=True)]
    assert max(grown) < 1000, grown  # one kept at each call would be 2,000 at least
    assert min(grown[:6]) > -1000, grown  # names may be given up meanwhile, by others
    assert now - blocks < 2000
