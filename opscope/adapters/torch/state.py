"""The state of each thread: its open ranges, its forward number, the autograd nodes that it made."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Final

import torch

from opscope.adapters.shared.source import Source
from opscope.core.capture.emit import Prepared
from opscope.core.schema import OpCall

from .call import SchemaArg

#: The most autograd nodes remembered per thread, so that a backward op finds its forward op's source.
MAX_NODES: Final = 131_072


class Entry:
    """A known call: its prepared range text, with outputs once they are known."""

    __slots__ = ("arguments", "by_result", "call", "category", "known", "prepared", "source")

    def __init__(
        self,
        call: OpCall,
        arguments: tuple[SchemaArg, ...] | None,
        category: str,
        source: Source,
        prepared: Prepared,
        dynamic: bool,
    ) -> None:
        #: The call without its outputs, and the schema's arguments, which show whether an output is an input.
        self.call = call
        self.arguments = arguments
        self.category = category
        self.source = source
        self.prepared = prepared
        #: Whether ``prepared`` has the outputs, which are then the same in every call.
        self.known = False
        #: For a call whose text does not determine the outputs: result signature → complete text.
        self.by_result: dict[tuple[object, ...], Prepared] | None = {} if dynamic else None


class ThreadState:
    """The state of one thread. ``number`` is the 1-based forward thread of range payloads."""

    __slots__ = (
        "aliases",
        "backward",
        "entered",
        "forced_category",
        "next_seq",
        "nodes",
        "number",
        "open",
        "optimizing",
        "passing",
        "run",
        "wait",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.reset(-1)
        #: Whether the dispatch mode is on this thread's stack.
        self.entered = False
        #: Sequence number of an autograd node → the op that made it; forward threads only.
        self.nodes: dict[int, Entry] = {}
        #: Number of a further node that an op makes (a view written in place makes two) → number of the
        #: op's first node, which its range carries.
        self.aliases: dict[int, int] = {}
        #: The next free sequence number when an op last made a node.
        self.next_seq = 0

    def reset(self, run: int) -> None:
        """Forget the open ranges: a new capture has none that began before it."""
        self.run = run
        #: This thread's open ranges, outermost first: module ids and names of phases.
        self.open: list[int | str] = []
        self.optimizing = 0
        self.backward = 0
        #: The number of data loaders that fetch a batch on this thread.
        self.wait = 0
        #: Whether the next op for a tensor's subclass is already recorded and only passed on to it.
        self.passing = False
        #: A forced category for all ops outside the nodes of a backward pass; None: each op's own.
        self.forced_category: str | None = None
        self.switched()

    def switched(self) -> None:
        """Called after ``optimizing``, ``wait``, ``forced_category`` or the list object ``open`` change."""

    def begun(self, phase: str, prepared: Prepared) -> None:
        """Called when steps have begun on this thread: from now on a model's call begins only ``phase``."""

    def made(self, seq: int, entry: Entry) -> None:
        """Register that the op of ``entry`` made node ``seq``."""
        nodes = self.nodes
        nodes[seq] = entry
        if len(nodes) > MAX_NODES:
            for old in list(itertools.islice(nodes, MAX_NODES // 2)):
                del nodes[old]
                self.aliases.pop(old, None)


class Threads:
    """The states of all threads, and which thread made an autograd node."""

    def __init__(self) -> None:
        #: Makes the state of the calling thread from its number.
        self.make: Callable[[int], ThreadState] = ThreadState
        self.local = threading.local()
        #: Threads that have made nodes. Sequence numbers start at 0 on each.
        self.makers: list[ThreadState] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        #: Counts the starts of a capture, and forks; ``current`` resets a state from before the last one.
        self.run = 0

    def current(self) -> ThreadState:
        """Return the state of the calling thread."""
        try:
            state: ThreadState = self.local.state
        except AttributeError:
            state = self.local.state = self.make(next(self._numbers))
        if state.run != self.run:
            state.reset(self.run)
            state.next_seq = torch.autograd._get_sequence_nr()
        return state

    def first_node(self, state: ThreadState) -> None:
        """Register the thread of ``state``, which has made its first node."""
        with self._lock:
            if state not in self.makers:
                # At most 1024. The oldest belong to autograd graphs that most likely no longer exist.
                del self.makers[: max(0, len(self.makers) - 1023)]
                self.makers.append(state)

    def after_fork(self) -> None:
        """Reset in a forked child: no range is open, and a thread of the parent may have held the lock."""
        self._lock = threading.Lock()
        self.run += 1

    def maker(self, seq: int, node: object) -> ThreadState | None:
        """Return the state of the thread that made ``node``; None where that is unknown or ambiguous."""
        makers = self.makers
        if len(makers) == 1:
            return makers[0]
        stamp = node.metadata.get(STAMP)  # type: ignore[attr-defined]
        having = [state for state in makers if seq in state.nodes]
        if stamp is not None:
            having = [state for state in having if state.number == stamp]
        elif len(having) > 1:
            op = node_op(node.name())  # type: ignore[attr-defined]
            having = [state for state in having if _op_of(state.nodes[seq]) == op]
        return having[0] if len(having) == 1 else None


#: The metadata key of a node's forward thread (written only where two threads made nodes).
STAMP: Final = "opscope.fwd_thread"


def node_op(name: str) -> str:
    """Return ``addmm`` for ``AddmmBackward0``: the op's name in lower case, without underscores."""
    return name.rsplit("::", 1)[-1].split("Backward", 1)[0].replace("_", "").lower()


def _op_of(entry: Entry) -> str:
    return entry.call.name.rsplit("::", 1)[-1].split(".", 1)[0].replace("_", "").lower()
