"""What MindSpore's dataset wrote of itself here, without its profiler: on a CPU that starts no such recording."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ms = pytest.importorskip("mindspore")
engine = pytest.importorskip("mindspore._c_dataengine")

import numpy as np  # noqa: E402
from mindspore import dataset  # noqa: E402

import opscope  # noqa: E402


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    manager = engine.GlobalContext.profiling_manager()
    manager.init()
    manager.start()
    batches = dataset.NumpySlicesDataset(np.ones((24, 4), np.float32), ["x"], shuffle=False)
    for _ in batches.map(lambda x: x * 2, input_columns=["x"]).batch(4).create_tuple_iterator():
        pass
    manager.stop()
    manager.save(str(folder))
    return folder


def test_the_batches_that_its_iterator_gave_are_those_of_the_file(written):
    (path,) = written.glob("dataset_iterator_profiling_*.txt")
    lines = [line.split() for line in path.read_text().splitlines()]
    (queue,) = opscope.load(written).data_preparation().to_dicts()
    ready = [int(line[3]) for line in lines if line[0] == "1"]
    assert queue["loader"] == "dataset iterator"
    assert queue["calls"] == len(ready) == 6
    assert queue["empty"] == ready.count(0)
    assert queue["total"] == sum(int(line[3]) for line in lines if line[:2] == ["0", "0"]) * 10**6


def test_the_ops_of_its_pipeline_are_those_of_the_file(written):
    (path,) = written.glob("pipeline_profiling_*.json")
    ops = {op["op_id"]: op for op in json.loads(path.read_bytes())["op_info"]}
    stages = opscope.load(written).input_pipeline()
    mine = {row["op_number"]: row for row in stages.to_dicts() if row["op_number"] is not None}
    assert {number: row["stage"] for number, row in mine.items()} == {
        number: op["op_type"] for number, op in ops.items()
    }
    assert {"BatchOp", "MapOp"} <= {row["stage"] for row in mine.values()}
    for number, op in ops.items():
        assert mine[number]["workers"] == op["num_workers"]
        queue = (op["metrics"] or {}).get("output_queue")
        assert mine[number]["capacity"] == (queue["length"] if queue else None)
        assert mine[number]["samples"] == (len(queue["size"]) if queue else 0)
        for child in op.get("children", ()):
            assert mine[child]["parent"] == number
