"""The methods of a profile that ask its questions. Made by scripts/make_questions.py."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal

import polars as pl
from typing_extensions import Unpack

from opscope.core.analysis.device.idle import By
from opscope.core.question.record import Question
from opscope.profile.selected import Where

WHERE: Final[tuple[str, ...]]

def method_of(question: Question) -> Callable[..., Any]: ...
def documented(said: str, question: Question) -> str: ...

class Questions:
    """The methods that ask each question of ``core/question/index.py``."""

    def advice(self, detectors: Sequence[str] | None = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """What to change in the program, by what it would save; then what no detector could tell.

        A saving lies between ``saving_least`` and ``saving_most``; ``saving`` is the best estimate, made by a
        replay of the timeline with the change where the detector has none of its own. Savings overlap: they
        must not be added up; ``advice_combined()`` has the saving of all. ``outcome`` is ``nothing found``
        only where the detector saw all that it needs. ``detectors``: ask these alone. Raises ValueError
        for a name that no detector has.
        """

    def advice_combined(
        self, detectors: Sequence[str] | None = ..., **where: Unpack[Where]
    ) -> pl.DataFrame:
        """What all findings save together: one replay of the timeline with all of their changes.

        Where several changes touch the same work, the one that leaves least of it counts. A finding that
        does not say what its change does to the timeline is left out, and named. Without a replay the times
        are null, and ``reason`` says why. ``detectors``: as for ``advice()``.
        """

    def advice_evidence(
        self, detectors: Sequence[str] | None = ..., **where: Unpack[Where]
    ) -> pl.DataFrame:
        """The evidence of each finding of ``advice()`` as rows, by the finding's ``number``.

        ``detectors``: as for ``advice()``.
        """

    def bandwidth(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The bytes and the bandwidth of copies and sets, by direction and kind of memory."""

    def bandwidth_curve(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The bandwidth of each kind of copy over time, at most 4,000 points a kind and device."""

    def call_tree(
        self, *, depth: int = ..., nodes: int = ..., **where: Unpack[Where]
    ) -> pl.DataFrame:
        """The data of a flame graph: steps, layers, ranges, ops and kernels, merged by their path.

        Each row follows the row around it (``parent_path``), siblings by time. Steps, threads and processes
        are merged. ``device_self`` is the time of kernels and copies, which are the leaves; without a GPU
        that of ops. ``device_self`` and ``host_self`` add up to the first row's totals. At most ``depth``
        frames are above one another, and at most ``nodes`` rows are given, the ones with most time; what is
        left out is summed in rows ``(other)`` beside them. Raises ValueError if a bound is below 1.

        Folded stacks are the columns ``stack`` and ``device_self`` of the rows with a ``device_self``.
        """

    def clocks(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How each machine's clock was aligned with the first machine's, and the possible error."""

    def collective_bandwidth(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The bandwidth of collectives by group and size, without the waiting of ranks for each other.

        ``place`` says whether the group lies within a machine.
        """

    def collective_ends(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Collectives that ranks leave at different times, by more than their clocks explain."""

    def collective_faults(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Collectives that some ranks never entered, or entered with another kind, size or dtype.

        Only ranks in the profile count as missing. Where collectives cannot be judged, a row without a
        ``fault`` has the ``reason``; a profile without rows has no faulty collective.
        """

    def collective_waits(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The time in collectives as waiting and transfer, by kind and group; all ranks added up."""

    def collectives(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Collectives by process group, kind, dtype and reduction, all ranks added up, by time.

        The bus bandwidth follows the definition of nccl-tests.
        """

    def communication(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Communication per process: its share of the time, how much of it other work hides, and how long
        the process waited for other ranks.

        Times lie inside the window from the first captured step to the last. They are times of kernels, or
        without a GPU of ops.
        """

    def compiled(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The regions that torch.compile made: the kernels that ran in each, and the ops that these kernels
        fuse.
        """

    def counter_roofline(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The measured roofline beside the model's, by op and inputs, with the differences.

        Both sides are sums over the same calls. A side that is not known for all calls is null, with a
        reason.
        """

    def counter_totals(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The values of each counter by kernel name and innermost op."""

    def counter_work(self, **where: Unpack[Where]) -> pl.DataFrame:
        """A kernel's work from its counters: FLOPs by precision, Tensor Cores, bytes of memory.

        Only counters with a known meaning are used. A number that they do not give is null, with a reason.
        """

    def counters(
        self, *, names: Literal["opscope", "hta"] = ..., **where: Unpack[Where]
    ) -> pl.DataFrame:
        """Every kernel whose hardware counters were measured, with the ops around its launch.

        A column for each counter, named after the counter, follows the columns below; it is null for kernels
        for which it was not measured. With ``names="hta"`` the columns are those of Holistic Trace Analysis:
        ``op_stack`` is a list, times are in µs. Raises ValueError for other ``names``.
        """

    def counts(self, **where: Unpack[Where]) -> pl.DataFrame:
        """What the run did, in counts that no machine's speed changes: ops, FLOPs, bytes, copies, reads,
        compilations and more.

        A count that the profile cannot tell is null with the reason, never 0.
        """

    def cpu_by_op(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The use of the processors while an op ran, for ops in which at least three samples fall.

        An op shorter than the time between two samples shares the sample with its neighbours.
        """

    def cpu_by_step(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The use of the processors during each step, from the samples that hold in it.

        A step shorter than the time between two samples has the mean of the sample in which it lies.
        """

    def cpu_samples(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The processors over time: each sample, with the time in which it holds."""

    def cpu_utilization(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The use of the processors while each process was sampled: by the machine, and by the process
        itself.

        Empty if nothing was sampled.
        """

    def critical_path(self, *, categories: bool = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """The critical path: one row per piece, by time; each piece begins where the one before ends.

        The path goes back from the last event of the trace, always to what was waited for last, so it says
        for each moment what held up the run. The durations (ns) add up to the summary's ``wall_time``.
        ``notes(critical_path=True)`` says which dependencies are inferred because the trace does not record
        them.
        """

    def critical_totals(self, by: str = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """The critical path's time (ns) by ``kind``, ``op``, ``layer``, ``kernel`` or ``step``.

        The times add up to the path's, except that ``kernel`` has kernels, copies and sets alone. Raises
        ValueError for another ``by``.
        """

    def data_preparation(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The data loaders that the program waited for, the longest waits first; empty if none was seen.

        Queues of batches that the framework sampled follow: it is not known in which step they waited.
        """

    def device_curve(self, buckets: int = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """The figures of ``device_use`` over time, in equal parts of each device's window.

        Times of all parts add up to those of ``device_use``. Raises ValueError for ``buckets`` less than 1 or
        more than 100,000.
        """

    def device_use(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How each device was used: GPU utilization, SM efficiency, occupancy, Tensor Core time.

        The window is the time from the first step's start until the last step, and what the steps launched,
        has ended; without steps, from the process's first event to its last. SM efficiency and occupancies
        are estimates from how the kernels were launched; they are null, with the reason, if that or the
        device is not known.
        """

    def diagnosis(self, **where: Unpack[Where]) -> pl.DataFrame:
        """What bounds the steps, in words: the first rows of the ranked list; then what cannot be told.

        The first row is the answer: a cause such as ``input-bound``, or a detector's finding; ``healthy``
        where nothing stands out; or ``cannot tell``, with what to capture. ``advice()`` has the whole list.
        Steps that are warm-up are left out if there are others; without steps all that was recorded is
        judged. Light mode judges the steps by their phases.
        """

    def efficiency(self, *by: str, **where: Unpack[Where]) -> pl.DataFrame:
        """The roofline: how close ops come to the device's limits.

        Without ``by``: every execution of a canonical op. With ``op``, ``layer``, ``direction``, ``step``
        or ``range``, or several of these: sums over them. With ``kernel`` alone: sums per kernel name.
        Efficiencies are null if the device is not known.
        """

    def energy(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The energy that each GPU used while it was sampled, and its energy per step."""

    def engine_layers(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The layers of TensorRT engines: times, precision, formats, tactic, origin and cost of each.

        Times that trtexec exported are means over many runs; otherwise they are of the layer's kernels.
        """

    def engine_runs(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The times of a TensorRT engine's runs: as trtexec recorded them, and as its summary states them."""

    def engine_steps(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The engine steps of an inference server: kind, requests, tokens, times, and the replayed graph."""

    def fusable_kernels(self, below: int = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """Chains of kernels that a fusion would join, by the most that it would save: an estimate.

        A ``pointwise`` chain computes elements from elements; a ``short`` one is of kernels of less than
        ``below`` ns (10 µs) of any kind but communication. They overlap, so their savings do not add up.
        """

    def gaps(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Device time without an op, by reason as in ``unattributed()``, user range, phase and thread state.

        Without a GPU it is the threads' time inside steps but outside any op.
        """

    def groups(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The process groups that each process is a member of, and their ranks."""

    def host_lines(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The host's time outside any op by source line and kind: running, sleeping, waiting for what."""

    def idle(self, by: By = ..., *, kernel_wait: int = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """Idle time of each ``device``, or of each ``stream``, by what the next work waited for.

        A gap is *host wait* if the launch of what ends it came after the work before it had ended; else
        *kernel wait* if it is shorter than ``kernel_wait`` ns; else *other*. Busy and idle time add up
        to the window, and the kinds to the idle time. Empty without work on a GPU.
        """

    def idle_ops(self, **where: Unpack[Where]) -> pl.DataFrame:
        """What the host did while a device waited for it: the ops in which most of the host wait lies.

        The times add up to the ``host_wait`` of all devices.
        """

    def idle_steps(self, *, kernel_wait: int = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """Idle time of each device in each step, by what the next work waited for.

        Busy and idle time of the device add up to the step's time on the host; a gap counts with its part
        inside the step.
        """

    def input_pipeline(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The stages of the input pipeline, as its framework reported them: queues, then ops.

        The queue of an op has the elements that the op has made and the op above has not yet taken. The
        table is empty if the framework reported nothing.
        """

    def input_waits(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How long each step waited for its input; ``input_bound`` if that is above 5 % of the step.

        A wait between two steps belongs to the later one, whose ``duration`` then begins with it. If no data
        loader was seen, a step's waits are unknown: null, with the reason.
        """

    def iterations(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The iterations of each process: the content of each, which were warm-up, and which are stable.

        They are the steps that the program marks; else those that ``key`` ends
        (``iterations(key="aten::mean")``); else those that repeat in the sequence of ops, or of kernels.
        ``certainty`` says how sure that is; only with ``is_step`` do other frames take them as steps. A
        process without any has one row and a reason. ``stable`` marks the longest range without warm-up,
        slow iterations and other work: it is the range to compare and to select
        (``profile.op_totals(steps=(first, last))``).
        """

    def kernel_activities(
        self, *, search: str | None = ..., **where: Unpack[Where]
    ) -> pl.DataFrame:
        """MindSpore's kernel activities: kernels by name and the op that launched them, by time.

        ``search`` keeps the rows whose kernel or op contains this text, ignoring case.
        """

    def kernel_launches(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Kernels by name and launch configuration: times, occupancy and what limits it, waves, tail."""

    def kernel_lengths(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How long kernels are: how many, and how much of their time, by ranges of lengths."""

    def kernel_occupancy(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Kernels by name: times, ops, blocks per multiprocessor, occupancy, Tensor Cores."""

    def kernel_totals(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Kernels added up by name, the most time first."""

    def kernels(self, *, categories: bool = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """Every kernel execution, with the op that launched it; ``reason`` says why a kernel has no op.

        An op's FLOPs and bytes are divided among its kernels by duration, so that columns can be added up.
        """

    def kinds(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Device time by kind of work (matrix products, attention …), op and direction.

        If an op does not give its kind, the names of its kernels do. The times add up to the device time.
        """

    def last_collectives(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The last collective that each rank called in each group, whether it ended, and for which ranks it
        waits.

        In a hang, the others wait for the ranks that are behind.
        """

    def late_causes(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Why ranks enter collectives last: local compute, input, launch, time outside any op, or a wait.

        A rank that came last is compared with the one that came first, over the time since both left the
        group's previous collective; the activity with the largest additional time is the cause.
        """

    def launches(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How long launch calls take, and how long after them the work starts, with percentiles.

        A call that launches a CUDA graph is one launch.
        """

    def light(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The time of all steps of a training, by phase; the phases exclude each other and add up exactly.

        Quantiles are right within 1 %. Steps that were also recorded in full are left out.
        """

    def light_cost(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Light mode's own cost per step, the precision of this figure, and the spells that it recorded."""

    def light_steps(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Whole steps of a training: the slowest first; then the first, the last and some of the others."""

    def lost_kernels(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How many kernels the recording lost, by process: an estimate from launches and repeated steps.

        Null, with the reason, where the trace does not tell. Of a selection: of all that was recorded.
        """

    def memops(self, *, categories: bool = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """Every copy and set, with the op that launched it; ``reason`` says why a copy or set has no op."""

    def memory(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The peak of memory in use, by process and device; empty if memory was not recorded."""

    def memory_by_op(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The ops that allocated memory, by how much of theirs was in use at the device's peak.

        Over all rows of a device, ``at_peak`` adds up to the peak exactly. It is null if the trace has no
        addresses or no number for the device.
        """

    def memory_curve(self, points: int = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """Memory in use and reserved over time, at most ``points`` rows a device; no peak is left out.

        The largest ``in_use`` of a device is its peak in ``memory()``. Raises ValueError if ``points`` is
        less than 6.
        """

    def memory_events(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The blocks of memory: each allocation with its release, the ops of both, and its kind.

        A block that was allocated before the trace, or not released in it, has nulls and a ``reason``.
        """

    def memory_holders(self, when: str = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """The lines of the program whose blocks were in use; ``when``: at the peak, or at the end."""

    def memory_kinds(self, **where: Unpack[Where]) -> pl.DataFrame:
        """What was in use at the peak, by kind and layer: parameters, gradients, activations ...

        A kind is said where facts of the trace prove it, which ``reason`` names, else it is ``unknown``.
        Over all rows of a device, ``at_peak`` adds up to the peak exactly.
        """

    def memory_ops(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How much memory grew and was allocated in the ops of each name, alone and with the ops inside.

        Over all rows of a device, ``self_increase`` adds up to what memory grew by in the trace, and
        ``self_allocated`` to all that was allocated.
        """

    def memory_segments(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The allocator's reserved memory at the snapshot, by pool of segments: used, unused, in pieces."""

    def memory_steps(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The memory in use as each step ended, its growth, and the memory that the step left in use."""

    def meshes(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The dimensions of each DeviceMesh, and the coordinate of each process along them.

        If a process is not in the mesh, its ``coordinate`` and ``group`` are null.
        """

    def missing_costs(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The ops whose FLOPs or bytes are not known, with the reason, by device time.

        The shares of ops without FLOPs add up to 1 − the summary's ``flops_share``. Kernels without a
        launch record are listed in addition.
        """

    def modules(self, *, depth: int | None = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """The tree of modules: a row for each, after the one around it, siblings by device time.

        The first row is the whole profile. ``device_self`` and ``host_self`` are times of the ops that a
        module called itself; over all rows they add up to the first row's totals. What ran outside any
        module, and device time without an op, have rows of their own. Modules below ``depth`` are part of
        those around them. ``parent_module`` makes the tree; ``layer`` is the path by which other frames
        name the module. Raises ValueError if ``depth`` is below 1.
        """

    def notes(self, *, critical_path: bool = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """The remarks on the trace by its reader and by the linking of kernels to ops: missing, inferred or
        wrong data.

        They do not depend on other questions asked of the profile. ``critical_path``: also the critical
        path's assumptions, which need the path to be computed.
        """

    def op_sequences(
        self, op: str | None = ..., *, least: int = ..., **where: Unpack[Where]
    ) -> pl.DataFrame:
        """What each op runs on the device, as a sequence of at least ``least`` kernels, by occurrences.

        Of the ops whose name contains ``op``, the outermost count; without ``op``, all outermost ops.
        """

    def op_totals(self, *, categories: bool = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """Distinct calls of ops, the most device time first.

        The time of nested ops is counted once. Calls outside the window in which kernels were captured are
        separate rows, with null as device time and the reason.
        """

    def operator_statistics(
        self, by: str = ..., *, search: str | None = ..., **where: Unpack[Where]
    ) -> pl.DataFrame:
        """MindSpore's operator statistics: by ``type`` (op name) or ``operator`` (op at one place), by time.

        The time of a nest is at the op that counts, as in ``op_totals()``. ``search`` keeps the rows whose
        op, family, layer or node contains this text, ignoring case; shares stay shares of the whole. Raises
        ValueError for any other ``by``.
        """

    def operators(self, *by: str, **where: Unpack[Where]) -> pl.DataFrame:
        """Operators by name, as the PyTorch profiler's operator view and ``key_averages`` list them.

        Every level of a nest of ops is a row: ``device_total`` and ``host_total`` contain the ops inside,
        ``device_self`` and ``host_self`` do not, and add up to the whole; time without an op is a row for
        each reason. An op inside another of the same row is counted once in the totals. With ``inputs``
        each shape is a row, with ``source`` each call stack of the user's lines. ``op_totals()`` gives a
        nest's time to the one op that counts instead. Raises ValueError for any other ``by``.
        """

    def ops(self, *, categories: bool = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """Every op instance, with its times, layer, source line, shapes and cost.

        Only one op of each nest (``canonical``) has FLOPs and bytes, so that columns can be added up.
        """

    def overlap(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The time in which computation, communication and copies ran alone, in pairs, and all three.

        The rows of a device add up to the time in which it was busy.
        """

    def own_costs(self, **where: Unpack[Where]) -> pl.DataFrame:
        """opscope's own cost while it recorded, by process and part."""

    def pyprof(self, columns: Collection[str] | None = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """Every kernel execution in PyProf's columns, in the order in which they began.

        ``columns`` chooses and orders them; KeyError for an unknown one. FLOPs and bytes are opscope's, not
        PyProf's: docs/from-pyprof.md tells where they differ.
        """

    def queue(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How many launches wait on each stream, and how long calls stalled because it was full.

        A stream holds 1,024 launches.
        """

    def queue_curve(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How many launches wait on each stream over time, at most 4,000 points a stream.

        The points that are left out lie between those that stay: maxima and minima are kept.
        """

    def range_totals(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The user's ranges by device time; work counts for the innermost range in which it was launched."""

    def rank_loads(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The bytes that each rank sent and received in all-to-alls and messages: uneven where its experts
        are.
        """

    def rank_outliers(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Ranks that are unlike the others, by median and median absolute deviation.

        The times of equal kernels (name, grid, block), and the sampled clocks, temperatures and power are
        compared. Fewer than four ranks are not judged.
        """

    def rank_pairs(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The bytes that each rank sent to each other rank: from the splits of all-to-alls, and from
        messages.
        """

    def sequences(self, *, longest: int = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """The sequences of kernels that a stream runs again and again, by time: what a fusion would join.

        Each is of 2 to ``longest`` kernels, copies or sets of one layer and direction, as far as the trace
        shows these. The 100 with most time are returned. No kernel is in two of them.
        """

    def serving_batches(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Decode steps of an inference server by batch size: time, device time, tokens a second."""

    def serving_costs(self, *, price: float = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """The energy and the price of a server's engine by kind of step, in all and per token."""

    def serving_goodput(
        self, *, ttft: int = ..., tpot: int = ..., **where: Unpack[Where]
    ) -> pl.DataFrame:
        """How many requests in a server's log met the limits, in all and per second."""

    def serving_graphs(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The graph that ran the steps of each batch size, and the steps' part outside graphs."""

    def serving_host(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The host's activities between a server's engine steps, and how long the device waits for them."""

    def serving_phases(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The time of a server's engine by kind of step, and by its work: attention, experts, products … …"""

    def serving_requests(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The waits of each request in a server's log, and its share of the engine's steps."""

    def serving_slo_steps(
        self, *, ttft: int = ..., tpot: int = ..., **where: Unpack[Where]
    ) -> pl.DataFrame:
        """Return the engine steps that ran while requests missed the limits.

        For a request whose first token was late: all steps between its arrival and its first token. For a
        request whose later tokens were slow: the steps from its first token to its end that exceed the limit
        per token: a decode step longer than the limit, or a prefill between two decode steps, with all its
        time.
        """

    def serving_stalls(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The cost of prefills for decoding requests: time of mixed and prefill steps beyond the usual
        time.
        """

    def serving_tokens(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The tokens per second of a server, the time between a request's tokens, and the device time per
        token.
        """

    def short_kernels(self, below: int = ..., **where: Unpack[Where]) -> pl.DataFrame:
        """The kernels of which some are shorter than ``below`` ns (10 µs), by name; the most first."""

    def short_launches(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The kernels that ran shorter than the call that launched them, by the time of those calls."""

    def slow_steps(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The slow steps, and their parts and ops that took longer than the median of the process's other
        steps.

        A step is slow if its modified z-score is above 3.5 and it is 5 % longer than the median; fewer than
        five steps are not judged.
        """

    def slowest_ranks(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The rank with most work in each step, and how far apart the ranks' work was."""

    def step_imbalance(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How the work of each rank in a step compares with the work of the others in the same step."""

    def step_phases(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The phases of each step, with the device time of the work launched in each.

        The times of a step's five rows add up to the step, the op times to the ``self_time`` of all ops that
        began in it. Device times are summed durations: they may be longer than the step where kernels run at
        once.
        """

    def step_summary(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The usual times of steps, by process: the whole step, each part and each phase.

        Steps that a capture's window does not hold whole are left out, unless there are no others.
        """

    def step_trace(self, **where: Unpack[Where]) -> pl.DataFrame:
        """MindSpore's step trace: each step as iteration interval, forward and backward, and tail.

        The three add up to ``time``, which runs from the end of the step before.
        """

    def steps(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The time of each step of each process: by activity, and by phase.

        The parts, ``communication_part`` to ``other_part``, add up to ``time`` exactly: each is the time of
        its kind in which nothing of an earlier column happened. The time of a null part is in the later
        parts: ``unknown`` says why it is null. The phases and ``outside_phases`` add up to ``time`` too; they
        are null if nothing shows phases. A trace without steps has one row per process, with a null ``step``.
        """

    def stragglers(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Which ranks enter collectives last, how often, and how long the others wait for them."""

    def summary(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The whole profile in one row.

        The columns ``device_attributed_time`` and ``device_unattributed_time`` add up to ``device_time``
        exactly; likewise ``attributed_time`` and ``unattributed_time`` to ``kernel_time``. Without a GPU the
        device is the CPU: its time is the ops' self time plus the threads' time inside steps but outside any
        op. If only a window of the run was captured, kernel times are those of the window.
        """

    def totals_by(
        self, by: str, *, layers: Mapping[str, str] | None = ..., **where: Unpack[Where]
    ) -> pl.DataFrame:
        """Device time by kind, op, layer, source, dtype or direction; time without an op by reason.

        A row that adds up several inputs, layers, source lines or ops gives their number and shows the one
        with most of the time. ``layers`` maps layers to the names under which they are added up. Raises
        ValueError for any other ``by``.
        """

    def unattributed(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Device time without an op: one row per reason, from a closed list, by time."""

    def utilization(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Model and hardware FLOPs utilization (MFU, HFU) of each step and process."""

    def wall_time(self, **where: Unpack[Where]) -> pl.DataFrame:
        """All of each process's wall time, from its start to its exit: the rows of a process add up to it.

        Time in an import or a compilation counts there, also within a step. Steps are divided by phase;
        communication is the time in which nothing else ran; in light mode, the time of collectives that the
        program calls itself. Not known: null, with the reason.
        """

    def what_if(
        self,
        *,
        ops: Mapping[str, float] | None = ...,
        kernels: Mapping[str, float] | None = ...,
        copies: float = ...,
        communication: float = ...,
        launches: float = ...,
        host: float = ...,
        **where: Unpack[Where],
    ) -> pl.DataFrame:
        """The time that the run and each step would take if the durations of some work were multiplied.

        A factor of 0 removes work, 0.5 makes it twice as fast. ``ops``: by name, for the host's time inside
        the op and the device work launched there. ``kernels``: by name. In both, ``*`` in a name stands for
        any text. ``copies``: for all copies between memories; ``communication``: for collectives, without
        the wait for other ranks; ``launches``: for the calls that launch work and the delay until it starts;
        ``host``: for all time in which threads do not wait. All dependencies are kept: what waited still
        waits. The first row is the whole window; without a change it is the measured time exactly. Times
        are in ns. Raises ValueError for a factor below 0 or above 1000, and for a name that nothing has.
        """
