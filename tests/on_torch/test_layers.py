"""Layers, phases and steps: what native code writes of them is what Python does, in odd programs too."""

# ruff: noqa: E402 - without torch nothing below can be imported
from __future__ import annotations

import gc
import threading
import time

import polars as pl
import pytest

import opscope
from opscope.backends.recorder import RecorderCapture, collect
from opscope.core import record, session

torch = pytest.importorskip("torch")

from torch import nn

from opscope.adapters.torch import modules
from opscope.adapters.torch.native import BuildError, build, plan
from tests.on_torch.torch_programs import PROGRAMS, warm_up


@pytest.fixture(scope="module", autouse=True)
def binary():
    """The observer, built once and kept in the user's cache."""
    try:
        wanted = plan()
    except BuildError as error:
        pytest.skip(str(error))
    if wanted.compiler is None:
        pytest.skip("no C++ compiler to build the native observer with")
    return build(wanted)


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
    assert told or name == "numbers"  # which calls no module, and no backward


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
    sizes = []

    class Sleeps(nn.Module):
        def forward(self, x):
            time.sleep(record.FLUSH_NS / 1e9 + 0.01)
            sizes.append(sum(one.stat().st_size for one in tmp_path.rglob("events.bin")))
            return x

    model = nn.Sequential(*(Sleeps() for _ in range(4)))
    opscope.init(frameworks="torch")
    session.start(RecorderCapture(tmp_path / "run"))
    try:
        model(torch.ones(1))
    finally:
        session.stop()
        opscope.shutdown()
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 4


def test_afterwards_pushes_are_pythons_again(tmp_path, monkeypatch):
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", "native")
    opscope.init(frameworks="torch")
    session.start(RecorderCapture(tmp_path / "1"))
    emitters = [session.emitter(name) for name in ("torch", session.STEP_FRAMEWORK)]
    native = [type(one.push).__name__ for one in emitters]
    opscope.shutdown()
    session.stop()
    session.start(RecorderCapture(tmp_path / "2"))
    after = [type(one.push).__name__ for one in emitters]
    session.stop()
    assert native == ["builtin_function_or_method"] * 2
    assert after == ["function"] * 2


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
