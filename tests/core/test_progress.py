"""How far work has come: what a stage promises to whoever listens, and that nobody hears otherwise."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core import progress


class Heard:
    """Keeps what a listener was told: (stage, name, done, total, over)."""

    def __init__(self) -> None:
        self.told: list[tuple[progress.Stage, str, int, int | None, bool]] = []

    def __call__(self, stage: progress.Stage) -> None:
        self.told.append((stage, stage.name, stage.done, stage.total, stage.over))

    def of(self, stage: progress.Stage) -> list[tuple[int, int | None, bool]]:
        return [tuple(rest) for one, _, *rest in self.told if one is stage]


def lawful(heard: Heard, broken: bool = False) -> None:
    """Each stage: done never falls, never exceeds total, and is the total at the end unless it broke."""
    for stage in {id(one[0]): one[0] for one in heard.told}.values():
        told = heard.of(stage)
        done = [one[0] for one in told]
        assert done[0] == 0
        assert done == sorted(done)
        assert all(total is None or many <= total for many, total, _ in told)
        assert [over for _, _, over in told] == [False] * (len(told) - 1) + [True]
        if not broken:
            assert told[-1][0] == told[-1][1]


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["open", "add", "close", "to", "share", "whole", "other"]),
        st.integers(0, 50),
    ),
    max_size=30,
)


@given(
    moves=MOVES, totals=st.lists(st.one_of(st.none(), st.integers(0, 60)), min_size=30, max_size=30)
)
def test_done_never_falls_never_exceeds_the_total_and_ends_there(moves, totals, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    files = [folder / name for name in ("a", "b")]
    for size, file in zip((40, 7), files, strict=True):
        file.write_bytes(b"x" * size)
    heard, opened = Heard(), []
    with progress.listening(heard), progress.reading(files), ExitStack() as whole:
        for number, (what, many) in enumerate(moves):
            file = files[many % 2]
            if what == "open":
                inner = whole.enter_context(ExitStack())
                opened.append((inner, inner.enter_context(progress.stage("s", totals[number]))))
            elif what == "close" and opened:
                opened.pop()[0].close()
            elif what == "add" and opened:
                opened[-1][1].add(many)
            elif what == "to":
                progress.read_to(file, many)
            elif what == "share":
                progress.read_share(file, many / 25)
            elif what == "whole" and not many:
                progress.read_whole(folder)
            elif what == "other":
                progress.read_to(folder / "none of them", many)
    lawful(heard)
    first = heard.told[0][0]
    assert (first.name, first.unit, first.total) == ("reading a and 1 more", "bytes", 47)


def test_without_a_listener_nothing_is_told_and_nothing_counted(tmp_path):
    with progress.stage("s", 3) as stage:
        stage.add(2)
        assert (stage.done, stage.over) == (0, False)
        assert not progress.heard()
    with progress.reading([tmp_path / "never looked at"]):
        assert progress.reads() is None


def test_a_stage_that_breaks_ends_where_it_is():
    heard = Heard()

    def work() -> None:
        with progress.stage("s", 3) as stage:
            stage.add()
            raise KeyError

    with progress.listening(heard), pytest.raises(KeyError):
        work()
    assert [tuple(rest) for _, _, *rest in heard.told] == [
        (0, 3, False),
        (1, 3, False),
        (1, 3, True),
    ]
    lawful(heard, broken=True)


def test_what_the_listener_raises_ends_the_work():
    reached = []

    def refuse(stage: progress.Stage) -> None:
        if stage.done:
            raise InterruptedError("enough")

    def work() -> None:
        with progress.stage("s", 3) as stage:
            stage.add()
            reached.append(1)

    with progress.listening(refuse), pytest.raises(InterruptedError):
        work()
    assert not reached


def test_a_stage_is_over_before_the_one_around_it_moves_on():
    heard = Heard()
    with progress.listening(heard), progress.stage("outer", 1) as outer:
        with progress.stage("inner", 2) as inner:
            assert inner.parent is outer
            inner.add(2)
        outer.add()
    assert [(name, done) for _, name, done, _, _ in heard.told] == [
        ("outer", 0), ("inner", 0), ("inner", 2), ("inner", 2), ("outer", 1), ("outer", 1),
    ]  # fmt: skip


def test_threads_add_up(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x" * 4_000)
    heard = Heard()
    with progress.listening(heard), progress.reading([file]):
        stage = progress.reads()

        def move() -> None:
            for _ in range(500):
                stage.read(str(file), None, 1)

        threads = [threading.Thread(target=move) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert stage.done == 2_000
    lawful(heard)


def test_another_thread_does_not_hear_by_itself():
    said = []
    with progress.listening(Heard()):
        one = threading.Thread(target=lambda: said.append(progress.heard()))
        one.start()
        one.join()
    assert said == [False]


def test_a_callback_gets_name_done_and_total():
    told = []
    with progress.told(lambda *what: told.append(what)), progress.stage("s", None) as stage:
        stage.add(5)
    assert told == [("s", 0, None), ("s", 5, None), ("s", 5, 5)]


def test_files_that_a_folder_leaves_out_are_not_in_its_total(tmp_path):
    inner = tmp_path / "table"
    inner.mkdir()
    for file, size in ((tmp_path / "a", 3), (inner / "b", 4), (inner / "extra.c", 90)):
        file.write_bytes(b"x" * size)
    heard = Heard()
    with progress.listening(heard), progress.reading([tmp_path], without="extra."):
        assert progress.reads().total == 7
        progress.read_whole(tmp_path, without=[inner])
        assert progress.reads().done == 3
        progress.read_whole(tmp_path)
        assert progress.reads().done == 7
