"""What single ops and graphs become: shapes, attributes, retracing, loops, gradients, sessions."""

from __future__ import annotations

import ctypes
import io
import threading

import numpy as np
import polars as pl
import pytest

tf = pytest.importorskip("tensorflow")
from opscope.adapters.shared.compiled import BuildError  # noqa: E402
from opscope.adapters.shared.reads import REFUSED  # noqa: E402
from opscope.core.schema import READ_DOMAIN, UNHEARD_READS  # noqa: E402


def rows(profile, op):
    ops = profile.ops().sort("start")
    return ops.filter(pl.col("op").cast(pl.String).str.contains(op)).to_dicts()


def test_an_eager_op_tells_its_arguments_results_attributes_and_line(recorded):
    a, b = tf.ones((4, 3)), tf.ones((4, 5))

    def program():
        for _ in range(3):
            tf.matmul(a, b, transpose_a=True)

    found = rows(recorded(program), r"^MatMul$")
    assert len(found) == 3
    for row in found:
        assert (row["inputs"], row["outputs"]) == ("f32[4,3], f32[4,5]", "f32[3,5]")
        assert "transpose_a=true" in row["params"]
        assert row["matrix_flops"] == 2 * 3 * 4 * 5
        assert "test_tf_ops.py" in row["source"]


def test_results_that_depend_on_values_are_each_ones_own(recorded):
    def program():
        for many in (2, 5):
            tf.where(tf.sequence_mask(many, 8))

    assert [row["outputs"] for row in rows(recorded(program), "^Where$")] == [
        "i64[2,1]",
        "i64[5,1]",
    ]


def test_an_op_whose_results_turn_out_to_differ(recorded):
    """Not one of those that are known to: its second call already tells its own result."""

    def program():
        for many in (3, 5, 3):
            tf.raw_ops.Bincount(arr=[1], size=many, weights=[1.0])
            tf.raw_ops.SegmentSum(data=tf.ones(3), segment_ids=[0, 1, many])

    found = rows(recorded(program), "^SegmentSum$")
    assert [row["outputs"] for row in found] == ["f32[4]", "f32[6]", "f32[4]"]


def test_eager_gradients_belong_to_their_forward_op(recorded):
    first, second = tf.Variable(tf.ones((3, 3))), tf.Variable(tf.ones((3, 3)))
    x = tf.ones((2, 3))

    def program():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(tf.matmul(x, first), second))
        tape.gradient(loss, [first, second])

    found = rows(recorded(program), "MatMul")
    forward = [row for row in found if row["direction"] == "forward"]
    backward = [row for row in found if row["direction"] == "backward"]
    assert len(forward) == 2
    # the second's two gradients, then the first's one: the input needs none
    linked = [row["forward_op_id"] for row in backward]
    assert linked == [forward[1]["op_id"]] * 2 + [forward[0]["op_id"]]
    assert all("test_tf_ops.py" in row["source"] for row in backward)


def test_a_tape_around_a_function_goes_back_over_its_runs(recorded):
    w = tf.Variable(tf.ones((3, 3)))

    @tf.function
    def net(x):
        with tf.name_scope("net"):
            return tf.nn.relu(tf.matmul(x, w))

    def program():
        for _ in range(2):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(net(net(tf.ones((2, 3)))))
            tape.gradient(loss, w)

    found = rows(recorded(program), "MatMul")
    forward = [row["op_id"] for row in found if row["direction"] == "forward"]
    backward = [row for row in found if row["direction"] == "backward"]
    assert len(forward) == 4
    linked = list(dict.fromkeys(row["forward_op_id"] for row in backward))
    assert linked == [forward[1], forward[0], forward[3], forward[2]]
    assert {row["layer"] for row in backward} == {"net"}
    assert all(row["matrix_flops"] == 2 * 2 * 3 * 3 for row in backward)


def test_a_tape_around_a_function_within_another(recorded):
    w = tf.Variable(tf.ones((3, 3)))

    @tf.function
    def net(x):
        with tf.name_scope("net"):
            return tf.nn.relu(tf.matmul(x, w))

    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(net(x))
        return tape.gradient(loss, w)

    found = rows(recorded(lambda: train(tf.ones((2, 3)))), "MatMul")
    forward, backward = found
    assert backward["direction"] == "backward"
    assert backward["forward_op_id"] == forward["op_id"]
    assert forward["layer"] == backward["layer"] == "net"


def test_a_failing_op_leaves_nothing_open(recorded):
    def program():
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.matmul(tf.ones((2, 3)), tf.ones((2, 3)))
        tf.nn.relu(tf.ones(3))

    profile = recorded(program)
    relu = rows(profile, "^Relu$")[0]
    assert relu["parent_id"] is None
    assert "warning" not in profile.notes()["severity"].to_list()


def test_retraced_functions_keep_their_shapes_apart(recorded):
    @tf.function
    def step(x):
        return tf.matmul(x, x)

    def program():
        for size in (4, 7, 4):
            step(tf.ones((size, size)))

    profile = recorded(program)
    found = rows(profile, "MatMul")
    assert [row["inputs"].split(", ")[0] for row in found] == ["f32[4,4]", "f32[7,7]", "f32[4,4]"]
    ranges = profile.trace["ranges"].filter(pl.col("category").cast(pl.String) == "phase")
    assert ranges["text"].cast(pl.String).to_list() == ["compile"] * 2  # once for each size


def test_a_function_traced_before_is_known_too(recorded):
    @tf.function
    def step(x):
        return tf.nn.relu(tf.matmul(x, x) + 1.0)

    step(tf.ones((6, 6)))
    found = rows(recorded(lambda: step(tf.ones((6, 6)))), "MatMul")
    assert [row["matrix_flops"] for row in found] == [2 * 6 * 6 * 6]


def test_sizes_that_the_graph_does_not_know_are_those_of_the_run(recorded):
    step = tf.function(
        lambda x, w: tf.nn.relu(tf.matmul(x, w)),
        input_signature=[tf.TensorSpec((None, 3)), tf.TensorSpec((3, 4))],
    )

    def program():
        for size in (2, 9):
            step(tf.ones((size, 3)), tf.ones((3, 4)))

    found = rows(recorded(program), "MatMul")
    assert [row["inputs"] for row in found] == ["f32[2,3], f32[3,4]", "f32[9,3], f32[3,4]"]
    assert [row["matrix_flops"] for row in found] == [2 * 2 * 3 * 4, 2 * 9 * 3 * 4]


def test_sizes_that_depend_on_values_are_those_of_each_run(recorded):
    @tf.function
    def kept(x, limit):
        return tf.nn.relu(tf.boolean_mask(x, x[:, 0] > limit))

    x = tf.constant([[float(row)] * 3 for row in range(8)])

    def program():
        for limit in (5.0, 1.0, 5.0, 100.0):
            kept(x, tf.constant(limit))

    found = rows(recorded(program), "Relu")
    assert [row["inputs"] for row in found] == ["f32[2,3]", "f32[6,3]", "f32[2,3]", "f32[0,3]"]


def test_sizes_of_variables_by_reference_and_of_branches_not_taken(recorded):
    """Inputs that cannot be read must not be: references of TensorFlow 1, and what is dead."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, (None, 3), name="x")
        w = tf.compat.v1.Variable(tf.ones((3, 3)), use_resource=False)
        y = tf.cond(tf.reduce_sum(x) > 0, lambda: tf.matmul(x, w), lambda: x)
        more = tf.compat.v1.assign_add(w, tf.ones((3, 3)))
    session = tf.compat.v1.Session(graph=graph)

    def program():
        session.run(w.initializer)
        for many in (2, 4):
            session.run([y, more], {x: [[1.0] * 3] * many})
            session.run(y, {x: [[-1.0] * 3] * many})

    found = rows(recorded(program), "MatMul")
    assert [row["inputs"] for row in found] == ["f32[2,3], f32[3,3]", "f32[4,3], f32[3,3]"]


def test_loops_in_graphs(recorded):
    w = tf.Variable(tf.ones((3, 3)))

    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            for _ in tf.range(4):
                x = tf.matmul(x, w)
            loss = tf.reduce_sum(x)
        return tape.gradient(loss, w)

    profile = recorded(lambda: train(tf.ones((2, 3))))
    found = rows(profile, "MatMul")
    assert [row["direction"] for row in found].count("forward") == 4
    assert [row["direction"] for row in found].count("backward") == 8
    assert all(row["inputs"] and row["matrix_flops"] == 2 * 2 * 3 * 3 for row in found)


def test_threads_run_graphs_of_their_own(recorded):
    """Both have a node of one name; whose it is, its thread tells, and where that cannot, nothing."""
    steps = {size: tf.function(lambda x: tf.matmul(x, x)) for size in (3, 5)}
    inputs = {size: tf.ones((size, size)) for size in steps}
    start = threading.Barrier(2)

    def work(size):
        start.wait()
        for _ in range(20):
            steps[size](inputs[size])

    def program():
        threads = [threading.Thread(target=work, args=(size,)) for size in steps]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    for size in steps:
        steps[size](inputs[size])
    profile = recorded(program)
    found = rows(profile, "MatMul")
    assert len(found) == 40
    sizes = [row["inputs"] and row["inputs"].split(", ")[0] for row in found]
    assert sizes.count("f32[3,3]") <= 20
    assert sizes.count("f32[5,5]") <= 20
    # those that ran elsewhere while both graphs did are not told wrong, but not told, which is noted
    doubtful = profile.notes().filter(pl.col("what").str.contains("their graph is not known"))
    assert (sizes.count(None) > 0) <= (len(doubtful) == 1)


def test_ops_of_a_graph_tell_their_device(recorded):
    @tf.function
    def step(x):
        with tf.device("CPU:0"):
            return tf.matmul(x, x)

    (found,) = rows(recorded(lambda: step(tf.ones((2, 2)))), "MatMul")
    assert found["device"] == "cpu"


def test_sessions_of_tensorflow_1(recorded):
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, (5, 3), name="x")
        y = tf.matmul(x, tf.ones((3, 2)), name="product")
    session = tf.compat.v1.Session(graph=graph)

    def program():
        session.run(y, {x: [[1.0] * 3] * 5})

    found = rows(recorded(program), "MatMul")
    assert [row["matrix_flops"] for row in found] == [2 * 5 * 3 * 2]


def test_mixed_precision_in_a_graph(recorded):
    a = tf.cast(tf.ones((8, 8)), tf.bfloat16)
    found = rows(recorded(lambda: tf.function(lambda x: tf.matmul(x, x))(a)), "MatMul")
    assert [row["dtypes"] for row in found] == ["bf16"]
    assert [row["matrix_flops"] for row in found] == [2 * 8 * 8 * 8]


def test_parameters_stand_in_the_order_of_the_ops_definition(recorded):
    """Eagerly as in a graph, and in every process: a node holds its attributes in no order."""

    def net(x):
        h = tf.nn.max_pool2d(tf.nn.conv2d(x, tf.ones((3, 3, 3, 4)), 1, "VALID"), 2, 2, "SAME")
        return tf.matmul(tf.reshape(h, (2, -1)), tf.ones((36, 3)))

    def program():
        x = tf.random.uniform((2, 8, 8, 3))
        net(x)
        tf.function(net)(x)

    ops = recorded(program).ops().filter(pl.col("op").str.contains("Conv2D|MaxPool|MatMul"))
    by = ops.group_by(pl.col("op").str.extract("(Conv2D|MaxPool|MatMul)")).agg(
        "params", pl.len().alias("n")
    )
    assert (by["n"] == 2).all()
    for params in by["params"]:
        assert params[0] == params[1]
    # some processors run the graph's convolution under a name of oneDNN's, others under its own
    convolutions = ops.filter(op="Conv2D")["params"]
    assert len(convolutions)
    assert convolutions.str.starts_with("strides=[1, 1, 1, 1], padding=").all()


def test_each_read_of_values_is_a_range_with_its_line_once(recorded):
    x = tf.constant([1.0, 2.0])

    def program():
        return float(x[0]), x.numpy(), bool(x[0] > 0)

    ranges = recorded(program).trace["ranges"].cast({"text": str, "domain": str})
    reads = ranges.filter(pl.col("domain") == READ_DOMAIN)["text"].to_list()
    assert [text.split("(")[0] for text in reads] == ["tf.Tensor.numpy"] * 3
    assert all("test_tf_ops.py:" in text for text in reads)


def buffer_of_tensors():
    """The function by which NumPy gets a tensor's memory."""
    slot = ctypes.pythonapi.PyType_GetSlot
    slot.restype, slot.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_int]
    return slot(type(tf.constant(1.0)), 1)


def test_numpys_reads_of_a_tensors_memory_are_reads_and_change_nothing(recorded):
    x, before = tf.constant([1.0, 2.0]), buffer_of_tensors()

    def program():
        assert buffer_of_tensors() != before
        assert np.array(x).tolist() == np.asarray(x).tolist() == memoryview(x).tolist() == [1, 2]
        assert np.add(x, 1).tolist() == [2, 3]
        with pytest.raises(TypeError, match="read-write"):
            io.BytesIO(bytes(8)).readinto(x)  # memory to write to is refused

    profile = recorded(program)
    assert buffer_of_tensors() == before
    ranges = profile.trace["ranges"].cast({"text": str, "domain": str})
    reads = ranges.filter(pl.col("domain") == READ_DOMAIN)["text"].to_list()
    assert [text.split("(")[0] for text in reads] == [*["np.array"] * 4, REFUSED]
    (count,) = profile.counts().filter(count="reads").to_dicts()
    assert (count["value"], count["reason"]) == (4, None)


def test_reads_are_not_known_where_those_of_memory_are_not_heard(recorded, monkeypatch):
    def nowhere():
        raise BuildError("no C compiler found")

    monkeypatch.setattr("opscope.adapters.shared.reads._library", nowhere)
    x = tf.constant([1.0, 2.0])
    (count,) = recorded(lambda: np.array(x + 1)).counts().filter(count="reads").to_dicts()
    assert (count["value"], count["reason"]) == (None, UNHEARD_READS)
