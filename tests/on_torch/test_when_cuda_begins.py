"""What waits for CUDA, under PyTorch's own lazy initialisation over a driver that is not there."""

# ruff: noqa: E402 - without torch nothing below can be imported
from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")

from opscope.adapters.shared.cuda import in_use, when_in_use


def test_it_is_called_once_when_cuda_begins_with_device_0_whatever_is_chosen(gpus):
    seen = []
    when_in_use(torch.cuda, lambda: seen.append((torch.cuda.current_device(), in_use(torch.cuda))))
    assert seen == []
    assert not in_use(torch.cuda)
    torch.cuda.set_device(1)
    assert seen == [(0, True)]  # PyTorch initialises first
    assert torch.cuda.current_device() == 1
    torch.cuda.init()
    assert len(seen) == 1


def test_it_is_called_at_once_where_cuda_is_in_use_or_is_just_being_initialised(gpus):
    seen = []
    locked = []

    def within():
        locked.append(not torch.cuda._initialization_lock.acquire(blocking=False))
        when_in_use(torch.cuda, lambda: seen.append("within"))
        assert seen == ["within"]

    when_in_use(torch.cuda, within)
    torch.cuda.init()
    assert seen == ["within"]
    assert locked == [True]  # so _lazy_call would have waited for itself
    when_in_use(torch.cuda, lambda: seen.append("later"))
    assert seen == ["within", "later"]


def test_what_it_raises_does_not_reach_the_program(gpus, caplog):
    def broken():
        raise RuntimeError("ours")

    when_in_use(torch.cuda, broken)
    torch.cuda.init()
    assert torch.cuda.is_initialized()
    assert "ours" in caplog.text
    when_in_use(torch.cuda, broken)


def test_another_thread_that_initialises_meanwhile_is_not_waited_for(gpus):
    running, done, seen = threading.Event(), threading.Event(), []

    def slow():
        running.set()
        done.wait(20)

    torch.cuda._lazy_call(slow)
    thread = threading.Thread(target=torch.cuda.init, daemon=True)
    thread.start()
    assert running.wait(20)
    assert not in_use(torch.cuda)  # here
    when_in_use(torch.cuda, lambda: seen.append(threading.get_ident()))
    done.set()
    thread.join(20)
    assert seen == [thread.ident]


def test_nothing_of_it_makes_a_context(gpus):
    when_in_use(torch.cuda, lambda: None)
    torch.cuda.init()
    assert gpus.needed_context == []


def test_the_real_module_has_what_it_rests_on():
    """Where PyTorch moves these, kernels and the GPU's memory would begin with nothing."""
    assert isinstance(torch.cuda._queued_calls, list)
    for call, where in torch.cuda._queued_calls:
        assert callable(call)
        assert "".join(where)
    assert hasattr(torch.cuda, "_tls")
