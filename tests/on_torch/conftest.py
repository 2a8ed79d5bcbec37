"""Fixtures with a PyTorch adapter that emits into memory."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from opscope.adapters.base import Options
from opscope.core.rangetext import format_call, parse
from opscope.core.schema import DIRECTIONS, OpCall


@dataclass
class Range:
    text: str
    category: str | None
    seq: int
    fwd_thread: int
    thread: int
    parents: tuple
    closed: bool = False

    @property
    def call(self):
        return parse(self.text)

    @property
    def layer(self):
        return next((p.text for p in reversed(self.parents) if p.category == "layer"), None)

    @property
    def phase(self):
        return next((p.text for p in reversed(self.parents) if p.category == "phase"), None)


@dataclass
class MemoryEmitter:
    """The interface of ``core.capture.emit`` with a list of ranges; fails if pushes and pops do not nest."""

    domain: str = "opscope.torch"
    active: bool = True
    ranges: list = field(default_factory=list)
    specs: list = field(default_factory=list)
    local: threading.local = field(default_factory=threading.local)

    def prepare(self, what, category=None, *, device_is_new=False, ends=False):
        text = format_call(what, None) if isinstance(what, OpCall) else what
        return SimpleNamespace(text=text, category=category)

    def stack(self):
        if not hasattr(self.local, "stack"):
            self.local.stack = []
        return self.local.stack

    def push(self, prepared, seq=-1, fwd_thread=0):
        stack = self.stack()
        one = Range(
            prepared.text, prepared.category, seq, fwd_thread, threading.get_ident(), tuple(stack)
        )
        stack.append(one)
        self.ranges.append(one)

    def pop(self, complete=None):
        one = self.stack().pop()
        one.closed = True
        if complete is not None:
            one.text = complete.text

    def mark(self, prepared):
        assert prepared.category == "spec", "the PyTorch adapter makes no other marks"
        self.specs.append(prepared.text)

    @property
    def ops(self):
        known = (*DIRECTIONS,)
        return [one for one in self.ranges if one.category in known]

    def named(self, name, category=None):
        return [
            one for one in self.ops if one.call.name == name and category in (None, one.category)
        ]


class Watched:
    """The adapter under test and its emitter."""

    def __init__(self):
        from opscope.adapters.torch import TorchAdapter

        self.emitter = MemoryEmitter()
        self.adapter = TorchAdapter()

    def install(self, **options):
        self.adapter.install(self.emitter, Options(**options))
        return self.emitter

    @property
    def broken(self):
        return self.adapter.broken


@pytest.fixture
def memory_emitter():
    return MemoryEmitter()


@pytest.fixture
def watched():
    pytest.importorskip("torch")
    one = Watched()
    yield one
    one.adapter.uninstall()


@pytest.fixture
def emitter(watched):
    """The emitter of an installed adapter; after the test, no hook may have failed."""
    yield watched.install()
    assert not watched.broken


@pytest.fixture(autouse=True)
def each_test(fresh_steps):
    """Step numbers begin at 0 in each test."""


@pytest.fixture(scope="session")
def binary():
    """The native observer, built once and kept in the user's cache."""
    from opscope.adapters.torch.native.binary import BuildError, build, plan

    try:
        wanted = plan()
    except BuildError as error:
        pytest.skip(str(error))
    if wanted.compiler is None:
        pytest.skip("no C++ compiler to build the native observer with")
    return build(wanted)
