"""What communicates: one list of names of ops and kernels, which all that sort work into kinds ask."""

from __future__ import annotations

import json

import pytest

import opscope
from opscope.core.communication import HLO, is_kernel, is_node, is_op
from opscope.core.dialects import Reading, hlo
from opscope.core.job.exchanges import communicating
from opscope.core.perf import kinds
from opscope.core.perf.devices.kernel_names import own_name, uses_tensor_cores
from opscope.core.perf.ops.communication import collective
from opscope.core.perf.registry import entries
from opscope.core.schema import OpCall
from opscope.profile import Profile

#: Kernels by library → the kind of collective that the name says, None for those that it does not say.
KERNELS = {
    "NCCL": {
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
        "ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymkDevWorkArgs const*)": "all_reduce",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long)": "send_recv",
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>) [clone .kd]": None,
    },
    "RCCL and MSCCL": {
        "rccl_main_kernel(ncclDevComm*, unsigned long, ncclWork*)": None,
        "mscclKernel_Sum_hip_bfloat16_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)": None,
        "void mscclpp::allreduceAllPairs<half>(half*)": "all_reduce",
    },
    "oneCCL": {"oneccl_allreduce_large_kernel": "all_reduce"},
    "HCCL": {
        "hcom_allReduce__586_0_1": "all_reduce",
        "hcom_receive__586_0_1": "recv",
        "reduce_scatterAicpuKernel": "reduce_scatter",
        "AllReduce-op57": "all_reduce",
        "MoeDistributeDispatch": "all_to_all",
        "Send-op737": "send",
        "Receive-op663": "recv",
    },
    "NVSHMEM, rocSHMEM": {
        "nvshmemi_transfer_rma_kernel": None,
        "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)": "barrier",
        "void rocshmem::alltoall_kernel(float*)": "all_to_all",
    },
    "DeepEP": {
        "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*, float*, int*)": "all_to_all",
        "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(float*)": "all_to_all",
        "void dpsk::ep::internode::dispatch<false, 8, true, 8>(int4*, float*)": "all_to_all",
        "void deep_ep::intranode::barrier<8>(int**, int)": "barrier",
    },
    "mori": {
        "mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>": "all_to_all",
        "EpCombineIntraNodeKernel_bf16": "all_to_all",
    },
    "pplx": {
        "void a2a_dispatch_send_kernel<true, 16, 8>(unsigned long)": "all_to_all",
        "void a2a_combine_recv_kernel<true, 16, 8>(unsigned long)": "all_to_all",
    },
    "Transformer Engine": {
        "void transformer_engine::userbuffers_fp16_sum_inplace_gpu_rr_rs<2>(int, int)": None,
        "kuserbuffers_pushsend(int, int*)": "send",
    },
    "PyTorch's symmetric memory": {
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(int)": "multimem_all_reduce",
        "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>()": "all_reduce",
        "void (anonymous namespace)::barrier_kernel(unsigned int**, unsigned long)": "barrier",
        "exchangeSplitAndOffset(long*, int, int)": None,
        "void allToAllV<true>(void*, void*)": "all_to_all",
    },
    "vLLM, SGLang, aiter": {
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)": "all_reduce",
        "void aiter::cross_device_reduce_1stage_naive<__hip_bfloat16, 8>(aiter::RankData*)": "all_reduce",
        "_ZN5aiter33reduce_scatter_cross_device_storeIDF16bLi8EEEvPNS_8RankDataENS_11RankSignalsEjiii": "reduce_scatter",
        "quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half, 8>, true>>": "all_reduce",
        "void moe_all_to_all_dispatch_kernel<4>(int)": "all_to_all",
    },
    "TensorRT-LLM, FlashInfer": {
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>()": "all_reduce",
        "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<(unsigned char)8>()": "all_reduce",
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8>(AllReduceParams)": "all_reduce",
        "moeA2ADispatchKernel<8, true>(int const*)": "all_to_all",
        "moeA2ACombineKernel<8>(int const*)": "all_to_all",
        "void tensorrt_llm::kernels::fusedMoeCommKernel<8>(int)": None,
        "void moereduce_allreduce_fusion_kernel_oneshot_lamport<float, 4>(int)": "all_reduce",
        "void tensorrt_llm::kernels::mnnvl::rmsNormLamport<8, float>(int)": None,
    },
    "others": {
        "void hybrid_ep::dispatch_kernel<int, 4>(int)": "all_to_all",
        "void uccl::ep::internode_ll::combine<float>(int)": "all_to_all",
        "void mscclpp::allgather_kernel(int)": "all_gather",
        "kernel_all2all_push_intra_node": "all_to_all",
        "a2a_kernel_with_offsets": "all_to_all",
        "void quickreduce::allreduce_prototype_twoshot<float>(int)": "all_reduce",
        "void c10d::intra_node_comm::oneShotAllReduceKernel<8>(int)": "all_reduce",
        "void ccl::v1::reduce_kernel_large(int)": "reduce",
        "cnclAllReduce_bf16": "all_reduce",
        "mcclKernel_AllReduce_RING_Sum_float": "all_reduce",
        "nvls_one_push(int)": None,
    },
    "XLA's instructions": {
        "all_reduce.2": "all_reduce",
        "async-collective-start.1": None,
        "collective_permute_start.4": "permute",
        "all-reduce.2": "all_reduce",
        "all-gather-start.3": "all_gather",
        "reduce-scatter": "reduce_scatter",
        "ragged-all-to-all.1": "all_to_all",
        "collective-permute-done.4": "permute",
        "send.7": "send",
        "recv-done": "recv",
        "psum.17": "all_reduce",
        "psum_scatter.4": "reduce_scatter",
        "ppermute.3": "permute",
        "pmax.1": "all_reduce",
        "all_gather_invariant.2": "all_gather",
        "all-to-all-start.2": "all_to_all",
        "collective-broadcast-start": "broadcast",
    },
    "names in no table of ours": {
        "void deep_ep::intranode::cached_notify_combine<4>(void**, int*, int)": "all_to_all",
        "void deepep_v2::dispatch_copy_epilogue<7168>(float*)": "all_to_all",
        "void DeepEP::hybrid::dispatch_kernel<__nv_bfloat16>(int)": "all_to_all",
        "mori_ep_combine_internode_v1_kernel_bf16": "all_to_all",
        "EpDispatchLowLatencyAsyncSend_fp8": "all_to_all",
        "void mori::io::write_kernel(void*)": None,
        "void roc_shmem::put_kernel()": None,
        "ucp_put_nbx_device_kernel": None,
        "ucc_tl_cuda_allgather_kernel": "all_gather",
        "gloo::cuda_allreduce_halving_doubling_kernel": "all_reduce",
        "void flux::cross_rank_barrier_kernel()": "barrier",
        "mscclpp_allreduce_rsag_zero_copy": "all_reduce",
        "void mscclpp::collective::AllgatherFullmesh<false>(void*)": "all_gather",
        "void rccl::LL128::reduceScatter_Sum_bf16(ncclWork*)": "reduce_scatter",
        "oneccl_reduce-scatter_sycl_read": "reduce_scatter",
        "ncclSymkDevKernel_ReduceScatter_LDMC_sum_f32(ncclSymkDevWorkArgs4K)": "reduce_scatter",
        "HcclAllReduceAicpuKernel": "all_reduce",
        "hcom_alltoallvc_": "all_to_all",
        "void custom_ar::all_reduce_one_shot_push_kernel<__half>()": "all_reduce",
        "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_twoshot_sync<1>()": "all_reduce",
        "void flashinfer::comm::allgather_ring_kernel(void*)": "all_gather",
        "void pplx_kernels::a2a::all_to_all_v_send()": "all_to_all",
        "triton_dist_allgather_push_2d_kernel": "all_gather",
        "xccl_allreduce_esimd": "all_reduce",
    },
}  # fmt: skip
#: Kernels whose names have a word of the above, and that move nothing between ranks.
OTHERS = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MeanOps<float>>>()",
    "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
    "void small_reduce_kernel<float>(float*)",
    "smallReduceKernel(float*)",
    "void oneflow::BlockAllReduceKernel<float>(float*)",
    "void warp_all_reduce_softmax<float>(float*)",
    "void allgathered_matmul_epilogue(int)",
    "triton_poi_fused_add_all_reduce_4",
    "triton_per_fused_all_gather_into_tensor_mean_wait_tensor_0",
    "loop_all_reduce_fusion",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<AllReduce>>(int)",
    "sm90_gemm_allreduce_bf16",
    "MoeDistributeCombineAddRmsNorm",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*)",
    "void mori::moe::ConvertDispatchOutputKernel<float>(float*)",
    "moe_dispatch_kernel<4>(int)",
    "void splitkv_combine_kernel<float>(float*)",
    "void moe::dev::permute::permuteKernel<int>(int)",
    "void cooperative_groups::grid_barrier_kernel(int)",
    "__amd_rocclr_copyBuffer.kd",
    "send_to_host_kernel(int)",
    "BroadcastTo-op12",
    "Reduce-op3",
    "void at::native::broadcast_kernel<float>(float*)",
    "void flashinfer::lamport_initialize_kernel(float*)",
    "void waveAllReduceSum<float>(float*)",
    "void c10d::checkForNaN<float>(float*)",
    "void ctranspose_kernel<float>(float*)",
    "void hybrid_ep::permute_kernel<int>(int)",
    "void cutlass::gemm::dispatch_policy_kernel(int)",
    "void moe_combine_kernel<float>(float*)",
    "void mma2a_kernel(float*)",
    "psum_of_rows_kernel(float*)",
    "dispatch_softmax_forward",
    "combine_heads_kernel",
    "void broadcast_in_dim_kernel(float*)",
    "void memory_ep_kernel(float*)",
)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [pytest.param(*item, id=f"{library}: {item[0][:50]}") for library, names in KERNELS.items() for item in names.items()],
)  # fmt: skip
def test_kernels_of_each_library_communicate(kernel, expected):
    assert kinds.of_kernel(kernel) == kinds.COMMUNICATION
    assert uses_tensor_cores(kernel) is False
    assert collective(own_name(kernel)) == expected


@pytest.mark.parametrize("kernel", OTHERS)
def test_look_alikes_do_not_communicate(kernel):
    assert kinds.of_kernel(kernel) != kinds.COMMUNICATION
    assert not is_kernel(own_name(kernel))


def test_the_names_of_ops_are_those_of_the_family():
    """The formulas and the directions have one list: what is priced as a collective is one."""
    wrong = {
        name
        for name, entry in entries().items()
        if (entry.family == kinds.COMMUNICATION) != is_op(name)
    }
    assert not wrong


def test_hlo_s_opcodes_are_ops_and_names_of_kernels():
    for opcode in HLO:
        assert is_op(f"hlo::{opcode}"), opcode
        assert is_kernel(f"{opcode}.1"), opcode


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("c10d::allreduce_.default", True),
        ("_c10d_functional::all_reduce", True),
        ("gloo:all_reduce", True),
        ("xccl:all_reduce", True),
        ("record_param_comms", True),
        ("symm_mem::one_shot_all_reduce.default", True),
        ("hcom_allReduce__586_0_1", True),
        ("c10d::check_for_nan", False),
        ("symm_mem::memset32_", False),
        ("aten::all", False),
        ("aten::gather", False),
        ("Send to host", False),
        ("torch_scatter::scatter_sum", False),
        *(
            (name, True)
            for name in (
                "vllm::all_reduce",
                "_C_custom_ar::all_reduce",
                "sglang::outplace_all_reduce",
                "trtllm::moe_finalize_allreduce",
                "trtllm::alltoall",
                "aiter::fused_allreduce_rmsnorm",
                "hlo::all-reduce-scatter.3",
                "hlo::all_reduce.1",
                "torch.distributed.all_reduce",
                "torch.distributed.broadcast",
                "HorovodAllreduce",
                "horovod_mpi_broadcast_async",
                "MPI_Allreduce",
                "MPI_Isend",
                "deep_ep::Buffer::combine",
                "mori::dispatch",
                "torchrec::all_to_all",
                "vllm::reduce_scatter",
                "xla::cross_replica_sum",
                "XlaAllReduce",
                "npu::npu_moe_distribute_dispatch_v2",
                "npu::npu_moe_distribute_combine",
            )
        ),
        *(
            (name, False)
            for name in (
                "vllm::all_reduced_sum",
                "xyz::block_all_reduce",
                "symm_mem::fused_all_gather_matmul",
                "npu::npu_mm_all_reduce_base",
                "npu::npu_all_gather_base_mm",
                "hlo::loop_all_reduce_fusion",
                "torch_scatter::gather_coo",
                "vllm::moe_forward",
                "moe::combine",
                "MPI_Wait",
                "torch.distributed.get_rank",
                "deep_ep::get_dispatch_layout",
                "train.py(7): all_reduce",
            )
        ),
    ],
)
def test_ops_by_name(name, expected):
    assert is_op(name) is expected


def test_a_collective_has_the_direction_communication_whatever_tells_it():
    path = ("op_name", "jit(f)/transpose(jvp(net))/psum")
    assert hlo.reading(OpCall("hlo::all-reduce", params=(path,))).direction == "communication"
    assert hlo.reading(OpCall("hlo::dot", params=(path,))).direction == "backward"
    assert Reading("user", direction="forward").direction == "forward"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        *((kind, True) for kind in ("AllReduce", "AlltoAllV", "NeighborExchangeV2", "Receive")),
        *((f"MoeDistribute{half}", True) for half in ("Dispatch", "CombineV2")),
        *((kind, True) for kind in ("DistCommAllReduce", "InnerCommAllGather", "hcom_send_")),
        *((kind, False) for kind in ("BroadcastTo", "ReduceSum", "ReduceMean", "SendKernelGrad")),
    ],
)
def test_nodes_of_mindspore_by_kind(kind, expected):
    assert is_node(kind) is expected


def _launched(start, name, *around):
    """Return the ranges, call and kernel of one launch; ``around``: the ops around it, outermost first."""
    ranges = [
        {"process": 1, "thread": 1, "start": start + depth, "end": start + 90 - depth, "text": text,
         "domain": "kineto", "kind": "pushpop"}
        for depth, text in enumerate(around)
    ]  # fmt: skip
    call = {"process": 1, "thread": 1, "start": start + 40, "end": start + 42, "correlation": start,
            "name": "cudaLaunchKernel"}  # fmt: skip
    kernel = {"process": 1, "device": 0, "stream": 7, "start": start + 50, "end": start + 150,
              "correlation": start, "name": name}  # fmt: skip
    return ranges, call, kernel


def test_a_kernel_is_communication_by_its_name_or_by_the_op_around_it(trace_of):
    """All-to-alls that an autograd function launched, and the copy that a collective's op makes."""
    dispatch = "void deep_ep::intranode::dispatch<8>(int*)"
    copy = "void at::native::vectorized_elementwise_kernel<4, CopyFunctor>(int)"
    launches = [
        _launched(0, dispatch, "aten::sort(f32[8]) -> f32[8]"),
        _launched(200, copy, "c10d::allgather_([[f32[8]]], [f32[8]]) -> ()", "aten::copy_(f32[8], f32[8]) -> f32[8]"),
        _launched(400, copy, "aten::sort(f32[8]) -> f32[8]"),
    ]  # fmt: skip
    profile = Profile(
        trace_of(
            ranges=[row for ranges, _, _ in launches for row in ranges],
            calls=[call for _, call, _ in launches],
            kernels=[kernel for _, _, kernel in launches],
        )
    )
    assert communicating(profile.attribution).tolist() == [True, True, False]
    by_kind = dict(profile.totals_by("kind").select("kind", "device_time").rows())
    assert by_kind == {kinds.COMMUNICATION: 200, kinds.OTHER: 100}


def test_a_row_counts_what_ran_in_its_window(trace_of):
    """One collective before the steps, one in them, one that the last step's end cuts, one behind them."""
    record = '{"group":"0","in_nelems":1024,"out_nelems":1024,"dtype":"Float"}'
    kernels = [
        {"process": 0, "device": 0, "stream": 7, "start": start, "end": start + 100, "attrs": record,
         "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL"}
        for start in (0, 500, 950, 2000)
    ]  # fmt: skip
    step = {
        "process": 0,
        "thread": 1,
        "start": 400,
        "end": 1000,
        "text": "step 1",
        "category": "step",
    }
    profile = Profile(trace_of(kernels=kernels, ranges=[step | {"kind": "pushpop"}]))
    row = profile.communication().row(0, named=True)
    assert (row["window"], row["communication_time"], row["collectives"]) == (600, 150, 2)
    assert profile.collectives()["calls"].to_list() == [4], "of the whole trace"


@pytest.mark.parametrize("groups", [1, 2])
def test_collectives_without_a_record_are_the_only_group_s(tmp_path, groups):
    """gloo's events name no group: where the file has one it is theirs, and of several it is not known."""
    config = [
        {"pg_name": str(number), "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}
        for number in range(groups)
    ]
    shape = {"Input Dims": [[32, 64]], "Input type": ["float"]}
    call, ran = "_c10d_functional::all_reduce", "gloo:all_reduce"
    rows = [
        ("cpu_op", call, 10, 5, 7),
        ("user_annotation", ran, 12, 90, 8),
        ("cpu_op", "aten::mm", 20, 30, 7),
    ]
    events = [
        {
            "ph": "X",
            "cat": cat,
            "name": name,
            "ts": ts,
            "dur": dur,
            "pid": 4,
            "tid": tid,
            "args": shape,
        }
        for cat, name, ts, dur, tid in rows
    ]
    path = tmp_path / "rank0.json"
    head = {"backend": "gloo", "rank": 0, "world_size": 2, "pg_count": groups, "pg_config": config}
    path.write_text(
        json.dumps({"schemaVersion": 1, "distributedInfo": head, "traceEvents": events}), "utf-8"
    )
    profile = opscope.load(path)
    row = profile.collectives().row(0, named=True)
    assert (row["kind"], row["dtype"], row["message_bytes"]) == ("all_reduce", "f32", 8192)
    assert (row["group"], row["members"]) == (("0", "0-1") if groups == 1 else (None, None))
    directions = dict(profile.ops().select("op", "direction").rows())
    assert directions[call] == directions[ran] == "communication"
    assert directions["aten::mm"] != "communication"
