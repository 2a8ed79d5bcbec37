"""What is known of each thread: its open ranges, its forward number, the autograd nodes it made."""

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

#: Autograd nodes remembered of each thread, so that a backward op finds its forward op's source.
MAX_NODES: Final = 131_072


class Entry:
    """A call that was seen before: its range text prepared, with outputs once they are known."""

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
        #: The call without its outputs, and the schema that says where they lie in the inputs.
        self.call = call
        self.arguments = arguments
        self.category = category
        self.source = source
        self.prepared = prepared
        #: Whether ``prepared`` has the outputs, which then are the same at every call.
        self.known = False
        #: For a call whose outputs are not decided by its text: the complete text of each result.
        self.by_result: dict[tuple[object, ...], Prepared] | None = {} if dynamic else None


class ThreadState:
    """One thread. ``number`` is the 1-based forward thread of range payloads."""

    __slots__ = (
        "aliases",
        "backward",
        "entered",
        "nodes",
        "number",
        "open",
        "optimizing",
        "peeked",
        "run",
        "wait",
        "works",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.reset(-1)
        #: Whether the dispatch mode lies on this thread's stack.
        self.entered = False
        #: Sequence number → the op that made the node; forward threads only.
        self.nodes: dict[int, Entry] = {}
        #: Nodes made after the op that made the one before (a view written in place makes two) →
        #: that one's number, which is what its range carries.
        self.aliases: dict[int, int] = {}
        #: The number that the next node would have had when last an op made one.
        self.peeked = 0

    def reset(self, run: int) -> None:
        """Forget what is open: a new capture knows nothing of ranges begun before it."""
        self.run = run
        #: Ranges this thread has open, outermost first: module ids, and names of phases.
        self.open: list[int | str] = []
        self.optimizing = 0
        self.backward = 0
        #: Whether a data loader is fetching.
        self.wait = 0
        #: The category of whatever runs outside the nodes of a backward pass; None where it is told by
        #: what it is.
        self.works: str | None = None
        self.switched()

    def switched(self) -> None:
        """``optimizing``, ``wait``, ``works``, or which list ``open`` is, has changed."""

    def begun(self, phase: str, prepared: Prepared) -> None:
        """Steps have begun on this thread: a model's call begins ``phase`` there, and nothing else."""

    def made(self, seq: int, entry: Entry) -> None:
        """The op of ``entry`` has made node ``seq``."""
        nodes = self.nodes
        nodes[seq] = entry
        if len(nodes) > MAX_NODES:
            for old in list(itertools.islice(nodes, MAX_NODES // 2)):
                del nodes[old]
                self.aliases.pop(old, None)


class Threads:
    """The states of all threads, and who made which autograd node."""

    def __init__(self) -> None:
        #: Makes the state of the calling thread, given its number.
        self.make: Callable[[int], ThreadState] = ThreadState
        self.local = threading.local()
        #: Threads that have made nodes. Sequence numbers start at 0 on each.
        self.makers: list[ThreadState] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        #: The number of the activation; a thread whose state is of an older one is reset.
        self.run = 0

    def current(self) -> ThreadState:
        """This thread's state."""
        try:
            state: ThreadState = self.local.state
        except AttributeError:
            state = self.local.state = self.make(next(self._numbers))
        if state.run != self.run:
            state.reset(self.run)
            state.peeked = torch.autograd._get_sequence_nr()
        return state

    def first_node(self, state: ThreadState) -> None:
        """``state``'s thread has made its first node."""
        with self._lock:
            if state not in self.makers:
                # Those before belong to graphs that most likely are gone; a bound all the same.
                del self.makers[: max(0, len(self.makers) - 1023)]
                self.makers.append(state)

    def after_fork(self) -> None:
        """In a forked child: nothing is open, and a lock may be held by a thread that is not here."""
        self._lock = threading.Lock()
        self.run += 1

    def maker(self, seq: int, node: object) -> ThreadState | None:
        """The thread that made ``node``; None where it cannot be told."""
        makers = self.makers
        if len(makers) == 1:
            return makers[0]
        stamp = node.metadata.get(STAMP)  # type: ignore[attr-defined]
        having = [state for state in makers if seq in state.nodes]
        if stamp is not None:
            having = [state for state in having if state.number == stamp]
        elif len(having) > 1:
            made = node_op(node.name())  # type: ignore[attr-defined]
            having = [state for state in having if _op_of(state.nodes[seq]) == made]
        return having[0] if len(having) == 1 else None


#: The key under which a node's metadata tell its forward thread (written only where two made nodes).
STAMP: Final = "opscope.fwd_thread"


def node_op(name: str) -> str:
    """``addmm`` for ``AddmmBackward0``: the op's name in letters alone."""
    return name.rsplit("::", 1)[-1].split("Backward", 1)[0].replace("_", "").lower()


def _op_of(entry: Entry) -> str:
    return entry.call.name.rsplit("::", 1)[-1].split(".", 1)[0].replace("_", "").lower()
