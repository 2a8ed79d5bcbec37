"""The vocabulary: unit and meaning of each column name that the frames of several questions share.

A name that only one question uses is documented in that question.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .column import UNITS, Column


def read_words(text: str) -> dict[str, Column]:
    """Return the columns that a text describes: a line ``name: unit: meaning`` each, continued in lines
    that are indented further. Raises TypeError for a line of any other form and for an unknown unit."""
    columns: dict[str, Column] = {}
    lines = [line for line in text.split("\n") if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    described: list[str] = []
    for line in lines:
        if line[margin:].startswith(" ") and described:
            described[-1] += f" {line.strip()}"
        else:
            described.append(line.strip())
    for line in described:
        name, _, rest = line.partition(": ")
        unit, _, meaning = rest.partition(": ")
        if unit not in UNITS or not meaning:
            raise TypeError(f"{line!r} is no NAME: UNIT: MEANING with one of the units")
        columns[name] = Column(name, unit, meaning)
    return columns


#: The unit and meaning of a column in every frame that does not define it otherwise.
WORDS: Final[Mapping[str, Column]] = MappingProxyType(
    read_words(
        """
        saving_most: ns: upper bound of what the change would save; null if nothing bounds it
        new_wall_time: ns: time that it would take with the change
        saving: ns: wall_time - new_wall_time; negative if it would take longer
        kernel_busy: ns: time during which at least one kernel ran
        a: ns: mean per step of the first run
        b: ns: mean per step of the second run
        median: ns: median duration of one execution
        p90: ns: 90th percentile of the runs, by trtexec's rule
        p95: ns: 95th percentile of the runs, by trtexec's rule
        p99: ns: 99th percentile of the runs, by trtexec's rule
        wall_time: ns: time from the first event to the last
        device_time: ns: durations of kernels, copies and sets added up, for an op of those that it launched;
            without a GPU, self time, of nested ops at the one that counts
        kernel_time: ns: durations of all kernels added up; without a GPU, device_time
        tensor_core_time: ns: time in kernels that use Tensor Cores (matrix cores on AMD)
        tensor_core_undetermined_time: ns: time in kernels for which neither name nor op shows whether
            they use Tensor Cores
        start: ns: time at which it began
        end: ns: time at which it ended
        duration: ns: end - start, added up over the row's executions; for an op, over its kernels, copies and
            sets; without a GPU, self time, of nested ops at the one that counts
        call_start: ns: time at which the CUDA call that launched it began
        call_end: ns: time at which the CUDA call that launched it ended
        cpu_time: ns: time on the host from the op's begin to its end
        self_time: ns: cpu_time less that of the ops inside the op
        time: ns: time of the row
        total: ns: durations of all executions added up
        mean: ns: mean duration of one execution
        min: ns: shortest duration of one execution
        max: ns: longest duration of one execution
        window: ns: time from the first step's start to the last step's end; without steps, of all that
            ran
        overlap_time: ns: time inside the window during which communication and computation both ran
        waiting_time: ns: time in collectives beyond the shortest time that any rank spent in each
        input_wait: ns: time in which the thread with the steps waited for input
        sampled_time: ns: time that the samples cover
        busy_time: ns: part of the time in which at least one event of the row ran
        idle_time: ns: the rest of the time: nothing ran
        host_wait: ns: part of idle_time in gaps whose next work was launched after the one before had
            ended
        kernel_wait: ns: part of idle_time in gaps below 30 µs whose next work had been launched in time
        other_wait: ns: part of idle_time in longer gaps whose next work had been launched in time
        unknown_wait: ns: part of idle_time whose next work has no launch record
        launching_time: ns: time of the launch calls that launched it
        device_self: ns: durations of the kernels, copies and sets that it launched itself; without a GPU,
            the ops' self time; null if none of them was captured
        device_total: ns: device_self of it and of all that is inside it
        host_self: ns: time on the host without the ops inside; CUDA calls are part of it
        host_total: ns: time on the host with the ops inside
        waited: ns: how long it (or of its callers, the one that waited longest) had waited when the recording
            ended; null if it ended
        input_phase: ns: time in which the step waited for its input
        forward_phase: ns: time in the forward pass
        backward_phase: ns: time in the backward pass
        optimizer_phase: ns: time in the optimizer
        outside_phases: ns: time outside these phases
        transfer_time: ns: the shortest time of a rank in each collective, once for each rank in it
        lateness: ns: how much later it entered than the first rank, in collectives that it entered last
        caused_waiting: ns: waiting of the other ranks in the collectives that it entered last
        median_work: ns: median over its steps of the step's time less the waiting in collectives; null if
            that is not known
        number: number: the finding's number, 1 for the one that saves most
        op_id: number: id of the op's range in the trace; null if there is no op
        process: number: the process's number in this profile
        thread: number: the thread's number in its process
        device: number: the device's number in its process; -1 is the CPU
        context: number: the CUDA context
        stream: number: the CUDA stream
        correlation: number: the CUPTI correlation id, which links it to its launch within the process
        graph_node: number: its node in the CUDA graph
        seq: number: PyTorch's autograd sequence number
        step: number: the step's number
        rank: number: the process's rank in the job
        collective: number: the collective's number in its group, from its record or its order
        detector: text: name of the detector
        finding: text: what the program does, with its figures
        device_name: text: model of the device
        limited_by: text: what allows no more blocks on a multiprocessor: block size (its warps),
            registers, shared memory, blocks per SM; nothing if all of its warps are occupied
        occupancy_reason: text: why the achieved occupancy is not known, from a closed list
        engine: text: the TensorRT engine: the name of its files, or the one that the program gave it
        measure: text: trtexec's name of the time: Latency, Enqueue Time, H2D Latency, GPU Compute Time, D2H
            Latency
        op: text: the op, by its framework's name; of several ops, the one with most of the row's time
        op_type: text: the op's family: gemm, conv, attention …
        direction: text: forward, backward, optimizer, input or communication; null where nothing shows
            that the op is part of one: a batch that is prepared, metrics, a loop that reads values
        layer: text: path of the module that called the op
        source: text: file and line: the line of the library that defines the model, if any, then the
            user's lines, innermost first
        range: text: the user's innermost range (annotate, record_function, NVTX)
        phase: text: input, forward, backward, optimizer, or the program's own name for it
        inputs: text: dtypes, shapes and layouts of the inputs, in the notation of range-text.md
        outputs: text: dtypes, shapes and layouts of the outputs
        dtypes: text: distinct dtypes of inputs and outputs
        params: text: scalar parameters by name
        reason: text: why it has no op, from a closed list; null if it has an op
        kind: text: kind of work: matrix products, attention …; of several kinds, the one with most of the
            row's time
        name: text: the kernel's name
        grid: text: size of the grid: x,y,z
        block: text: size of the block: x,y,z
        src_kind: text: kind of memory that is read: device, pinned, pageable, managed, array, host
        dst_kind: text: kind of memory that is written; values as in src_kind
        dtype: text: dtype of most matrix FLOPs; its peak is used
        bound: text: what limits most of its time: tensor, vector, memory or latency
        group: text: name of the process group; for a mesh, of the group whose members differ in this
            coordinate alone
        members: text: ranks of the group: 0-3, 0-6:2 (every second), 0,3,5
        part: text: the part of opscope
        loader: text: the data loader, by its class and that of its dataset
        verdict: text: input-bound (share is above 5 %, also without the longest wait), not input-bound,
            or cannot tell
        kernel_sequence: text: names of the kernels in order, separated by |
        kernel: text: the kernel's own name, without template arguments
        cause: text: local compute, input, launch, outside any op, or an earlier wait; null if the trace does
            not show it
        seen_on: text: where the phases were seen: host (ranges and ops), device (kernels), or stated by the
            source itself
        saving_share: fraction: saving / wall_time
        gpu_utilization: fraction: kernel_busy / the window
        sm_efficiency: fraction: estimate: multiprocessors that have a block, from the grids of all kernels
            running at a time, / all multiprocessors; the mean over the window; kernels of unknown grid count
            as 0
        achieved_occupancy: fraction: estimate: warps of the blocks per multiprocessor, at most as many as
            fit, / warps that it can hold; a mean is weighted by the kernels' time
        theoretical_occupancy: fraction: warps of the blocks that fit on a multiprocessor at one time /
            warps that it can hold; a mean is weighted by the kernels' time
        tensor_core_share: fraction: tensor_core_time / the kernels' durations added up
        grid_known: fraction: part of the kernels' time whose grid and number of multiprocessors are known
        occupancy_known: fraction: part of the kernels' time whose achieved occupancy is known
        tail_share: fraction: estimate: empty places for blocks in the last wave / places in all waves; the
            time that a full last wave might save, if all blocks take equally long
        blocks_per_sm: fraction: blocks of the grid / multiprocessors of the device; more than 1 is usual
        waves: fraction: blocks of the grid / blocks that fit on the device at one time; 2.5 are two full
            waves and half a wave
        share: fraction: time of the row / time of all rows
        efficiency: fraction: ideal_time / duration, over work that has a roof; 1 is the roof
        machine: fraction: busy part of all processors of the machine
        cores: fraction: processor time of the process / time; 1 is one processor, several threads can use
            more
        child_cores: fraction: cores of its child processes, sampled once a second
        idle_share: fraction: idle_time / the time of the row
        over_mean: fraction: median over the steps of its work / the mean work of all ranks in the step
        sm_count: count: multiprocessors of the device (AMD: compute units)
        steps_a: count: steps of the first run that are compared, of all its processes
        steps_b: count: likewise of the second
        runs: count: runs over which the times were taken
        steps: count: training steps seen
        processes: count: processes seen
        kernels: count: kernel executions
        copies: count: copies and sets
        depth: count: number of ops around it
        registers: count: registers per thread
        calls: count: number of executions: calls of an op, executions of a kernel
        layers: count: number of layers; the row shows the layer with most of its time
        ops: count: number of ops; the row shows the op with most of its time
        allocations: count: allocations seen
        collectives: count: collectives, sends and receives
        size: count: ranks of the group; for a mesh, ranks along this dimension
        queue_depth: count: batches that were ready when the program asked for one
        samples: count: samples of the processors
        launches: count: calls that launched work
        occurrences: count: how often the sequence ran
        sequence_length: count: kernels, copies and sets of the sequence
        compared: count: collectives, of each rank, of which at least two ranks' times are known
        last: count: of those compared, collectives that it alone entered last
        bytes: bytes: minimum bytes that must be read and written
        shared_memory: bytes: shared memory per block, static and dynamic
        peak_memory: bytes: most memory in use at one time
        reserved: bytes: most device memory that the allocator reserved at one time
        in_use: bytes: memory in use at the end
        allocated: bytes: all allocations added up
        released: bytes: all releases added up
        at_peak: bytes: the op's blocks that were in use at the device's peak
        message_bytes: bytes: messages added up, each by the larger of its input and output
        matrix_flops: FLOP: FLOPs of matrix products, 2 for a multiply-add
        vector_flops: FLOP: all other FLOPs
        flops: FLOP: matrix_flops + vector_flops
        model_flops: FLOP: matrix FLOPs of forward and backward, each counted once
        attained_flops: FLOP/s: FLOPs without those that a mask saves / duration, over work with known
            FLOPs
        attained_bandwidth: bytes/s: bytes / duration, over work with known bytes that crosses no link
        bus_bandwidth: bytes/s: minimum bytes that cross each rank's link / the shortest time of a rank in
            each collective
        median_bandwidth: bytes/s: median of the bandwidths of single copies
        intensity: FLOP/byte: FLOPs / bytes, over work for which both are known
        tensor_core: yes/no: whether it, or any of its kernels, uses Tensor Cores (matrix cores on AMD);
            null if neither name nor op shows it
        tc_eligible: yes/no: whether the op's family could use Tensor Cores in some dtype
        slow: yes/no: whether it is an outlier: modified z-score above 3.5 and at least 5 % above the
            median; null for fewer than five steps
        warm_up: yes/no: whether it is one of the first, which are slower than the later ones: modified
            z-score above 3.5 and at least a fifth above the median of the second half; null for fewer
            than five
        """
    )
)


def columns(names: str, *own: str, **otherwise: tuple[str, str]) -> tuple[Column, ...]:
    """Return the columns with these space-separated names, as defined in ``WORDS``.

    ``own`` (texts for ``read_words``) and ``otherwise`` (unit, meaning) define names that ``WORDS`` lacks or
    that mean something else here; the last definition counts. Raises KeyError for a name without a
    definition, TypeError for a wrong text.
    """
    words = {name: word for text in own for name, word in read_words(text).items()}
    words |= {name: Column(name, *about) for name, about in otherwise.items()}
    return tuple(words.get(name) or WORDS[name] for name in names.split())
