"""Memory of a real program: what tensors take is recorded, on every thread, and nothing is disturbed."""

# ruff: noqa: E402 - without torch nothing below can be imported
from __future__ import annotations

import ctypes
import gc
import inspect
import os
import threading
import time
from pathlib import Path

import polars as pl
import pytest

torch = pytest.importorskip("torch")

import opscope
from opscope.adapters.torch import gpu_memory, memory
from opscope.adapters.torch.native.binary import MEMORY, BuildError, build, plan
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session
from opscope.profile import Profile
from opscope.readers.recording.reader import collect

nn = torch.nn


@pytest.fixture(scope="module")
def binary():
    """The memory observer, built once and kept in the user's cache."""
    try:
        return build(plan(MEMORY))
    except BuildError as error:
        pytest.skip(str(error))


@pytest.fixture
def record(binary, tmp_path):
    """Run a function while it is recorded; the trace."""

    def recorded(run, **options):
        folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        opscope.init(["torch"], **{"memory": True, **options})
        session.start(RecorderCapture(folder))
        try:
            run()
        finally:
            session.stop()
            opscope.shutdown()
        return collect(folder)

    return recorded


def of_size(trace, size):
    return trace["allocations"].filter(pl.col("bytes").abs() == size)


def test_each_tensor_is_an_allocation_and_a_release(record):
    kept = []

    def run():
        kept.append(torch.empty(1237))
        for _ in range(5):
            torch.empty(3331)

    trace = record(run)
    assert of_size(trace, 4 * 1237)["bytes"].to_list() == [4 * 1237]
    assert of_size(trace, 4 * 3331)["bytes"].to_list() == [4 * 3331, -4 * 3331] * 5
    changes = trace["allocations"]
    assert set(changes["device"]) == {-1}
    assert changes["total"].to_list() == changes["bytes"].cum_sum().to_list()
    address = of_size(trace, 4 * 1237)["address"].item()
    assert address == kept[0].data_ptr()
    assert changes["time"].is_sorted()


def test_a_training_returns_all_but_what_it_keeps(record):
    """Allocations less releases are what lives on: gradients, the optimizer's state, the loss."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
    optimizer = torch.optim.Adam(model.parameters())
    held = {}

    def run():
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(32, 64)).sum().backward()
            optimizer.step()
        gc.collect()  # what PyTorch imports in a first step leaves frames, and their tensors, behind
        tensors = [p.grad for p in model.parameters()]
        tensors += [one for state in optimizer.state.values() for one in state.values()]
        for one in tensors:
            storage = one.untyped_storage()
            held[storage.data_ptr()] = storage.nbytes()

    trace = record(run)
    changes = trace["allocations"]
    alive = changes.group_by("address").agg(pl.col("bytes").sum()).filter(pl.col("bytes") > 0)
    assert dict(alive.rows()) == held
    assert changes["total"][-1] == sum(held.values())
    profile = Profile(trace)
    assert profile.memory()["peak_memory"].item() == changes["total"].max() > sum(held.values())
    by_op = profile.memory_by_op()
    assert by_op["at_peak"].sum() == profile.memory()["peak_memory"].item()
    weights = by_op.filter(pl.col("op").cast(pl.String) == "aten::addmm")
    assert set(weights["layer"].cast(pl.String)) == {"Sequential.0", "Sequential.2"}
    assert weights.filter(layer="Sequential.0")["bytes"].sum() == 3 * 32 * 256 * 4


def test_every_thread_is_heard(record):
    natives = []

    def other():
        natives.append(threading.get_native_id())
        torch.empty(4447)

    def run():
        threads = [threading.Thread(target=other) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    trace = record(run)
    rows = of_size(trace, 4 * 4447)
    assert sorted(rows.filter(pl.col("bytes") > 0)["thread"]) == sorted(natives)
    assert rows["bytes"].sum() == 0


def test_a_block_released_by_another_thread_and_one_from_before(record):
    early = [torch.empty(5003)]

    def run():
        box = [torch.empty(5009)]
        early.clear()
        thread = threading.Thread(target=box.clear)
        thread.start()
        thread.join()

    trace = record(run)
    assert of_size(trace, 4 * 5003).is_empty()  # made before: neither seen, and no fault
    assert of_size(trace, 4 * 5009)["bytes"].to_list() == [4 * 5009, -4 * 5009]
    assert of_size(trace, 4 * 5009)["thread"].n_unique() == 2


def test_a_block_that_outlives_its_recording_is_no_fault_in_the_next(record):
    kept = []
    record(lambda: kept.append(torch.empty(6007)))
    trace = record(kept.clear)
    assert of_size(trace, 4 * 6007).is_empty()
    assert (
        "releases of memory that was allocated before the recording, left out"
        in trace["notes"]["what"].to_list()
    )


def test_the_allocator_that_was_there_is_there_again(record):
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    current = library._ZN3c1015GetCPUAllocatorEv
    current.restype = ctypes.c_void_p
    before, within = current(), []
    record(lambda: within.append(current()))
    assert within[0] != before
    assert current() == before


def test_off_unless_asked_for(record, monkeypatch):
    trace = record(lambda: torch.empty(10), memory=False)
    assert not trace.has("allocations")
    monkeypatch.setenv("OPSCOPE_MEMORY", "1")
    assert record(lambda: torch.empty(10), memory=None).has("allocations")
    monkeypatch.setenv("OPSCOPE_MEMORY", "0")
    assert not record(lambda: torch.empty(10), memory=None).has("allocations")


def test_results_and_storages_are_those_without_us(record):
    torch.manual_seed(0)
    want = torch.randn(33, 17).t().contiguous().resize_(7, 11)
    got = []

    def run():
        torch.manual_seed(0)
        one = torch.randn(33, 17).t().contiguous().resize_(7, 11)
        got.append(one)
        one.untyped_storage().resize_(10_000)
        one.clone().share_memory_()
        torch.empty(0)
        one.numpy()
        torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(one))
        got.append(torch._lazy_clone(one).add_(0))  # copy on write takes the block over

    record(run)
    assert torch.equal(want, got[0])
    assert torch.equal(want, got[1])


def costs_of(trace, part):
    return trace["own_costs"].filter(pl.col("part") == part).drop("part").to_dicts()


@pytest.mark.parametrize("mode", ["native", "dispatch"])
def test_its_own_cost_is_told(mode, record, monkeypatch):
    """Each change that was recorded is one call, on threads that have ended too; what one recording
    cost is not in the next."""
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", mode)

    def work():
        for _ in range(200):
            torch.empty(100)

    def run():
        threads = [threading.Thread(target=work) for _ in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        work()

    for least, program in ((1200, run), (400, work)):
        trace = record(program)
        (cost,) = costs_of(trace, "memory, CPU")
        before = (
            trace["notes"]
            .filter(pl.col("what").str.contains("allocated before the recording"))["how_many"]
            .sum()
        )
        assert cost["calls"] == len(trace["allocations"]) + before
        assert least <= cost["calls"] < 2 * least
        assert cost["one_in"] == memory.TIMED_EVERY
        assert 0 < cost["time"] < cost["span"]
        assert Profile(trace).summary()["own_time"].item() == trace["own_costs"]["time"].sum()
    assert costs_of(record(run, memory=False), "memory, CPU") == []


def test_torch_profiler_is_not_disturbed(record):
    """The profiler has its slot to itself, and reports the memory that it would."""
    from torch.profiler import ProfilerActivity, profile

    def profiled():
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
            kept = torch.empty(7001)
            torch.empty(7013)
        del kept
        return [
            e.nbytes() for e in found.profiler.kineto_results.events() if e.name() == "[memory]"
        ]

    without, within = profiled(), []
    trace = record(lambda: within.extend(profiled()))
    assert within == without
    assert len(of_size(trace, 4 * 7001)) == 2


def test_forked_workers_have_memory_of_their_own(record):
    def run():
        torch.empty(8009)
        child = os.fork()
        if not child:
            try:
                with opscope.annotate("child"):
                    torch.empty(8011)
                session.finish()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        torch.empty(8017)

    trace = record(run)
    found = trace["allocations"].filter(pl.col("bytes") > 0)
    processes = {
        size: set(found.filter(pl.col("bytes") == 4 * size)["process"])
        for size in (8009, 8011, 8017)
    }
    assert processes[8009] == processes[8017]
    assert len(processes[8011]) == 1
    assert processes[8011].isdisjoint(processes[8009])


def test_without_a_compiler_the_recording_says_so(record, monkeypatch):
    def none(wanted):
        raise BuildError("no C++ compiler")

    monkeypatch.setattr(memory, "build", none)
    trace = record(lambda: torch.empty(10))
    assert not trace.has("allocations")
    assert "the CPU's memory is not recorded: no C++ compiler" in trace["notes"]["what"].to_list()


# ----------------------------------------------------------------------------- the GPU's history


def notes(trace):
    return trace["notes"]["what"].to_list()


def on_gpu(trace, device=0):
    return trace["allocations"].filter(pl.col("device") == device)


def test_a_gpus_history_becomes_allocations(record, gpus):
    def run():
        torch.cuda.init()
        gone = gpus.allocate(700)
        gpus.allocate(300)
        gpus.release(gone)
        gpus.allocate(50, device=1)

    trace = record(run)
    rows = on_gpu(trace)
    first, second = rows["address"][0], rows["address"][1]
    assert rows.select("thread", "address", "bytes", "total", "reserved").rows() == [
        (None, first, 700, 700, 1024),
        (None, second, 300, 1000, 1536),
        (None, first, -700, 300, 1536),
    ]
    assert on_gpu(trace, 1).select("bytes", "total", "reserved").rows() == [(50, 50, 512)]
    clock = trace["clocks"]["to_unix_ns"][0]
    assert abs(rows["time"][0] + clock - time.time_ns()) < 10_000_000_000
    assert not torch._C._cuda_isHistoryEnabled()
    (cost,) = costs_of(trace, "memory, GPU")  # reading the history
    assert (cost["calls"], cost["one_in"]) == (1, 1)
    assert cost["time"] > 0


def test_what_was_there_before_counts_in_the_totals(record, gpus):
    torch.cuda.init()
    gpus.allocate(5000)
    assert on_gpu(record(lambda: gpus.allocate(100)))["total"].to_list() == [5100]


def test_until_cuda_is_initialised_one_call_is_queued_and_then_the_recording_that_runs_is_served(
    binary, tmp_path, gpus
):
    queue = torch.cuda._queued_calls
    before = len(queue)
    opscope.init(["torch"], memory=True)
    try:
        for number in range(3):
            session.start(RecorderCapture(tmp_path / str(number)))
            assert len(queue) == before + 1
            if number == 2:
                torch.cuda.init()
                gpus.allocate(10)
            session.stop()
            assert not torch._C._cuda_isHistoryEnabled()
        session.start(RecorderCapture(tmp_path / "3"))
        gpus.allocate(10)
        session.stop()
    finally:
        session.stop()
        opscope.shutdown()
    found = [collect(tmp_path / str(n)) for n in (2, 3)]
    assert [on_gpu(one)["total"].to_list() for one in found] == [[10], [20]]


def test_initialised_between_two_recordings_nothing_begins_before_the_next(binary, tmp_path, gpus):
    opscope.init(["torch"], memory=True)
    try:
        session.start(RecorderCapture(tmp_path / "0"))
        session.stop()
        torch.cuda.init()
        assert not torch._C._cuda_isHistoryEnabled()
        session.start(RecorderCapture(tmp_path / "1"))
        gpus.allocate(10)
        session.stop()
    finally:
        session.stop()
        opscope.shutdown()
    assert on_gpu(collect(tmp_path / "1"))["total"].to_list() == [10]


def test_a_history_that_the_program_keeps_is_left_alone(record, gpus):
    torch.cuda.memory._record_memory_history(max_entries=77)

    def run():
        assert torch._C._cuda_isHistoryEnabled()
        gpus.allocate(10)

    trace = record(run)
    assert [e["action"] for e in gpus.rings[0].entries] == ["segment_alloc", "alloc"]
    assert gpus.rings[0].max_entries == 77
    assert costs_of(trace, "memory, GPU") == []
    assert on_gpu(trace).is_empty()
    assert gpu_memory.THEIRS in notes(trace)


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("legacy", [True, False])
def test_a_history_that_the_program_begins_is_as_without_us(record, gpus, early, legacy):
    """Ours gives way, what it had is kept, and goes on when theirs has ended."""
    begin, end = (True, False) if legacy else ("all", None)
    many = {"trace_alloc_max_entries" if legacy else "max_entries": 50}
    history = torch.cuda.memory._record_memory_history
    seen = []

    def run():
        if not early:
            torch.cuda.init()
            gpus.allocate(1)
        history(begin, **many)  # the first use of CUDA, perhaps: ours is queued and may not begin
        gpus.allocate(2)
        kept = torch.cuda.memory._snapshot()["device_traces"][0]
        seen.append([(e["action"], e["size"]) for e in kept])
        seen.append((torch._C._cuda_isHistoryEnabled(), gpus.rings[0].max_entries))
        history(end)
        seen.append(len(torch.cuda.memory._snapshot()["device_traces"][0]))
        gpus.allocate(4)

    trace = record(run)
    assert seen == [[("segment_alloc", 512), ("alloc", 2)], (True, 50), 0]
    rows = on_gpu(trace).select("bytes", "total").rows()
    assert rows == ([(4, 6)] if early else [(1, 1), (4, 7)])
    assert notes(trace).count(gpu_memory.THEIRS) == 1
    assert not gpus.rings[0].enabled
    assert not gpus.rings[0].entries


def test_a_history_of_the_programs_that_outlives_the_recording_is_kept(record, gpus):
    torch.cuda.init()

    def run():
        torch.cuda.memory._record_memory_history()
        gpus.allocate(10)

    record(run)
    assert gpus.rings[0].enabled
    assert [e["size"] for e in gpus.rings[0].entries] == [512, 10]


def test_a_program_without_a_history_sees_none_and_cannot_end_ours(record, gpus):
    torch.cuda.init()

    def run():
        gpus.allocate(10)
        assert not torch._C._cuda_isHistoryEnabled()
        assert torch.cuda.memory._snapshot()["device_traces"] == [[], []]
        assert torch.cuda.memory.memory_snapshot() == []
        torch.cuda.memory._record_memory_history(None)
        gpus.allocate(20)

    assert on_gpu(record(run))["bytes"].to_list() == [10, 20]


def test_a_history_that_is_refused_leaves_ours_running(record, gpus):
    torch.cuda.init()

    def run():
        gpus.allocate(10)
        with pytest.raises(RuntimeError, match="expected state"):
            torch.cuda.memory._record_memory_history("some")
        gpus.allocate(20)

    assert on_gpu(record(run))["bytes"].to_list() == [10, 20]


def test_the_history_is_bounded_and_says_what_is_lost(record, gpus, monkeypatch):
    """Reading takes time and memory for each event: devices share what is kept."""
    monkeypatch.setattr(gpu_memory, "MAX_EVENTS", 8)
    torch.cuda.init()

    def run():
        for size in range(1, 10):
            gpus.allocate(size)
        assert gpus.rings[0].max_entries == 4

    trace = record(run)
    rows = on_gpu(trace)
    assert rows["bytes"].to_list() == [8, 9]
    assert rows["total"].to_list() == [36, 45]
    assert any("before the last 4 changes is not known" in what for what in notes(trace))


def test_what_is_not_counted_is_not_kept_where_pytorch_can_leave_it_out(record, gpus):
    torch.cuda.init()

    def run():
        gpus.release(gpus.allocate(10))
        skips = (
            "skip_actions" in inspect.signature(torch.cuda.memory._record_memory_history).parameters
        )
        kept = {e["action"] for e in gpus.rings[0].entries}
        assert ("free_completed" in kept) is not skips

    assert on_gpu(record(run))["bytes"].to_list() == [10, -10]


def test_a_history_that_cannot_be_read_costs_nothing_else(record, gpus, monkeypatch):
    def broken(pool=None):
        raise RuntimeError("no snapshot")

    monkeypatch.setattr(torch._C, "_cuda_memorySnapshot", broken)
    torch.cuda.init()
    trace = record(lambda: torch.empty(9001))
    assert len(of_size(trace, 4 * 9001)) == 2
    assert not gpus.rings[0].enabled
    assert any("GPU's memory is not known" in what for what in notes(trace))


def test_the_functions_of_the_history_are_put_back(record, gpus):
    names = (
        "_cuda_record_memory_history", "_cuda_record_memory_history_legacy",
        "_cuda_isHistoryEnabled", "_cuda_memorySnapshot",
    )  # fmt: skip
    before = [getattr(torch._C, name) for name in names]
    torch.cuda.init()
    record(lambda: None)
    assert [getattr(torch._C, name) for name in names] == before


def test_of_two_threads_one_that_initialises_cuda_and_one_that_begins_a_recording_both_go_on(
    binary, tmp_path, gpus
):
    """Neither waits for the other's lock: PyTorch's is held while the queue runs."""
    running, done = threading.Event(), threading.Event()

    def slow():
        running.set()
        done.wait(20)

    torch.cuda._lazy_call(slow)
    initialising = threading.Thread(target=torch.cuda.init, daemon=True)
    opscope.init(["torch"], memory=True)
    try:
        initialising.start()
        assert running.wait(20)

        def capture():
            session.start(RecorderCapture(tmp_path / "x"))

        recording = threading.Thread(target=capture, daemon=True)
        recording.start()
        recording.join(20)
        assert not recording.is_alive()
        done.set()
        initialising.join(20)
        assert not initialising.is_alive()
        gpus.allocate(10)
        session.stop()
    finally:
        done.set()
        session.stop()
        opscope.shutdown()
    assert on_gpu(collect(tmp_path / "x"))["bytes"].to_list() == [10]
