"""The one definition of communication between ranks: by names of ops, of kernels and of HLO instructions.

A kernel communicates if its name says so, or if a collective's op launched it: HCCL's tasks are
named after their part of the work (``MEMCPY_ASYNC``), and some libraries copy or add with kernels
of PyTorch. A product that also sends its parts (``gemm_allreduce``) is a product. A copy between
two devices of a process is a copy.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

#: Namespaces of PyTorch's ops whose ops all communicate.
TORCH: Final = ("c10d::", "c10d_functional::", "_c10d_functional::", "_dtensor::")
#: Backends that run collectives on threads of the host: ``gloo:all_reduce`` is a range on such a thread.
HOST_BACKENDS: Final = ("gloo", "mpi", "ucc")
#: Prefixes, before the colon, of the ranges that PyTorch's backends push around each collective.
BACKENDS: Final = ("nccl", "xccl", "hccl", *HOST_BACKENDS)
#: This op inspects a collective's buffer, and moves nothing.
_LOCAL: Final = "c10d::check_for_nan"
_TORCH_STARTS: Final = (
    *TORCH,
    "_c10d_functional_autograd::",
    *(f"{prefix}:" for prefix in BACKENDS),
)

#: Opcodes of HLO with groups of replicas among their attributes.
HLO_OF_GROUPS: Final = (
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all",
    "collective-broadcast",
)  # fmt: skip
_HLO_STARTED: Final = ("all-reduce", "all-gather", "collective-permute")
#: Opcodes of HLO that communicate.
HLO: Final = (
    "send", "send-done", "recv", "recv-done", *HLO_OF_GROUPS, "collective-permute",
    *(f"{name}-{half}" for name in _HLO_STARTED for half in ("start", "done")),
)  # fmt: skip


def _each(start: str, names: str) -> tuple[str, ...]:
    return tuple(start + name for name in names.split())


#: Ops that communicate and share one cost formula, by full name: PyTorch's, NCCL's calls, nodes of graphs.
OPS: Final = (
    *_each(
        "c10d::",
        "allreduce_ allreduce_coalesced_ allgather_ allgather_coalesced_ "
        "allgather_into_tensor_coalesced_ _allgather_base_ reduce_scatter_ _reduce_scatter_base_ "
        "reduce_scatter_tensor_coalesced_ alltoall_ alltoall_base_ broadcast_ reduce_ gather_ "
        "scatter_ send recv_ recv_any_source_ barrier monitored_barrier_",
    ),
    *_each(
        "_c10d_functional::",
        "all_reduce all_reduce_ all_reduce_coalesced all_gather_into_tensor "
        "all_gather_into_tensor_coalesced all_gather_into_tensor_out reduce_scatter_tensor "
        "reduce_scatter_tensor_coalesced reduce_scatter_tensor_out all_to_all_single broadcast "
        "broadcast_ wait_tensor _wrap_tensor_autograd isend irecv",
    ),
    *_each(
        "_c10d_functional_autograd::",
        "all_gather_into_tensor reduce_scatter_tensor all_to_all_single",
    ),
    "_dtensor::shard_dim_alltoall",
    *_each(
        "symm_mem::",
        "multimem_all_reduce_ multimem_one_shot_all_reduce multimem_one_shot_all_reduce_out "
        "multimem_all_gather_out one_shot_all_reduce one_shot_all_reduce_out "
        "one_shot_all_reduce_copy one_shot_all_reduce_copy_out two_shot_all_reduce_ "
        "two_shot_all_reduce_out reduce_scatter_out multimem_one_shot_reduce_out "
        "low_contention_all_gather _low_contention_all_gather _low_contention_reduce_scatter "
        "nvshmem_all_to_all nvshmem_broadcast all_to_all_vdev all_to_all_vdev_2d "
        "all_to_all_vdev_2d_offset nccl_reduce_scatter_offset tile_reduce "
        "multi_root_tile_reduce _barrier nccl_put nccl_put_signal nccl_put_with_signal nccl_get "
        "nvshmem_put nvshmem_put_with_signal nvshmem_get",
    ),
    *(
        name
        for backend in BACKENDS
        for name in _each(
            f"{backend}:",
            "all_reduce _all_reduce all_gather _all_gather_base all_gather_into_tensor "
            "_allgather_base reduce_scatter _reduce_scatter_base reduce_scatter_tensor all_to_all "
            "all_to_allv all_to_all_single broadcast reduce gather scatter send recv barrier coalesced",
        )
    ),
    "record_param_comms",
    *_each(
        "nccl",
        "AllReduce AllGather ReduceScatter Broadcast Reduce Send Recv AlltoAll Gather Scatter"
        " GroupEnd GroupStart",
    ),
    # TensorFlow, Horovod, MindSpore
    "NcclAllReduce",
    *_each("Collective", "Reduce ReduceV2 Gather BcastSend BcastRecv"),
    *_each("Horovod", "Allreduce Allgather Broadcast"),
    *("AllReduce", "AllGather", "ReduceScatter", "AllToAll", "Broadcast"),
    *(f"hlo::{opcode}" for opcode in HLO),
)
#: Other nodes of graphs, which are priced as ops of PyTorch (``perf.nodes``).
_OTHERS: Final = (
    *_each("Nccl", "Reduce Broadcast"),
    *_each(
        "Collective", "ReduceV3 GatherV2 BcastSendV2 BcastRecvV2 ReduceScatterV2 Permute Scatter"
    ),
    *_each("CollectiveAllToAll", "V2 V3"),
    *("CrossReplicaSum", "AlltoAll", "NeighborExchange", "Reduce", "Send", "Receive"),
    "_c10d_functional::batch_p2p_ops",
)
_OPS: Final = frozenset((*OPS, *_OTHERS))
#: Nodes of MindSpore, and HCCL's operations, by the last part of their names.
_NODE: Final = re.compile(
    r"(?:(?:Inner|Dist)Comm\w*|All(?:Reduce|Gather|ToAll)\w*|Reduce_?Scatter\w*|Broadcast|Send|Receive|"
    r"NeighborExchange\w*|Barrier|Collective(?:Scatter|Gather)|MirrorOperator|hcom_?\w+|hccl_?\w+|"
    r"MoeDistribute(?:Dispatch|Combine)(?:V[0-9])?)\Z",
    re.IGNORECASE,
)


def is_torch(name: str) -> bool:
    """Return whether a name is that of a collective's op or range of PyTorch."""
    return (name.startswith(_TORCH_STARTS) and name != _LOCAL) or name == "record_param_comms"


def is_node(kind: str) -> bool:
    """Return whether the kind of a MindSpore operator, or the name of a task of HCCL, communicates."""
    return _NODE.match(kind) is not None


#: Ops of any library whose name is a collective's: ``vllm::all_reduce``, ``trtllm::moe_allreduce``,
#: ``hlo::all-reduce-scatter.3``, ``torch.distributed.all_reduce``, ``HorovodAllreduce``, ``MPI_Allreduce``.
_COLLECTIVE: Final = r"(?:all_?(?:reduce|gather|to_?all|2_?all)|reduce_?scatter)"
_NAMED: Final = re.compile(
    rf"(?:\w+::)+(?:\w*_)?{_COLLECTIVE}v?(?:_\w*)?\Z"
    rf"|(?:torch\.distributed|horovod|hvd|byteps|smddp|mpi4py|mscclpp|deep_?ep|mori|pplx)\b[.\w:]*"
    rf"(?:\b|_){_COLLECTIVE}\w*\Z"
    r"|torch\.distributed\.(?:\w+\.)*(?:broadcast\w*|i?send|i?recv|reduce|barrier|gather|scatter)\Z"
    rf"|(?:horovod|byteps|smddp)_?(?:\w+_)?(?:{_COLLECTIVE}|broadcast|push_?pull)\w*\Z"
    r"|xla::(?:cross_replica_sum|collective_permute)\Z|xla_?(?:all_?reduce|reduce_?scatter)\Z"
    r"|(?:\w+::)*(?:npu_)?moe_?distribute_?(?:dispatch|combine)(?:_?v[0-9])?\Z"
    r"|mpi_i?(?:all\w+|b?cast|bcast|barrier|gatherv?|scatterv?|reduce\w*|[bsr]?send\w*|recv|sendrecv\w*)\Z"
    r"|(?:deep_?ep|uccl|mori|pplx|nixl)::(?:\w+::)*\w*(?:dispatch|combine|all_?reduce|send|recv|barrier)\w*\Z",
    re.IGNORECASE,
)
#: Products that also send their parts; and fused loops, which compilers name after the values that they read.
_NO_OP: Final = re.compile(
    r"gemm|matmul|linear|(?:^|[:_])(?:add|b)?mm(?:_|\Z)|layout|::(?:loop|input|wrapped)_|(?:block|warp|thread|cta)_all",
    re.IGNORECASE,
)


@lru_cache(maxsize=65_536)
def is_op(name: str) -> bool:
    """Return whether an op with this name communicates."""
    if is_torch(name) or name.partition(".")[0] in _OPS or name.startswith("hcom_"):
        return True
    if len(name) > _LONGEST or name.startswith(_OWN_LISTS):
        return False
    plain = _NUMBER.sub("", name).replace("-", "_")
    return _NAMED.match(plain) is not None and _NO_OP.search(plain) is None


#: with these prefixes only the listed names communicate: others copy or compute on one device
_OWN_LISTS: Final = ("aten::", "prims::", "c10d::", "symm_mem::", "fsdp::")
_LONGEST: Final = 256
_NUMBER: Final = re.compile(r"\.[0-9]+\Z|\.default\Z")

#: Names of libraries, as words that no other kernel's name contains.
_LIBRARIES: Final = (
    r"(?i:nccl|rccl|msccl|oneccl|xccl|hccl|hcom_|uccl|nvshmem|roc_?shmem|ishmem|userbuffers|flagcx|smddp|nixl)",
    # collectives of other vendors: Cambricon, Moore Threads and MetaX, Kunlun, Enflame, Intel
    r"(?<![A-Za-z])(?i:cncl|mccl|bkcl|eccl)|(?:^|::)ccl::",
    # DeepEP and copies of it, but not ``layout``, which counts the tokens of each rank on one device
    r"(?:^|::)(?:deep_|hybrid_)?ep::(?!layout|scan|permute|unpermute)|(?:^|::)int(?:ra|er)node(?:_ll)?::",
    r"(?i:deep_?ep\w*::(?:\w+::)*(?:cached_)?(?:notify_)?(?:dispatch|combine|barrier))",
    # mori, UCX; the kernels by which TensorRT-LLM, FlashInfer and pplx dispatch experts' tokens
    r"(?<![a-z])Ep(?:Dispatch|Combine)|(?<![a-z])mori(?:::|_)(?:ep|io|shmem|collective)(?:::|_)|^ucp_\w",
    r"(?i:moe_?distribute_?(?:dispatch|combine)(?!\w*add))"
    r"|A2A(?:Dispatch|Combine)Kernel|a2a_(?:dispatch|combine)_(?:send|recv)"
    r"|pplx::(?:\w+::)*(?:dispatch|combine)|[Mm]oe_?[Cc]omm(?:Kernel|unicat|_)",
    # all-reduces of vLLM, SGLang, aiter and TensorRT-LLM; symmetric memory of PyTorch
    r"cross_device_(?:reduce|store)|multimem_\w*(?:reduce|gather)|exchangeSplitAndOffset"
    r"|(?i:quick_?reduce|mnnvl|(?:one|two)_?shot_?(?:push|pull|reduce|all))|[Ll]amport|(?<![a-z])nvls_"
    r"|c10d::(?:symmetric_memory|intra_node_comm|nvshmem\w*)::|cross_rank_(?:barrier|sync|reduce|signal)"
    r"|(?:^|::)(?:barrier|put_signal|wait_signal)_kernel$|\w_on_stream_kernel",  # the last: NVSHMEM's
)
#: Words for collectives. A lower-case word begins where no letter is before it: not in ``small_reduce``.
_WORDS: Final = (
    r"(?:(?<![A-Za-z])all|(?<![A-Z])A(?:ll|LL))[_-]?"
    r"(?:(?i:reduce)|(?i:gather)(?!ed)|(?i:(?:to|2)[_-]?all))",
    r"(?<![A-Za-z0-9])a2a[_-]",
    r"(?i:reduce[_-]?scatter|send_?recv|(?:async[_-])?collective[_-](?:permute|broadcast|start|done))",
    # JAX names instructions after its primitives
    r"^(?:p(?:sum|max|min|permute|broadcast)|psum_scatter)(?:_invariant)?(?:\.[0-9]+)?$",
    r"^(?:send|recv)(?:-done)?(?:\.[0-9]+)?$|^(?:Send|Receive|Broadcast|Barrier)-op[0-9]+",
)
_KERNEL: Final = re.compile("|".join((*_LIBRARIES, *_WORDS)))
#: Kernels that do not communicate: products that also send their parts; reductions within a block
#: of threads; kernels that clear a buffer on one device; fused kernels, which compilers name after
#: the ops whose results they read (``triton_poi_fused_add_all_reduce_4``).
_NOT: Final = re.compile(
    r"(?i:gemm|matmul|(?:block|warp|thread|cta|wave|lane|cluster|quad|group|simd)_?all_?(?:reduce|gather))"
    r"|(?i:lamport_?(?:init|clear|memset))"
    r"|^triton_(?:poi|per|red|for|tem|unk)_|^(?:loop|input|wrapped)_"
)


def is_kernel(own_name: str) -> bool:
    """Return whether a kernel communicates, by its own demangled name (``kernel_names.own_name``)."""
    return _KERNEL.search(own_name) is not None and _NOT.search(own_name) is None
