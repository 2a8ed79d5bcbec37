"""The cost models on every sample of torch's own database of ops, forward and backward.

The samples are what torch tests its ops with: 700 of them, scalars, empty and broadcast shapes
included. Nothing here knows a formula: the laws are that every call has a cost, that a model works out
without the results what is there with them, and that bytes are those of the tensors.
"""

from __future__ import annotations

import re
import sys
import types
import unittest
import warnings
from functools import cache

import pytest

torch = pytest.importorskip("torch")

if "expecttest" not in sys.modules:
    # torch's test helpers derive a class from its TestCase; nothing here runs that class
    stub = types.ModuleType("expecttest")
    stub.TestCase = unittest.TestCase
    stub.assert_expected_inline = None
    sys.modules["expecttest"] = stub
from torch.testing._internal import common_methods_invocations as database  # noqa: E402

from opscope.core import perf  # noqa: E402
from opscope.core.perf.registry import in_place  # noqa: E402
from opscope.core.perf.shapes import touched  # noqa: E402
from opscope.core.schema import OpCall, TensorSpec  # noqa: E402

from .dispatched import Recorder  # noqa: E402

SAMPLES = 6
#: Ops of the database that need a GPU, or a dtype that opscope has no name for.
NOT_RUN = (
    "jiterator_unary",
    "jiterator_binary",
    "jiterator_4inputs_with_extra_args",
    "jiterator_binary_return_by_ref",
    "jiterator_2inputs_2outputs",
    "chalf",
    "hash_tensor",
)
#: What no size tells: the elements that a sparse tensor stores.
STORED = {
    "aten::_sparse_mm_reduce_impl",
    "aten::_sparse_mm_reduce_impl_backward",
    "aten::sparse_sampled_addmm",
}


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_of(one)


@cache
def calls():
    """Every distinct call of the samples as the dispatcher has it, with the database's op."""
    found = {}
    failed = []
    for op in database.op_db:
        if not op.dtypes or op.name in NOT_RUN:
            continue
        dtype = torch.float32 if torch.float32 in op.dtypes else sorted(op.dtypes, key=str)[0]
        grad = op.supports_autograd and dtype.is_floating_point
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # the function itself: the method around it looks at the stack and seeds, each time
            samples = op.sample_inputs_func(op, "cpu", dtype, requires_grad=grad)
            for number, sample in enumerate(samples):
                if number == SAMPLES:
                    break
                recorder = Recorder()
                try:
                    with recorder:
                        out = op(sample.input, *sample.args, **sample.kwargs)
                        out = [t for t in tensors_of(out) if t.requires_grad]
                        if out:
                            torch.autograd.backward(out, [torch.ones_like(t) for t in out])
                except (RuntimeError, NotImplementedError) as why:
                    failed.append((op.name, str(why)))
                for call in recorder.calls:
                    found.setdefault(call, op.name)
    return found, failed


def sized(call):
    """Whether every tensor has elements: of an empty one nothing is to be computed."""
    leaves = (*call.input_leaves(), *(call.output_leaves() or ()))
    return all(0 not in leaf.shape for leaf in leaves if leaf is not None)


def test_the_samples_run():
    found, failed = calls()
    assert len(found) > 2500
    assert len({call.name for call in found}) > 500
    assert {name for name, _ in failed} <= {"to_sparse"}, failed


def test_every_call_has_a_cost():
    missing = {}
    for call, op in calls()[0].items():
        cost, why = perf.cost(call)
        if cost is None:
            missing[call.name] = (op, why)
    assert set(missing) <= STORED, missing


def emptied(arg, size):
    """The same with nothing where there was ``size``."""
    if isinstance(arg, tuple):
        return tuple(emptied(one, size) for one in arg)
    if not isinstance(arg, TensorSpec):
        return arg
    return TensorSpec(arg.dtype, tuple(0 if dim == size else dim for dim in arg.shape))


def test_nothing_is_never_less_than_nothing():
    """Calls with a size of 0 put in the place of another: whatever comes out, no negative FLOPs."""
    wrong = {}
    for call in calls()[0]:
        dims = {dim for leaf in call.input_leaves() if leaf for dim in leaf.shape if dim > 1}
        for size in dims:
            for outputs in (None, call.outputs and emptied(call.outputs, size)):
                _, why = perf.cost(
                    OpCall(call.name, emptied(call.inputs, size), outputs, call.params)
                )
                if why is not None and ("do not fit each other" in why or "by zero" in why):
                    wrong[call.name] = why
    assert wrong == {}


#: Where a result's size does not follow from the inputs, and why.
NOT_INFERRED = {
    "aten::_ctc_loss": "the targets' lengths may be a tensor",
    "aten::_embedding_bag": "what is kept besides differs from kernel to kernel",
}


def test_results_that_are_inferred_are_those_that_torch_gives():
    wrong = {}
    checked = set()
    for call in calls()[0]:
        if not call.params or not sized(call) or call.name in NOT_INFERRED:
            continue  # without any parameters an absent dim may be one that was not recorded
        full, _ = perf.cost(call)
        bare, why = perf.cost(OpCall(call.name, call.inputs, None, call.params))
        if full is None:
            continue
        if bare is None:
            wrong[call.name] = why
        elif bare.flops != full.flops:
            wrong[call.name] = f"{bare.flops} FLOPs, {full.flops} with outputs: {call}"
        elif bare.bytes is not None and bare.bytes != full.bytes:
            wrong[call.name] = f"{bare.bytes} bytes, {full.bytes} with outputs: {call}"
        checked.add(call.name)
    assert not wrong
    assert len(checked) > 250


def bytes_of(leaves):
    return sum(leaf.itemsize * touched(leaf) for leaf in leaves if leaf is not None)


#: What is handed to the host is no tensor, and running statistics are written besides the results.
OTHER_RESULTS = (
    *("aten::_local_scalar_dense", "aten::allclose", "aten::equal"),
    "aten::_linalg_check_errors",
)
RUNNING = (
    "aten::native_batch_norm",
    "aten::_native_batch_norm_legit",
    "aten::_batch_norm_with_update",
)
#: Families that look at every element of every operand, so that their bytes are all of them.
WHOLE = {
    "elementwise",
    "activation",
    "softmax",
    "norm",
    "scan",
    "fft",
    "dropout",
    "quantize",
    "sort",
}


def test_bytes_are_those_of_the_tensors():
    """Nothing is read that is not an input, or written that is not a result; and where a family
    looks at all there is, nothing is left out."""
    wrong, whole = {}, set()
    for call in calls()[0]:
        cost, _ = perf.cost(call)
        if cost is None or cost.bytes is None or perf.is_view(call.name) or not sized(call):
            continue
        read, written = bytes_of(call.input_leaves()), bytes_of(call.output_leaves() or ())
        if call.name in OTHER_RESULTS:
            written += cost.bytes_written
        if call.name in RUNNING and call.param("training") in (True, None):
            written += bytes_of(call.input_leaves()[3:5])
        if call.name == "aten::rrelu_with_noise":  # the noise is a result that is handed in
            noise = bytes_of(call.input_leaves()[1:2])
            read -= noise
            written += noise if call.param("training") else 0
        everything = perf.op_type(call.name) in WHOLE and not in_place(call.name)
        if in_place(call.name):
            read, written = read + written, read + written
        ours = cost.bytes_read, cost.bytes_written
        if everything:
            whole.add(call.name)
        if ours != (read, written) if everything else ours[0] > read or ours[1] > written:
            wrong[call.name] = f"{ours}, not {(read, written)}: {call}"
    assert not wrong
    assert len(whole) > 100


def test_views_are_what_the_schemas_say():
    """An op whose result shares memory with its input is a view, and free; no other is."""
    shares, copies = set(), set()
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith(("aten::", "prims::")) or perf.entry_of(schema.name) is None:
            continue
        aliases = [result.alias_info for result in schema.returns]
        written = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
        if not aliases or written:
            continue
        shared = all(alias is not None and not alias.is_write for alias in aliases)
        (shares if shared else copies).add(schema.name)
    assert len(shares) > 80
    assert {name for name in shares if not perf.is_view(name)} == MAY_COPY
    strange = {name for name in copies - shares if perf.is_view(name)}
    unsaid = SHARES_UNSAID | {name for name in NAMED if name in copies}
    assert {name for name in strange if perf.op_type(name) == "view"} == unsaid
    assert {perf.op_type(name) for name in strange - unsaid} <= {"query", "allocation"}


#: Dispatched ops without a model: transforms' and compilers' own marks, other backends', forward-mode
#: derivatives, learnable quantisation's gradients; the rest decomposes before any kernel is launched.
UNMODELLED = re.compile(
    r"""_test_|_foobar|_nested_|_sobol_|_validate_|_lstm_mps|lstm_mps|mps_|_triton_|mkldnn_|_mkldnn_
    |_(add|remove)_batch_dim|_backward$|_print|_propagate|_rowwise_prune|_philox_key|glu_(backward_)?jvp
    |_choose_qparams|choose_qparams|_compute_linear|_convolution_double|_cslt_sparse_mm_search
    |_fake_quantize_learnable|fbgemm_linear_quantize|from_file|get_gradients
    |infinitely_differentiable|linalg_tensor(inv|solve)|matrix_exp_backward|quantized_batch_norm
    |rrelu_with_noise_functional|sum_to_size""",
    re.VERBOSE,
)


#: What Inductor registers when it is imported, for its graphs: no kernel is called by such a name.
OF_INDUCTOR = re.compile(
    r"prims::(inductor_|_low_memory_max_pool|(_unsafe_index_put_|fma|prepare_softmax_online)$)"
)


def test_every_dispatched_op_has_a_model_or_is_named_here():
    import torch._inductor.inductor_prims  # another test may have

    names = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    ours = {name for name in names if name.startswith(("aten::", "prims::"))}
    ours = {name for name in ours if not OF_INDUCTOR.match(name)}
    missing = {name for name in ours if perf.entry_of(name) is None}
    assert not {name for name in missing if not UNMODELLED.match(name.partition("::")[2])}
    assert len(missing) < 0.05 * len(ours)


#: The schema says that they may share; where they copy they launch a kernel, and have bytes.
MAY_COPY = {
    "aten::_autocast_to_full_precision",
    "aten::_autocast_to_reduced_precision",
    "aten::_sparse_broadcast_to",
    "aten::as_tensor",
    "aten::coalesce",
    "aten::contiguous",
    "aten::cpu",
    "aten::cuda",
    "aten::pin_memory",
    "aten::to",
}
#: Of named tensors, which later versions do not have: the schema does not say that they share.
NAMED = ("aten::align_as", "aten::align_tensors")
#: They share memory, or their parts do, and the schema does not say so; a sparse tensor is made of
#: the indices and values that are handed in.
SHARES_UNSAID = {
    *(f"aten::atleast_{n}d" for n in (1, 2, 3)),
    *(f"aten::unsafe_{kind}" for kind in ("chunk", "split", "split_with_sizes")),
    *(f"aten::sparse_{kind}_tensor" for kind in ("coo", "csr", "csc", "bsr", "bsc", "compressed")),
    *(
        f"aten::_sparse_{kind}_tensor_unsafe"
        for kind in ("coo", "csr", "csc", "bsr", "bsc", "compressed")
    ),
    "aten::_sparse_compressed_tensor_with_dims",
    "aten::_sparse_coo_tensor_with_dims",
    "aten::_sparse_coo_tensor_with_dims_and_tensors",
    "aten::sparse_resize",
    "aten::sparse_resize_and_clear",
    "aten::resize_as_sparse",
    "aten::_coalesced",
    "aten::_add_batch_dim",  # vmap: a wrapper around the tensor, and its contents
    "aten::_remove_batch_dim",
    "aten::_nested_get_jagged_dummy",
    "aten::_nested_get_lengths",
    "aten::_nested_get_offsets",
    "aten::_reshape_from_tensor",
    "aten::_unsafe_view",
    "aten::broadcast_tensors",
    "aten::data",
    "aten::lift",
    "aten::set",
    "aten::unflatten_dense_tensors",
    *(f"prims::{kind}" for kind in ("empty", "empty_permuted", "empty_strided", "_make_token")),
    "prims::maximum_value",
    "prims::minimum_value",
}
